//! The engine of one open volume: what all layers share, and how they find each other.

use crate::api::caller::Hold;
use crate::api::node::Share;
use crate::base::error::{Error, Result};
use crate::base::locks::{self, Condvar, Mutex};
use crate::commit::formatter::directory::Allowance;
use crate::commit::formatter::{Formatter, Published, first_unused};
use crate::commit::journal::Writer;
use crate::commit::journal::settle::Settling;
use crate::commit::statistics::Totals;
use crate::data::write_back::WritingBack;
use crate::incore::inode::Inode;
use crate::incore::inode_index::InodeIndex;
use crate::inodes::access_times::{AccessTimes, LazyTimes};
use crate::inodes::observe::Observed;
use crate::lifecycle::open_files::OpenFiles;
use crate::log::Log;
use crate::names::index_room::IndexRooms;
use crate::names::walk_cache::WalkCache;
use crate::space::block::{BlockAlloc, GroupSource};
use crate::space::counts::Space;
use crate::space::inode::{InodeAlloc, InodeSource};
use crate::space::search::Request;
use crate::space::window::Window;
use crate::store::buffers::Buffers;
use crate::store::damage::{Damage, DamageLog};
use crate::store::flushes::Flushes;
use crate::store::gate::Gate;
use crate::store::groups::Groups;
use crate::store::system_zone::SystemZone;
use crate::watch::watchers::Watchers;
use blockdev::BlockDevice;
use crossbeam_utils::CachePadded;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::hash::DirHasher;
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where};
use percpu::{Counter, PerSlot, SlotList};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Wakes the background thread before its timer.
#[derive(Default)]
pub struct Kick {
    asked: Mutex<Asked, locks::Kick>,
    /// Something is asked: who would ask again need not take the lock.
    pending: AtomicBool,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    Push,
    End,
}

impl Kick {
    /// A push is wanted soon.
    pub fn wake(&self) {
        if self.pending.load(Ordering::Relaxed) {
            return;
        }
        let mut asked = self.asked.lock();
        if *asked == Asked::Nothing {
            *asked = Asked::Push;
            self.pending.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// The background thread shall end.
    pub fn end(&self) {
        *self.asked.lock() = Asked::End;
        self.changed.notify_all();
    }

    /// Waits for [`Kick::wake`] or the timeout; says whether a push was asked for, or `None` when it is
    /// time to end.
    pub fn wait(&self, timeout: Duration) -> Option<bool> {
        let mut asked = self.asked.lock();
        if *asked == Asked::Nothing {
            self.changed.wait_for(&mut asked, timeout);
        }
        match *asked {
            Asked::End => None,
            other => {
                *asked = Asked::Nothing;
                self.pending.store(false, Ordering::Relaxed);
                Some(other == Asked::Push)
            }
        }
    }
}

/// Sizes and habits that an open volume keeps to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Data pages, clean and dirty, in bytes.
    pub cache_bytes: u64,
    /// Dirty data pages, in bytes: past it a writer writes back what it dirtied.
    pub dirty_bytes: u64,
    /// Clean inodes kept in core.
    pub inodes: u64,
    /// Time between timed commits.
    pub commit_interval: Duration,
    /// Which reads are noted.
    pub access_times: AccessTimes,
    /// Times alone are not written before a day has passed.
    pub lazy_times: bool,
    /// Reading a directory counts for its access time.
    pub directory_times: bool,
    /// What replaces a file is written first.
    pub auto_da_alloc: bool,
}

/// Called when a volume stops after a failure.
#[derive(Clone)]
pub(crate) struct StopHook(pub Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for StopHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopHook")
    }
}

/// Called for damage that is found.
#[derive(Clone)]
pub(crate) struct DamageHook(pub Arc<dyn Fn(&Damage) + Send + Sync>);

impl std::fmt::Debug for DamageHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DamageHook")
    }
}

/// Whether a volume is still there for its callers.
pub(crate) mod ended {
    /// It is.
    pub const NOT: u8 = 0;
    /// It was shut down, on demand.
    pub const SHUT_DOWN: u8 = 1;
    /// It has failed, and that was to end everything.
    pub const FAILED: u8 = 2;
    /// It was closed, or invalidated: handles are stale.
    pub const GONE: u8 = 3;
}

