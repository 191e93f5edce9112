//! Tables.

use super::figures::{Aged, Bulk, Checked, Dbench, Grown, Mdtest, Mounted, Repeated};
use crate::table::{duration, in_process_note, times};
use extant_terminal::numbers::rate;

/// Returns a paragraph about the limits of a comparison.
fn noted<'a>(targets: impl Iterator<Item = &'a str> + Clone) -> String {
    in_process_note(targets).map_or(String::new(), |note| format!("\n{note}\n"))
}

/// Formats rows of cells below a head.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rule = "|---".repeat(head.len()) + "|\n";
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    line(&head) + &rule + &rows
}

/// Returns the first result of the same kind, if it is not this one.
fn ours<'a, T>(all: &'a [T], one: &T, same: impl Fn(&T) -> bool) -> Option<&'a T> {
    let first = all.iter().find(|other| same(other))?;
    (!std::ptr::eq(first, one)).then_some(first)
}

fn against<T>(ours: Option<&T>, times: impl Fn(&T) -> String) -> String {
    ours.map_or_else(|| "-".into(), times)
}

pub fn repeated(all: &[Repeated]) -> String {
    let done = all.first().map_or("sync", |r| r.finishes.as_str());
    let done_rate = format!("ops/s with {done}");
    let head = [
        "workload",
        "tasks",
        "target",
        "ops/s",
        &done_rate,
        done,
        "CPU an operation",
        "p50",
        "p99",
        "ours against it",
        "CPU",
    ];
    let row = |r: &Repeated| {
        let mut cells = vec![
            r.workload.clone(),
            r.shape.tasks.to_string(),
            r.target.clone(),
        ];
        if let Some(why) = &r.failed {
            cells.push(format!("cannot: {why}"));
            cells.resize(head.len(), String::new());
            return cells;
        }
        let same = |o: &Repeated| o.workload == r.workload && o.shape.tasks == r.shape.tasks;
        let first = ours(all, r, same);
        cells.extend([
            rate(r.ops),
            rate(r.ops_finished),
            duration(r.finish_seconds * 1e9),
            duration(r.cpu_ns),
            duration(r.latency.p50),
            duration(r.latency.p99),
            against(first, |o| times(o.ops, r.ops)),
            against(first, |o| times(r.cpu_ns, o.cpu_ns)),
        ]);
        cells
    };
    let mut text = table(&head, all.iter().map(row));
    text += &noted(all.iter().map(|r| r.target.as_str()));
    let counted = all.iter().filter(|r| !r.counts.is_empty());
    for r in counted {
        let one = |(name, n): (&String, &f64)| crate::table::count(name, *n);
        let counts: Vec<_> = r.counts.iter().map(one).collect();
        let (name, tasks) = (&r.workload, r.shape.tasks);
        text += &format!(
            "\nIn a round of {name}, tasks: {tasks}: {}.\n",
            counts.join(", ")
        );
    }
    text
}

pub fn mounts(all: &[Mounted]) -> String {
    let head = [
        "row",
        "clients",
        "target",
        "figure",
        "sync",
        "CPU",
        "p50",
        "p99",
        "of its floor",
        "of the kernel",
        "of fuse2fs",
    ];
    let row = |m: &Mounted| {
        let r = &m.repeated;
        let mut cells = vec![
            r.workload.clone(),
            r.shape.tasks.to_string(),
            r.target.clone(),
        ];
        if let Some(why) = &r.failed {
            cells.push(format!("not measured: {why}"));
            cells.resize(head.len(), String::new());
            return cells;
        }
        let figure = match m.unit.as_str() {
            "s" => duration(m.figure * 1e9),
            "MB/s" => format!("{:.0} MB/s", m.figure),
            "/s" => format!("{}/s", rate(m.figure)),
            unit => format!("{} {unit}", rate(m.figure)),
        };
        let times = |t: Option<f64>| t.map_or_else(|| "-".into(), |t| format!("{t:.2}×"));
        cells.extend([
            figure,
            duration(r.finish_seconds * 1e9),
            duration(r.cpu_ns),
            duration(r.latency.p50),
            duration(r.latency.p99),
            times(m.times.floor),
            times(m.times.kernel),
            times(m.times.fuse2fs),
        ]);
        cells
    };
    table(&head, all.iter().map(row))
}

