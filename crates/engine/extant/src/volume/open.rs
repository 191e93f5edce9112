//! Opening a volume.

use crate::base::error::{Error, Result};
use crate::base::grown::Grown;
use crate::base::locks::Mutex;
use crate::base::parallel;
use crate::commit::Committer;
use crate::commit::journal::commit_stage::CommitStage;
use crate::commit::journal::recovery::{self, Recovery};
use crate::commit::journal::{Journal, LogArea, Writer};
use crate::log::Log;
use crate::space::Space;
use crate::space::counts::{Counts, Reserve};
use crate::store::Store;
use crate::store::buffers::Buffers;
use crate::store::damage::DamageLog;
use crate::store::health::Health;
use crate::store::health::ended;
use crate::store::superblock;
use crate::types::settings::ErrorPolicy;
use crate::volume::engine::Engine;
use crate::volume::guard::Guard;
use crate::volume::options::VolumeOptions;
use blockdev::{BlockDevice, SnapshotDevice};
use ext4_format::features::{Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::jbd2;
use ext4_format::superblock::{
    ERRORS_PANIC, ERRORS_READ_ONLY, RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET,
    SUPERBLOCK_SIZE,
};
use ext4_format::{FormatError, InodeNr, Where, inode};
use extant_formatter::groups::{self, Groups, Totals};
use extant_formatter::image::Image;
use extant_formatter::mapping_reader::MappingReader;
use extant_formatter::system_zone::{self, SystemZone};
use extant_formatter::{Formatter, superblock_location};
use extant_mmp::{MmpDevice, MmpError, MmpOptions};
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};

/// A volume on its way to being open.
pub(crate) struct Opening<'a> {
    options: &'a VolumeOptions,
    pub(super) device: Arc<dyn BlockDevice>,
    snapshots: Arc<SnapshotDevice>,
    pub(super) geometry: Geometry,
    pub(super) raw: RawSuperblock,
    pub(super) read_only: Option<String>,
    /// `raw` is a backup, and takes the primary's place in memory.
    backup: bool,
    /// Damage that was skipped.
    damage: Vec<FormatError>,
}

/// The state of the journal.
struct FoundLog {
    /// Metadata as of after the recovery.
    buffers: Buffers,
    recovery: Recovery,
    /// Place of the journal, and its present superblock.
    journal: Option<(LogArea, jbd2::Superblock)>,
    /// Superblock of the journal as it was found.
    found: Option<jbd2::Superblock>,
    /// The blocks that it takes.
    own: Vec<(u64, u64)>,
}

impl FoundLog {
    /// Makes a result without a journal.
    fn none(buffers: Buffers) -> Self {
        Self {
            buffers,
            recovery: Recovery::default(),
            journal: None,
            found: None,
            own: Vec::new(),
        }
    }
}

/// Damage of a volume that is read by a backup of its superblock.
const BACKUP_IS_USED: FormatError = FormatError::corrupt(
    "magic number, geometry or checksum (a backup is used)",
    Where::Superblock,
);

/// Returns the reason why the volume is not written, if there is one.
fn why_read_only(
    options: &VolumeOptions,
    device: &dyn BlockDevice,
    found: &superblock::FoundSuperblock,
) -> Option<String> {
    if options.noload {
        return Some("opened without its journal (noload)".into());
    }
    if options.read_only || device.read_only() {
        return Some("opened read-only".into());
    }
    if found.read_only.is_some() || options.force {
        return found.read_only.clone();
    }
    let state = found.raw.state.get();
    if state & STATE_ERROR != 0 {
        return Some("the volume is marked as having errors; run e2fsck".into());
    }
    if !found.geometry.features.has_journal() && state & STATE_VALID == 0 {
        return Some("the volume has no journal and was not closed cleanly; run e2fsck".into());
    }
    None
}

/// Claims a volume under multiple mount protection that is to be written; a reader only waits until nobody has it.
fn protect(
    options: &VolumeOptions,
    device: Arc<dyn BlockDevice>,
    found: &superblock::FoundSuperblock,
    writes: bool,
) -> Result<Arc<dyn BlockDevice>> {
    let (sb, geometry) = (&found.raw, &found.geometry);
    if writes {
        let claimed = MmpDevice::mount(Arc::clone(&device), sb, geometry, &MmpOptions::default())?;
        return Ok(claimed.map_or(device, |claimed| Arc::new(claimed) as _));
    }
    match extant_mmp::wait_until_free(&*device, sb, geometry) {
        Err(MmpError::Format(_)) if options.leave_out_damage => Ok(device),
        waited => Ok(waited.map(|()| device)?),
    }
}

