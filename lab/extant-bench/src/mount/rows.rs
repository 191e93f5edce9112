//! The rows by name, and the units of their figures.

use crate::runner::Report;
use serde::Serialize;

/// The rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Create empty files.
    Create,
    /// Remove files.
    Unlink,
    /// Stat files that the kernel has cached.
    Stat,
    /// Read attributes again of files that the kernel has cached.
    Getattr,
    /// Stat files that a server has cached, but not the kernel.
    Lookup,
    /// Stat files that no cache holds.
    StatCold,
    /// Open and close files.
    Open,
    /// List a directory, and stat all files in it.
    Readdir,
    /// Read pages that no cache holds.
    ReadCold,
    /// Read pages that the kernel has cached.
    Read,
    /// Read pages with direct I/O.
    ReadDirect,
    /// Write pages into the kernel's cache.
    Write,
    /// Write pages with direct I/O.
    WriteDirect,
    /// Read a file that no cache holds.
    StreamRead,
    /// Write a file and make it durable.
    StreamWrite,
    /// Write pages and make them durable.
    Fsync,
    /// Insert rows into databases with a write-ahead log.
    SqliteWal,
    /// Insert rows into databases with a rollback journal.
    SqliteDelete,
    /// Unpack a tree.
    Untar,
    /// Compare a tree with its repository.
    GitStatus,
    /// Compare a tree with its repository, with empty caches.
    GitStatusCold,
}

/// The units of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Operations per second; more is better.
    #[serde(rename = "/s")]
    PerSecond,
    /// Names per second; more is better.
    #[serde(rename = "names/s")]
    NamesPerSecond,
    /// Megabytes per second; more is better.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// Seconds per run; less is better.
    #[serde(rename = "s")]
    Seconds,
}

impl Row {
    /// All rows.
    pub const ALL: [Self; 21] = [
        Self::Create,
        Self::Unlink,
        Self::Stat,
        Self::Getattr,
        Self::Lookup,
        Self::StatCold,
        Self::Open,
        Self::Readdir,
        Self::ReadCold,
        Self::Read,
        Self::ReadDirect,
        Self::Write,
        Self::WriteDirect,
        Self::StreamRead,
        Self::StreamWrite,
        Self::Fsync,
        Self::SqliteWal,
        Self::SqliteDelete,
        Self::Untar,
        Self::GitStatus,
        Self::GitStatusCold,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Stat => "stat",
            Self::Getattr => "getattr",
            Self::Lookup => "lookup",
            Self::StatCold => "stat-cold",
            Self::Open => "open",
            Self::Readdir => "readdir",
            Self::ReadCold => "read-cold",
            Self::Read => "read",
            Self::ReadDirect => "read-direct",
            Self::Write => "write",
            Self::WriteDirect => "write-direct",
            Self::StreamRead => "stream-read",
            Self::StreamWrite => "stream-write",
            Self::Fsync => "fsync",
            Self::SqliteWal => "sqlite-wal",
            Self::SqliteDelete => "sqlite-delete",
            Self::Untar => "untar",
            Self::GitStatus => "git-status",
            Self::GitStatusCold => "git-status-cold",
        }
    }

    /// Returns a row's operation.
    pub fn about(self) -> &'static str {
        match self {
            Self::Create => "make and close an empty file",
            Self::Unlink => "remove an empty file",
            Self::Stat => "stat a random file that the kernel knows",
            Self::Getattr => "stat a random file, what the kernel knows of it not trusted",
            Self::Lookup => {
                "stat a file, in random order, that the kernel has forgotten, and a server has not"
            }
            Self::StatCold => "stat a file, in random order, that nobody has in memory",
            Self::Open => "open and close a random file",
            Self::Readdir => "list a directory and stat all its files",
            Self::ReadCold => "read 4 KiB, in random order, that nobody has in memory",
            Self::Read => "read 4 KiB at a random place, which the kernel has in memory",
            Self::ReadDirect => "read 4 KiB at a random place past the kernel's memory (O_DIRECT)",
            Self::Write => "write 4 KiB at a random place, which the kernel has in memory",
            Self::WriteDirect => {
                "write 4 KiB at a random place past the kernel's memory (O_DIRECT)"
            }
            Self::StreamRead => "read a file, a MiB at a time, that nobody has in memory",
            Self::StreamWrite => "write a file, a MiB at a time, and fsync it",
            Self::Fsync => "write 4 KiB at the end of a file and fsync it",
            Self::SqliteWal => "insert a row by SQLite, with a write-ahead log",
            Self::SqliteDelete => "insert a row by SQLite, with a rollback journal",
            Self::Untar => "unpack an archive of a source tree with tar",
            Self::GitStatus => "git status in the repository of such a tree",
            Self::GitStatusCold => "the same when nobody has anything of it in memory",
        }
    }

    /// Returns the row of this name.
    ///
    /// ```
    /// use extant_bench::mount::Row;
    /// assert_eq!(Row::named("stat-cold"), Some(Row::StatCold));
    /// assert_eq!(Row::named("stat cold"), None);
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.name() == name)
    }

    /// Returns whether all caches must be empty before the row.
    pub fn is_cold(self) -> bool {
        matches!(
            self,
            Self::StatCold | Self::ReadCold | Self::StreamRead | Self::GitStatusCold
        )
    }

    /// Returns whether a round leaves its files unchanged, so that the next round can use them.
    pub fn keeps(self) -> bool {
        !matches!(
            self,
            Self::Create
                | Self::Unlink
                | Self::StreamWrite
                | Self::Fsync
                | Self::SqliteWal
                | Self::SqliteDelete
                | Self::Untar
        )
    }

    /// Returns whether the row needs a [`Source`](super::Source), and whether the source needs a repository.
    pub fn needs_source(self) -> (bool, bool) {
        let repository = matches!(self, Self::GitStatus | Self::GitStatusCold);
        (repository || self == Self::Untar, repository)
    }

    /// Returns whether the row runs SQLite.
    pub fn needs_sqlite(self) -> bool {
        matches!(self, Self::SqliteWal | Self::SqliteDelete)
    }

    /// Returns the unit of its figure.
    pub fn unit(self) -> Unit {
        match self {
            Self::Readdir => Unit::NamesPerSecond,
            Self::StreamRead | Self::StreamWrite => Unit::MegabytesPerSecond,
            Self::Untar | Self::GitStatus | Self::GitStatusCold => Unit::Seconds,
            _ => Unit::PerSecond,
        }
    }
}

impl Unit {
    /// Returns the figure of a report; one operation of a stream is a file of `file_size` bytes.
    pub(super) fn figure(self, report: &Report, file_size: u64) -> f64 {
        match self {
            Self::PerSecond => report.ops,
            Self::NamesPerSecond => report.ops * report.shape.files as f64,
            Self::MegabytesPerSecond => report.ops * file_size as f64 / 1e6,
            // Clients run in parallel.
            Self::Seconds if report.ops > 0.0 => report.shape.tasks as f64 / report.ops,
            Self::Seconds => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own() {
        for row in Row::ALL {
            assert_eq!(Row::named(row.name()), Some(row));
            assert!(!row.about().is_empty());
            let cold = row.name().ends_with("-cold") || row == Row::StreamRead;
            assert_eq!(cold, row.is_cold());
        }
        assert_eq!(Row::Untar.needs_source(), (true, false));
        assert_eq!(Row::GitStatusCold.needs_source(), (true, true));
        assert_eq!(Row::Fsync.needs_source(), (false, false));
    }
}
