//! Predictions as tables and plots.

use super::measure::Measured;
use super::model::{Costs, SharedLine, lasting, predict};
use super::mva::Point;
use crate::before::Pair;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// Numbers of cores in the report.
pub const CORES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// A workload now and before, measured and predicted.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// The measurements.
    pub now: Measured,
    /// The measurements of the variant before.
    pub before: Measured,
    /// The algorithm before, in a few words.
    pub before_is: &'static str,
    /// Lines that are shared now: from the conflict test, or from the definition of the algorithm.
    pub lines: Vec<SharedLine>,
    /// Points for [`CORES`].
    pub predicted: Vec<Point>,
    /// Points for [`CORES`] of the variant before.
    pub predicted_before: Vec<Point>,
}

fn points(measured: &Measured, lines: &[SharedLine], costs: Costs) -> Vec<Point> {
    CORES.map(|n| predict(measured, lines, costs, n)).to_vec()
}

impl Prediction {
    /// Solves both networks of a workload, whose variant before runs under one lock.
    pub fn new(now: Measured, before: Measured, lines: Vec<SharedLine>, costs: Costs) -> Self {
        Self {
            predicted: points(&now, &lines, costs),
            predicted_before: points(&before, &lines, costs),
            now,
            before,
            before_is: "one lock per volume",
            lines,
        }
    }

