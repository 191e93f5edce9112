//! Tables of the traffic between cores.

use super::WARM;
use super::run::Traffic;
use std::fmt::Write;

/// Number of rows of a workload's table.
const ROWS: usize = 12;

/// Returns the report as Markdown.
pub fn markdown(all: &[Traffic], machine: &str) -> String {
    let mut text = format!(
        "# Lines that cores take from each other\n\nWritten by `extant-bench coherence --report`; {}\n\n\
         As many threads as cores take turns at an operation, each in a directory or a file of its own, under valgrind's lackey, and their \
         accesses go through a model of the cores' caches. *Misses*: lines that another core has written, or that others have when \
         they are written, for each operation after the first {WARM}. *Engine*: those outside of the memory allocator. *Hottest line*: the \
         misses of an operation at the one line that is missed most; 1 means that all cores meet there in every operation, and that \
         no more operations a second are possible than transfers of a line. {}\n\n",
        "the model and its limits are in [scaling.md](../scaling.md).", machine
    );
    summary(&mut text, all);
    all.iter().for_each(|t| workload(&mut text, t));
    text
}

/// Writes one line per workload.
pub fn summary(text: &mut String, all: &[Traffic]) {
    let _ = writeln!(
        text,
        "| | cores | slots | accesses of an operation | misses | engine | hottest line |\n|---|---|---|---|---|---|---|"
    );
    for t in all {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.2} | {:.2} | {:.3} |",
            t.workload.name(),
            t.cores,
            t.slots,
            t.accesses,
            t.misses(),
            t.of_engine(),
            t.hottest
        );
    }
}

fn workload(text: &mut String, t: &Traffic) {
    let _ = writeln!(
        text,
        "\n## {}, {} cores, {} slots\n\n| object | code | misses of reads | of writes |\n|---|---|---|---|",
        t.workload.name(),
        t.cores,
        t.slots
    );
    for m in t.missed.iter().take(ROWS) {
        let _ = writeln!(
            text,
            "| {} | `{}` | {:.3} | {:.3} |",
            m.object, m.code, m.reads, m.writes
        );
    }
    let rest = t.missed.iter().skip(ROWS);
    let (reads, writes) = rest.fold((0.0, 0.0), |(r, w), m| (r + m.reads, w + m.writes));
    if reads + writes > 0.0 {
        let _ = writeln!(text, "| the rest | | {reads:.3} | {writes:.3} |");
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::Missed;
    use super::*;
    use crate::predict::measure::Workload;

    #[test]
    fn tables_have_sums_and_rows() {
        let missed = |allocator, reads, writes| Missed {
            object: "slot #".into(),
            code: "log/mod.rs:1 draw".into(),
            allocator,
            reads,
            writes,
        };
        let traffic = Traffic {
            workload: Workload::Create,
            cores: 64,
            slots: 64,
            ops: 100,
            accesses: 900.4,
            missed: vec![missed(false, 0.25, 0.5), missed(true, 1.0, 0.0)],
            hottest: 0.125,
        };
        let text = markdown(&[traffic], "Machine.");
        assert!(
            text.contains("| mdtest-create | 64 | 64 | 900 | 1.75 | 0.75 | 0.125 |"),
            "{text}"
        );
        assert!(
            text.contains("| slot # | `log/mod.rs:1 draw` | 0.250 | 0.500 |"),
            "{text}"
        );
    }
}
