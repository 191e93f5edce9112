//! A caller's choices, and the parameters of a layout that follow from them.

use super::error::{MkfsError, Result};
use super::owners::{IdMap, ModeMap};
use super::progress::Progress;
use super::tree::Draft;
use super::values::SuperblockValues;
use ext4_format::checksum::crc32c;
use ext4_format::features::{Compat, Features, FsType, Incompat, RoCompat};
use ext4_format::hash::HashVersion;
use ext4_format::layout::{Inodes, LayoutParams, Usage};
use ext4_format::superblock::{DEFM_ACL, DEFM_XATTR_USER, ERRORS_CONTINUE};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

/// Blocks of the smallest journal that the kernel takes.
const LEAST_JOURNAL: u32 = 1024;

/// A caller's choices about a new file system and its content. The names in brackets are those of mke2fs.
///
/// ```
/// use extant_mkfs::MkfsOptions;
/// let mut options = MkfsOptions::default();
/// options.label = "data".into();
/// options.features = "^has_journal".into();
/// assert_eq!(options.size, None); // as large as the content needs
/// options.free_percent = 20.0; // and a quarter more
/// ```
#[derive(Clone)]
pub struct MkfsOptions {
    /// Bytes of the volume; `None`: the size of the content, plus free space by [`free_percent`](Self::free_percent).
    pub size: Option<u64>,
    /// Percentage of the volume that stays free if its size is computed from the content.
    pub free_percent: f64,
    /// Finds the least size that holds the content. The volume has no spare inode and the smallest journal, and blocks of 1 KiB
    /// if they save a quarter. [`inodes`](Self::inodes), [`journal_size`](Self::journal_size) and
    /// [`block_size`](Self::block_size) take precedence.
    pub tight: bool,
    /// Default set of features (`-t`).
    pub fs_type: FsType,
    /// Usage type (`-T`); `None`: by the size.
    pub usage: Option<Usage>,
    /// Bytes of a block (`-b`); `None`: by the usage type if a size is given, else 4096.
    pub block_size: Option<u32>,
    /// Bytes of an inode (`-I`).
    pub inode_size: u16,
    /// Count of inodes (`-N`) or bytes per inode (`-i`); `None`: by the usage type, and more if the
    /// content needs more.
    pub inodes: Option<Inodes>,
    /// Features to add and remove (`-O`): `"large_dir,^orphan_file"`.
    pub features: String,
    /// Percentage reserved for the superuser (`-m`).
    pub reserved_percent: f64,
    /// Label (`-L`), at most 16 bytes.
    pub label: String,
    /// UUID (`-U`); `None`: random, or one that follows from [`source_date_epoch`](Self::source_date_epoch) and the content.
    pub uuid: Option<[u8; 16]>,
    /// Seed of directory hashes (`-E hash_seed`); `None`: derived from a given UUID, else random.
    pub hash_seed: Option<[u8; 16]>,
    /// Version of the directory hash.
    pub hash_version: HashVersion,
    /// Whether directories that fold case, of a volume with `casefold`, refuse names that are not UTF-8
    /// (`-E encoding_flags=strict`).
    pub strict_names: bool,
    /// Bytes of the journal (`-J size`, which counts in MiB); `None`: by the size.
    pub journal_size: Option<u64>,
    /// Block at or behind which the journal is (`-J location`); `None`: the middle of the volume.
    pub journal_location: Option<u64>,
    /// Blocks of the journal for fast commits (`-J fast_commit_size`, which counts in KiB), with the feature `fast_commit`; `None`: a 64th
    /// of it.
    pub fast_commit_blocks: Option<u32>,
    /// Bytes of the orphan file (`-E orphan_file_size`); `None`: by the size.
    pub orphan_file_bytes: Option<u64>,
    /// Backups of the superblock with `sparse_super2` (`-E num_backup_sb`): 0, 1 or 2.
    pub backup_superblocks: u8,
    /// Values of the superblock from which nothing follows.
    pub values: SuperblockValues,
    /// Groups in a flex group (`-G`).
    pub flex_bg_size: u32,
    /// Blocks in a group (`-g`); `None`: as many as a bitmap block counts.
    pub blocks_per_group: Option<u32>,
    /// Blocks to which the volume may grow later (`-E resize`).
    pub resize_to: Option<u64>,
    /// Behaviour on errors (`-e`): one of the `ERRORS_` of [`ext4_format::superblock`].
    pub errors: u16,
    /// Default mount options in the superblock, as bits ([`ext4_format::mount_options`]).
    pub mount_options: u32,
    /// Owner and group of the root directory (`-E root_owner`); `None`: the source's.
    pub root_owner: Option<(u32, u32)>,
    /// Permissions of the root directory; `None`: the source's, 0755 without one.
    pub root_mode: Option<u16>,
    /// Owner of every file, instead of the source's.
    pub uid: Option<u32>,
    /// Group of every file, instead of the source's.
    pub gid: Option<u32>,
    /// Translation of owners, when [`uid`](Self::uid) is not given.
    pub uid_map: IdMap,
    /// Translation of groups, when [`gid`](Self::gid) is not given.
    pub gid_map: IdMap,
    /// Changes to permissions.
    pub mode_map: ModeMap,
    /// Keep extended attributes and ACLs.
    pub xattrs: bool,
    /// Keep blocks of zeros and unwritten extents as blocks. Otherwise they become holes.
    pub keep_zeros: bool,
    /// Skip unreadable files and directories of a tree, with a warning for each.
    pub skip_unreadable: bool,
    /// `SOURCE_DATE_EPOCH`: the time of creation, and no time in the image is later. A tree's access
    /// times, which reading changes, become those of modification. With this the same source gives the same bytes.
    pub source_date_epoch: Option<i64>,
    /// The time of creation, in seconds; `None`: [`source_date_epoch`](Self::source_date_epoch), else now. Files keep
    /// their times.
    pub time: Option<i64>,
    /// Threads; 0: one per CPU.
    pub threads: usize,
    /// The device is known to read as zeros where nothing was written (a new sparse file).
    pub zeroed_device: bool,
    /// Leave unused inode tables to be zeroed by the kernel (`-E lazy_itable_init`), where the
    /// features allow it.
    pub lazy_itable_init: bool,
    /// Where to keep an archive that cannot be read twice (a pipe, a compressed file); `None`: the
    /// system's directory for temporary files.
    pub spool_dir: Option<PathBuf>,
    /// Told how far the work is.
    pub progress: Option<Arc<dyn Progress>>,
    /// Raised by the caller to stop.
    pub cancel: Option<Arc<AtomicBool>>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            size: None,
            free_percent: 0.0,
            tight: false,
            fs_type: FsType::Ext4,
            usage: None,
            block_size: None,
            inode_size: 256,
            inodes: None,
            features: String::new(),
            reserved_percent: 5.0,
            label: String::new(),
            uuid: None,
            hash_seed: None,
            strict_names: false,
            hash_version: HashVersion::HalfMd4,
            journal_size: None,
            journal_location: None,
            fast_commit_blocks: None,
            orphan_file_bytes: None,
            backup_superblocks: 2,
            values: SuperblockValues::default(),
            flex_bg_size: 16,
            blocks_per_group: None,
            resize_to: None,
            errors: ERRORS_CONTINUE,
            mount_options: DEFM_XATTR_USER | DEFM_ACL,
            root_owner: None,
            root_mode: None,
            uid: None,
            gid: None,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
            mode_map: ModeMap::default(),
            xattrs: true,
            keep_zeros: false,
            skip_unreadable: false,
            source_date_epoch: None,
            time: None,
            threads: 0,
            zeroed_device: false,
            lazy_itable_init: false,
            spool_dir: None,
            progress: None,
            cancel: None,
        }
    }
}

