//! An inode in memory. Its core is guarded by its own lock and nothing wider (mechanism L8, L9).

use crate::base::locks::{self, ReadMostly};
use crate::incore::directory::Directory;
use crate::incore::file::FileData;
use crate::incore::handles::Handles;
use crate::log::Commit;
use ext4_format::inode::{self, InodeCore};
use ext4_format::xattr::XattrSet;
use ext4_format::{FileType, InodeNr};
use extant_formatter::extent_map::Run;
use extant_formatter::item::Stamp;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The content of an inode, by its type.
pub enum Content {
    /// Names.
    Directory(Box<Directory>),
    /// Data; unset until they are first used.
    File(OnceLock<Box<FileData>>),
    /// Target of a symbolic link.
    Symlink(Box<Symlink>),
    /// Device, FIFO or socket: all is in the core.
    Special,
}

/// Targets up to this long are kept in the inode.
pub const FAST_SYMLINK_MAX: usize = 59;

/// The target of a symbolic link.
#[derive(Default)]
pub struct Symlink {
    /// Target of the link, once read.
    pub target: OnceLock<Box<[u8]>>,
    /// The block that holds a long target, if the link was born in memory; else its mapping is on the
    /// device.
    pub block: Option<Run>,
}

/// The part of an inode that its lock guards.
pub struct InodeState {
    /// Mode, owner, size, times, links, flags. For a file `core.size` is the size as callers see it.
    pub core: InodeCore,
    /// Size up to which data and mapping are in the log; what a crash would leave.
    pub disk_size: u64,
    /// Stamp of the last item logged for this inode.
    pub stamp: Stamp,
    /// Context in which the number was allocated; 0 if it was read from the device.
    pub born: u64,
    /// `core` holds changes not yet logged (times and sizes of writes; logged by write-back).
    pub core_dirty: bool,
    /// `core` holds a time that can be logged later, with the next other change.
    pub lazy_times: bool,
    /// On the list of inodes that have, or had, a time to be logged later.
    pub on_lazy_list: bool,
    /// On the orphan list of the volume.
    pub orphan: bool,
    /// Created without a name, and without a name since, so that the inode may still get one.
    pub unnamed: bool,
    /// The inode was freed; only stale handles still hold the object.
    pub freed: bool,
    /// All extended attributes, once read or set.
    pub xattrs: Option<Arc<XattrSet>>,
    /// Created or read without attributes. If none were set since, none need to be read.
    pub without_xattrs: bool,
}

/// The part of an inode that its lock guards, locked.
pub type StateGuard<'a> = locks::WriteGuard<'a, InodeState, locks::InodeState>;

/// An inode in core. The two reference counts begin a cache line, and the state fills the two lines after them. Fields
/// that readers of a file look at are not on these lines.
#[repr(C)]
pub struct Inode {
    /// Names, data or target.
    pub content: Content,
    /// Context of the last item logged: fsync waits for it, eviction too. 0 once an fsync knows it to be durable.
    pub last_context: AtomicU64,
    /// 512-byte sectors held, as stat shows.
    pub sectors: AtomicI64,
    /// Size mirror for readers that do not want the lock.
    pub size: AtomicU64,
    /// Core and what belongs to it.
    pub state: ReadMostly<InodeState, locks::InodeState>,
    /// Position on the volume's per-slot inode list (mechanism P1), as a word; 0 while it is on none.
    list_position: AtomicU64,
    /// Inode number.
    pub ino: InodeNr,
    mode: AtomicU32,
    uid: AtomicU32,
    gid: AtomicU32,
    /// Flags of the core, for checks without the lock.
    pub flags: AtomicU32,
    /// Project of the core, for checks without the lock.
    project: AtomicU32,
    /// Open handles, but those that slots count.
    pub handles: Handles,
    /// Read from the device: the content must be loaded from there.
    cold: bool,
    /// Type of the inode, which never changes.
    pub ftype: FileType,
    /// An access ACL or default ACL may exist: permission checks must look.
    pub has_acl: AtomicBool,
    /// File capabilities may exist: changing the contents takes them away.
    pub has_capability: AtomicBool,
    /// The inode has a watcher.
    pub watched: AtomicBool,
    /// The observer of inodes has been shown it.
    pub observed: AtomicBool,
    /// Slots may count handles on it, apart from [`handles`](Self::handles).
    pub by_slots: AtomicBool,
    /// On the list of inodes that write-back must visit.
    pub listed: percpu::Listed,
    /// Makes the object and its two reference counts 256 bytes: an allocator of size classes has a class for a power of
    /// two, and aligns it to a cache line.
    _fill: MaybeUninit<[u64; FILL]>,
}

