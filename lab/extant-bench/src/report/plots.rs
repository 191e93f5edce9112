//! Plots, as SVG.

use super::figures::Repeated;
use anyhow::{Result, anyhow};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

const SIZE: (u32, u32) = (760, 420);
const COLOURS: [RGBColor; 4] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
];

fn colour(i: usize) -> RGBColor {
    COLOURS[i % COLOURS.len()]
}

/// A line of points for each target.
type Lines = BTreeMap<usize, (String, Vec<(f64, f64)>)>;

/// Returns the lines of points, with targets in the order of their first occurrence.
fn lines<'a>(
    all: impl Iterator<Item = &'a Repeated>,
    points: impl Fn(&Repeated) -> Vec<(f64, f64)>,
) -> Lines {
    let mut lines = Lines::new();
    for r in all.filter(|r| r.failed.is_none()) {
        let at = lines.iter().find(|(_, (name, _))| *name == r.target);
        let at = at.map_or(lines.len(), |(at, _)| *at);
        let line = lines.entry(at).or_insert((r.target.clone(), Vec::new()));
        line.1.extend(points(r));
    }
    lines
}

struct Axes<'a> {
    title: &'a str,
    x: &'a str,
    y: &'a str,
    /// Formats an x value: tasks, or nanoseconds.
    label: fn(&f64) -> String,
}

fn draw(path: &Path, axes: &Axes<'_>, lines: &Lines) -> Result<()> {
    let points = || lines.values().flat_map(|(_, points)| points);
    let least = points().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let most = points().map(|p| p.0).fold(0.0, f64::max);
    let high = points().map(|p| p.1).fold(0.0, f64::max);
    if !least.is_finite() || least <= 0.0 || high <= 0.0 {
        return Err(anyhow!("{}: nothing to plot", axes.title));
    }
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let fail = |e: &dyn std::fmt::Display| anyhow!("{}: {e}", path.display());
    root.fill(&WHITE).map_err(|e| fail(&e))?;
    let mut chart = ChartBuilder::on(&root)
        .caption(axes.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(78)
        .build_cartesian_2d(
            (least..most.max(least * 1.01)).log_scale().base(2.0),
            0.0..high * 1.25,
        )
        .map_err(|e| fail(&e))?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&axes.label)
        .y_label_formatter(&|y| extant_terminal::numbers::rate(*y))
        .draw()
        .map_err(|e| fail(&e))?;
    for (i, (name, points)) in lines {
        let style = colour(*i).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))
            .map_err(|e| fail(&e))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(|e| fail(&e))?;
    root.present().map_err(|e| fail(&e))
}

/// Plots the operations per second over tasks.
pub fn throughput(path: &Path, workload: &str, all: &[Repeated]) -> Result<()> {
    let of = all.iter().filter(|r| r.workload == workload);
    let lines = lines(of, |r| vec![(r.shape.tasks as f64, r.ops)]);
    let title = format!("{workload}: operations per second");
    let axes = Axes {
        title: &title,
        x: "tasks",
        y: "operations per second",
        label: |x| format!("{x:.0}"),
    };
    draw(path, &axes, &lines)
}

/// Number of bins per doubling.
const BINS: f64 = 4.0;

/// Plots the distribution of latencies with `tasks` tasks.
pub fn latencies(path: &Path, workload: &str, tasks: u64, all: &[Repeated]) -> Result<()> {
    let of = all
        .iter()
        .filter(|r| r.workload == workload && r.shape.tasks == tasks);
    let lines = lines(of, |r| {
        let mut bins: BTreeMap<i64, f64> = BTreeMap::new();
        for (ns, n) in &r.latency.buckets {
            *bins.entry((ns.max(1.0).log2() * BINS) as i64).or_default() += n;
        }
        let all: f64 = bins.values().sum();
        let share = |(bin, n): (i64, f64)| (2f64.powf(bin as f64 / BINS), 100.0 * n / all);
        bins.into_iter().map(share).collect()
    });
    let title = format!("{workload}, tasks: {tasks}: latency of an operation");
    let axes = Axes {
        title: &title,
        x: "latency",
        y: "% of operations",
        label: |x| crate::table::duration(*x),
    };
    draw(path, &axes, &lines)
}

/// Plots the CPU time per operation with `tasks` tasks, as a group of bars for each workload.
pub fn costs(path: &Path, tasks: u64, all: &[Repeated]) -> Result<()> {
    let rows: Vec<&Repeated> = all
        .iter()
        .filter(|r| r.shape.tasks == tasks && r.failed.is_none() && r.cpu_ns > 0.0)
        .collect();
    let mut names: Vec<&str> = rows.iter().map(|r| r.workload.as_str()).collect();
    names.dedup();
    let mut targets: Vec<&str> = Vec::new();
    for r in &rows {
        if !targets.contains(&r.target.as_str()) {
            targets.push(&r.target);
        }
    }
    let least = rows.iter().map(|r| r.cpu_ns).fold(f64::INFINITY, f64::min);
    let most = rows.iter().map(|r| r.cpu_ns).fold(0.0, f64::max);
    if !least.is_finite() {
        return Err(anyhow!("no costs to plot"));
    }
    let fail = |e: &dyn std::fmt::Display| anyhow!("{}: {e}", path.display());
    let height = 90 + 14 * (names.len() * (targets.len() + 1)) as u32;
    let root = SVGBackend::new(path, (SIZE.0, height)).into_drawing_area();
    root.fill(&WHITE).map_err(|e| fail(&e))?;
    let wide = (targets.len() + 1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(
            format!("CPU of an operation, tasks: {tasks}"),
            ("sans-serif", 18),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (least / 5.0..most * 2.0).log_scale(),
            (names.len() as f64 * wide)..0.0,
        )
        .map_err(|e| fail(&e))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .light_line_style(WHITE)
        .y_labels(0)
        .x_desc("CPU of an operation")
        .x_label_formatter(&|x| crate::table::duration(*x))
        .draw()
        .map_err(|e| fail(&e))?;
    let left = least / 2.0;
    for (i, target) in targets.iter().enumerate() {
        let bars = rows.iter().filter(|r| r.target == *target).map(|r| {
            let group = names.iter().position(|n| *n == r.workload).unwrap_or(0);
            let top = group as f64 * wide + i as f64 + 0.5;
            Rectangle::new([(left, top), (r.cpu_ns, top + 0.9)], colour(i).filled())
        });
        let style = colour(i).filled();
        chart
            .draw_series(bars)
            .map_err(|e| fail(&e))?
            .label(*target)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], style));
    }
    let labels = names.iter().enumerate().map(|(group, name)| {
        // Left of the bars.
        let at = (least / 4.8, group as f64 * wide + 0.6);
        Text::new(name.to_string(), at, ("sans-serif", 12))
    });
    chart.draw_series(labels).map_err(|e| fail(&e))?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(|e| fail(&e))?;
    root.present().map_err(|e| fail(&e))
}
