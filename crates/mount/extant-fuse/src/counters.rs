//! Counts of a mount's requests: by kind, with their times and failures. Each thread counts in its slot; readers add
//! up the slots.
//!
//! Two reads of the clock take a third of the time of a short request. So for kinds that are short and frequent, a
//! slot times the first few requests, then one in [`TIMED_ONE_IN`], which stands for the others.

use fuse_server::Operation;
use percpu::PerSlot;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

macro_rules! kinds {
    ($($kind:ident = $name:literal),* $(,)?) => {
        /// Kinds of requests with separate counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum RequestKind {
            $($kind),*
        }

        impl RequestKind {
            /// All kinds, in the order of their numbers.
            const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the name in reports.
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

/// Number of requests of a short kind that each slot times before it begins to skip some.
const TIMED_FIRST: u64 = 64;
/// Period of timed requests after that. A prime, because programs rarely repeat their calls with this period.
const TIMED_ONE_IN: u64 = 17;

impl RequestKind {
    /// Returns the kind that an operation is counted as.
    pub fn of(operation: &Operation<'_>) -> Self {
        type Op<'a> = Operation<'a>;
        match operation {
            Op::Lookup { .. } => Self::Lookup,
            Op::Forget { .. } | Op::BatchForget(_) => Self::Forget,
            Op::GetAttr { .. } | Op::Statx { .. } => Self::GetAttr,
            Op::SetAttr(_) => Self::SetAttr,
            Op::ReadLink => Self::ReadLink,
            Op::Symlink { .. } => Self::Symlink,
            Op::Mknod { .. } => Self::Mknod,
            Op::Mkdir { .. } => Self::Mkdir,
            Op::Unlink { .. } => Self::Unlink,
            Op::Rmdir { .. } => Self::Rmdir,
            Op::Rename { .. } => Self::Rename,
            Op::Link { .. } => Self::Link,
            Op::Open { .. } => Self::Open,
            Op::Create { .. } => Self::Create,
            Op::Tmpfile { .. } => Self::Tmpfile,
            Op::Release { .. } => Self::Release,
            Op::Read { .. } => Self::Read,
            Op::Write { .. } => Self::Write,
            Op::Fsync { .. } | Op::FsyncDir { .. } => Self::Fsync,
            Op::ReadDir { .. } | Op::ReadDirPlus { .. } => Self::ReadDir,
            Op::StatFs => Self::StatFs,
            Op::SetXattr { .. } => Self::SetXattr,
            Op::GetXattr { .. } => Self::GetXattr,
            Op::ListXattr { .. } => Self::ListXattr,
            Op::RemoveXattr { .. } => Self::RemoveXattr,
            Op::Ioctl { .. } => Self::Ioctl,
            Op::Seek { .. } => Self::Seek,
            Op::Fallocate { .. } => Self::Fallocate,
            Op::CopyFileRange { .. } => Self::CopyRange,
            Op::SyncFs => Self::SyncFs,
            _ => Self::Other,
        }
    }

    /// Returns whether requests of this kind are so short and frequent that not all are timed.
    fn is_short(self) -> bool {
        matches!(
            self,
            Self::Lookup
                | Self::Forget
                | Self::GetAttr
                | Self::SetAttr
                | Self::Unlink
                | Self::Open
                | Self::Create
                | Self::Release
                | Self::Read
                | Self::Write
                | Self::GetXattr
        )
    }

    /// Returns the number of requests that the time of this one stands for, after `before` others of its kind in the
    /// slot; 0 if it is not timed.
    fn stands_for(self, before: u64) -> u64 {
        match before.checked_sub(TIMED_FIRST) {
            Some(later) if self.is_short() => match (later + 1) % TIMED_ONE_IN {
                0 => TIMED_ONE_IN,
                _ => 0,
            },
            _ => 1,
        }
    }

    /// Returns whether requests of this kind change names or attributes.
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
pub(crate) struct Counters(PerSlot<[Cell; RequestKind::ALL.len()]>);

/// Requests of one kind.
///
/// ```
/// let line = extant_fuse::RequestCount { kind: "lookup".into(), requests: 4, failures: 1, total_us: 10.0, bytes: 0 };
/// assert_eq!(line.average_us(), 2.5);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCount {
    /// Kind of request, by the name of its system call or FUSE operation.
    pub kind: String,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that failed. A missing name counts as a failure of "lookup".
    pub failures: u64,
    /// Time spent on them, in microseconds. For short and frequent kinds, an estimate from a sample of requests.
    pub total_us: f64,
    /// Bytes of file data read or written.
    pub bytes: u64,
}

impl RequestCount {
    /// Returns the mean time of a request in microseconds.
    pub fn average_us(&self) -> f64 {
        self.total_us / self.requests.max(1) as f64
    }
}

impl Counters {
    pub fn new() -> Self {
        Self(PerSlot::new(|_| std::array::from_fn(|_| Cell::default())))
    }

    /// Begins a request of this kind. Usually only the slot's own thread adds, but more threads than slots may share a
    /// slot, so the addition is atomic.
    pub fn begin(&self, kind: RequestKind) -> Counted<'_> {
        let cell = &self.0.local()[kind as usize];
        let stands_for = kind.stands_for(cell.requests.fetch_add(1, Relaxed));
        Counted {
            cell,
            stands_for,
            since: (stands_for > 0).then(Instant::now),
        }
    }

    /// Returns the requests of all kinds that each slot has begun, in the order of slots.
    pub fn by_slot(&self) -> impl Iterator<Item = u64> + '_ {
        let sum = |cells: &[Cell; RequestKind::ALL.len()]| {
            cells.iter().map(|cell| cell.requests.load(Relaxed)).sum()
        };
        self.0.iter().map(sum)
    }

    /// Returns counts of the kinds that have occurred.
    pub fn read(&self) -> Vec<RequestCount> {
        let sum = |kind: RequestKind, of: fn(&Cell) -> &AtomicU64| {
            let cells = self.0.iter().map(|cells| &cells[kind as usize]);
            cells.map(|cell| of(cell).load(Relaxed)).sum::<u64>()
        };
        let line = |&kind: &RequestKind| RequestCount {
            kind: kind.name().into(),
            requests: sum(kind, |c| &c.requests),
            failures: sum(kind, |c| &c.failures),
            total_us: sum(kind, |c| &c.ns) as f64 / 1000.0,
            bytes: sum(kind, |c| &c.bytes),
        };
        let lines = RequestKind::ALL.iter().map(line);
        lines.filter(|line| line.requests > 0).collect()
    }
}