    /// Returns the variants now and before, with their points.
    fn variants(&self) -> [(&'static str, &Measured, &[Point]); 2] {
        [
            ("now", &self.now, &self.predicted),
            ("before", &self.before, &self.predicted_before),
        ]
    }

    /// Solves both networks of a pair of algorithms.
    pub fn of_pair(pair: &Pair, [now, before]: [Measured; 2], costs: Costs) -> Self {
        let lines = pair.algorithms().map(|algorithm| -> Vec<SharedLine> {
            let line = algorithm.shares.line.iter();
            line.map(|&(place, share)| SharedLine {
                place: place.into(),
                share,
            })
            .collect()
        });
        let [lines, lines_before] = lines;
        Self {
            predicted: points(&now, &lines, costs),
            predicted_before: points(&before, &lines_before, costs),
            now,
            before,
            before_is: pair.before_is,
            lines,
        }
    }
}

fn rate(per_second: f64) -> String {
    match per_second {
        x if x >= 1e7 => format!("{:.0} M", x / 1e6),
        x if x >= 1e6 => format!("{:.2} M", x / 1e6),
        x => format!("{:.0} k", x / 1e3),
    }
}

/// Returns the report as Markdown.
pub fn markdown(all: &[Prediction], costs: Costs, machine: &str) -> String {
    let mut text = format!(
        "# Prediction\n\nWritten by `extant-bench predict --report`; method and assumptions are in\n\
         [scaling.md](../scaling.md). {machine}\n\nA line written by another core costs {} ns; files are spread over {} block groups.\n\
         *Before*: every operation under one lock of the volume, or the algorithm that `extant-bench before` has.\n\n",
        costs.line_ns, costs.groups
    );
    rates_that_last(&mut text, all);
    rates(&mut text, all);
    errors(&mut text, all);
    bounds(&mut text, all);
    all.iter().for_each(|p| workload(&mut text, p));
    text
}

/// Writes the operations per second, with pushes.
fn rates_that_last(text: &mut String, all: &[Prediction]) {
    let some: Vec<_> = CORES.iter().map(u32::to_string).collect();
    let _ = writeln!(
        text,
        "## Rates that last\n\nOperations a second until they are durable, in memory. *Serial*: the nanoseconds of an operation's push that only one \
         thread can do, by Amdahl's law from the push on one processor and on two.\n\n\
         | | | push, ns: one processor | two | serial | measured 2 | predicted {} |\n|---|---|---|---|---|---{}|",
        some.join(" | "),
        "|---".repeat(CORES.len())
    );
    for p in all {
        for (what, m, points) in p.variants() {
            let Some(pushes) = &m.lasting else { continue };
            let cells: Vec<_> = points.iter().map(|x| rate(lasting(pushes, x))).collect();
            let _ = writeln!(
                text,
                "| {} | {what} | {:.0} | {:.0} | {:.0} | {} | {} |",
                m.name,
                pushes.sync_one_ns,
                pushes.sync_two_ns,
                pushes.serial_ns(),
                rate(pushes.two),
                cells.join(" | ")
            );
        }
    }
}

/// Writes the differences between the measurements and the predictions from one task.
fn errors(text: &mut String, all: &[Prediction]) {
    let _ = writeln!(
        text,
        "\n## The error of the prediction\n\nMeasured, less what one task on one core predicts, as a share of the latter. Two tasks on one core are to make \
         what one makes.\n\n| | | two tasks on one core | two cores | two cores with their pushes |\n|---|---|---|---|---|"
    );
    for p in all {
        for (what, m, points) in p.variants() {
            let Some(two) = points.get(1) else { continue };
            let error = |measured: f64, predicted: f64| {
                format!("{:+.0} %", 100.0 * (measured / predicted - 1.0))
            };
            let pushed = m.lasting.as_ref();
            let _ = writeln!(
                text,
                "| {} | {what} | {} | {} | {} |",
                m.name,
                pushed.map_or("-".into(), |l| error(l.two_tasks_on_one, m.one)),
                error(m.two, two.per_second),
                pushed.map_or("-".into(), |l| error(l.two, lasting(l, two))),
            );
        }
    }
}

/// Writes the operations per second over cores, measured and predicted, now and before.
fn rates(text: &mut String, all: &[Prediction]) {
    let _ = writeln!(
        text,
        "\n## Rates between two pushes\n\n| | | CPU ns | measured 1 | 2 | predicted 2 | {} |",
        {
            let some: Vec<_> = CORES[2..].iter().map(u32::to_string).collect();
            some.join(" | ")
        }
    );
    let _ = writeln!(
        text,
        "|---|---|---|---|---|---{}|",
        "|---".repeat(CORES.len() - 2)
    );
    for p in all {
        for (what, m, points) in p.variants() {
            let cells: Vec<_> = points[1..].iter().map(|x| rate(x.per_second)).collect();
            let _ = writeln!(
                text,
                "| {} | {what} | {:.0} | {} | {} | {} |",
                m.name,
                m.cpu_ns,
                rate(m.one),
                rate(m.two),
                cells.join(" | ")
            );
        }
    }
}

/// Writes the bottleneck at the largest number of cores.
fn bounds(text: &mut String, all: &[Prediction]) {
    let _ = writeln!(
        text,
        "\n## Bounds\n\n| | what bounds 256 cores between two pushes | in use |\n|---|---|---|"
    );
    for p in all {
        let Some(last) = p.predicted.last() else {
            continue;
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} % |",
            p.now.name,
            last.bottleneck.as_deref().unwrap_or("nothing shared"),
            100.0 * last.busiest
        );
    }
}

/// Writes the locks and shared lines of a workload.
fn workload(text: &mut String, p: &Prediction) {
    let name = &p.now.name;
    let _ = writeln!(
        text,
        "\n## {name}\n\nBefore: {}.\n\n![{name}](prediction-{name}.svg)\n\n| | lock | acquisitions an operation | hold ns |\n|---|---|---|---|",
        p.before_is
    );
    let before = p.before.locks.iter().filter(|l| l.shares.is_some());
    let now = p.now.locks.iter().map(|l| ("now", l));
    for (when, lock) in now.chain(before.map(|l| ("before", l))) {
        let _ = writeln!(
            text,
            "| {when} | {} | {:.4} | {:.0} |",
            lock.class, lock.per_op, lock.hold_ns
        );
    }
    for line in &p.lines {
        let _ = writeln!(
            text,
            "\nShared line: {} in {:.0} % of operations.",
            line.place,
            100.0 * line.share
        );
    }
}

