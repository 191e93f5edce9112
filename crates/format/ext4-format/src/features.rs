//! Feature bits, their names, and mke2fs' language for choosing them (`-O extent,^64bit`). CONTRIBUTING.md lists
//! the other files that a new feature changes.

use crate::error::{FormatError, Result};
use bitflags::bitflags;

bitflags! {
    /// Features that a program may ignore.
    ///
    /// ```
    /// use ext4_format::features::Compat;
    /// assert_eq!(Compat::from_bits_retain(0x24), Compat::HAS_JOURNAL | Compat::DIR_INDEX);
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Compat: u32 {
        /// Directory preallocation.
        const DIR_PREALLOC = 0x1;
        /// AFS server inodes.
        const IMAGIC_INODES = 0x2;
        /// A journal.
        const HAS_JOURNAL = 0x4;
        /// Extended attributes.
        const EXT_ATTR = 0x8;
        /// Reserved group descriptor blocks, held by the resize inode.
        const RESIZE_INODE = 0x10;
        /// Hashed directory indexes.
        const DIR_INDEX = 0x20;
        /// Lazy block groups (never in Linux).
        const LAZY_BG = 0x40;
        /// Snapshot exclude bitmap (never in Linux).
        const EXCLUDE_BITMAP = 0x100;
        /// Superblock backups in two groups named by the superblock.
        const SPARSE_SUPER2 = 0x200;
        /// The journal may hold fast commits.
        const FAST_COMMIT = 0x400;
        /// Inode numbers and the UUID must not change.
        const STABLE_INODES = 0x800;
        /// Orphans are recorded in a separate file.
        const ORPHAN_FILE = 0x1000;
    }

    /// Features without which a program must not read.
    ///
    /// ```
    /// use ext4_format::features::Incompat;
    /// assert!(Incompat::from_bits_retain(0x2c2).contains(Incompat::EXTENT));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Incompat: u32 {
        /// Compressed files.
        const COMPRESSION = 0x1;
        /// Directory entries carry the file type.
        const FILETYPE = 0x2;
        /// The journal must be replayed.
        const NEEDS_RECOVERY = 0x4;
        /// The device is an external journal.
        const JOURNAL_DEV = 0x8;
        /// Descriptor blocks are spread over meta groups.
        const META_BG = 0x10;
        /// Files are mapped by extents.
        const EXTENT = 0x40;
        /// Block numbers of more than 32 bits.
        const SIXTY_FOUR_BIT = 0x80;
        /// Multiple mount protection.
        const MMP = 0x100;
        /// A group's bitmaps and tables may be in another group.
        const FLEX_BG = 0x200;
        /// Large attribute values live in inodes.
        const EA_INODE = 0x400;
        /// Data in directory entries.
        const DIRDATA = 0x1000;
        /// The checksum seed is stored, not derived from the UUID.
        const CSUM_SEED = 0x2000;
        /// Directories of three index levels or over 2 GiB.
        const LARGE_DIR = 0x4000;
        /// Small files live in their inode.
        const INLINE_DATA = 0x8000;
        /// Encrypted files.
        const ENCRYPT = 0x1_0000;
        /// Directories that ignore case.
        const CASEFOLD = 0x2_0000;
    }

    /// Features without which a program must not write.
    ///
    /// ```
    /// use ext4_format::features::RoCompat;
    /// assert!(RoCompat::from_bits_retain(0x46b).contains(RoCompat::METADATA_CSUM));
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RoCompat: u32 {
        /// Superblock backups only in some groups.
        const SPARSE_SUPER = 0x1;
        /// Files of 2 GiB and more.
        const LARGE_FILE = 0x2;
        /// B-tree directories (never in Linux).
        const BTREE_DIR = 0x4;
        /// Block counts of files may be in file-system blocks.
        const HUGE_FILE = 0x8;
        /// Checksums (CRC-16) of group descriptors, and uninitialized groups.
        const GDT_CSUM = 0x10;
        /// Directories may have more than 65 000 subdirectories.
        const DIR_NLINK = 0x20;
        /// Inodes have room beyond 128 bytes.
        const EXTRA_ISIZE = 0x40;
        /// Snapshots (never in Linux).
        const HAS_SNAPSHOT = 0x80;
        /// Quota in hidden inodes.
        const QUOTA = 0x100;
        /// Allocation by clusters of blocks.
        const BIGALLOC = 0x200;
        /// CRC-32C of all metadata.
        const METADATA_CSUM = 0x400;
        /// Replicas (never in Linux).
        const REPLICA = 0x800;
        /// Never to be written.
        const READONLY = 0x1000;
        /// Project quota.
        const PROJECT = 0x2000;
        /// Blocks shared between files.
        const SHARED_BLOCKS = 0x4000;
        /// fs-verity files.
        const VERITY = 0x8000;
        /// The orphan file may hold entries.
        const ORPHAN_PRESENT = 0x1_0000;
    }
}

