//! The result of a check: findings, each a broken rule at a place.

use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// The image is usable, but a repair would change it: for example a count in the superblock that the kernel
    /// recomputes, or an outdated backup.
    Note,
    /// The image breaks a rule of the format.
    Fault,
}

macro_rules! rules {
    ($($name:ident $severity:ident $slug:literal $text:literal;)*) => {
        /// A rule of the format that an image can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!("Broken: ", $text, ".")] $name,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name of the rule for programs; it does not change from version to version.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $slug),* }
            }

            /// Describes a violation of the rule for human readers.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Returns the severity of a violation.
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity),* }
            }
        }
    };
}

rules! {
    Superblock Fault "superblock" "the superblock is damaged";
    SuperblockValue Fault "superblock-value" "a value in the superblock is impossible";
    Features Fault "features" "features exclude each other, or lack what they need";
    VolumeSize Fault "volume-size" "the volume is larger than its device";
    ErrorState Note "error-state" "errors that were met are recorded";
    Backup Note "backup" "a backup of the superblock or of descriptors does not agree";
    Descriptor Fault "descriptor" "a group descriptor is damaged";
    DescriptorPlace Fault "descriptor-place" "a bitmap or inode table lies where it must not be";
    MetadataOverlap Fault "metadata-overlap" "two structures of the groups overlap";
    BlockBitmapChecksum Fault "block-bitmap-checksum" "the checksum of a block bitmap is wrong";
    InodeBitmapChecksum Fault "inode-bitmap-checksum" "the checksum of an inode bitmap is wrong";
    BitmapPadding Fault "bitmap-padding" "bits behind the end of a bitmap are clear";
    InodeChecksum Fault "inode-checksum" "the checksum of an inode is wrong";
    InodeExtra Fault "inode-extra" "the extra part of an inode has an impossible size";
    InodeMode Fault "inode-mode" "the mode of an inode is not valid";
    InodeFlags Fault "inode-flags" "the flags of an inode do not fit it";
    InodeSize Fault "inode-size" "the size of an inode does not fit its blocks";
    InodeBlocks Fault "inode-blocks" "the count of an inode's blocks is wrong";
    InodeDeleted Fault "inode-deleted" "the time of deletion of an inode does not fit its links";
    InodeReserved Fault "inode-reserved" "a reserved inode is not what it must be";
    Root Fault "root" "the root is not a directory";
    Extents Fault "extents" "a node of an extent tree is damaged";
    ExtentChecksum Fault "extent-checksum" "the checksum of a node of an extent tree is wrong";
    BlockMap Fault "block-map" "a block map leads out of the volume";
    Symlink Fault "symlink" "the target of a symbolic link does not fit its size";
    InlineData Fault "inline-data" "the data inside an inode are damaged";
    Attributes Fault "attributes" "extended attributes are damaged";
    AttributeBlock Fault "attribute-block" "a block of extended attributes is damaged";
    AttributeCount Fault "attribute-count" "a block or value of extended attributes has a wrong count of references";
    AttributeInode Fault "attribute-inode" "the inode of an attribute's value is not valid";
    BlockTwice Fault "block-twice" "a block is claimed twice";
    Directory Fault "directory" "a block of a directory is damaged";
    DirectoryChecksum Fault "directory-checksum" "the checksum of a directory's block is wrong";
    DirectoryHole Fault "directory-hole" "a directory has a hole";
    DirectoryDots Fault "directory-dots" "a directory does not begin with its own name and its parent's";
    EntryName Fault "entry-name" "a name is not valid";
    EntryInode Fault "entry-inode" "a name leads to no inode";
    EntryType Fault "entry-type" "a name tells the wrong type";
    EntryTypeless Note "entry-typeless" "a name does not tell the type";
    EntryTwice Fault "entry-twice" "a directory has a name twice";
    DirectoryTwice Fault "directory-twice" "a directory has two names";
    Index Fault "index" "the index of a directory is damaged";
    IndexChecksum Fault "index-checksum" "the checksum of an index's block is wrong";
    IndexHash Fault "index-hash" "a name is not where the index looks for it";
    IndexLeaf Fault "index-leaf" "the index does not lead to a block of its directory exactly once";
    Parent Fault "parent" "a directory says that it is in another one than it is";
    Unattached Fault "unattached" "an inode has no name";
    LinkCount Fault "link-count" "the count of an inode's links is wrong";
    BlockBitmap Fault "block-bitmap" "a block bitmap does not agree with what is in use";
    InodeBitmap Fault "inode-bitmap" "an inode bitmap does not agree with what is in use";
    GroupCount Fault "group-count" "a group counts its free blocks, inodes or directories wrongly";
    VolumeCount Note "volume-count" "the superblock counts free blocks or inodes wrongly";
    Journal Fault "journal" "the journal is damaged";
    NeedsRecovery Note "needs-recovery" "the journal was not replayed";
    ResizeInode Fault "resize-inode" "the inode of reserved descriptors is damaged";
    Orphans Fault "orphans" "the list of orphans is damaged, or its inodes were not freed";
    OrphanFile Fault "orphan-file" "the orphan file is damaged";
    OrphanPresent Note "orphan-present" "orphan_present is set, and the orphan file is empty";
    Quota Fault "quota" "a quota file is damaged";
    QuotaUsage Fault "quota-usage" "a quota file counts wrongly what is used";
    Encryption Fault "encryption" "an inode is not encrypted as it says";
    Mmp Fault "mmp" "the block that keeps a volume from being mounted twice is damaged";
    Unreadable Fault "unreadable" "a block cannot be read";
}