/// Everything that belongs to one open volume. Aligned so that the counts of its references, which every new handle
/// writes, stand on a line that operations do not read.
#[repr(align(128))]
pub struct Engine {
    pub(crate) geometry: Geometry,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) buffers: Buffers,
    pub(crate) groups: Groups,
    pub(crate) hasher: DirHasher,
    pub(crate) inodes: InodeAlloc,
    pub(crate) blocks: BlockAlloc,
    pub(crate) space: Space,
    /// Blocks set aside for the small files of each slot [B4].
    pub(crate) shares: PerSlot<Mutex<Window, locks::Share>>,
    /// Context in which space was short last.
    pub(crate) short_at: AtomicU64,
    pub(crate) short_of_space: Mutex<(), locks::ShortOfSpace>,
    pub(crate) index: InodeIndex,
    pub(crate) walks: WalkCache,
    /// Files that several slots open.
    pub(crate) open_files: OpenFiles,
    /// What the nodes made in a slot hold the engine by; none once the volume is closed.
    pub(crate) node_shares: PerSlot<Mutex<Option<Share>, locks::NodeShare>>,
    /// What the directory handles made in a slot hold the volume open by, while there are any.
    pub(crate) holds: PerSlot<Mutex<Weak<CachePadded<Hold>>, locks::Hold>>,
    pub(crate) in_core: SlotList<Arc<Inode>>,
    pub(crate) in_core_count: Counter,
    /// Inodes that the last walk for clean ones left in core.
    pub(crate) inodes_left: AtomicU64,
    pub(crate) dirty_inodes: PerSlot<Mutex<Vec<Arc<Inode>>, locks::DirtyInodes>>,
    /// Lists of inodes taken from there that threads are writing back.
    pub(crate) writing_back: WritingBack,
    pub(crate) lazy_times: LazyTimes,
    pub(crate) dirty_bytes: Counter,
    pub(crate) cached_bytes: Counter,
    pub(crate) log: Log,
    pub(crate) formatter: Mutex<Formatter, locks::Formatter>,
    pub(crate) journal: Mutex<Writer, locks::Journal>,
    pub(crate) settling: Settling,
    pub(crate) flushes: Flushes,
    pub(crate) kick: Kick,
    pub(crate) totals: Totals,
    pub(crate) limits: Limits,
    /// Why nothing may be changed, if so.
    pub(crate) read_only: Option<String>,
    pub(crate) stopped: OnceLock<String>,
    /// One of [`ended`]: if it is over, handles are good for nothing.
    pub(crate) ended: AtomicU8,
    /// A failure ends reading too.
    pub(crate) fail_all: bool,
    pub(crate) on_stop: Option<StopHook>,
    /// Damage stops the volume, as a failed write does.
    pub(crate) stops_on_damage: bool,
    pub(crate) on_damage: Option<DamageHook>,
    pub(crate) damage: Arc<DamageLog>,
    /// The volume's own blocks.
    pub(crate) zone: Arc<SystemZone>,
    /// Held while the superblock is written to its place on the device.
    pub(crate) superblock_io: Mutex<(), locks::SuperblockPlace>,
    /// Held while a run of free blocks is out of use to be trimmed: who is short of space waits for it.
    pub(crate) trimming: Mutex<(), locks::Trimming>,
    /// Holds changes back while the volume is frozen.
    pub(crate) gate: Gate,
    pub(crate) watchers: Watchers,
    pub(crate) observed: Observed,
    /// The superblock on the device says that the volume is in use. It does from the first commit on: a
    /// volume that nobody changed keeps every byte. Set with the formatter's lock held.
    pub(crate) marked_open: AtomicBool,
    /// Directories so large that the room in their index must be known.
    pub(crate) index_rooms: IndexRooms,
    /// What any directory has room for, without an account of its own.
    pub(crate) index_allowance: Allowance,
    /// Held by renames that move a directory to another parent, so that no two make a loop.
    pub(crate) rename: Mutex<(), locks::Rename>,
}

