//! Prints the superblock of an image and its block groups: `cargo run -p ext4-format --example groups -- disk.img`.
//!
//! The crate has no I/O, so the program reads the bytes itself. The descriptor of each group is checked as it is decoded.

use ext4_format::GroupNr;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: groups IMAGE")?;
    let image = File::open(path)?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    image.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)?;
    let superblock = RawSuperblock::parse(&bytes)?;
    let geometry = Geometry::new(&superblock)?;
    println!("label: {}", superblock.label().escape_ascii());
    println!("features: {}", geometry.features.names().join(" "));
    println!(
        "{} blocks of {} bytes, {} free; {} inodes of {} bytes, {} free",
        geometry.blocks_count,
        geometry.block_size,
        superblock.free_blocks(),
        geometry.inodes_count,
        geometry.inode_size,
        superblock.free_inodes_count,
    );
    println!("  group  first block  block map  inode map  inode table  free blocks  free inodes");
    for group in (0..geometry.groups).map(GroupNr) {
        let (block, offset) = geometry.desc_location(group);
        let mut bytes = vec![0; geometry.desc_size.into()];
        let at = block.offset(geometry.block_size) + u64::from(offset);
        image.read_exact_at(&mut bytes, at)?;
        let desc = GroupDesc::decode(&bytes, &geometry, group)?;
        let uninit = |flag| {
            if desc.is_uninit(&geometry, flag) {
                "*"
            } else {
                " "
            }
        };
        println!(
            "{:>7}{:>13}{:>10}{}{:>10}{}{:>13}{:>13}{:>13}",
            group.0,
            geometry.group_first_block(group).0,
            desc.block_bitmap.0,
            uninit(BLOCK_UNINIT),
            desc.inode_bitmap.0,
            uninit(INODE_UNINIT),
            desc.inode_table.0,
            desc.free_blocks,
            desc.free_inodes,
        );
    }
    println!("*: the map is not initialized");
    Ok(())
}
