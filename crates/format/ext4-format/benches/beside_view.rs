//! Parses an image in memory by this crate and by ext4-view, a reader of ext4 that was written independently:
//! `cargo bench -p ext4-format`. Prints times, and the ratio of the two.
//!
//! Both sides verify the checksums of what they parse, in turn within one run; the best of all rounds counts. The image has no journal,
//! which ext4-view would read while it loads. The work:
//!
//! - load: the superblock and the descriptors of all groups;
//! - list: the names of one directory of 20,000 entries, by its extents;
//! - inodes: the attributes of each of these names, by the number of its inode.
//!
//! This crate parses bytes where they are, and ext4-view copies each block out of its reader, so the ratio is that of two designs.

use ext4_format::extent::Extent;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::{self, InodeCore};
use ext4_format::map_walk::{MapNode, MapVisitor, OnDamage, walk};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, checksum, dir_entry};
use ext4_view::Ext4;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMES: usize = 20_000;
const ROUNDS: usize = 15;

type Result<T> = std::result::Result<T, FormatError>;

/// A loaded image.
struct Image<'a> {
    bytes: &'a [u8],
    geometry: Geometry,
    groups: Vec<GroupDesc>,
}

impl<'a> Image<'a> {
    fn load(bytes: &'a [u8]) -> Result<Self> {
        let at = SUPERBLOCK_OFFSET as usize;
        let geometry = Geometry::new(&RawSuperblock::parse(&bytes[at..at + SUPERBLOCK_SIZE])?)?;
        let decode = |group| {
            let (block, offset) = geometry.desc_location(GroupNr(group));
            let at = block.offset(geometry.block_size) as usize + offset as usize;
            GroupDesc::decode(&bytes[at..], &geometry, GroupNr(group))
        };
        let groups = (0..geometry.groups).map(decode).collect::<Result<_>>()?;
        Ok(Self {
            bytes,
            geometry,
            groups,
        })
    }

    fn block(&self, block: BlockNr) -> &'a [u8] {
        let at = block.offset(self.geometry.block_size) as usize;
        &self.bytes[at..at + self.geometry.block_size as usize]
    }

    fn inode(&self, ino: InodeNr) -> Result<(&'a [u8], InodeCore)> {
        let (group, index) = self.geometry.group_of_inode(ino).expect("a valid number");
        let table = self.groups[group.0 as usize].inode_table;
        let (block, offset) = self.geometry.inode_place(table, index);
        let raw = &self.block(block)[offset..][..usize::from(self.geometry.inode_size)];
        Ok((raw, inode::decode_verified(raw, &self.geometry, ino)?))
    }

    /// Calls `visit` with each name of a directory.
    fn list(&self, directory: InodeNr, visit: impl FnMut(&[u8], InodeNr)) -> Result<()> {
        let (raw, core) = self.inode(directory)?;
        let seed = checksum::inode_seed(self.geometry.csum_seed, directory, core.generation);
        let mut blocks = DirBlocks {
            image: self,
            indexed: core.flags & inode::flags::INDEX != 0,
            seed,
            visit,
        };
        walk(
            &mut blocks,
            &self.geometry,
            core.flags,
            inode::i_block(raw)?,
        )
    }
}

/// The blocks of a directory, whose names go to `visit`.
struct DirBlocks<'i, F> {
    image: &'i Image<'i>,
    indexed: bool,
    seed: u32,
    visit: F,
}

impl<'i, F: FnMut(&[u8], InodeNr)> MapVisitor for DirBlocks<'i, F> {
    type Error = FormatError;
    type Block = &'i [u8];

