//! Opening a volume.

use super::control::ErrorPolicy;
use super::volume::Volume;
use crate::base::error::{Error, Result};
use crate::base::locks::Mutex;
use crate::commit::formatter::Formatter;
use crate::commit::formatter::directory::Allowance;
use crate::commit::journal::recovery::{self, Recovery};
use crate::commit::journal::settle::Settling;
use crate::commit::journal::{Journal, LogArea, Writer};
use crate::incore::inode_index::InodeIndex;
use crate::log::Log;
use crate::log::kick::Kick;
use crate::space::block::BlockAlloc;
use crate::space::counts::{Reserve, Space};
use crate::space::inode::InodeAlloc;
use crate::space::search::BlockScan;
use crate::store::buffers::{Buffers, Image};
use crate::store::damage::Damage;
use crate::store::groups::{self, Groups, Totals};
use crate::store::health::{DamageHook, StopHook, ended};
use crate::store::limits::Limits;
use crate::store::mapping::MappingReader;
use crate::store::superblock;
use crate::store::system_zone::{self, SystemZone};
use crate::types::access_times::AccessTimes;
use crate::volume::engine::Engine;
use blockdev::{Access, BlockDevice, FileDevice};
use ext4_format::features::{Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::superblock::{
    ERRORS_PANIC, ERRORS_READ_ONLY, RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE,
};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, inode};
use percpu::{Counter, PerSlot, SlotList};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How a volume is opened.
///
/// ```no_run
/// let volume = extant::OpenOptions::new().read_only(true).open("disk.img")?;
/// println!("{} free blocks", volume.statfs()?.free_blocks);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read_only: bool,
    force: bool,
    cache_bytes: Option<u64>,
    inodes: Option<u64>,
    commit_interval: Duration,
    background: bool,
    most_log_blocks: Option<u64>,
    block_scan: BlockScan,
    errors: ErrorPolicy,
    access_times: AccessTimes,
    lazy_times: bool,
    directory_times: bool,
    auto_da_alloc: bool,
    on_stop: Option<StopHook>,
    on_damage: Option<DamageHook>,
    noload: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// For reading and writing, a quarter of the machine's memory for caches, a commit every 5 s.
    ///
    /// ```
    /// let options = extant::OpenOptions::new();
    /// # let _ = options;
    /// ```
    pub fn new() -> Self {
        Self {
            read_only: false,
            force: false,
            cache_bytes: None,
            inodes: None,
            commit_interval: Duration::from_secs(5),
            background: true,
            most_log_blocks: None,
            block_scan: BlockScan::default(),
            errors: ErrorPolicy::default(),
            access_times: AccessTimes::default(),
            lazy_times: false,
            directory_times: true,
            auto_da_alloc: true,
            on_stop: None,
            on_damage: None,
            noload: false,
        }
    }

    /// For tests: as if a transaction of the journal could hold no more blocks than these.
    #[doc(hidden)]
    #[must_use]
    pub fn most_log_blocks(mut self, blocks: u64) -> Self {
        self.most_log_blocks = Some(blocks);
        self
    }

    /// Change nothing on the device, not even recover the journal: it is replayed in memory.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().read_only(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Write to a volume that is marked as having errors, or that has no journal and was not closed.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().force(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn force(mut self, yes: bool) -> Self {
        self.force = yes;
        self
    }

    /// Bytes of memory for data pages.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().cache_bytes(64 << 20);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Inodes kept in memory, if nobody holds more; about 600 bytes each, with an eighth of the machine's
    /// memory as the default.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().inodes_in_core(100_000);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn inodes_in_core(mut self, inodes: u64) -> Self {
        self.inodes = Some(inodes);
        self
    }

    /// Time between timed commits.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().commit_interval(std::time::Duration::from_secs(30));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// How groups with free blocks are found.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().block_scan(extant::BlockScan::Linear);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn block_scan(mut self, scan: BlockScan) -> Self {
        self.block_scan = scan;
        self
    }

    /// Without the background thread nothing is committed but by sync, fsync and need.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().background(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn background(mut self, yes: bool) -> Self {
        self.background = yes;
        self
    }

    /// Which reads change the time of the last access; none if nothing is said.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().access_times(extant::AccessTimes::Relative);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn access_times(mut self, which: AccessTimes) -> Self {
        self.access_times = which;
        self
    }

    /// A time that changed alone is kept in memory, and written with the next change of its inode, at sync and close, or
    /// after a day; a crash loses it.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().lazy_times(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn lazy_times(mut self, yes: bool) -> Self {
        self.lazy_times = yes;
        self
    }

    /// What becomes of the volume when it stops after a failure.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().errors(extant::ErrorPolicy::Shutdown);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn errors(mut self, policy: ErrorPolicy) -> Self {
        self.errors = policy;
        self
    }

    /// Calls `hook` with the reason, once, when the volume stops after a failure; not when it is shut down on demand.
    /// It is called by the thread that met the failure, perhaps with locks held: it must not call the volume, only
    /// take note or wake somebody.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().on_stop(|why| eprintln!("stopped: {why}"));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn on_stop(mut self, hook: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_stop = Some(StopHook(Arc::new(hook)));
        self
    }

    /// Calls `hook` for every finding of damage, each once while the volume is open, with the caveats of
    /// [`OpenOptions::on_stop`]. [`ErrorPolicy`] says what becomes of the volume.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().on_damage(|damage| eprintln!("damaged: {damage}"));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn on_damage(mut self, hook: impl Fn(&Damage) + Send + Sync + 'static) -> Self {
        self.on_damage = Some(DamageHook(Arc::new(hook)));
        self
    }

    /// Leave the journal alone, as ext4's `noload`: the volume is opened read-only as it is on the device, without what
    /// its journal holds. It is a way to read a volume whose journal is damaged; what is read may be old, or torn.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().noload(true);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn noload(mut self, yes: bool) -> Self {
        self.noload = yes;
        self
    }

    /// Whether reading directories counts for their access times (not with `nodiratime`).
    ///
    /// ```
    /// let options = extant::OpenOptions::new().directory_access_times(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn directory_access_times(mut self, yes: bool) -> Self {
        self.directory_times = yes;
        self
    }

    /// Whether the data of a file that takes the place of another, by rename or because it was cut to nothing and written
    /// anew, go to the device first, so that a crash leaves the old or the new contents (ext4's `auto_da_alloc`). So it is
    /// if nothing else is said.
    ///
    /// ```
    /// let options = extant::OpenOptions::new().auto_da_alloc(false);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn auto_da_alloc(mut self, yes: bool) -> Self {
        self.auto_da_alloc = yes;
        self
    }

    /// Opens an image file or block device.
    ///
    /// ```no_run
    /// let volume = extant::OpenOptions::new().open("disk.img")?;
    /// volume.write_file("/file", b"data")?;
    /// volume.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let access = if self.read_only || self.noload {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        let device = FileDevice::open(path, access).map_err(|source| Error::Io {
            context: format!("open {}", path.display()),
            source,
        })?;
        self.open_device(Arc::new(device))
    }

    /// Opens any device.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use extant::mkfs::{self, MkfsOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Arc::new(extant::blockdev::MemDevice::new(16 << 20));
    /// mkfs::format(&*device, &MkfsOptions { size: Some(16 << 20), ..Default::default() })?;
    /// let volume = extant::OpenOptions::new().open_device(device)?;
    /// volume.write_file("/file", b"in memory")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let found = superblock::find(&*device)?;
        let mut read_only = match (self.read_only || device.read_only(), found.read_only) {
            _ if self.noload => Some("opened without its journal (noload)".to_string()),
            (true, _) => Some("opened read-only".to_string()),
            (false, why) => why,
        };
        let state = found.raw.state.get();
        if read_only.is_none() && !self.force {
            if state & STATE_ERROR != 0 {
                read_only = Some("the volume is marked as having errors; run e2fsck".into());
            } else if !found.geometry.features.has_journal() && state & STATE_VALID == 0 {
                read_only =
                    Some("the volume has no journal and was not closed cleanly; run e2fsck".into());
            }
        }
        let backup = found.backup;
        let mut opened = Opening {
            options: self,
            device,
            geometry: found.geometry,
            raw: found.raw,
            read_only,
            backup,
        };
        opened.run()
    }

    fn limits(&self) -> Limits {
        let memory = crate::base::system::memory();
        let cache_bytes = self.cache_bytes.unwrap_or(memory / 4).max(1 << 20);
        Limits {
            cache_bytes,
            dirty_bytes: cache_bytes / 4,
            inodes: self.inodes.unwrap_or((memory / 8 / 640).max(10_000)),
            commit_interval: self.commit_interval,
            access_times: self.access_times,
            lazy_times: self.lazy_times,
            directory_times: self.directory_times,
            auto_da_alloc: self.auto_da_alloc,
        }
    }
}

