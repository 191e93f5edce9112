//! The microbenchmarks of FxMark ("Understanding Manycore Scalability of File Systems", USENIX ATC 2016), with their
//! original names. The letters are D or M for data or metadata; R or W for reading or writing, and the operation; L, M
//! or H for low, medium or high sharing.

mod data;
mod names;

use super::Workload;
use crate::runner::{Shape, Tasks};
use crate::target::TaskDir;
use anyhow::Result;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    name: &'static str,
    about: &'static str,
    kind: RowKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Names(names::NamesRow),
    Data(data::DataRow),
}

const fn row(name: &'static str, kind: RowKind, about: &'static str) -> Row {
    Row { name, about, kind }
}

const fn names(name: &'static str, kind: names::NamesRow, about: &'static str) -> Row {
    row(name, RowKind::Names(kind), about)
}

const fn data(name: &'static str, kind: data::DataRow, about: &'static str) -> Row {
    row(name, RowKind::Data(kind), about)
}

/// All rows.
pub const ROWS: [Row; 19] = [
    names(
        "MWCL",
        names::NamesRow::Create { shared: false },
        "create files in an own directory",
    ),
    names(
        "MWCM",
        names::NamesRow::Create { shared: true },
        "create files in one shared directory",
    ),
    names(
        "MWUL",
        names::NamesRow::Unlink { shared: false },
        "remove files of an own directory",
    ),
    names(
        "MWUM",
        names::NamesRow::Unlink { shared: true },
        "remove own files of one shared directory",
    ),
    names(
        "MWRL",
        names::NamesRow::Rename { shared: false },
        "rename a file within an own directory",
    ),
    names(
        "MWRM",
        names::NamesRow::Rename { shared: true },
        "move own files to one shared directory",
    ),
    names(
        "MRPL",
        names::NamesRow::Stat(names::Path::Own),
        "stat an own file five directories deep",
    ),
    names(
        "MRPM",
        names::NamesRow::Stat(names::Path::Random),
        "stat a random file five directories deep",
    ),
    names(
        "MRPH",
        names::NamesRow::Stat(names::Path::Same),
        "stat the same file five directories deep",
    ),
    names(
        "MRDL",
        names::NamesRow::List { shared: false },
        "read names of an own directory",
    ),
    names(
        "MRDM",
        names::NamesRow::List { shared: true },
        "read names of one shared directory",
    ),
    data("DWAL", data::DataRow::Append, "append 4 KiB to an own file"),
    data(
        "DWOL",
        data::DataRow::Overwrite { shared: false },
        "overwrite a block of an own file",
    ),
    data(
        "DWOM",
        data::DataRow::Overwrite { shared: true },
        "overwrite an own block of one shared file",
    ),
    data(
        "DWSL",
        data::DataRow::OverwriteSync,
        "overwrite a block of an own file, and fsync",
    ),
    data("DWTL", data::DataRow::Truncate, "cut 4 KiB off an own file"),
    data(
        "DRBL",
        data::DataRow::Read(data::Block::Private),
        "read a block of an own file",
    ),
    data(
        "DRBM",
        data::DataRow::Read(data::Block::Own),
        "read an own block of one shared file",
    ),
    data(
        "DRBH",
        data::DataRow::Read(data::Block::Same),
        "read the same block of one shared file",
    ),
];

impl Row {
    /// Returns the row of this name.
    ///
    /// ```
    /// use extant_bench::workload::{Workload, fxmark::Row};
    /// assert_eq!(Row::named("mrpl").unwrap().name(), "MRPL");
    /// assert!(Row::named("none").is_none());
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        ROWS.into_iter()
            .find(|row| row.name.eq_ignore_ascii_case(name))
    }

    /// Returns the row's operation.
    pub fn about(&self) -> &'static str {
        self.about
    }
}

impl Workload for Row {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        match self.kind {
            RowKind::Names(kind) => kind.prepare(base, shape),
            RowKind::Data(kind) => kind.prepare(base, shape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::both;

    #[test]
    fn every_row_runs_over_a_volume_and_a_path() {
        let shape = Shape {
            tasks: 2,
            seconds: 0.01,
            files: 40,
            rounds: 1,
        };
        for row in ROWS {
            let reports = both(&row, shape);
            assert!(reports.iter().all(|r| r.ops > 0.0), "{}", row.name);
            let used_up = ["MWCL", "MWCM", "MWUL", "MWUM", "MWRM", "DWTL"].contains(&row.name);
            let most = 2 * shape.files;
            for report in reports.iter().filter(|_| used_up) {
                assert!(report.rounds.iter().all(|r| r.ops <= most), "{}", row.name);
            }
        }
    }
}