impl<'a> Opening<'a> {
    /// Reads the superblock, and decides whether the volume may be written.
    pub(crate) fn new(options: &'a VolumeOptions, device: Arc<dyn BlockDevice>) -> Result<Self> {
        let found = superblock::find(&*device)?;
        let read_only = why_read_only(options, &*device, &found);
        let (device, found, read_only) = if found.geometry.features.has_mmp() {
            let device = protect(options, device, &found, read_only.is_none())?;
            // The former holder of the volume may have changed it.
            let found = superblock::find(&*device)?;
            // A volume that is not claimed is not written, whatever the superblock says by now.
            let read_only = read_only.or_else(|| why_read_only(options, &*device, &found));
            (device, found, read_only)
        } else {
            (device, found, read_only)
        };
        let snapshots = Arc::new(SnapshotDevice::new(device));
        let device: Arc<dyn BlockDevice> = Arc::clone(&snapshots) as _;
        Ok(Self {
            options,
            device,
            snapshots,
            geometry: found.geometry,
            raw: found.raw,
            read_only,
            backup: found.backup,
            damage: Vec::from_iter(found.backup.then_some(BACKUP_IS_USED)),
        })
    }

    /// Returns true if damage is skipped, which is safe on a read-only volume alone.
    fn leaves_out_damage(&self) -> bool {
        self.options.leave_out_damage && self.read_only.is_some()
    }

    pub(super) fn buffers(&self) -> Buffers {
        let limit =
            (self.options.limits().cache_bytes / 8 / u64::from(self.geometry.block_size)) as usize;
        Buffers::new(Arc::clone(&self.device), self.geometry.block_size, limit)
    }

    /// Opens the volume: recovers the journal, wires the layers, and finishes what a crash interrupted.
    pub(crate) fn run(&mut self) -> Result<Arc<Guard>> {
        let log = match self.find_log() {
            // Transactions that wait in the journal must not be missed.
            Err(Error::Format(damage))
                if self.leaves_out_damage() && !self.geometry.features.has_needs_recovery() =>
            {
                self.damage.push(damage);
                let buffers = self.buffers();
                if self.backup {
                    self.put_backup(&buffers)?;
                }
                FoundLog::none(buffers)
            }
            found => found?,
        };
        let (recovery, journal) = (log.recovery, log.found.clone());
        let (engine, orphans) = self.build(log)?;
        let writable = engine.store.health.read_only.is_none();
        if writable {
            if self.left_open() || !orphans.is_empty() {
                engine.commit.mark_open(&engine.commit.formatter.lock())?;
            }
            engine.lifecycle.finish_orphans(&orphans)?;
        }
        let background = (writable && self.options.background)
            .then(|| crate::volume::background::spawn(&engine))
            .transpose()?;
        Ok(Arc::new(Guard {
            background: Mutex::new(background),
            closed: Mutex::new(false),
            recovery,
            journal,
            orphans_left: if writable { 0 } else { orphans.len() },
            engine,
        }))
    }

    /// Finds the journal, if the volume has one, and replays its log.
    fn find_log(&mut self) -> Result<FoundLog> {
        let buffers = self.buffers();
        if self.backup {
            self.put_backup(&buffers)?;
        }
        let mut found = FoundLog::none(buffers);
        if !self.geometry.features.has_journal() || self.options.noload {
            return Ok(found);
        }
        let (area, size) = self.log_area(&found.buffers)?;
        let mut log = recovery::read_superblock(&area)?;
        if log.block_size != self.geometry.block_size {
            return Err(
                FormatError::corrupt("block size of the journal", Where::Journal(0)).into(),
            );
        }
        area.check(log.max_len, size)?;
        found.own = area.ranges();
        self.check_log_place(&found.buffers, &found.own)?;
        let mut in_use = log.clone();
        if self.read_only.is_none() && self.geometry.features.has_fast_commit() {
            in_use.set_fast_commits(true);
        }
        found.found = Some(in_use);
        if log.start != 0 {
            found.recovery = if self.read_only.is_some() {
                self.recover_in_memory(&area, &log, &found.buffers)?
            } else {
                let recovery = self.recover(&area, &mut log)?;
                // Earlier reads are stale now, including the superblock.
                found.buffers = self.buffers();
                self.check_log_place(&found.buffers, &found.own)?;
                recovery
            };
        }
        found.journal = Some((area, log));
        Ok(found)
    }

