//! The orphan file made, and taken away.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::journal::{free_blocks, own_inode, take_blocks, write_file};
use crate::options::TuneOptions;
use ext4_format::features::RoCompat;
use ext4_format::{BlockNr, InodeNr, inode, orphan_file};

/// Blocks of an orphan file: at least and at most.
const SIZES: std::ops::RangeInclusive<u64> = 32..=512;

/// Takes the orphan file away.
pub(crate) fn remove(image: &mut Image<'_, '_>) -> Result<(), Error> {
    if image
        .geo
        .features
        .ro_compat
        .contains(RoCompat::ORPHAN_PRESENT)
    {
        return refused("files in the orphan file wait for their end; extant repair ends them");
    }
    let ino = InodeNr(image.geo.orphan_file_ino);
    let blocks = free_blocks(image, ino)?;
    image.give_inode(ino)?;
    image.sb.orphan_file_inum.set(0);
    image.tell("orphan file", format!("its {blocks} blocks are freed"));
    Ok(())
}

/// Makes an empty orphan file.
pub(crate) fn make(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    let size = u64::from(image.geo.block_size);
    let blocks = match options.orphan_file_bytes {
        Some(bytes) => bytes / size,
        None => (image.geo.blocks_count / 4096).clamp(*SIZES.start(), *SIZES.end()),
    };
    if !SIZES.contains(&blocks) {
        return refused(format!(
            "an orphan file of {blocks} blocks: it has from 32 to 512"
        ));
    }
    let ino = image.take_inode()?;
    let taken = take_blocks(image, blocks as u32, 0, "the orphan file")?;
    let seed = image.seed(ino, 0);
    let seed = image.geo.features.has_metadata_csum().then_some(seed);
    for run in &taken.0 {
        for block in (run.physical..run.physical + u64::from(run.len)).map(BlockNr) {
            let bytes = orphan_file::empty_block(image.block_size(), seed, block);
            image.write(block, &bytes)?;
        }
    }
    write_file(image, ino, &taken, own_inode(blocks * size, options.now))?;
    image.sb.orphan_file_inum.set(ino.0);
    image.renew()?;
    image.tell(
        "orphan file",
        format!("it is inode {ino}, with {blocks} blocks"),
    );
    Ok(())
}

/// Clears the checksums of the orphan file, which are zeros on a volume without them.
pub(crate) fn unseal(image: &Image<'_, '_>) -> Result<(), Error> {
    let ino = InodeNr(image.geo.orphan_file_ino);
    let raw = image.read_record(ino)?;
    let core = inode::decode_verified(&raw, &image.geo, ino)?;
    let map = image.mapping(core.flags, &raw)?;
    for (_, block) in map.places() {
        let mut bytes = image.read(block)?;
        if orphan_file::orphans(&bytes).next().is_none() {
            orphan_file::init_block(&mut bytes);
            image.write(block, &bytes)?;
        }
    }
    Ok(())
}