impl Engine {
    /// The volume has not been closed or shut down.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            ended::NOT => Ok(()),
            other => Err(self.why_ended(other)),
        }
    }

    #[cold]
    fn why_ended(&self, how: u8) -> Error {
        match (how, self.stopped.get()) {
            (ended::GONE, _) => Error::Stale,
            (ended::FAILED, Some(why)) => Error::Stopped(why.clone()),
            _ => Error::Stopped("the volume was shut down".into()),
        }
    }

    /// Fails when the volume has stopped after an error.
    pub(crate) fn check_running(&self) -> Result<()> {
        self.check_here()?;
        match self.stopped.get() {
            Some(why) => Err(Error::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Fails when the volume cannot be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_here()?;
        if let Some(why) = self.stopped.get() {
            return Err(Error::ReadOnly(format!("stopped after an error: {why}")));
        }
        match &self.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }

    /// Allocates one block whose number was taken from [`Engine::space`] before.
    pub(crate) fn allocate_block(&self, goal: BlockNr) -> Result<BlockNr> {
        match self.heed(self.blocks.allocate(&Request::near(goal, 1), self)) {
            Ok((block, _)) => Ok(block),
            Err(e) => Err(self.explain_space(e)),
        }
    }

    pub(crate) fn load_bitmaps(&self, start: BlockNr, len: u32) -> Result<()> {
        self.blocks.ensure_loaded(start, len, self)
    }

    /// A number for a new inode. Numbers freed by what is not yet durable come back with a push, for which nothing may be
    /// locked.
    pub(crate) fn allocate_inode(
        &self,
        parent: InodeNr,
        is_dir: bool,
    ) -> Result<crate::space::inode::Allocated> {
        let allocate = || self.inodes.allocate(parent, is_dir, self);
        match allocate() {
            Err(Error::NoSpace(_)) => {
                self.push_and_release()?;
                allocate().map_err(|e| self.explain_space(e))
            }
            other => other,
        }
    }

    /// Without a journal a freed number rests for a while [I3].
    pub(crate) fn rests_inode_numbers(&self) -> bool {
        !self.geometry.features.has_journal()
    }

    pub(crate) fn note_published(&self, published: &Published) {
        if let Some(inode) = self.index.get(published.ino) {
            inode
                .sectors
                .fetch_add(published.sectors_delta, Ordering::Relaxed);
            if let Some(file) = inode.touched_file().filter(|_| published.tree_delta != 0) {
                file.tree.note_formatted(published.tree_delta);
            }
            if let (Some(size), Some(dir)) = (published.size, inode.directory()) {
                dir.size.store(size, Ordering::Relaxed);
            }
        }
    }
}

impl Engine {
    /// A group's block bitmap as words. It must agree with the count in the group's descriptor, and the volume's own
    /// blocks must be in use by it: without checksums nothing else tells a bitmap that was overwritten.
    fn checked_block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        let (geometry, buffers) = (&self.geometry, &self.buffers);
        let (map, desc) = self.groups.block_bitmap(geometry, buffers, group)?;
        let words = Groups::words(&map, geometry.blocks_in_group(group));
        self.zone.check_bitmap(buffers, group, &words)?;
        let free: u32 = words.iter().map(|w| w.count_zeros()).sum();
        if free != desc.free_blocks {
            let what = "count of free blocks that the bitmap agrees with";
            return Err(FormatError::corrupt(what, Where::Group(group)).into());
        }
        Ok(words)
    }

    /// A group's inode bitmap as words. Reserved inodes must be in use by it, and when it is read first it must agree with
    /// the counts in the group's descriptor.
    fn checked_inode_bitmap(&self, group: GroupNr, again: bool) -> Result<Vec<u64>> {
        let (geometry, buffers) = (&self.geometry, &self.buffers);
        let map = self.groups.inode_bitmap(geometry, buffers, group, again)?;
        let words = Groups::words(&map, geometry.inodes_per_group);
        let reserved = if group.0 == 0 {
            geometry.first_ino - 1
        } else {
            0
        };
        if let Some(free) = (0..reserved).find(|&i| !ext4_format::bitmap::test(&map, i)) {
            let ino = geometry.inode_nr(group, free);
            return Err(Error::corrupt_inode("reserved inode marked free", ino));
        }
        let free: u32 = words.iter().map(|w| w.count_zeros()).sum();
        if !again && free != self.groups.get(geometry, buffers, group)?.free_inodes {
            let what = "count of free inodes that the bitmap agrees with";
            return Err(FormatError::corrupt(what, Where::Group(group)).into());
        }
        if !again {
            let desc = self.groups.get(geometry, buffers, group)?;
            self.check_unused(group, desc, &map)?;
        }
        Ok(words)
    }

    /// No inode is in use where the group's descriptor says that the table never was. e2fsck and the kernel do not look
    /// there, and what comes and goes in the group would hide that they should.
    fn check_unused(&self, group: GroupNr, desc: &GroupDesc, map: &[u8]) -> Result<()> {
        let unused = first_unused(&self.geometry, desc, group);
        match ext4_format::bitmap::find_one(map, unused, self.geometry.inodes_per_group) {
            None => Ok(()),
            Some(index) => {
                let ino = self.geometry.inode_nr(group, index);
                let what = "inode in use in the part of its table that is said to be unused";
                Err(Error::corrupt_inode(what, ino))
            }
        }
    }

    /// Notes what is wrong with a group, and that nothing is allocated there.
    #[cold]
    fn refuse_group(&self, group: GroupNr, error: &Error, function: &'static str) {
        if matches!(error, Error::Format(_)) {
            self.damage.refuse(group);
            self.note_damage(error, function, None);
        }
    }
}

