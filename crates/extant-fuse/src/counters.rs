//! What a mount has been asked: requests by kind, how long they took, how many failed. Each thread counts in
//! its slot; who reads adds up.

use percpu::PerSlot;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

macro_rules! kinds {
    ($($kind:ident = $name:literal),* $(,)?) => {
        /// Kinds of requests that are counted apart.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind),*
        }

        impl Kind {
            /// All of them, in the order of their numbers.
            const ALL: &[Self] = &[$(Self::$kind),*];

            /// The name in reports.
            fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name),*
                }
            }
        }
    };
}

kinds! {
    Lookup = "lookup",
    Forget = "forget",
    GetAttr = "getattr",
    SetAttr = "setattr",
    ReadLink = "readlink",
    Symlink = "symlink",
    Mknod = "mknod",
    Mkdir = "mkdir",
    Unlink = "unlink",
    Rmdir = "rmdir",
    Rename = "rename",
    Link = "link",
    Open = "open",
    Create = "create",
    Tmpfile = "tmpfile",
    Read = "read",
    Write = "write",
    Release = "release",
    Fsync = "fsync",
    ReadDir = "readdir",
    StatFs = "statfs",
    SetXattr = "setxattr",
    GetXattr = "getxattr",
    ListXattr = "listxattr",
    RemoveXattr = "removexattr",
    Ioctl = "ioctl",
    Seek = "lseek",
    Fallocate = "fallocate",
    CopyRange = "copy_file_range",
    SyncFs = "syncfs",
    Other = "other",
}

impl Kind {
    /// Names or attributes are other ones afterwards.
    pub fn changes_metadata(self) -> bool {
        matches!(
            self,
            Self::SetAttr
                | Self::Symlink
                | Self::Mknod
                | Self::Mkdir
                | Self::Unlink
                | Self::Rmdir
                | Self::Rename
                | Self::Link
                | Self::Create
                | Self::SetXattr
                | Self::RemoveXattr
        )
    }
}

#[derive(Default)]
struct Cell {
    requests: AtomicU64,
    failures: AtomicU64,
    ns: AtomicU64,
    bytes: AtomicU64,
}

/// The counters of one mount.
pub(crate) struct Counters(PerSlot<[Cell; Kind::ALL.len()]>);

/// Requests of one kind.
///
/// ```
/// let line = extant_fuse::RequestCount { kind: "lookup".into(), requests: 4, failures: 1, total_us: 10.0, bytes: 0 };
/// assert_eq!(line.average_us(), 2.5);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestCount {
    /// Kind of request, by the name of its system call or FUSE operation.
    pub kind: String,
    /// How many.
    pub requests: u64,
    /// How many of them were answered with an error. A name that is not there is one for "lookup".
    pub failures: u64,
    /// Time spent on them, in microseconds.
    pub total_us: f64,
    /// Bytes of file data read or written.
    pub bytes: u64,
}

impl RequestCount {
    /// Mean time of a request in microseconds.
    pub fn average_us(&self) -> f64 {
        self.total_us / self.requests.max(1) as f64
    }
}

impl Counters {
    pub fn new() -> Self {
        Self(PerSlot::new(|_| std::array::from_fn(|_| Cell::default())))
    }

    /// One more request of this kind. Only the slot's own thread adds: a plain load and store would do, but a
    /// slot may be shared when there are more threads than slots.
    pub fn count(&self, kind: Kind, took: Duration, failed: bool, bytes: u64) {
        let cell = &self.0.local()[kind as usize];
        cell.requests.fetch_add(1, Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        cell.ns.fetch_add(ns, Relaxed);
        if failed {
            cell.failures.fetch_add(1, Relaxed);
        }
        if bytes > 0 {
            cell.bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// What has been asked at all so far, by kind.
    pub fn read(&self) -> Vec<RequestCount> {
        let sum = |kind: Kind, of: fn(&Cell) -> &AtomicU64| {
            let cells = self.0.iter().map(|cells| &cells[kind as usize]);
            cells.map(|cell| of(cell).load(Relaxed)).sum::<u64>()
        };
        let line = |&kind: &Kind| RequestCount {
            kind: kind.name().into(),
            requests: sum(kind, |c| &c.requests),
            failures: sum(kind, |c| &c.failures),
            total_us: sum(kind, |c| &c.ns) as f64 / 1000.0,
            bytes: sum(kind, |c| &c.bytes),
        };
        let lines = Kind::ALL.iter().map(line);
        lines.filter(|line| line.requests > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_is_added_up() {
        let counters = Counters::new();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| counters.count(Kind::Read, Duration::from_micros(2), false, 10));
            }
        });
        counters.count(Kind::Lookup, Duration::from_micros(1), true, 0);
        let lines = counters.read();
        let kinds: Vec<_> = lines.iter().map(|l| l.kind.as_str()).collect();
        assert_eq!(kinds, ["lookup", "read"]);
        assert_eq!((lines[0].requests, lines[0].failures), (1, 1));
        assert_eq!((lines[1].requests, lines[1].bytes), (4, 40));
        assert!((lines[1].total_us - 8.0).abs() < 1e-9);
    }
}