    fn node(&mut self, node: &MapNode) -> Result<Option<&'i [u8]>> {
        let bytes = self.image.block(node.block);
        ext4_format::extent::verify_tail(bytes, self.seed)?;
        Ok(Some(bytes))
    }

    fn extent(&mut self, extent: Extent, _: u64) -> Result<()> {
        for part in extent.blocks() {
            let bytes = self.image.block(part.physical);
            let index = IndexBlockKind::of(part.logical.into(), bytes).filter(|_| self.indexed);
            match index {
                Some(kind) => htree::verify_checksum(bytes, kind, self.seed)?,
                None => dir_entry::verify_tail(bytes, self.seed)?,
            }
            for entry in dir_entry::entries(bytes) {
                let entry = entry?;
                (self.visit)(entry.name, entry.inode);
            }
        }
        Ok(())
    }

    fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> Result<OnDamage> {
        Err(error)
    }
}

/// Makes an image whose directory `many` has [`NAMES`] empty files.
fn image() -> Vec<u8> {
    let scratch = std::env::temp_dir().join(format!("ext4-format-bench-{}", std::process::id()));
    let many = scratch.join("tree/many");
    std::fs::create_dir_all(&many).unwrap();
    for n in 0..NAMES {
        std::fs::write(many.join(format!("file-number-{n}")), b"").unwrap();
    }
    let (tree, path) = (scratch.join("tree"), scratch.join("disk.img"));
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^has_journal", "-b", "4096", "-d"])
        .args([&tree, &path])
        .arg("1G")
        .stdout(Stdio::null())
        .status();
    assert!(
        made.is_ok_and(|made| made.success()),
        "mke2fs failed: apt install e2fsprogs"
    );
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_dir_all(scratch).unwrap();
    bytes
}

/// Measures both sides in turn, and prints the best times and their ratio.
fn compare(what: &str, ours: &dyn Fn() -> usize, theirs: &dyn Fn() -> usize) {
    assert_eq!(ours(), theirs(), "{what}: the results differ");
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (work, best) in [ours, theirs].into_iter().zip(&mut best) {
            let began = Instant::now();
            black_box(work());
            *best = began.elapsed().min(*best);
        }
    }
    let [ours, theirs] = best.map(|time| time.as_secs_f64() * 1e6);
    println!(
        "{what:<8}{ours:>12.1} us{theirs:>14.1} us{:>9.1}",
        theirs / ours
    );
}

fn main() {
    // Never freed, because a reader of ext4-view cannot borrow.
    let bytes: &'static [u8] = image().leak();
    let image = Image::load(bytes).unwrap();
    let view = Ext4::load(Box::new(Borrowed(bytes))).unwrap();
    let mut many = None;
    let root = InodeNr(2);
    let find = |name: &[u8], ino| {
        if name == b"many" {
            many = Some(ino);
        }
    };
    image.list(root, find).unwrap();
    let many = many.expect("the directory");
    let listed = || view.read_dir("/many").unwrap().map(|entry| entry.unwrap());

    println!("          ext4-format      ext4-view    ratio");
    compare("load", &|| usize::from(Image::load(bytes).is_ok()), &|| {
        usize::from(Ext4::load(Box::new(Borrowed(bytes))).is_ok())
    });
    compare(
        "list",
        &|| {
            let mut total = 0;
            image.list(many, |name, _| total += name.len()).unwrap();
            total
        },
        &|| listed().map(|entry| entry.file_name().as_ref().len()).sum(),
    );
    compare(
        "inodes",
        &|| {
            let mut total = 0;
            let visit =
                |_: &[u8], ino| total += usize::from(image.inode(ino).unwrap().1.mode & 0o7777);
            image.list(many, visit).unwrap();
            total
        },
        &|| {
            let mode = |entry: ext4_view::DirEntry| usize::from(entry.metadata().unwrap().mode());
            listed().map(mode).sum()
        },
    );
}

/// Bytes in memory as a reader of ext4-view, which are not copied for each load.
struct Borrowed(&'static [u8]);

impl ext4_view::Ext4Read for Borrowed {
    fn read(
        &mut self,
        start: u64,
        to: &mut [u8],
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let start = start as usize;
        to.copy_from_slice(
            self.0
                .get(start..start + to.len())
                .ok_or("beyond the end")?,
        );
        Ok(())
    }
}
