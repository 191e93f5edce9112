//! Making an ext2, ext3 or ext4 file system, empty or filled with a directory tree or archives.
//!
//! The whole image is planned before the first write: *scan* the source into a compact tree in memory (no file data), *plan*
//! the places of all inodes and blocks, then *write*, file data first, from all threads, in large pieces. The plan is
//! made in one thread from the tree alone, so the bytes of the image do not depend on the number of threads. This
//! path has no allocator, no journal and no cache: nothing is written twice.
//!
//! | file | what |
//! |---|---|
//! | `options`, `values`, `owners`, `progress`, `error` | options, progress and errors |
//! | `tree` | the content in memory, names in the order of the directory hash |
//! | `scan`, `inspect`, `files` | a directory as the source: attributes, then data |
//! | `archive_content`, `reader_tree`, `device_table` | archives, trees and device tables of `extant_sources` as the source |
//! | `sources`, `layers` | several sources, each over those before it |
//! | `source_attributes` | conversion of attributes of a source to those of the tree |
//! | `folding` | directories that fold case |
//! | `size` | the size of the volume |
//! | `space`, `numbers`, `plan`, `xattrs` | the places of inodes and blocks |
//! | `data`, `zeros` | copying file data; blocks of zeros become holes |
//! | `directory`, `records`, `own_inodes`, `tables` | metadata, built whole |
//! | `gather`, `write` | writes to the device, the superblock last |
//! | `system` | calls of Linux, and their replacements on other systems |
//!
//! The target holds no valid superblock from the first write to the last.
//!
//! ```
//! use extant_mkfs::blockdev::MemDevice;
//! use extant_mkfs::{self as mkfs, MkfsOptions};
//! let device = MemDevice::new(64 << 20);
//! let report = mkfs::format(&device, &MkfsOptions { label: "scratch".into(), ..MkfsOptions::default() })?;
//! assert_eq!(report.block_size, 1024); // mke2fs' choice for so small a volume
//! assert_eq!(report.directories, 2); // root and lost+found
//! # Ok::<(), mkfs::MkfsError>(())
//! ```

#![forbid(unsafe_code)]

// The tests over the public interface are part of the program of the unit tests: one program less to link.
#[cfg(test)]
extern crate self as extant_mkfs;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod archive_content;
mod data;
mod device_table;
mod directory;
mod error;
mod files;
mod folding;
mod gather;
mod inspect;
mod layers;
mod numbers;
mod options;
mod own_inodes;
mod owners;
mod plan;
mod progress;
mod reader_tree;
mod records;
mod scan;
mod size;
mod source_attributes;
mod sources;
mod space;
mod system;
mod tables;
mod tree;
mod values;
mod write;
mod xattrs;
mod zeros;

pub use blockdev;
pub use error::{MkfsError, Result};
#[doc(hidden)]
pub use extant_sources::parts::is_kept_xattr;
pub use extant_sources::{
    ArchiveInput, ArchiveKind, ArchiveMember, DeviceTable, Manifest, ReadTree, SourceError,
    SquashTree, WhiteOut, decompressed, flag_names, read_archive, read_tree,
};
pub use options::MkfsOptions;
pub use owners::{IdMap, ModeMap};
pub use progress::{Phase, Progress};
pub use scan::TreeSource;
pub use sources::Source;
pub use values::SuperblockValues;

use blockdev::BlockDevice;
use data::{Content, NoContent};
use ext4_format::FileType;
use ext4_format::features::Features;
use ext4_format::fold::Comparison;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::timestamp::Timestamp;
use plan::Plan;
use progress::Monitor;
use size::Sizer;
use tree::{Body, Draft, DraftDir, Inode, ROOT, Tree};

