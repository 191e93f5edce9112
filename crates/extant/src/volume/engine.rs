//! The engine of one open volume: what all layers share, and how they find each other.

use crate::base::locks::{self, Mutex};
use crate::commit::formatter::Formatter;
use crate::commit::formatter::directory::Allowance;
use crate::commit::journal::Writer;
use crate::commit::journal::settle::Settling;
use crate::commit::statistics::Totals;
use crate::data::write_back::WritingBack;
use crate::incore::inode::Inode;
use crate::incore::inode_index::InodeIndex;
use crate::inodes::access_times::LazyTimes;
use crate::inodes::observe::Observed;
use crate::inodes::open_files::OpenFiles;
use crate::log::Log;
use crate::log::kick::Kick;
use crate::names::index_room::IndexRooms;
use crate::names::walk_cache::WalkCache;
use crate::space::block::BlockAlloc;
use crate::space::counts::Space;
use crate::space::inode::InodeAlloc;
use crate::space::window::Window;
use crate::store::buffers::Buffers;
use crate::store::damage::DamageLog;
use crate::store::flushes::Flushes;
use crate::store::gate::Gate;
use crate::store::groups::Groups;
use crate::store::health::{DamageHook, StopHook};
use crate::store::limits::Limits;
use crate::store::system_zone::SystemZone;
use crate::volume::caller::{Hold, Share};
use crate::watch::watchers::Watchers;
use blockdev::BlockDevice;
use crossbeam_utils::CachePadded;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use percpu::{Counter, PerSlot, SlotList};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

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