struct Opening<'a> {
    options: &'a OpenOptions,
    device: Arc<dyn BlockDevice>,
    geometry: Geometry,
    raw: RawSuperblock,
    read_only: Option<String>,
    /// `raw` is a backup, and takes the primary's place in memory.
    backup: bool,
}

impl Opening<'_> {
    fn buffers(&self) -> Buffers {
        let limit =
            (self.options.limits().cache_bytes / 8 / u64::from(self.geometry.block_size)) as usize;
        Buffers::new(Arc::clone(&self.device), self.geometry.block_size, limit)
    }

    fn run(&mut self) -> Result<Volume> {
        let mut buffers = self.buffers();
        if self.backup {
            self.put_backup(&buffers)?;
        }
        let mut recovered = Recovery::default();
        let mut journal = None;
        let mut found_log = None;
        let mut own_log = Vec::new();
        if self.geometry.features.has_journal() && !self.options.noload {
            let (area, size) = self.log_area(&buffers)?;
            let mut log = recovery::read_superblock(&area)?;
            if log.block_size != self.geometry.block_size {
                return Err(
                    FormatError::corrupt("block size of the journal", Where::Journal(0)).into(),
                );
            }
            area.check(log.max_len, size)?;
            own_log = area.ranges();
            self.check_log_place(&buffers, &own_log)?;
            found_log = Some(log.clone());
            if log.start != 0 {
                if self.read_only.is_some() {
                    recovered = self.recover_in_memory(&area, &log, &buffers)?;
                } else {
                    recovered = recovery::recover(
                        &area,
                        &*self.device,
                        self.geometry.block_size,
                        self.geometry.blocks_count,
                        &mut log,
                    )?;
                    // What was read before is stale now, the superblock too.
                    buffers = self.buffers();
                    let mut again = superblock::find(&*self.device)?;
                    self.geometry = again.geometry;
                    // An image in the log may be older than the errors recorded at its place.
                    if again.raw.keep_errors(&self.raw) {
                        self.put_superblock(&mut again.raw)?;
                    }
                    self.raw = again.raw;
                    self.check_log_place(&buffers, &own_log)?;
                }
            }
            journal = Some((area, log));
        }
        let groups = Groups::load(&self.geometry, &buffers)?;
        let features = &self.geometry.features;
        let mut settling = Settling::new(None);
        let writer = match journal {
            Some((area, log)) if self.read_only.is_none() => {
                let is_64bit = features.has_64bit();
                let area = Arc::new(area);
                settling = Settling::new(Some(Arc::clone(&area)));
                let journal = Journal::start(area, log, is_64bit, features.has_metadata_csum())?;
                Writer::Journal(Box::new(journal))
            }
            _ => Writer::Direct,
        };
        let capacity = match &writer {
            Writer::Journal(journal) => Some(journal.capacity()),
            Writer::Direct => None,
        };
        let hasher = DirHasher::new(
            self.geometry.def_hash_version,
            self.geometry.unsigned_hash,
            self.geometry.hash_seed,
        )?;
        let free = self.free(&groups, &buffers)?;
        let zone = Arc::new(SystemZone::new(&self.geometry, &own_log));
        let overlap = zone.overlap(&buffers)?.map(|group| {
            FormatError::corrupt("place of a bitmap or inode table", Where::Group(group))
        });
        if let Some(why) = &overlap {
            self.read_only.get_or_insert_with(|| {
                format!("bitmaps and inode tables overlap ({why}); run e2fsck")
            });
        }
        let formatter = Formatter::new(&self.geometry, free, &buffers, hasher, Arc::clone(&zone))?;
        let (orphans, damage) = (formatter.orphans(), formatter.damage());
        let limits = self.options.limits();
        let engine = Arc::new(Engine {
            inodes: InodeAlloc::new(&self.geometry, free.inodes, limits.cache_bytes / 16),
            blocks: BlockAlloc::new(
                &self.geometry,
                self.options.block_scan,
                limits.cache_bytes / 8,
            ),
            shares: PerSlot::default(),
            short_at: AtomicU64::new(0),
            space: Space::new(self.geometry.blocks_count, free.blocks, self.reserve()),
            index: InodeIndex::new(self.geometry.groups, self.geometry.inodes_per_group),
            walks: Default::default(),
            open_files: Default::default(),
            node_shares: Default::default(),
            holds: Default::default(),
            in_core: SlotList::new(),
            in_core_count: Counter::new(),
            inodes_left: AtomicU64::new(0),
            dirty_inodes: PerSlot::default(),
            lazy_times: Default::default(),
            dirty_bytes: Counter::new(),
            cached_bytes: Counter::new(),
            log: Log::new(capacity, self.options.most_log_blocks),
            formatter: Mutex::new(formatter),
            journal: Mutex::new(writer),
            settling,
            flushes: Default::default(),
            writing_back: Default::default(),
            short_of_space: Mutex::new(()),
            kick: Kick::default(),
            totals: Default::default(),
            limits: self.options.limits(),
            read_only: self.read_only.clone(),
            stopped: OnceLock::new(),
            ended: AtomicU8::new(ended::NOT),
            fail_all: self.options.errors == ErrorPolicy::Shutdown,
            stops_on_damage: match self.options.errors {
                ErrorPolicy::Superblock => {
                    [ERRORS_READ_ONLY, ERRORS_PANIC].contains(&self.raw.errors.get())
                }
                ErrorPolicy::Continue => false,
                ErrorPolicy::ReadOnly | ErrorPolicy::Shutdown => true,
            },
            on_damage: self.options.on_damage.clone(),
            damage,
            zone,
            superblock_io: Mutex::new(()),
            on_stop: self.options.on_stop.clone(),
            gate: Default::default(),
            trimming: Mutex::new(()),
            watchers: Default::default(),
            observed: Default::default(),
            marked_open: AtomicBool::new(false),
            rename: Mutex::new(()),
            index_rooms: Default::default(),
            index_allowance: Allowance::new(&self.geometry),
            geometry: self.geometry.clone(),
            device: Arc::clone(&self.device),
            buffers,
            groups,
            hasher,
        });
        if let Some(overlap) = overlap {
            engine.note_damage(&overlap.into(), "open", None);
        }
        if engine.read_only.is_none() {
            if self.left_open() || !orphans.is_empty() {
                engine.mark_open(&engine.formatter.lock())?;
            }
            engine.process_orphans(&orphans)?;
        }
        let background = (engine.read_only.is_none() && self.options.background)
            .then(|| crate::volume::background::spawn(&engine))
            .transpose()?;
        let orphans_left = match engine.read_only {
            Some(_) => orphans.len(),
            None => 0,
        };
        Volume::new(engine, background, recovered, found_log, orphans_left)
    }

    /// What is free. A large volume that was closed cleanly is believed: its superblock knows. After a cut the
    /// descriptors, which are in the journal, know better, and are gone through once.
    fn free(&self, groups: &Groups, buffers: &Buffers) -> Result<Totals> {
        if self.geometry.groups > groups::ALL {
            if self.left_open() {
                return groups::count(&self.geometry, buffers);
            }
            return Ok(Totals {
                blocks: self.raw.free_blocks().min(self.geometry.blocks_count),
                inodes: self.raw.free_inodes_count.get().into(),
            });
        }
        let mut free = Totals::default();
        for desc in groups.iter(&self.geometry, buffers) {
            let desc = desc?;
            free.blocks += u64::from(desc.free_blocks);
            free.inodes += u64::from(desc.free_inodes);
        }
        Ok(free)
    }

    fn reserve(&self) -> Reserve {
        Reserve {
            blocks: self.raw.reserved_blocks(),
            uid: self.raw.def_resuid.get().into(),
            gid: self.raw.def_resgid.get().into(),
        }
    }

    /// Whether the superblock says that somebody has the volume open, or had when it was cut off.
    fn left_open(&self) -> bool {
        let features = &self.geometry.features;
        features.incompat.contains(Incompat::NEEDS_RECOVERY)
            || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
            || self.raw.state.get() & STATE_VALID == 0
    }

    /// Everybody reads the superblock at the primary's place: there the backup is shown. The volume is
    /// read-only, so it stays in memory.
    fn put_backup(&self, buffers: &Buffers) -> Result<()> {
        let bs = u64::from(self.geometry.block_size);
        let (block, offset) = (
            BlockNr(SUPERBLOCK_OFFSET / bs),
            (SUPERBLOCK_OFFSET % bs) as usize,
        );
        let mut image = buffers.read(block)?.to_vec();
        if let Some(place) = image.get_mut(offset..offset + SUPERBLOCK_SIZE) {
            place.copy_from_slice(self.raw.bytes());
        }
        buffers.publish(block, Image::read(image), 0);
        Ok(())
    }

    /// Writes the superblock to its place after recovery.
    fn put_superblock(&self, sb: &mut RawSuperblock) -> Result<()> {
        sb.set_checksum();
        let place = BlockNr(SUPERBLOCK_OFFSET / u64::from(self.geometry.block_size));
        self.device
            .write_at(SUPERBLOCK_OFFSET, sb.bytes())
            .and_then(|()| self.device.flush())
            .map_err(|e| Error::block_io("write", place, e))
    }

    /// The journal may lie anywhere but in the volume's other own blocks.
    fn check_log_place(&self, buffers: &Buffers, own: &[(u64, u64)]) -> Result<()> {
        match system_zone::met_by(&self.geometry, buffers, own) {
            None => Ok(()),
            Some(_) => Err(Error::corrupt_inode(
                "journal that overlaps bitmaps or inode tables",
                InodeNr(self.geometry.journal_ino),
            )),
        }
    }

    /// The journal's blocks, and the size of its inode.
    fn log_area(&self, buffers: &Buffers) -> Result<(LogArea, u64)> {
        let ino = InodeNr(self.geometry.journal_ino);
        let groups = Groups::lazy(&self.geometry);
        let (block, offset) = groups.inode_location(&self.geometry, buffers, ino)?;
        let image = buffers.read(block)?;
        let raw = image
            .get(offset..offset + usize::from(self.geometry.inode_size))
            .ok_or_else(|| Error::corrupt_inode("inode position", ino))?;
        let core = inode::decode_core(raw, &self.geometry, ino)?;
        if core.links == 0 || core.file_type() != Some(ext4_format::FileType::Regular) {
            return Err(Error::corrupt_inode("journal inode", ino));
        }
        let reader = MappingReader {
            geometry: &self.geometry,
            images: buffers,
            ino,
            generation: core.generation,
            zone: None,
        };
        let map = reader.read(core.flags, inode::i_block(raw)?)?;
        let area = LogArea::new(Arc::clone(&self.device), self.geometry.block_size, map);
        Ok((area, core.size))
    }

    /// A read-only volume sees the log's images, but nothing is written.
    fn recover_in_memory(
        &mut self,
        area: &LogArea,
        log: &ext4_format::jbd2::Superblock,
        buffers: &Buffers,
    ) -> Result<Recovery> {
        let plan = recovery::plan(area, log, self.geometry.blocks_count)?;
        buffers.drop_clean();
        for replay in &plan.replay {
            buffers.publish(replay.home, Image::read(recovery::image(area, replay)?), 0);
        }
        Ok(Recovery::of(&plan))
    }
}