/// Features that mkfs can give to a new volume. Others need structures that this crate does not make.
const MADE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENT)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT),
};

impl MkfsOptions {
    /// Options with everything resolved that no content decides.
    pub(super) fn resolved(&self) -> Self {
        let mut s = self.clone();
        if s.threads == 0 {
            s.threads = std::thread::available_parallelism().map_or(1, usize::from);
        }
        s
    }

    /// Options with UUID and hash seed: as given, else random, or with [`source_date_epoch`](Self::source_date_epoch)
    /// such as follow from it, the label and the content. So all later steps are a function of options and source alone.
    pub(super) fn identified(mut self, draft: &Draft) -> Self {
        let uuid = self.uuid.unwrap_or_else(|| match self.source_date_epoch {
            Some(epoch) => self.uuid_of(epoch, draft),
            None => random(),
        });
        let is_random = self.uuid.is_none() && self.source_date_epoch.is_none();
        self.hash_seed = Some(self.hash_seed.unwrap_or_else(|| {
            if is_random {
                random()
            } else {
                derive(uuid, "hash seed")
            }
        }));
        self.uuid = Some(uuid);
        self
    }

    /// Returns the UUID of the volume that is made at a given time: another one for another label or another content.
    fn uuid_of(&self, epoch: i64, draft: &Draft) -> [u8; 16] {
        let mut seed = [0; 16];
        seed[..8].copy_from_slice(&epoch.to_le_bytes());
        seed[8..12].copy_from_slice(&crc32c(!0, self.label.as_bytes()).to_le_bytes());
        seed[12..].copy_from_slice(&draft.digest().to_le_bytes());
        // Version 8, which RFC 9562 leaves to vendors.
        *uuid::Builder::from_custom_bytes(derive(seed, "volume"))
            .into_uuid()
            .as_bytes()
    }