const COMPAT_NAMES: &[(&str, Compat)] = &[
    ("dir_prealloc", Compat::DIR_PREALLOC),
    ("imagic_inodes", Compat::IMAGIC_INODES),
    ("has_journal", Compat::HAS_JOURNAL),
    ("ext_attr", Compat::EXT_ATTR),
    ("resize_inode", Compat::RESIZE_INODE),
    ("dir_index", Compat::DIR_INDEX),
    ("lazy_bg", Compat::LAZY_BG),
    ("snapshot_bitmap", Compat::EXCLUDE_BITMAP),
    ("sparse_super2", Compat::SPARSE_SUPER2),
    ("fast_commit", Compat::FAST_COMMIT),
    ("stable_inodes", Compat::STABLE_INODES),
    ("orphan_file", Compat::ORPHAN_FILE),
];

const INCOMPAT_NAMES: &[(&str, Incompat)] = &[
    ("compression", Incompat::COMPRESSION),
    ("filetype", Incompat::FILETYPE),
    ("needs_recovery", Incompat::NEEDS_RECOVERY),
    ("journal_dev", Incompat::JOURNAL_DEV),
    ("meta_bg", Incompat::META_BG),
    ("extent", Incompat::EXTENT),
    ("extents", Incompat::EXTENT),
    ("64bit", Incompat::SIXTY_FOUR_BIT),
    ("mmp", Incompat::MMP),
    ("flex_bg", Incompat::FLEX_BG),
    ("ea_inode", Incompat::EA_INODE),
    ("dirdata", Incompat::DIRDATA),
    ("metadata_csum_seed", Incompat::CSUM_SEED),
    ("large_dir", Incompat::LARGE_DIR),
    ("inline_data", Incompat::INLINE_DATA),
    ("encrypt", Incompat::ENCRYPT),
    ("casefold", Incompat::CASEFOLD),
];

const RO_COMPAT_NAMES: &[(&str, RoCompat)] = &[
    ("sparse_super", RoCompat::SPARSE_SUPER),
    ("large_file", RoCompat::LARGE_FILE),
    ("btree_dir", RoCompat::BTREE_DIR),
    ("huge_file", RoCompat::HUGE_FILE),
    ("uninit_bg", RoCompat::GDT_CSUM),
    ("uninit_groups", RoCompat::GDT_CSUM),
    ("dir_nlink", RoCompat::DIR_NLINK),
    ("extra_isize", RoCompat::EXTRA_ISIZE),
    ("snapshot", RoCompat::HAS_SNAPSHOT),
    ("quota", RoCompat::QUOTA),
    ("bigalloc", RoCompat::BIGALLOC),
    ("metadata_csum", RoCompat::METADATA_CSUM),
    ("replica", RoCompat::REPLICA),
    ("read-only", RoCompat::READONLY),
    ("project", RoCompat::PROJECT),
    ("shared_blocks", RoCompat::SHARED_BLOCKS),
    ("verity", RoCompat::VERITY),
    ("orphan_present", RoCompat::ORPHAN_PRESENT),
];

macro_rules! names {
    ($ty:ident, $table:ident, $letter:literal) => {
        impl $ty {
            /// Returns the feature that mke2fs calls `name`.
            pub fn from_feature_name(name: &str) -> Option<Self> {
                $table.iter().find(|(n, _)| *n == name).map(|&(_, f)| f)
            }

            /// Returns the names of the bits set, in bit order; bits without a name come as
            #[doc = concat!("`FEATURE_", $letter, "<bit number>`.")]
            pub fn names(self) -> Vec<String> {
                let mut names = Vec::new();
                for bit in 0..32 {
                    let one = Self::from_bits_retain(1 << bit);
                    if self.contains(one) {
                        let known = $table.iter().find(|(_, f)| *f == one);
                        names.push(known.map_or_else(
                            || format!(concat!("FEATURE_", $letter, "{}"), bit),
                            |(n, _)| (*n).to_owned(),
                        ));
                    }
                }
                names
            }
        }
    };
}
names!(Compat, COMPAT_NAMES, "C");
names!(Incompat, INCOMPAT_NAMES, "I");
names!(RoCompat, RO_COMPAT_NAMES, "R");