/// Words between the fields of an inode and 256 bytes.
const FILL: usize = if cfg!(target_pointer_width = "64") {
    2
} else {
    0
};

/// The commit that makes an inode: its stamp, and the context of its items.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// The stamp.
    pub stamp: Stamp,
    /// The context.
    pub context: u64,
}

impl Birth {
    /// Returns the birth of an inode that this commit creates.
    #[inline]
    pub fn of(c: &Commit<'_>) -> Self {
        Self {
            stamp: c.stamp,
            context: c.context,
        }
    }
}

// An in-core inode and its two reference counts.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<Inode>() + 16 == 256);
    assert!((std::mem::offset_of!(Inode, state) + 16).is_multiple_of(64));
};

impl Inode {
    /// Makes an inode with the given core.
    #[inline(always)]
    pub fn new(ino: InodeNr, ftype: FileType, core: InodeCore, content: Content) -> Self {
        Self {
            ino,
            ftype,
            mode: AtomicU32::new(u32::from(core.mode)),
            uid: AtomicU32::new(core.uid),
            gid: AtomicU32::new(core.gid),
            flags: AtomicU32::new(core.flags),
            project: AtomicU32::new(core.project),
            has_acl: AtomicBool::new(false),
            has_capability: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            observed: AtomicBool::new(false),
            cold: false,
            by_slots: AtomicBool::new(false),
            listed: percpu::Listed::new(),
            handles: Handles::new(core.links == 0),
            last_context: AtomicU64::new(0),
            sectors: AtomicI64::new(0),
            size: AtomicU64::new(core.size),
            list_position: AtomicU64::new(0),
            state: ReadMostly::new(InodeState {
                disk_size: core.size,
                core,
                stamp: 0,
                born: 0,
                core_dirty: false,
                lazy_times: false,
                on_lazy_list: false,
                orphan: false,
                unnamed: false,
                freed: false,
                xattrs: None,
                without_xattrs: false,
            }),
            content,
            _fill: MaybeUninit::uninit(),
        }
    }

    /// Marks it as read from the device.
    pub fn read_from_device(self) -> Self {
        Self { cold: true, ..self }
    }

    /// Gives a new inode this many handles and these attributes.
    #[inline(always)]
    pub fn set_newborn(&mut self, opens: u32, xattrs: Option<Arc<XattrSet>>) {
        *self.has_acl.get_mut() = xattrs.is_some();
        self.handles.begin(opens);
        let state = self.state.get_mut();
        state.without_xattrs = xattrs.is_none();
        state.xattrs = xattrs;
    }

    /// Notes the commit that makes a new inode.
    #[inline(always)]
    pub fn set_birth(&mut self, born: Birth) {
        *self.last_context.get_mut() = born.context;
        let state = self.state.get_mut();
        state.stamp = born.stamp;
        state.born = born.context;
    }

    /// Returns mode, owner and group without the lock, for permission checks. The three may stem from two moments when
    /// a chown runs, as in any kernel.
    pub fn owner_and_mode(&self) -> (u32, u32, u16) {
        (
            self.uid.load(Ordering::Relaxed),
            self.gid.load(Ordering::Relaxed),
            self.mode.load(Ordering::Relaxed) as u16,
        )
    }

    /// Returns the project of the inode, without the lock.
    pub fn project(&self) -> u32 {
        self.project.load(Ordering::Relaxed)
    }

    /// Returns true if the contents of `dir` must have its project and the inode is of another one. Then the inode
    /// cannot get a name there.
    pub fn is_of_other_project(&self, dir: &Self) -> bool {
        dir.has_flag(inode::flags::PROJINHERIT) && dir.project() != self.project()
    }

    /// Returns all flags, as of one moment.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Returns true if any of these flags is set.
    pub fn has_flag(&self, flags: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flags != 0
    }

    /// Notes that something of this inode was logged in a context. Written once per context: of a
    /// directory many tasks work in this is a line they only read.
    pub fn logged_in(&self, context: u64) {
        if self.last_context.load(Ordering::Relaxed) != context {
            self.last_context.fetch_max(context, Ordering::AcqRel);
        }
    }

