//! The classes of the engine's locks, as the lock meter names them. Every lock of an open volume has a class. The locks
//! of `percpu` and of the formatter have separate ones.

pub(crate) use lockmeter::{Condvar, Mutex, MutexGuard};
pub(crate) use percpu::{ReadGuard, ReadMostly, RwLock, WriteGuard};

use lockmeter::lock_class;

lock_class!(
    /// Names of one interval of a directory's hash.
    pub(crate) Names = "directory bucket"
);
lock_class!(
    /// Directories that a slot has walked through.
    pub(crate) WalkCache = "walk cache of a slot"
);
lock_class!(
    /// Files that a slot opened lately.
    pub(crate) OpenFiles = "open files of a slot"
);
lock_class!(
    /// A slot's reference to the engine, for nodes.
    pub(crate) NodeShare = "node share of a slot"
);
lock_class!(
    /// A slot's reference to the volume, for handles of directories.
    pub(crate) Hold = "volume share of a slot"
);
lock_class!(
    /// Bringing a directory's names in.
    pub(crate) NamesLoading = "directory loading"
);
lock_class!(
    /// Adding a name to a directory whose index is full.
    pub(crate) IndexFull = "full directory index"
);
lock_class!(
    /// Looking for blocks when there seem to be none.
    pub(crate) ShortOfSpace = "short of space"
);
lock_class!(
    /// The watchers and their subjects.
    pub(crate) Watchers = "watchers"
);
lock_class!(
    /// Events of one watcher.
    pub(crate) Watch = "watched events"
);
lock_class!(
    /// The observer of inodes.
    pub(crate) Observer = "inode observer"
);
lock_class!(
    /// An inode's core.
    pub(crate) InodeState = "inode state"
);
lock_class!(
    /// Sixteen neighbouring numbers of the inode index.
    pub(crate) InodeIndex = "inode index chunk"
);
lock_class!(
    /// A file's mapping.
    pub(crate) Map = "file map"
);
lock_class!(
    /// The chunks of a file's pages.
    pub(crate) PageIndex = "page index"
);
lock_class!(
    /// Pages of a chunk that are read from the device.
    pub(crate) PagesComingIn = "pages coming in"
);
lock_class!(
    /// One page.
    pub(crate) Page = "page"
);
lock_class!(
    /// A slot's stretches of inode numbers.
    pub(crate) InodeStretches = "inode stretches of a slot"
);
lock_class!(
    /// A group's inode bitmap.
    pub(crate) InodeGroup = "inode bitmap of a group"
);
lock_class!(
    /// Inode numbers that rest without a journal.
    pub(crate) Resting = "resting inode numbers"
);
lock_class!(
    /// A group's block bitmap.
    pub(crate) BlockGroup = "block group"
);
lock_class!(
    /// Blocks set aside for a file that grows.
    pub(crate) Preallocation = "preallocation of a file"
);
lock_class!(
    /// Blocks set aside for a slot's small files.
    pub(crate) SlotPreallocation = "preallocation of a slot"
);
lock_class!(
    /// A slot's inodes with times to write some day.
    pub(crate) LazyTimes = "lazy times of a slot"
);
lock_class!(
    /// A slot's inodes with something to write back.
    pub(crate) DirtyInodes = "dirty inodes of a slot"
);
lock_class!(
    /// A shard of the metadata images.
    pub(crate) Buffers = "buffer shard"
);
lock_class!(
    /// The formatter: one push at a time.
    pub(crate) Formatter = "formatter"
);
lock_class!(
    /// Serializes building a fast commit.
    pub(crate) FastCommit = "fast commit"
);
lock_class!(
    /// Serializes writes to the area of fast commits.
    pub(crate) FastArea = "area of fast commits"
);
lock_class!(
    /// Items that are durable by fast commits and not formatted.
    pub(crate) Unformatted = "durable and not formatted"
);
lock_class!(
    /// The blocks that a push has taken and freed.
    pub(crate) PushSpace = "push space"
);
lock_class!(
    /// The journal's writer.
    pub(crate) Journal = "journal"
);
lock_class!(
    /// Transactions that wait for their commit block.
    pub(crate) CommitStage = "logged transactions"
);
lock_class!(
    /// Blocks and numbers freed by contexts on their way to the disk.
    pub(crate) Releases = "freed by contexts"
);
lock_class!(
    /// Contexts whose freed blocks and numbers cannot be taken yet.
    pub(crate) Unreleased = "contexts to release"
);
lock_class!(
    /// Flushes in progress.
    pub(crate) Flushes = "flushes under way"
);
lock_class!(
    /// Lists of inodes that are being written back.
    pub(crate) WritingBack = "lists in write-back"
);
lock_class!(
    /// The last context on disk.
    pub(crate) Durable = "durable context"
);
lock_class!(
    /// The error of a file that could not be written back.
    pub(crate) WriteBackFailed = "failed write-back of a file"
);
lock_class!(
    /// Requests to the background thread.
    pub(crate) Wakeup = "background wakeup"
);
lock_class!(
    /// A free run that is out of use while the device discards it.
    pub(crate) Trimming = "trimming"
);
lock_class!(
    /// Making a volume larger.
    pub(crate) Growing = "growing"
);
lock_class!(
    /// Threads that wait for a frozen volume.
    pub(crate) Gate = "frozen volume"
);
lock_class!(
    /// Renames that move a directory to another parent.
    pub(crate) Rename = "directory rename"
);
lock_class!(
    /// A volume's opening and closing.
    pub(crate) Volume = "volume"
);
lock_class!(
    /// Findings of damage.
    pub(crate) Damage = "damage found"
);
lock_class!(
    /// The superblock's place on the device.
    pub(crate) SuperblockPlace = "superblock on the device"
);
