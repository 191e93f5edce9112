//! Prints an inode and the blocks of its data: `cargo run -p ext4-format --example extents -- disk.img 12`.
//!
//! The mapping is an extent tree, or the block map of older volumes: `map_walk` walks both, and asks for the blocks in between.

use ext4_format::extent::{self, Extent};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::{self, flags};
use ext4_format::map_walk::{MapNode, MapVisitor, OnDamage, walk};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FormatError, InodeNr, checksum};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Image {
    file: File,
    geometry: Geometry,
}

impl Image {
    fn open(path: &str) -> Result<Self> {
        let file = File::open(path)?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)?;
        let geometry = Geometry::new(&RawSuperblock::parse(&bytes)?)?;
        Ok(Self { file, geometry })
    }

    fn read(&self, block: BlockNr, offset: usize, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let at = block.offset(self.geometry.block_size) + offset as u64;
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Returns the record of an inode.
    fn inode(&self, ino: InodeNr) -> Result<Vec<u8>> {
        let geometry = &self.geometry;
        let (group, index) = geometry.group_of_inode(ino).ok_or("no such inode")?;
        let (block, offset) = geometry.desc_location(group);
        let desc = self.read(block, offset as usize, geometry.desc_size.into())?;
        let table = GroupDesc::decode(&desc, geometry, group)?.inode_table;
        let (block, offset) = geometry.inode_place(table, index);
        self.read(block, offset, geometry.inode_size.into())
    }
}

/// Prints extents, and reads the nodes of the tree.
struct Printer<'a> {
    image: &'a Image,
    /// Seed of the checksums of nodes.
    seed: u32,
    /// Nodes that the walk may still read. A damaged mapping may lead in circles.
    left: u64,
}

impl MapVisitor for Printer<'_> {
    type Error = Box<dyn Error>;
    type Block = Vec<u8>;

    fn node(&mut self, node: &MapNode) -> Result<Option<Vec<u8>>> {
        self.left = self.left.checked_sub(1).ok_or("too many nodes")?;
        let geometry = &self.image.geometry;
        let bytes = self
            .image
            .read(node.block, 0, geometry.block_size as usize)?;
        if node.rules.is_some() && geometry.features.has_metadata_csum() {
            extent::verify_tail(&bytes, self.seed)?;
        }
        println!("  node of height {} in block {}", node.height, node.block.0);
        Ok(Some(bytes))
    }

    fn extent(&mut self, extent: Extent, _: u64) -> Result<()> {
        println!(
            "  {:>10} + {:<6} at block {}{}",
            extent.logical,
            extent.len,
            extent.physical.0,
            if extent.unwritten { ", unwritten" } else { "" },
        );
        Ok(())
    }

    fn damage(&mut self, _: Option<&MapNode>, error: FormatError) -> Result<OnDamage> {
        Err(error.into())
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(path), Some(ino)) = (args.next(), args.next()) else {
        return Err("usage: extents IMAGE INODE".into());
    };
    let (image, ino) = (Image::open(&path)?, InodeNr(ino.parse()?));
    let raw = image.inode(ino)?;
    let core = inode::decode_verified(&raw, &image.geometry, ino)?;
    println!(
        "inode {}: {:?}, mode {:o}, {} links, {} bytes",
        ino.0,
        core.file_type(),
        core.mode,
        core.links,
        core.size,
    );
    if core.flags & flags::INLINE_DATA != 0 {
        println!("  the data are in the inode");
        return Ok(());
    }
    let mut printer = Printer {
        image: &image,
        seed: checksum::inode_seed(image.geometry.csum_seed, ino, core.generation),
        left: image.geometry.blocks_count,
    };
    walk(
        &mut printer,
        &image.geometry,
        core.flags,
        inode::i_block(&raw)?,
    )
}