    /// Returns the time of creation, in seconds.
    pub(super) fn now(&self) -> i64 {
        self.time.or(self.source_date_epoch).unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0))
        })
    }

    /// Returns the requested features.
    pub(super) fn feature_set(&self) -> Result<Features> {
        let mut features = Features::defaults(self.fs_type);
        features.apply(&self.features)?;
        if let Some(name) = features.difference(MADE).names().first() {
            return Err(MkfsError::Options(format!(
                "feature {name} is not supported in a new file system"
            )));
        }
        let mut asked = self.features.split([',', ' ', '\t']);
        if asked.any(|name| name == "metadata_csum_seed")
            && features.has_csum_seed()
            && !features.has_metadata_csum()
        {
            // A default is dropped with the checksums, an explicit option is an error.
            return Err(MkfsError::Options(
                "metadata_csum_seed needs metadata_csum".into(),
            ));
        }
        if self.strict_names && !features.has_casefold() {
            return Err(MkfsError::Options("strict names need casefold".into()));
        }
        if features.has_64bit() && !features.has_extents() {
            // Address blocks hold 32-bit numbers. A default is dropped, an explicit option is an error.
            if self.features.split(',').any(|name| name.trim() == "64bit") {
                return Err(MkfsError::Options("64bit needs extent".into()));
            }
            features.incompat.remove(Incompat::SIXTY_FOUR_BIT);
        }
        Ok(features)
    }

    /// Returns the size of a block in bytes: as given, or by the usage type, which a given size may imply.
    pub(super) fn chosen_block_size(&self) -> u32 {
        self.block_size.unwrap_or_else(|| {
            let usage = self.usage.or_else(|| self.size.map(Usage::of_size));
            usage.map_or(4096, Usage::block_size)
        })
    }

    /// Parameters of a volume of `size` bytes.
    pub(super) const fn is_tight(&self) -> bool {
        self.tight && self.size.is_none()
    }

    pub(super) fn layout_params(&self, size: u64, time: i64) -> Result<LayoutParams> {
        let block_size = Some(self.chosen_block_size());
        let mut p = LayoutParams::new(size, self.fs_type, self.usage, block_size);
        p.features = self.feature_set()?;
        p.inode_size = self.inode_size;
        match (self.inodes, p.inodes) {
            (Some(inodes), _) => p.inodes = inodes,
            // Tables of large inodes would fill the volume, and mke2fs refuses them.
            (None, Inodes::BytesPerInode(ratio)) => {
                let least = u32::from(p.inode_size).saturating_mul(2);
                p.inodes = Inodes::BytesPerInode(ratio.max(least));
            }
            _ => {}
        }
        p.reserved_percent = self.reserved_percent;
        p.label.clone_from(&self.label);
        p.uuid = self.uuid.unwrap_or_default();
        p.hash_seed = self.hash_seed.unwrap_or_default();
        p.flex_bg_size = self.flex_bg_size;
        p.blocks_per_group = self.blocks_per_group;
        p.resize_to = self.resize_to;
        p.journal_goal = self.journal_location;
        p.fast_commit_blocks = self.fast_commit_blocks;
        p.backup_superblocks = self.backup_superblocks;
        if let Some(bytes) = self.orphan_file_bytes {
            let blocks = bytes.div_ceil(p.block_size.max(1).into());
            // mke2fs' bounds.
            let blocks = u32::try_from(blocks)
                .ok()
                .filter(|n| (2..=1 << 20).contains(n));
            let bad = || {
                MkfsError::Options("an orphan file of less than 2 blocks or more than 2^20".into())
            };
            p.orphan_file_blocks = Some(blocks.ok_or_else(bad)?);
        }
        p.time = time;
        if let Some(bytes) = self.journal_size {
            let blocks = bytes / u64::from(p.block_size.max(1));
            p.journal_blocks =
                Some(u32::try_from(blocks).map_err(|_| {
                    MkfsError::Options("a journal of more than 2^32 blocks".into())
                })?);
        } else if self.is_tight() && p.features.has_journal() {
            p.large_journal = true;
            p.journal_blocks = Some(LEAST_JOURNAL);
        }
        Ok(p)
    }
}

fn random() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

/// Derives sixteen bytes from a UUID and a purpose.
fn derive(uuid: [u8; 16], purpose: &str) -> [u8; 16] {
    let mut out = [0; 16];
    let mut state = crc32c(!0, purpose.as_bytes());
    for chunk in out.chunks_exact_mut(4) {
        state = crc32c(state, &uuid);
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    out
}
