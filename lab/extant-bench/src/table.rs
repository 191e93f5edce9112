//! Reports as tables for people.

use crate::runner::{Report, Round};
use crate::stats::median;
use extant_terminal::numbers::rate;
use std::io::{self, Write};

/// Formats the ratio of `a` to `b`; "-" if the ratio has no meaning.
pub fn times(a: f64, b: f64) -> String {
    if a > 0.0 && b > 0.0 {
        format!("{:.1}×", a / b)
    } else {
        "-".into()
    }
}

/// Formats nanoseconds in a suitable unit.
pub fn duration(ns: f64) -> String {
    match ns {
        n if n >= 1e9 => format!("{:.2} s", n / 1e9),
        n if n >= 1e6 => format!("{:.1} ms", n / 1e6),
        n if n >= 1e3 => format!("{:.1} µs", n / 1e3),
        n => format!("{n:.0} ns"),
    }
}

/// Number of figures of a report.
const FIGURES: usize = 8;

/// Returns the headings of [`cells`].
pub fn head(report: &Report) -> [String; FIGURES] {
    let done = report.finishes;
    let past = if done == "drop" { "dropped" } else { "synced" };
    let past = format!("{past}/s");
    [
        "ops/s", &past, done, "CPU", "p50", "p99", "ours", "CPU ours",
    ]
    .map(String::from)
}

/// Returns the figures of a report; the last two are how much better `ours` is.
pub fn cells(report: &Report, ours: Option<&Report>) -> [String; FIGURES] {
    let dash = || "-".to_string();
    [
        rate(report.ops),
        rate(report.ops_finished),
        duration(report.finish_seconds * 1e9),
        duration(report.cpu_ns),
        duration(report.latency.p50 as f64),
        duration(report.latency.p99 as f64),
        ours.map_or_else(dash, |o| times(o.ops, report.ops)),
        ours.map_or_else(dash, |o| times(report.cpu_ns, o.cpu_ns)),
    ]
}

/// Returns the first report of the same workload and number of tasks, if it is not this one.
pub fn first<'a>(reports: &'a [Report], of: &Report) -> Option<&'a Report> {
    let same = |r: &&Report| r.workload == of.workload && r.shape.tasks == of.shape.tasks;
    let first = reports.iter().find(same)?;
    (!std::ptr::eq(first, of)).then_some(first)
}

/// Formats a count of a round.
pub fn count(name: &str, n: f64) -> String {
    match name.strip_suffix(" ns") {
        Some("sort") => format!("sorting {}", duration(n)),
        Some(name) => format!("{name} {}", duration(n)),
        None => format!("{name} {}", rate(n)),
    }
}

/// Formats the counts of a round in one line; empty without counts.
pub fn counts(report: &Report) -> String {
    let all = report.counts.iter().map(|(name, n)| count(name, *n));
    let mut all: Vec<String> = all.collect();
    let a_push = |r: &Round| r.ops as f64 / r.counts.get("pushes").copied().unwrap_or(0.0);
    let a_push = median(&mut report.rounds.iter().map(a_push).collect::<Vec<_>>());
    if a_push.is_finite() && !all.is_empty() {
        all.push(format!("operations a push {a_push:.1}"));
    }
    all.join(", ")
}

/// Writes all reports, one per line.
pub fn write(out: &mut impl Write, reports: &[Report]) -> io::Result<()> {
    let longest = |f: &dyn Fn(&Report) -> usize| reports.iter().map(f).max().unwrap_or(0);
    let name = longest(&|r| r.workload.chars().count()).max(8);
    let target = longest(&|r| r.target.chars().count()).max(6);
    let Some(one) = reports.first() else {
        return Ok(());
    };
    let (seconds, rounds) = (one.shape.seconds, one.shape.rounds);
    writeln!(
        out,
        "{seconds} s a round at most, medians of {rounds} rounds"
    )?;
    write!(
        out,
        "{:name$} {:>5}  {:target$}",
        "workload", "tasks", "target"
    )?;
    head(one).iter().try_for_each(|h| write!(out, " {h:>9}"))?;
    writeln!(out)?;
    for r in reports {
        let tasks = r.shape.tasks;
        write!(out, "{:name$} {tasks:>5}  {:target$}", r.workload, r.target)?;
        if let Some(why) = &r.failed {
            writeln!(out, " cannot: {why}")?;
            continue;
        }
        cells(r, first(reports, r))
            .iter()
            .try_for_each(|c| write!(out, " {c:>9}"))?;
        writeln!(out)?;
        if !r.counts.is_empty() {
            writeln!(out, "{:name$} {:>5}    {}", "", "", counts(r))?;
        }
    }
    if let Some(note) = in_process_note(reports.iter().map(|r| r.target.as_str())) {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

/// Returns the limits of a comparison of a volume in this process with a file system of the kernel, if it is one.
pub fn in_process_note<'a>(targets: impl Iterator<Item = &'a str> + Clone) -> Option<&'static str> {
    let ours = targets.clone().any(|t| t.contains("(in process)"));
    let kernel = targets
        .clone()
        .any(|t| t.starts_with("kernel ") || t.starts_with("path ") || t == "fuse2fs");
    (ours && kernel).then_some(
        "In process: no system call, no VFS. The other targets have both, and so has `extant mount`: \
         `extant-bench mount` has its rows.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_with_a_kernel_says_what_it_leaves_out() {
        let note = |targets: &[&str]| in_process_note(targets.iter().copied()).is_some();
        assert!(note(&["extant (in process)", "kernel ext4"]));
        assert!(!note(&["extant (in process)", "before: one lock"]));
        assert!(!note(&["kernel ext4", "mount:uring"]));
    }

    #[test]
    fn figures_in_short() {
        assert_eq!(times(10.0, 4.0), "2.5×");
        assert_eq!(times(1.0, 0.0), "-");
        assert_eq!(duration(950.0), "950 ns");
        assert_eq!(duration(2_500_000.0), "2.5 ms");
    }
}