    /// Returns the number of blocks that the log may refer to: all blocks of the device, because the superblock with
    /// the volume's new size may be in the log itself.
    pub(super) fn blocks_of_device(&self) -> u64 {
        let device = self.device.len() / u64::from(self.geometry.block_size);
        device.max(self.geometry.blocks_count)
    }

    /// Returns the journal to write to. The result is `None` for volumes without a journal and volumes that are not written.
    fn writer(
        &self,
        journal: Option<(LogArea, jbd2::Superblock)>,
    ) -> Result<(Writer, CommitStage)> {
        let Some((area, log)) = journal.filter(|_| self.read_only.is_none()) else {
            return Ok((Writer::Direct, CommitStage::new(None)));
        };
        let area = Arc::new(area);
        let commit_stage = CommitStage::new(Some(Arc::clone(&area)));
        let journal = Journal::start(area, log, &self.geometry.features)?;
        Ok((Writer::Journal(Box::new(journal)), commit_stage))
    }

    /// Builds the layers from the lowest up. Returns the orphans that the volume was left with, too.
    fn build(&mut self, log: FoundLog) -> Result<(Arc<Engine>, Vec<InodeNr>)> {
        let buffers = log.buffers;
        let groups = if self.leaves_out_damage() {
            let (groups, mut damage) = Groups::load_sound(&self.geometry, &buffers)?;
            self.damage.append(&mut damage);
            groups
        } else {
            Groups::load(&self.geometry, &buffers)?
        };
        let (writer, commit_stage) = self.writer(log.journal)?;
        let capacity = match &writer {
            Writer::Journal(journal) => Some(journal.capacity()),
            Writer::Direct => None,
        };
        let hasher = self.hasher()?;
        let free = self.free(&groups, &buffers)?;
        let zone = SystemZone::new(&self.geometry, &log.own);
        let zone = Arc::new(if self.leaves_out_damage() {
            zone.leaving_out_damage()
        } else {
            zone
        });
        let overlap = self.check_overlap(&zone, &buffers)?;
        let formatter = self.formatter(free, &buffers, hasher, &zone)?;
        let orphans = formatter.orphans();
        let store = Arc::new(Store {
            geometry: Grown::new(self.geometry.clone()),
            device: Arc::clone(&self.device),
            snapshots: Arc::clone(&self.snapshots),
            buffers,
            groups: Grown::new(groups),
            hasher,
            zone: Grown::new(zone),
            growing: Mutex::new(()),
            superblock_io: Mutex::new(()),
            gate: Default::default(),
            flushes: Default::default(),
            unsynced: Default::default(),
            health: self.health(DamageLog::new(formatter.found_errors())),
            limits: self.options.limits(),
            settings: self.options.settings,
        });
        let (blocks, ratio) = (self.geometry.blocks_count, self.geometry.cluster_ratio);
        let counts = Counts::new(blocks, ratio, free.blocks, self.reserve());
        let space = Arc::new(Space::new(
            Arc::clone(&store),
            counts,
            free.inodes,
            self.options.settings.block_scan,
        ));
        let log = Arc::new(Log::new(
            Arc::clone(&space),
            capacity,
            self.options.most_log_blocks,
        ));
        let commit = Arc::new(Committer::new(
            Arc::clone(&log),
            formatter,
            writer,
            commit_stage,
        ));
        let engine = Arc::new(Engine::wire(commit));
        for damage in self.damage.drain(..) {
            store.note_damage(&damage.into(), "open", None);
        }
        if let Some(overlap) = overlap {
            store.note_damage(&overlap.into(), "open", None);
        }
        Ok((engine, orphans))
    }

    pub(super) fn hasher(&self) -> Result<DirHasher> {
        Ok(DirHasher::new(
            self.geometry.def_hash_version,
            self.geometry.unsigned_hash,
            self.geometry.hash_seed,
        )?)
    }

    /// Builds the formatter, without orphans if their list is damaged and damage is skipped.
    fn formatter(
        &mut self,
        free: Totals,
        buffers: &Buffers,
        hasher: DirHasher,
        zone: &Arc<SystemZone>,
    ) -> Result<Formatter> {
        let threads = parallel::cpus().min(parallel::MAX_THREADS);
        let geometry = &self.geometry;
        let made = Formatter::new(geometry, free, buffers, hasher, Arc::clone(zone), threads);
        match made.map_err(Error::from) {
            Err(Error::Format(damage)) if self.leaves_out_damage() => {
                self.damage.push(damage);
                let zone = Arc::clone(zone);
                let made = Formatter::without_orphans(&self.geometry, free, buffers, hasher, zone)?;
                Ok(made)
            }
            made => made,
        }
    }

