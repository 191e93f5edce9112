//! Options of a change.

use ext4_format::features::{Compat, Features, Incompat, RoCompat};

/// Options of a change. Properties that are `None` or empty stay. The names in brackets are those of tune2fs.
///
/// ```
/// use extant_tune::TuneOptions;
/// let options = TuneOptions { label: Some(b"data".to_vec()), ..TuneOptions::default() };
/// assert!(!options.is_structural());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TuneOptions {
    /// Label, at most 16 bytes (`-L`).
    pub label: Option<Vec<u8>>,
    /// UUID (`-U`).
    pub uuid: Option<[u8; 16]>,
    /// Features to add, and to remove with a caret (`-O`).
    pub features: String,
    /// Kinds of quota to keep, `usrquota`, `grpquota` and `prjquota`, and kinds to remove with a caret (`-Q`).
    pub quota: String,
    /// Default mount options to add, and to remove with a caret (`-o`).
    pub mount_options: String,
    /// Percentage of the blocks that is reserved (`-m`).
    pub reserved_percent: Option<f64>,
    /// Blocks that are reserved (`-r`).
    pub reserved_blocks: Option<u64>,
    /// User that may use reserved blocks (`-u`).
    pub reserved_uid: Option<u16>,
    /// Group that may use reserved blocks (`-g`).
    pub reserved_gid: Option<u16>,
    /// Behaviour on errors (`-e`): one of the `ERRORS_` of [`ext4_format::superblock`].
    pub errors: Option<u16>,
    /// Mounts until a check; 0 and -1 switch it off (`-c`).
    pub max_mounts: Option<i16>,
    /// Mounts since the last check (`-C`).
    pub mounts: Option<u16>,
    /// Seconds between checks, 0 for none (`-i`).
    pub check_interval: Option<u32>,
    /// Time of the last check, in seconds (`-T`).
    pub last_checked: Option<i64>,
    /// Where it was mounted last, at most 64 bytes (`-M`).
    pub last_mounted: Option<Vec<u8>>,
    /// Whether to add a journal (`-j`).
    pub journal: bool,
    /// Size of the journal in MiB; a journal of another size is replaced (`-J size=`).
    pub journal_mib: Option<u64>,
    /// Size of the journal's area for fast commits in KiB; the journal is replaced (`-J fast_commit_size=`).
    pub fast_commit_kib: Option<u32>,
    /// Blocks on one disk of a RAID before the next disk (`-E stride=`).
    pub stride: Option<u16>,
    /// Blocks of a stripe of a RAID (`-E stripe_width=`).
    pub stripe_width: Option<u32>,
    /// Hash of new directory indexes, 0 to 2 (`-E hash_alg=`).
    pub hash_algorithm: Option<u8>,
    /// Seed of the directory hash, as the bytes of a UUID; all indexes are rebuilt.
    pub hash_seed: Option<[u8; 16]>,
    /// Mount options as a text, at most 63 bytes (`-E mount_opts=`).
    pub mount_text: Option<Vec<u8>>,
    /// Seconds between two writes of the MMP block, 0 for 5 (`-E mmp_update_interval=`).
    pub mmp_interval: Option<u16>,
    /// Whether to write a clean MMP block (`-E clear_mmp`).
    pub clear_mmp: bool,
    /// Whether directories that fold case refuse names that are not UTF-8 (`-E encoding_flags=strict`).
    pub strict_names: Option<bool>,
    /// The next check is not passed over (`-E force_fsck`).
    pub force_check: bool,
    /// The volume may be mounted by experimental drivers (`-E test_fs`).
    pub test_volume: Option<bool>,
    /// Bytes of the orphan file, which is created if it is missing (`-E orphan_file_size=`).
    pub orphan_file_bytes: Option<u64>,
    /// Whether to rebuild directories, with their names in hash order and without gaps, as `e2fsck -D` does.
    pub compact_directories: bool,
    /// The time, in seconds.
    pub now: i64,
}

impl TuneOptions {
    /// Returns whether more than fields of the superblock may change, so that the image must be clean and is checked
    /// before and after.
    pub const fn is_structural(&self) -> bool {
        self.uuid.is_some()
            || !self.features.is_empty()
            || !self.quota.is_empty()
            || self.journal
            || self.journal_mib.is_some()
            || self.fast_commit_kib.is_some()
            || self.hash_seed.is_some()
            || self.orphan_file_bytes.is_some()
            || self.mmp_interval.is_some()
            || self.compact_directories
    }
}

/// Features that can be set. The help of `extant tune` lists them.
pub const SETTABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::DIR_INDEX)
        .union(Compat::EXT_ATTR)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENT)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::MMP)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::READONLY)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// Features that can be cleared if no inode uses them. The help of `extant tune` lists them.
pub const CLEARABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::DIR_INDEX)
        .union(Compat::RESIZE_INODE)
        .union(Compat::FAST_COMMIT)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENT)
        .union(Incompat::FLEX_BG)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::MMP)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::READONLY),
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the features whose row in README.md does not have `no` in this column.
    fn in_readme(column: usize) -> Features {
        let mut features = Features::default();
        let rows = include_str!("../README.md").lines();
        for row in rows.filter(|row| row.starts_with("| `")) {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            if cells[column] != "no" {
                features.apply(&cells[1].replace('`', "")).unwrap();
            }
        }
        features
    }

    #[test]
    fn the_readme_lists_the_features_that_change() {
        assert_eq!(in_readme(2).names(), SETTABLE.names());
        assert_eq!(in_readme(3).names(), CLEARABLE.names());
    }
}