/// A counted request, which may be timed.
pub(crate) struct Counted<'a> {
    cell: &'a Cell,
    stands_for: u64,
    since: Option<Instant>,
}

impl Counted<'_> {
    /// Counts the request as completed.
    pub fn done(self, failed: bool, bytes: u64) {
        let took = self.since.map(|since| since.elapsed());
        self.note(took, failed, bytes);
    }

    fn note(self, took: Option<Duration>, failed: bool, bytes: u64) {
        if let Some(took) = took {
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            let all = ns.saturating_mul(self.stands_for);
            self.cell.ns.fetch_add(all, Relaxed);
        }
        if failed {
            self.cell.failures.fetch_add(1, Relaxed);
        }
        if bytes > 0 {
            self.cell.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Counters {
        /// Counts a request of this duration, if it is timed.
        fn count(&self, kind: RequestKind, took: Duration, failed: bool, bytes: u64) {
            let counted = self.begin(kind);
            let took = counted.since.map(|_| took);
            counted.note(took, failed, bytes);
        }
    }

    /// Timed requests stand for the untimed ones.
    #[test]
    fn all_requests_have_a_time() {
        let counters = Counters::new();
        for kind in [RequestKind::Lookup, RequestKind::Fsync] {
            for _ in 0..TIMED_FIRST + 1000 * TIMED_ONE_IN {
                counters.count(kind, Duration::from_micros(3), false, 0);
            }
        }
        for line in counters.read() {
            assert_eq!(line.requests, TIMED_FIRST + 1000 * TIMED_ONE_IN);
            assert!((line.average_us() - 3.0).abs() < 1e-9, "{line:?}");
        }
        let timed = |kind: RequestKind| (0..100_000).filter(|&n| kind.stands_for(n) > 0).count();
        assert!(timed(RequestKind::Lookup) < 7_000);
        assert_eq!(timed(RequestKind::Fsync), 100_000);
    }

    #[test]
    fn what_threads_count_is_added_up() {
        let counters = Counters::new();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| counters.count(RequestKind::Read, Duration::from_micros(2), false, 10));
            }
        });
        counters.count(RequestKind::Lookup, Duration::from_micros(1), true, 0);
        assert_eq!(counters.by_slot().sum::<u64>(), 5);
        let lines = counters.read();
        let kinds: Vec<_> = lines.iter().map(|l| l.kind.as_str()).collect();
        assert_eq!(kinds, ["lookup", "read"]);
        assert_eq!((lines[0].requests, lines[0].failures), (1, 1));
        assert_eq!((lines[1].requests, lines[1].bytes), (4, 40));
        assert!((lines[1].total_us - 8.0).abs() < 1e-9);
    }
}
