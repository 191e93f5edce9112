//! A caller's choices about a new file system, and the defaults of mke2fs 1.47.

use crate::features::{Features, FsType};

/// mke2fs' usage types: block size and inode density by the size of the volume.
///
/// ```
/// use ext4_format::layout::Usage;
/// assert_eq!(Usage::of_size(100 << 20), Usage::Small);
/// assert_eq!(Usage::Huge.inode_ratio(), 65_536);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// Below 3 MiB.
    Floppy,
    /// Below 512 MiB.
    Small,
    /// Below 4 TiB.
    Default,
    /// Below 16 TiB.
    Big,
    /// The largest.
    Huge,
    /// Many small files (only when asked for).
    News,
    /// Files of a megabyte (only when asked for).
    LargeFile,
    /// Files of four megabytes (only when asked for).
    LargeFile4,
}

impl Usage {
    /// Returns mke2fs' usage type for a volume of this many bytes.
    pub const fn of_size(bytes: u64) -> Self {
        const MIB: u64 = 1 << 20;
        match bytes / MIB {
            0..3 => Self::Floppy,
            3..512 => Self::Small,
            512..0x40_0000 => Self::Default,
            0x40_0000..0x100_0000 => Self::Big,
            _ => Self::Huge,
        }
    }

    /// Returns the type of this name (`mke2fs -T`).
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "floppy" => Self::Floppy,
            "small" => Self::Small,
            "default" => Self::Default,
            "big" => Self::Big,
            "huge" => Self::Huge,
            "news" => Self::News,
            "largefile" => Self::LargeFile,
            "largefile4" => Self::LargeFile4,
            _ => return None,
        })
    }

    /// Returns the number of bytes of a block.
    pub const fn block_size(self) -> u32 {
        match self {
            Self::Floppy | Self::Small => 1024,
            _ => 4096,
        }
    }

    /// Returns the number of bytes of the volume per inode.
    pub const fn inode_ratio(self) -> u32 {
        match self {
            Self::Floppy => 8192,
            Self::Small | Self::News => 4096,
            Self::Default => 16_384,
            Self::Big => 32_768,
            Self::Huge => 65_536,
            Self::LargeFile => 1 << 20,
            Self::LargeFile4 => 1 << 22,
        }
    }
}

/// How many inodes a new file system gets.
///
/// ```
/// use ext4_format::layout::{Inodes, LayoutParams};
/// assert_eq!(LayoutParams::for_size(1 << 30).inodes, Inodes::BytesPerInode(16_384));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inodes {
    /// Number of bytes of the volume per inode.
    BytesPerInode(u32),
    /// Least number of inodes; rounded up to fill the tables.
    Count(u32),
}

/// A caller's choices about a new file system.
///
/// ```
/// use ext4_format::layout::{Layout, LayoutParams};
/// let mut params = LayoutParams::for_size(100 << 20);
/// params.label = "scratch".into();
/// params.features.apply("^has_journal").unwrap();
/// let layout = Layout::new(&params).unwrap();
/// assert_eq!(layout.superblock.label(), b"scratch");
/// assert_eq!(layout.journal_blocks, 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutParams {
    /// Blocks of the volume. The layout may leave out a last group too small to be of use.
    pub blocks_count: u64,
    /// Bytes of a block: a power of two from 1024 to 65 536.
    pub block_size: u32,
    /// Bytes of an inode: a power of two from 128 to the block size.
    pub inode_size: u16,
    /// How many inodes.
    pub inodes: Inodes,
    /// Features.
    pub features: Features,
    /// Share of the blocks only the superuser may take, in percent; 0 to 50.
    pub reserved_percent: f64,
    /// Label: at most 16 bytes.
    pub label: String,
    /// UUID.
    pub uuid: [u8; 16],
    /// Seed of directory hashes, as UUID bytes.
    pub hash_seed: [u8; 16],
    /// Blocks of the journal; `None` for mke2fs' default.
    pub journal_blocks: Option<u32>,
    /// Whether the journal may take more than half of the volume, which mke2fs refuses.
    pub large_journal: bool,
    /// Groups in a flex group, a power of two.
    pub flex_bg_size: u32,
    /// Blocks in a group; `None` for as many as a bitmap block counts.
    pub blocks_per_group: Option<u32>,
    /// Blocks the volume may be grown to later, which sizes the reserved descriptors; `None` for
    /// 1024 times the size.
    pub resize_to: Option<u64>,
    /// First block allowed for the journal; `None` for the middle of the volume.
    pub journal_goal: Option<u64>,
    /// Blocks of the journal for fast commits, with that feature; `None` for a 64th of the journal.
    pub fast_commit_blocks: Option<u32>,
    /// Blocks of the orphan file, for the caller; `None` for mke2fs' default.
    pub orphan_file_blocks: Option<u32>,
    /// Backups of the superblock with `sparse_super2`: 0, 1 or 2.
    pub backup_superblocks: u8,
    /// Time of creation, in seconds.
    pub time: i64,
}

impl LayoutParams {
    /// Returns mke2fs' defaults for an ext4 of `bytes` bytes.
    pub fn for_size(bytes: u64) -> Self {
        Self::new(bytes, FsType::Ext4, None, None)
    }

    /// Returns mke2fs' defaults for a volume of `bytes` bytes: type, usage type (`None`: by size), block size
    /// (`None`: by usage type). UUID and hash seed are zeros and the time is 0: the caller has entropy and a clock.
    pub fn new(bytes: u64, fs_type: FsType, usage: Option<Usage>, block_size: Option<u32>) -> Self {
        let usage = usage.unwrap_or(Usage::of_size(bytes));
        let block_size = block_size.unwrap_or(usage.block_size());
        let mut blocks_count = bytes / u64::from(block_size.max(1));
        // Whole pages of 4 KiB, so that a mapping of the device covers whole blocks.
        if (1024..4096).contains(&block_size) {
            let per_page = u64::from(4096 / block_size);
            blocks_count -= blocks_count % per_page;
        }
        Self {
            blocks_count,
            block_size,
            inode_size: 256,
            // By default, no volume has more inodes than blocks.
            inodes: Inodes::BytesPerInode(usage.inode_ratio().max(block_size)),
            features: Features::defaults(fs_type),
            reserved_percent: 5.0,
            label: String::new(),
            uuid: [0; 16],
            hash_seed: [0; 16],
            journal_blocks: None,
            large_journal: false,
            flex_bg_size: 16,
            blocks_per_group: None,
            resize_to: None,
            journal_goal: None,
            fast_commit_blocks: None,
            orphan_file_blocks: None,
            backup_superblocks: 2,
            time: 0,
        }
    }
}

/// Returns mke2fs' default size of the journal, in blocks; 0 for a volume too small for one.
///
/// ```
/// assert_eq!(ext4_format::layout::default_journal_blocks(262_144), 8192);
/// ```
pub const fn default_journal_blocks(blocks_count: u64) -> u32 {
    const K: u64 = 1024;
    const M: u64 = K * K;
    if blocks_count < 2 * K {
        0
    } else if blocks_count < 32 * K {
        1024
    } else if blocks_count < 256 * K {
        4096
    } else if blocks_count < 512 * K {
        8192
    } else if blocks_count < 4 * M {
        16_384
    } else if blocks_count < 8 * M {
        32_768
    } else if blocks_count < 16 * M {
        65_536
    } else if blocks_count < 32 * M {
        131_072
    } else {
        262_144
    }
}