impl GroupSource for Engine {
    fn free_blocks(&self, group: GroupNr) -> Result<u32> {
        match self.groups.get(&self.geometry, &self.buffers, group) {
            Ok(desc) => Ok(desc.free_blocks),
            Err(e) => {
                self.refuse_group(group, &e, "descriptor");
                Err(e)
            }
        }
    }

    fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        self.checked_block_bitmap(group)
            .inspect_err(|e| self.refuse_group(group, e, "block_bitmap"))
    }

    #[cold]
    fn check_in_use(&self, group: GroupNr, from: u32, to: u32) -> Result<()> {
        let (map, _) = self
            .groups
            .block_bitmap(&self.geometry, &self.buffers, group)?;
        match ext4_format::bitmap::find_zero(&map, from, to) {
            None => Ok(()),
            Some(bit) => {
                let first = self.geometry.group_first_block(group).0;
                let block = BlockNr(first + u64::from(bit));
                let what = "block to be freed that is free by its bitmap";
                let e = FormatError::corrupt(what, Where::Block(block, 0)).into();
                self.note_damage(&e, "free_blocks", None);
                Err(e)
            }
        }
    }

    fn lost(&self, blocks: u32) {
        self.space.settle(0, u64::from(blocks));
    }
}

impl InodeSource for Engine {
    fn free_inodes(&self, group: GroupNr) -> Result<u32> {
        GroupSource::free_blocks(self, group)?;
        let desc = self.groups.get(&self.geometry, &self.buffers, group)?;
        Ok(desc.free_inodes)
    }

    fn inode_bitmap(&self, group: GroupNr, again: bool) -> Result<Vec<u64>> {
        self.checked_inode_bitmap(group, again)
            .inspect_err(|e| self.refuse_group(group, e, "inode_bitmap"))
    }

    #[cold]
    fn check_in_use(&self, ino: InodeNr) -> Result<()> {
        let bad = || Error::corrupt_inode("inode to be freed that is free by its bitmap", ino);
        let (group, index) = self.geometry.group_of_inode(ino).ok_or_else(bad)?;
        let map = self
            .groups
            .inode_bitmap(&self.geometry, &self.buffers, group, true)?;
        let checked = if ext4_format::bitmap::test(&map, index) {
            let desc = self.groups.now(&self.geometry, &self.buffers, group)?;
            self.check_unused(group, &desc, &map)
        } else {
            Err(bad())
        };
        checked.inspect_err(|e| self.note_damage(e, "free_inode", Some(ino)))
    }
}