/// Type of file system, which selects mke2fs' default features (`mke2fs -t`).
///
/// ```
/// use ext4_format::features::{Features, FsType};
/// assert!(Features::defaults(FsType::Ext4).has_extents());
/// assert!(!Features::defaults(FsType::Ext2).has_journal());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsType {
    /// No journal.
    Ext2,
    /// A journal.
    Ext3,
    /// A journal, extents, flexible groups, checksums with a separate seed, 64 bits, an orphan file.
    Ext4,
}

/// The three sets of features of a file system.
///
/// ```
/// use ext4_format::features::{Features, FsType};
/// let mut f = Features::defaults(FsType::Ext4);
/// f.apply("^has_journal,large_dir").unwrap();
/// assert!(!f.has_journal() && f.has_large_dir());
/// assert!(f.apply("no_such").is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Features that a program may ignore.
    pub compat: Compat,
    /// Features that a program must know to read.
    pub incompat: Incompat,
    /// Features that a program must know to write.
    pub ro_compat: RoCompat,
}

macro_rules! has {
    ($($name:ident, $set:ident, $flag:expr, $doc:literal;)*) => {
        impl Features {
            $(#[doc = $doc]
            #[inline]
            pub const fn $name(&self) -> bool { self.$set.contains($flag) })*
        }
    };
}
has! {
    has_journal, compat, Compat::HAS_JOURNAL, "`has_journal`: an internal or external journal.";
    has_resize_inode, compat, Compat::RESIZE_INODE, "`resize_inode`: reserved descriptor blocks.";
    has_dir_index, compat, Compat::DIR_INDEX, "`dir_index`: hashed directories.";
    has_ext_attr, compat, Compat::EXT_ATTR, "`ext_attr`: extended attributes.";
    has_sparse_super2, compat, Compat::SPARSE_SUPER2, "`sparse_super2`: at most two backups.";
    has_fast_commit, compat, Compat::FAST_COMMIT, "`fast_commit`.";
    has_orphan_file, compat, Compat::ORPHAN_FILE, "`orphan_file`.";
    has_filetype, incompat, Incompat::FILETYPE, "`filetype`: types in directory entries.";
    has_needs_recovery, incompat, Incompat::NEEDS_RECOVERY, "The journal must be replayed.";
    has_meta_bg, incompat, Incompat::META_BG, "`meta_bg`: descriptor blocks in meta groups.";
    has_extents, incompat, Incompat::EXTENT, "`extent`: files mapped by extents.";
    has_64bit, incompat, Incompat::SIXTY_FOUR_BIT, "`64bit`.";
    has_mmp, incompat, Incompat::MMP, "`mmp`.";
    has_flex_bg, incompat, Incompat::FLEX_BG, "`flex_bg`.";
    has_ea_inode, incompat, Incompat::EA_INODE, "`ea_inode`.";
    has_csum_seed, incompat, Incompat::CSUM_SEED, "`metadata_csum_seed`.";
    has_large_dir, incompat, Incompat::LARGE_DIR, "`large_dir`.";
    has_inline_data, incompat, Incompat::INLINE_DATA, "`inline_data`.";
    has_encrypt, incompat, Incompat::ENCRYPT, "`encrypt`.";
    has_casefold, incompat, Incompat::CASEFOLD, "`casefold`.";
    has_sparse_super, ro_compat, RoCompat::SPARSE_SUPER, "`sparse_super`.";
    has_large_file, ro_compat, RoCompat::LARGE_FILE, "`large_file`: files of 2 GiB and more.";
    has_huge_file, ro_compat, RoCompat::HUGE_FILE, "`huge_file`: 48-bit block counts.";
    has_gdt_csum, ro_compat, RoCompat::GDT_CSUM, "`uninit_bg`: CRC-16 of group descriptors.";
    has_dir_nlink, ro_compat, RoCompat::DIR_NLINK, "`dir_nlink`.";
    has_extra_isize, ro_compat, RoCompat::EXTRA_ISIZE, "`extra_isize`.";
    has_quota, ro_compat, RoCompat::QUOTA, "`quota`.";
    has_bigalloc, ro_compat, RoCompat::BIGALLOC, "`bigalloc`.";
    has_metadata_csum, ro_compat, RoCompat::METADATA_CSUM, "`metadata_csum`.";
    has_project, ro_compat, RoCompat::PROJECT, "`project`.";
}