    /// Makes a volume read-only whose bitmaps and inode tables overlap.
    fn check_overlap(
        &mut self,
        zone: &SystemZone,
        buffers: &Buffers,
    ) -> Result<Option<FormatError>> {
        let overlap = zone.overlap(buffers)?.map(|group| {
            FormatError::corrupt("place of a bitmap or inode table", Where::Group(group))
        });
        if let Some(why) = &overlap {
            self.read_only.get_or_insert_with(|| {
                format!("bitmaps and inode tables overlap ({why}); run e2fsck")
            });
        }
        Ok(overlap)
    }

    fn health(&self, damage: DamageLog) -> Health {
        let options = self.options;
        Health {
            read_only: self.read_only.clone(),
            stopped: OnceLock::new(),
            ended: AtomicU8::new(ended::NOT),
            fail_all: options.settings.errors == ErrorPolicy::Shutdown,
            on_stop: options.on_stop.clone(),
            stops_on_damage: match options.settings.errors {
                ErrorPolicy::Superblock => {
                    [ERRORS_READ_ONLY, ERRORS_PANIC].contains(&self.raw.errors.get())
                }
                ErrorPolicy::Continue => false,
                ErrorPolicy::ReadOnly | ErrorPolicy::Shutdown => true,
            },
            on_damage: options.on_damage.clone(),
            damage,
            waiters: Default::default(),
        }
    }

    /// Returns the free counts. A large volume that was closed cleanly has them in its superblock. After a crash they
    /// are summed once from the descriptors, which are journaled.
    fn free(&self, groups: &Groups, buffers: &Buffers) -> Result<Totals> {
        let ratio = u64::from(self.geometry.cluster_ratio);
        if self.geometry.groups > groups::ALL {
            if self.left_open() {
                return Ok(groups::count(&self.geometry, buffers)?);
            }
            return Ok(Totals {
                blocks: self.raw.free_blocks().min(self.geometry.blocks_count),
                inodes: self.raw.free_inodes_count.get().into(),
            });
        }
        let mut free = Totals::default();
        for desc in groups.iter(&self.geometry, buffers) {
            if self.leaves_out_damage() && desc.is_err() {
                continue;
            }
            let desc = desc?;
            // Descriptors count clusters; the superblock counts blocks.
            free.blocks += u64::from(desc.free_blocks) * ratio;
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

    /// Returns true if the superblock marks the volume as open, or as open when it was cut off.
    fn left_open(&self) -> bool {
        let features = &self.geometry.features;
        features.incompat.contains(Incompat::NEEDS_RECOVERY)
            || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
            || self.raw.state.get() & STATE_VALID == 0
    }

    /// Shows the backup at the primary's place, where every reader looks for the superblock. The volume is read-only,
    /// so the backup stays in memory.
    fn put_backup(&self, buffers: &Buffers) -> Result<()> {
        let (block, offset) = superblock_location(&self.geometry);
        let mut image = buffers.read(block)?.to_vec();
        if let Some(place) = image.get_mut(offset..offset + SUPERBLOCK_SIZE) {
            place.copy_from_slice(self.raw.bytes());
        }
        buffers.publish(block, Image::read(image), 0);
        Ok(())
    }

    /// Writes the superblock to its place after recovery.
    pub(super) fn put_superblock(&self, sb: &RawSuperblock) -> Result<()> {
        let (place, _) = superblock_location(&self.geometry);
        self.device
            .write_at(SUPERBLOCK_OFFSET, sb.bytes())
            .and_then(|()| self.device.flush())
            .map_err(|e| Error::block_io("write", place, e))
    }

    /// Checks that the journal does not lie in the volume's other own blocks.
    fn check_log_place(&self, buffers: &Buffers, own: &[(u64, u64)]) -> Result<()> {
        match system_zone::met_by(&self.geometry, buffers, own) {
            None => Ok(()),
            Some(_) => Err(Error::corrupt_inode(
                "journal that overlaps bitmaps or inode tables",
                InodeNr(self.geometry.journal_ino),
            )),
        }
    }

    /// Returns the journal's blocks, and the size of its inode.
    fn log_area(&self, buffers: &Buffers) -> Result<(LogArea, u64)> {
        let ino = InodeNr(self.geometry.journal_ino);
        let (block, offset) = groups::inode_location_alone(&self.geometry, buffers, ino)?;
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
}