pub fn mdtest(all: &[Mdtest]) -> String {
    let head = [
        "tasks",
        "directories",
        "target",
        "create/s",
        "synced",
        "CPU",
        "unlink/s",
        "synced",
        "CPU",
        "create: ours against it",
        "unlink",
    ];
    let row = |r: &Mdtest| {
        let first = ours(all, r, |_| true);
        vec![
            r.params.tasks.to_string(),
            if r.params.shared { "shared" } else { "own" }.into(),
            r.target.clone(),
            rate(r.creates),
            rate(r.creates_synced),
            duration(r.create_cpu_ns),
            rate(r.unlinks),
            rate(r.unlinks_synced),
            duration(r.unlink_cpu_ns),
            against(first, |o| times(o.creates, r.creates)),
            against(first, |o| times(o.unlinks, r.unlinks)),
        ]
    };
    table(&head, all.iter().map(row)) + &noted(all.iter().map(|r| r.target.as_str()))
}

pub fn bulk(bulk: &Bulk) -> String {
    let head = [
        "",
        "way",
        "seconds",
        "sync",
        "names/s",
        "MB/s",
        "CPU a name",
        "peak",
    ];
    let row = |r: &super::figures::Moved| {
        vec![
            r.name.clone(),
            r.direction.clone(),
            format!("{:.2}", r.seconds),
            format!("{:.2}", r.sync_seconds),
            rate(r.files),
            format!("{:.1}", r.bytes / 1e6),
            duration(r.cpu_ns),
            format!("{:.0} MB", r.peak / 1e6),
        ]
    };
    table(&head, bulk.reports.iter().map(row))
}

pub fn grown(all: &[Grown]) -> String {
    let head = [
        "target",
        "",
        "first step, names/s",
        "later steps",
        "last step",
        "later against first",
        "last against first",
    ];
    let rows = all.iter().flat_map(|r| {
        [("create", &r.create), ("create, synced", &r.synced)].map(|(what, rates)| {
            let change = |other: f64| format!("{:+.0} %", 100.0 * (other / rates.first - 1.0));
            vec![
                r.target.clone(),
                what.into(),
                rate(rates.first),
                rate(rates.later),
                rate(rates.last),
                change(rates.later),
                change(rates.last),
            ]
        })
    });
    table(&head, rows)
}

pub fn aged(all: &[Aged]) -> String {
    let head = ["target", "files", "extents", "extents a file", "in pieces"];
    let row = |r: &Aged| {
        let files = r.files.max(1) as f64;
        vec![
            r.target.clone(),
            r.files.to_string(),
            r.extents.to_string(),
            format!("{:.2}", r.extents as f64 / files),
            format!("{:.1} %", 100.0 * r.in_pieces as f64 / files),
        ]
    };
    table(&head, all.iter().map(row))
}

pub fn checked(all: &[Checked]) -> String {
    let head = [
        "target",
        "threads",
        "seconds",
        "CPU",
        "peak",
        "ours against it",
    ];
    let row = |r: &Checked| {
        let first = ours(all, r, |o| o.tasks == r.tasks);
        vec![
            r.target.clone(),
            r.tasks.to_string(),
            format!("{:.2}", r.seconds),
            format!("{:.2}", r.cpu_seconds),
            format!("{:.0} MB", r.peak / 1e6),
            against(first, |o| times(r.seconds, o.seconds)),
        ]
    };
    table(&head, all.iter().map(row))
}

pub fn dbench(all: &[Dbench]) -> String {
    let head = [
        "target",
        "MB/s",
        "synced",
        "ops/s",
        "CPU an operation",
        "ours against it",
        "CPU",
    ];
    let row = |r: &Dbench| {
        if let Some(why) = &r.failed {
            let mut cells = vec![r.target.clone(), format!("cannot: {why}")];
            cells.resize(head.len(), String::new());
            return cells;
        }
        let first = ours(all, r, |_| true);
        vec![
            r.target.clone(),
            format!("{:.1}", r.bytes / 1e6),
            format!("{:.1}", r.bytes_synced / 1e6),
            rate(r.ops),
            duration(r.cpu_ns),
            against(first, |o| times(o.bytes, r.bytes)),
            against(first, |o| times(r.cpu_ns, o.cpu_ns)),
        ]
    };
    let mut text = table(&head, all.iter().map(row));
    let mut rows = Vec::new();
    for name in all
        .first()
        .map(|r| r.latencies.keys())
        .into_iter()
        .flatten()
    {
        for r in all {
            let Some(seen) = r.latencies.get(name) else {
                continue;
            };
            let mut cells = vec![name.clone(), r.target.clone(), seen.count.to_string()];
            cells.extend([seen.mean, seen.p50, seen.p99, seen.max].map(duration));
            rows.push(cells);
        }
    }
    let head = [
        "operation",
        "target",
        "count",
        "mean",
        "p50",
        "p99",
        "longest",
    ];
    text += &format!("\n{}", table(&head, rows));
    text
}