/// Plots a workload: lines are predictions, points are measurements; both axes are logarithmic.
pub fn plot(p: &Prediction, path: &Path) -> Result<()> {
    let failed = |e: &dyn std::fmt::Display| anyhow!("{}: {e}", path.display());
    let curve = |points: &[Point]| -> Vec<(f64, f64)> {
        points
            .iter()
            .map(|x| (f64::from(x.cores), x.per_second))
            .collect()
    };
    let (now, before) = (curve(&p.predicted), curve(&p.predicted_before));
    let measured = |m: &Measured| [(1.0, m.one), (2.0, m.two)];
    let (points, old) = (measured(&p.now), measured(&p.before));
    let all = || {
        now.iter()
            .chain(&before)
            .chain(&points)
            .chain(&old)
            .map(|x| x.1)
            // An infinite scale would have infinitely many marks.
            .filter(|rate| rate.is_finite())
    };
    if !all().all(f64::is_finite) {
        return Err(failed(&"a rate is not a number"));
    }
    let low = all().fold(f64::INFINITY, f64::min).max(1.0) / 2.0;
    let high = all().fold(1.0, f64::max) * 2.0;
    let area = SVGBackend::new(path, (720, 440)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| failed(&e))?;
    let title = format!("{}: operations a second", p.now.name);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (0.9f64..300.0).log_scale(),
            (low..high.max(low * 10.0)).log_scale(),
        )
        .map_err(|e| failed(&e))?;
    chart
        .configure_mesh()
        .x_desc("cores")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| rate(*y))
        .draw()
        .map_err(|e| failed(&e))?;
    for (name, line, dots, colour) in [
        ("now", now, points, BLUE),
        (&*format!("before: {}", p.before_is), before, old, RED),
    ] {
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))
            .map_err(|e| failed(&e))?
            .label(format!("{name}, predicted"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        chart
            .draw_series(dots.iter().map(|&at| Circle::new(at, 4, colour.filled())))
            .map_err(|e| failed(&e))?
            .label(format!("{name}, measured"))
            .legend(move |(x, y)| Circle::new((x + 9, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()
        .map_err(|e| failed(&e))?;
    area.present().map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Lasting, LockUse};
    use super::*;

    #[test]
    fn tables_and_plots_show_both() {
        let measured = |before: bool| Measured {
            name: "stat".into(),
            before,
            cpu_ns: 100.0,
            one: 1e7,
            two: if before { 9e6 } else { 1.9e7 },
            lasting: Some(Lasting {
                sync_one_ns: 100.0,
                sync_two_ns: 50.0,
                two: 1.1e7,
                two_tasks_on_one: 9e6,
            }),
            locks: vec![LockUse {
                class: if before {
                    "one lock per volume"
                } else {
                    "directory bucket"
                }
                .into(),
                per_op: 1.0,
                hold_ns: 80.0,
                shares: None,
            }],
        };
        let costs = Costs {
            line_ns: 100.0,
            groups: 32.0,
        };
        let p = Prediction::new(measured(false), measured(true), vec![], costs);
        let text = markdown(std::slice::from_ref(&p), costs, "Machine.");
        assert!(
            text.contains("| stat | now | 100 | 10 M | 19 M | 20 M |"),
            "{text}"
        );
        assert!(
            text.contains("| stat | now | 100 | 50 | 0 | 11 M | 5.00 M | 10 M |"),
            "{text}"
        );
        assert!(
            text.contains("| stat | now | -10 % | -5 % | +10 % |"),
            "{text}"
        );
        assert!(text.contains("nothing shared"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.svg");
        plot(&p, &path).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        assert!(svg.contains("one lock per volume, predicted") && svg.contains("<circle"));
    }
}