    /// Returns the context of the last item logged, if it is later than `synced`, the last durable one. Once that
    /// context is formatted, too (`formatted` is the last context that a push has made durable), a thread that asks
    /// again does not read these words, which each push writes.
    pub fn context_to_push(&self, synced: u64, formatted: u64) -> Option<u64> {
        match self.last_context.load(Ordering::Acquire) {
            0 => None,
            context if context > synced => Some(context),
            // Until a push has formatted it, the inode must not leave memory.
            context if context > formatted => None,
            context => {
                // Kept if something was logged meanwhile.
                let _ = self.last_context.compare_exchange(
                    context,
                    0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                None
            }
        }
    }

    /// Returns the inode's position on the per-slot inode list.
    pub fn list_position(&self) -> Option<percpu::Position> {
        percpu::Position::from_raw(self.list_position.load(Ordering::Relaxed))
    }

    /// Sets its position on the per-slot inode list; called with that list locked.
    pub fn set_list_position(&self, position: Option<percpu::Position>) {
        let word = position.map_or(0, percpu::Position::to_raw);
        self.list_position.store(word, Ordering::Relaxed);
    }

    /// Copies what [`Inode::owner_and_mode`] shows out of the core; call it with the state locked.
    pub fn mirror(&self, core: &InodeCore) {
        // Written only when they change: others read this line at every permission check.
        let note = |mirror: &AtomicU32, value: u32| {
            if mirror.load(Ordering::Relaxed) != value {
                mirror.store(value, Ordering::Relaxed);
            }
        };
        note(&self.mode, u32::from(core.mode));
        note(&self.uid, core.uid);
        note(&self.gid, core.gid);
        note(&self.flags, core.flags);
        note(&self.project, core.project);
        if self.size.load(Ordering::Relaxed) != core.size {
            self.size.store(core.size, Ordering::Relaxed);
        }
    }

    /// Returns the name of the field at an offset of this type.
    pub(crate) fn field_at(&self, offset: usize) -> &'static str {
        use std::mem::offset_of;
        let fields = [
            (offset_of!(Self, ino), "ino"),
            (offset_of!(Self, ftype), "ftype"),
            (offset_of!(Self, mode), "mode"),
            (offset_of!(Self, uid), "uid"),
            (offset_of!(Self, gid), "gid"),
            (offset_of!(Self, flags), "flags"),
            (offset_of!(Self, project), "project"),
            (offset_of!(Self, has_acl), "has_acl"),
            (offset_of!(Self, has_capability), "has_capability"),
            (offset_of!(Self, by_slots), "by_slots"),
            (offset_of!(Self, listed), "listed"),
            (offset_of!(Self, handles), "handles"),
            (offset_of!(Self, last_context), "last_context"),
            (offset_of!(Self, sectors), "sectors"),
            (offset_of!(Self, size), "size"),
            (offset_of!(Self, list_position), "list_position"),
            (offset_of!(Self, state), "state"),
            (offset_of!(Self, content), "content"),
        ];
        fields
            .into_iter()
            .filter(|(begin, _)| *begin <= offset)
            .max()
            .map_or("?", |(_, name)| name)
    }

    /// Returns true if no name leads to the inode any more.
    pub fn is_gone(&self) -> bool {
        let state = self.state.read();
        state.freed || state.core.links == 0
    }

    /// Returns the directory content, if the inode is a directory.
    pub fn directory(&self) -> Option<&Directory> {
        match &self.content {
            Content::Directory(d) => Some(d),
            _ => None,
        }
    }

    /// Returns the file content, if the inode is a file.
    pub fn file(&self) -> Option<&FileData> {
        let new = || {
            if self.cold {
                FileData::cold()
            } else {
                FileData::newborn()
            }
        };
        match &self.content {
            Content::File(data) => Some(data.get_or_init(|| Box::new(new()))),
            _ => None,
        }
    }

    /// Like [`file`](Self::file), but returns `None` for a new file that was not used yet and therefore has no data.
    #[inline]
    pub fn file_with_data(&self) -> Option<&FileData> {
        if self.cold {
            self.file()
        } else {
            self.touched_file()
        }
    }

    /// Returns the file content, if the inode is a file whose data were used.
    #[inline]
    pub fn touched_file(&self) -> Option<&FileData> {
        match &self.content {
            Content::File(data) => data.get().map(|data| &**data),
            _ => None,
        }
    }
}

impl InodeState {
    /// Returns the core as a crash may leave it: with the size of the data in the log.
    pub fn disk_core(&self) -> InodeCore {
        InodeCore {
            size: self.disk_size,
            ..self.core
        }
    }
}
