//! The data of a regular file: its mapping and its pages.

use crate::base::error::Error;
use crate::base::locks::{self, Mutex, ReadMostly, RwLock};
use crate::incore::noted_time::NotedTime;
use crate::incore::pages::Pages;
use crate::log::Relog;
use crate::space::preallocation::Preallocation;
use ext4_format::timestamp::Timestamp;
use extant_formatter::extent_map::ExtentMap;
use percpu::PerSlot;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The mapping of a file. Held shared to read, and to overwrite pages that have their block; held exclusively to change
/// the mapping, the size or the reservations.
#[derive(Debug, Default)]
pub struct FileMap {
    /// `extents` is the mapping on the device plus the logged changes.
    pub loaded: bool,
    /// Logical to physical.
    pub extents: ExtentMap,
    /// The last change of the mapping, if it can be logged again in place.
    pub relog: Option<Relog>,
}

/// A file's mapping, held shared.
pub type MapReader<'a> = percpu::RwLockReadGuard<'a, FileMap, locks::Map>;

/// Times at which several slots overwrote pages of a file, by slot: in the core all of them would write one line.
/// Written with the map held, shared or not; a time here is later than the time in the core.
#[derive(Default)]
pub struct Overwrites {
    /// The last slot that overwrote a page, and 1; kept until there are two.
    by: AtomicU32,
    times: OnceLock<PerSlot<NotedTime>>,
}

impl Overwrites {
    /// Notes a change of now if several slots write; false if the core is the place for it.
    pub fn note(&self, time: Timestamp) -> bool {
        let Some(times) = self.times.get() else {
            let me = percpu::slot::current().index() as u32 + 1;
            match self.by.load(Ordering::Relaxed) {
                0 => self.by.store(me, Ordering::Relaxed),
                by if by != me => drop(self.times.get_or_init(PerSlot::default)),
                _ => {}
            }
            return false;
        };
        times.local().note(time);
        true
    }

    /// Returns the latest time noted. The inode's state is held, so that the time is not folded meanwhile.
    pub fn latest(&self) -> Option<Timestamp> {
        self.times.get()?.iter().filter_map(NotedTime::get).max()
    }

    /// Takes the latest time out; the inode's state is held exclusively.
    pub fn take(&self) -> Option<Timestamp> {
        // Most files have no noted time.
        self.latest()?;
        self.times.get()?.iter().filter_map(NotedTime::take).max()
    }
}

/// Number of mapping blocks that a file takes besides its data. The formatter knows the number only when it writes the
/// mapping, but stat shows the future number at once.
#[derive(Debug, Default)]
pub struct TreeBlocks {
    /// Blocks of the mapping as it was formatted last.
    formatted: AtomicI64,
    /// Blocks that the mapping in core takes, at least. Written with the map held exclusively.
    needed: AtomicU32,
}

impl TreeBlocks {
    /// Notes that the mapping was read from this number of blocks.
    pub fn note_read(&self, blocks: u64) {
        // A file has fewer blocks than 2^32.
        self.formatted.store(blocks as i64, Ordering::Relaxed);
        self.needed.store(blocks as u32, Ordering::Relaxed);
    }

    /// Notes that the formatter took this many blocks more, or freed some.
    pub fn note_formatted(&self, more: i64) {
        self.formatted.fetch_add(more, Ordering::Relaxed);
    }

    /// Notes that the mapping in core has changed and takes at least this number of blocks.
    pub fn note_needed(&self, blocks: u32) {
        if self.needed.load(Ordering::Relaxed) != blocks {
            self.needed.store(blocks, Ordering::Relaxed);
        }
    }

    /// Returns the number of blocks that the formatter has yet to take.
    pub fn to_come(&self) -> u64 {
        let needed = i64::from(self.needed.load(Ordering::Relaxed));
        u64::try_from(needed - self.formatted.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// A value aligned to separate cache lines.
#[repr(align(64))]
pub struct Lines<T>(T);

impl<T> Deref for Lines<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Data of one regular file.
pub struct FileData {
    /// Mapping of the file.
    pub map: Lines<RwLock<FileMap, locks::Map>>,
    /// Pages of the file in memory.
    pub pages: Pages,
    /// Blocks reserved for the mapping of dirty pages: for the worst case, so that write-back never lacks one. Changed
    /// with the map held exclusively.
    pub promised: AtomicU32,
    /// Blocks reserved for dirty pages in holes. Stat counts them as taken. Changed with the map held exclusively.
    pub promised_pages: AtomicU32,
    /// Blocks of the mapping's own tree, for stat.
    pub tree: TreeBlocks,
    /// The file was cut to nothing: closing it starts the write-back of the new data.
    pub replaced: AtomicBool,
    /// A cache above this one has written to the file and keeps its pages.
    pub cached_above: AtomicBool,
    /// Times of overwriting, when several slots do it.
    pub overwrites: Overwrites,
    /// One more than the mark of flushes at the last write of data; 0 if no data were written since the file was
    /// loaded.
    pub written: AtomicU64,
    /// The greatest value of `written` that a flush is known to cover, and at least 1 then, or 0 if no such flush is
    /// known.
    pub flushed: AtomicU64,
    /// Counts writes to its blocks on the device: changed with the map held exclusively, after the write.
    pub writes: AtomicU32,
    /// The slots that open the file.
    pub openers: Openers,
    /// Blocks set aside for it while it grows [L8].
    pub preallocation: ReadMostly<Preallocation, locks::Preallocation>,
    /// Error of the last failed write-back, until an fsync returns it.
    pub failed: Mutex<Option<Box<Error>>, locks::WriteBackFailed>,
}

impl FileData {
    /// Makes the data of a new file, which need no load.
    pub fn newborn() -> Self {
        Self::with(FileMap {
            loaded: true,
            ..FileMap::default()
        })
    }

    /// Makes the data of a file on the device.
    pub fn cold() -> Self {
        Self::with(FileMap::default())
    }

    fn with(map: FileMap) -> Self {
        Self {
            map: Lines(RwLock::new(map)),
            pages: Pages::default(),
            promised: AtomicU32::new(0),
            promised_pages: AtomicU32::new(0),
            tree: TreeBlocks::default(),
            replaced: AtomicBool::new(false),
            cached_above: AtomicBool::new(false),
            overwrites: Overwrites::default(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            writes: AtomicU32::new(0),
            openers: Openers::default(),
            preallocation: ReadMostly::default(),
            failed: Mutex::default(),
        }
    }
}

/// The slots that open a file.
#[derive(Debug, Default)]
pub struct Openers {
    last: AtomicU8,
    changes: AtomicU8,
}

impl Openers {
    /// Notes that this slot opens the file, and counts at the inode. True if several slots do.
    pub(crate) fn note(&self) -> bool {
        let me = percpu::slot::current().index() as u8;
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
            let changes = self.changes.load(Ordering::Relaxed).saturating_add(1);
            self.changes.store(changes, Ordering::Relaxed);
        }
        self.changes.load(Ordering::Relaxed) >= CHANGES
    }
}

/// A file counts as opened by several slots after this number of opens by a slot other than the previous one.
const CHANGES: u8 = 3;