/// The result of making a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkfsReport {
    /// Bytes of the volume.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Groups.
    pub groups: u32,
    /// Blocks of the journal; 0: none.
    pub journal_blocks: u32,
    /// Features in their stored form.
    pub features: Features,
    /// UUID.
    pub uuid: [u8; 16],
    /// Directories, with root and `lost+found`.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
    /// Names beyond the first of an inode.
    pub hard_links: u64,
    /// Bytes of file data written, whole blocks.
    pub data_bytes: u64,
    /// Differences from the source: a file that changed while it was read, an attribute that cannot be kept.
    /// Sorted.
    pub warnings: Vec<String>,
}

/// A file system ready to be written: scanned, sized and planned.
///
/// ```
/// use extant_mkfs::blockdev::MemDevice;
/// use extant_mkfs::{self as mkfs, MkfsOptions};
/// let prepared = mkfs::prepare(&MkfsOptions::default())?;
/// let device = MemDevice::new(prepared.size());
/// prepared.write(&device)?;
/// # Ok::<(), mkfs::MkfsError>(())
/// ```
pub struct Prepared {
    options: MkfsOptions,
    monitor: Monitor,
    tree: Tree,
    plan: Plan,
    content: Box<dyn Content>,
}

/// Makes a file system without files on a device, as large as the device if no size is given.
///
/// # Errors
/// Options no file system can have; I/O errors of the device.
pub fn format(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<MkfsReport> {
    let options = MkfsOptions {
        size: Some(options.size.unwrap_or(device.len())),
        ..options.clone()
    };
    prepare(&options)?.write(device)
}

/// Plans a file system without files.
///
/// # Errors
/// Options no file system can have.
pub fn prepare(options: &MkfsOptions) -> Result<Prepared> {
    let options = options.resolved();
    let monitor = Monitor::new(options.progress.clone(), options.cancel.clone());
    let time = options.now();
    let mut draft = Draft::empty(0o755, Timestamp::new(time, 0));
    // No owners need translation, because the volume has no source.
    apply_root(&mut draft, &options);
    plan_draft(draft, Box::new(NoContent), options, monitor, time)
}

/// Reads the names and attributes of one source or several and plans a file system that holds them.
///
/// ```no_run
/// use extant_mkfs::blockdev::FileDevice;
/// use extant_mkfs::{self as mkfs, MkfsOptions, Source, TreeSource};
/// let source = Source::Tree(TreeSource::new("rootfs"));
/// let prepared = mkfs::prepare_from(&MkfsOptions::default(), source)?;
/// let device = FileDevice::create("rootfs.img", prepared.size()).unwrap();
/// let report = prepared.write(&device)?;
/// println!("{} files, {} bytes", report.files, report.size);
/// # Ok::<(), mkfs::MkfsError>(())
/// ```
///
/// # Errors
/// Options no file system can have; a source that cannot be read or kept; a size too small.
pub fn prepare_from(options: &MkfsOptions, sources: impl Into<Vec<Source>>) -> Result<Prepared> {
    let options = options.resolved();
    options.feature_set()?;
    let monitor = Monitor::new(options.progress.clone(), options.cancel.clone());
    let time = options.now();
    let (mut draft, content) = sources::scan(sources.into(), &options, &monitor, time)?;
    apply_root(&mut draft, &options);
    plan_draft(draft, content, options, monitor, time)
}

/// Applies the options of the root directory.
fn apply_root(draft: &mut Draft, options: &MkfsOptions) {
    let root = &mut draft.inodes[ROOT as usize]; // every draft has a root
    if let Some((uid, gid)) = options.root_owner {
        (root.uid, root.gid) = (uid, gid);
    }
    if let Some(mode) = options.root_mode {
        root.mode = FileType::Directory.mode_bits() | mode & 0o7777;
    }
}

/// Adds `lost+found` to a root that has nothing of that name.
fn add_lost_found(draft: &mut Draft, comparison: Comparison, time: Timestamp) {
    let name: &[u8] = b"lost+found";
    // Every draft has the root and its names.
    let compared = comparison.within(draft.inodes[ROOT as usize].flags);
    let mut names = draft.dirs[0].names.iter();
    if names.any(|(n, _)| compared.same(n, name)) {
        return;
    }
    let (inode, dir) = (draft.inodes.len() as u32, draft.dirs.len() as u32);
    draft.inodes.push(Inode::directory(0o700, time, dir));
    draft.dirs.push(DraftDir {
        inode,
        names: Vec::new(),
    });
    draft.dirs[0].names.push((name.into(), inode));
}

fn plan_draft(
    mut draft: Draft,
    content: Box<dyn Content>,
    options: MkfsOptions,
    monitor: Monitor,
    time: i64,
) -> Result<Prepared> {
    let options = options.identified(&draft);
    monitor.phase(Phase::Plan, 0);
    monitor.check()?;
    let comparison = folding::comparison(&options)?;
    folding::drop_flags(&mut draft, comparison, &monitor);
    add_lost_found(&mut draft, comparison, Timestamp::new(time, 0));
    let hasher = if options.feature_set()?.has_dir_index() {
        let seed = options.hash_seed.unwrap_or_default();
        let words = seed.as_chunks::<4>().0;
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        Some(DirHasher::with_version(options.hash_version, state))
    } else {
        None
    };
    let tree = draft.freeze(hasher, comparison)?;
    folding::check(&tree, comparison)?;
    let sizer = Sizer {
        options: &options,
        time,
        tree: &tree,
    };
    let plan = sizer.plan()?;
    Ok(Prepared {
        options,
        monitor,
        tree,
        plan,
        content,
    })
}

impl Prepared {
    /// Returns the size of the device in bytes: the given size, or the computed one.
    pub fn size(&self) -> u64 {
        let geo = &self.plan.layout.geometry;
        let blocks = geo.blocks_count * u64::from(geo.block_size);
        match self.options.size {
            Some(given) => given.max(blocks),
            None if self.options.tight => blocks,
            None => blocks.next_multiple_of(1 << 20),
        }
    }

    /// Returns the geometry of the new volume.
    pub const fn geometry(&self) -> &Geometry {
        &self.plan.layout.geometry
    }

    /// Returns the current warnings.
    pub fn warnings(&self) -> Vec<String> {
        self.monitor.warnings()
    }

    /// Writes the file system.
    ///
    /// # Errors
    /// I/O errors of source and device. The device then holds no valid file system.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<MkfsReport> {
        let geo = &self.plan.layout.geometry;
        let needed = geo.blocks_count * u64::from(geo.block_size);
        if device.len() < needed {
            return Err(MkfsError::TooSmall {
                given: device.len(),
                needed,
            });
        }
        let written = write::write(
            device,
            &self.plan,
            &self.tree,
            &*self.content,
            &self.options,
            &self.monitor,
        )?;
        let mut report = MkfsReport {
            size: needed,
            block_size: geo.block_size,
            blocks: geo.blocks_count,
            free_blocks: written.free_blocks,
            inodes: geo.inodes_count,
            free_inodes: written.free_inodes,
            groups: geo.groups,
            journal_blocks: self.plan.layout.journal_blocks,
            features: geo.features,
            uuid: geo.uuid,
            directories: 0,
            files: 0,
            symlinks: 0,
            specials: 0,
            hard_links: 0,
            data_bytes: written.data_bytes,
            warnings: self.monitor.warnings(),
        };
        for inode in &self.tree.inodes {
            let (count, is_dir) = match inode.body {
                Body::Directory(_) => (&mut report.directories, true),
                Body::File { .. } => (&mut report.files, false),
                Body::Symlink(_) => (&mut report.symlinks, false),
                Body::Special => (&mut report.specials, false),
            };
            *count += 1;
            if !is_dir {
                report.hard_links += u64::from(inode.links.saturating_sub(1));
            }
        }
        Ok(report)
    }
}

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