impl Features {
    /// Returns the default features of upstream's mke2fs 1.47 for a file system of this type: distributions leave out
    /// features that their boot loaders cannot read (Debian `metadata_csum_seed` and `orphan_file`).
    ///
    /// ```
    /// use ext4_format::features::{Features, FsType};
    /// let f = Features::defaults(FsType::Ext4);
    /// assert!(f.has_csum_seed() && f.has_orphan_file());
    /// ```
    pub fn defaults(fs_type: FsType) -> Self {
        let mut f = Self {
            compat: Compat::RESIZE_INODE | Compat::DIR_INDEX | Compat::EXT_ATTR,
            incompat: Incompat::FILETYPE,
            ro_compat: RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE,
        };
        if fs_type != FsType::Ext2 {
            f.compat |= Compat::HAS_JOURNAL;
        }
        if fs_type == FsType::Ext4 {
            f.compat |= Compat::ORPHAN_FILE;
            f.incompat |= Incompat::EXTENT
                | Incompat::FLEX_BG
                | Incompat::SIXTY_FOUR_BIT
                | Incompat::CSUM_SEED;
            f.ro_compat |= RoCompat::HUGE_FILE
                | RoCompat::METADATA_CSUM
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE;
        }
        f
    }

    /// Returns the features that another set lacks.
    ///
    /// ```
    /// use ext4_format::features::{Features, FsType};
    /// let [ext3, ext2] = [FsType::Ext3, FsType::Ext2].map(Features::defaults);
    /// assert_eq!(ext3.difference(ext2).names(), ["has_journal"]);
    /// ```
    pub const fn difference(self, other: Self) -> Self {
        Self {
            compat: self.compat.difference(other.compat),
            incompat: self.incompat.difference(other.incompat),
            ro_compat: self.ro_compat.difference(other.ro_compat),
        }
    }

    /// Returns whether group descriptors carry a checksum, and so flags for uninitialized bitmaps.
    pub const fn has_group_csum(&self) -> bool {
        self.has_gdt_csum() || self.has_metadata_csum()
    }

    /// Applies mke2fs' `-O` language: a list of names, separated by commas, spaces or tabs; `^name` clears a feature,
    /// `none` clears all earlier ones.
    ///
    /// # Errors
    /// A name that is not known. The features before it are already applied.
    pub fn apply(&mut self, list: &str) -> Result<()> {
        let words = list.split([',', ' ', '\t']).filter(|w| !w.is_empty());
        for word in words {
            if word == "none" {
                *self = Self::default();
                continue;
            }
            let (name, on) = match word.strip_prefix('^') {
                Some(rest) => (rest, false),
                None => (word, true),
            };
            if let Some(f) = Compat::from_feature_name(name) {
                self.compat.set(f, on);
            } else if let Some(f) = Incompat::from_feature_name(name) {
                self.incompat.set(f, on);
            } else if let Some(f) = RoCompat::from_feature_name(name) {
                self.ro_compat.set(f, on);
            } else {
                return Err(FormatError::Incompatible(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns all names, in the order of dumpe2fs.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.compat.names();
        names.extend(self.incompat.names());
        names.extend(self.ro_compat.names());
        names
    }

    /// Fails with the names of the incompatible features outside `known`.
    ///
    /// # Errors
    /// [`FormatError::Incompatible`].
    pub fn require_incompat_within(&self, known: Incompat) -> Result<()> {
        let unknown = self.incompat.difference(known);
        if unknown.is_empty() {
            Ok(())
        } else {
            Err(FormatError::Incompatible(unknown.names().join(",")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_has_a_name_that_parses() {
        for f in Compat::all() {
            assert_eq!(Compat::from_feature_name(&f.names()[0]), Some(f));
        }
        for f in Incompat::all() {
            assert_eq!(Incompat::from_feature_name(&f.names()[0]), Some(f));
        }
        for f in RoCompat::all() {
            assert_eq!(RoCompat::from_feature_name(&f.names()[0]), Some(f));
        }
        assert_eq!(Incompat::from_bits_retain(1 << 31).names(), ["FEATURE_I31"]);
    }

    #[test]
    fn none_clears_and_carets_subtract() {
        let mut f = Features::defaults(FsType::Ext4);
        f.apply("none,extents ^extent, uninit_groups").unwrap();
        assert_eq!(f.names(), ["uninit_bg"]);
        assert!(f.require_incompat_within(Incompat::empty()).is_ok());
    }
}