/// The place of a violation. Fields that do not apply are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct FindingPlace {
    /// The block group.
    pub group: Option<GroupNr>,
    /// The inode; for a directory entry, its directory.
    pub inode: Option<InodeNr>,
    /// The logical block of the inode.
    pub logical: Option<u64>,
    /// The block of the volume.
    pub block: Option<BlockNr>,
    /// The byte in the block.
    pub offset: Option<u32>,
}

impl FindingPlace {
    /// Creates a place: a group.
    pub(crate) fn group(group: GroupNr) -> Self {
        Self {
            group: Some(group),
            ..Self::default()
        }
    }

    /// Creates a place: an inode.
    pub(crate) fn inode(ino: InodeNr) -> Self {
        Self {
            inode: Some(ino),
            ..Self::default()
        }
    }

    /// Adds the block of the volume to the place.
    pub(crate) const fn block(mut self, block: BlockNr) -> Self {
        self.block = Some(block);
        self
    }

    /// Adds the logical block of the inode to the place.
    pub(crate) const fn logical(mut self, logical: u64) -> Self {
        self.logical = Some(logical);
        self
    }

    /// Adds the byte offset in the block to the place.
    pub(crate) const fn offset(mut self, offset: u32) -> Self {
        self.offset = Some(offset);
        self
    }
}

impl fmt::Display for FindingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.group.map(|g| format!("group {g}")),
            self.inode.map(|i| format!("inode {i}")),
            self.logical.map(|l| format!("its block {l}")),
            self.block.map(|b| format!("block {b}")),
            self.offset.map(|o| format!("offset {o}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            f.write_str("superblock")
        } else {
            f.write_str(&parts.join(", "))
        }
    }
}

/// A violation of a rule at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The place.
    pub place: FindingPlace,
    /// The found value, and the expected one.
    pub detail: String,
    /// The path of the place's inode, if one is known.
    pub path: Option<Vec<u8>>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule.text())?;
        if self.detail.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.detail)
        }
    }
}

/// Result of a check.
///
/// ```
/// use extant_check::blockdev::MemDevice;
/// let error = extant_check::check(&MemDevice::new(1 << 20), &extant_check::CheckOptions::default()).unwrap_err();
/// assert!(error.to_string().contains("superblock"));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Findings, by place: not more than [`CheckOptions::max_findings`](crate::CheckOptions::max_findings) of each severity.
    pub findings: Vec<Finding>,
    /// Number of all faults, also of those beyond the findings.
    pub faults: u64,
    /// Number of all notes, also of those beyond the findings.
    pub notes: u64,
    /// Inodes in use, without the reserved ones that are not.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Names in directories, without "." and "..".
    pub names: u64,
    /// Blocks in use (clusters, with `bigalloc`).
    pub blocks: u64,
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Whether fast commits are pending. The volume was checked without their changes, which only the engine replays.
    pub pending_fast_commits: bool,
}

impl Report {
    /// Returns whether no rule of the format is broken. Notes do not count.
    pub const fn is_clean(&self) -> bool {
        self.faults == 0
    }
}

/// The collector of findings from all threads.
#[derive(Debug)]
pub(crate) struct Findings {
    max: usize,
    faults: AtomicU64,
    notes: AtomicU64,
    kept: [Mutex<Vec<Finding>>; 2],
}

impl Findings {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            faults: AtomicU64::new(0),
            notes: AtomicU64::new(0),
            kept: [Mutex::default(), Mutex::default()],
        }
    }

    /// Adds a finding. The text is made only for a finding that is kept.
    pub(crate) fn add(&self, rule: Rule, place: FindingPlace, detail: impl FnOnce() -> String) {
        let (count, kept) = match rule.severity() {
            Severity::Fault => (&self.faults, &self.kept[0]),
            Severity::Note => (&self.notes, &self.kept[1]),
        };
        if count.fetch_add(1, Ordering::Relaxed) < self.max as u64 {
            let finding = Finding {
                rule,
                place,
                detail: detail(),
                path: None,
            };
            kept.lock().push(finding);
        }
    }

    /// Adds an error of a parser.
    pub(crate) fn add_error(&self, rule: Rule, place: FindingPlace, error: &FormatError) {
        self.add(rule, place, || in_short(error));
    }

    /// Returns the inodes that findings are about.
    pub(crate) fn inodes(&self) -> BTreeSet<InodeNr> {
        let [faults, notes] = &self.kept;
        let (faults, notes) = (faults.lock(), notes.lock());
        let all = faults.iter().chain(notes.iter());
        all.filter_map(|finding| finding.place.inode).collect()
    }

    /// Returns the kept findings, sorted by place, and the counts of faults and notes.
    pub(crate) fn finish(self) -> (Vec<Finding>, u64, u64) {
        let [faults, notes] = self.kept;
        let mut all = faults.into_inner();
        all.append(&mut notes.into_inner());
        all.sort_by(|a, b| {
            (a.place.group, a.place, a.rule, &a.detail).cmp(&(
                b.place.group,
                b.place,
                b.rule,
                &b.detail,
            ))
        });
        all.dedup();
        (all, self.faults.into_inner(), self.notes.into_inner())
    }
}

/// Formats an error of a parser without the place, which is part of the finding.
pub(crate) fn in_short(error: &FormatError) -> String {
    match error {
        FormatError::Corrupt { what, .. } => (*what).to_owned(),
        FormatError::Checksum {
            what,
            stored,
            computed,
            ..
        } => {
            format!("checksum of the {what}: stored {stored:#x}, computed {computed:#x}")
        }
        other => other.to_string(),
    }
}
