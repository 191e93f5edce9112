//! Hashes of the values of attributes in inodes (`ea_inode`). The seed of the checksums is part of them, as of checksums.

use crate::error::Error;
use crate::image::Image;
use ext4_format::checksum::crc32c;
use ext4_format::inode::{self, value};
use ext4_format::xattr::{self, VALUE_INODE_MAX};
use ext4_format::{BlockNr, InodeNr};
use std::collections::{BTreeMap, BTreeSet};

/// Writes the hashes of all values, and of the attributes that they belong to, if the seed has changed. A hash that was
/// wrong stays wrong.
pub(crate) fn follow(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let (old, new) = (image.old.csum_seed, image.geo.csum_seed);
    if old == new || !image.geo.features.has_ea_inode() {
        return Ok(());
    }
    let used = image.used_inodes()?;
    let mut hashes = BTreeMap::new();
    for &ino in &used {
        let mut raw = image.read_record(ino)?;
        if !value::is_value(&raw) {
            continue;
        }
        let Some(bytes) = bytes(image, ino, &raw)? else {
            continue;
        };
        let (stored, computed) = (value::hash(&raw), crc32c(new, &bytes));
        if stored == crc32c(old, &bytes) && stored != computed {
            value::set_hash(&mut raw, computed);
            image.write_record(ino, &mut raw)?;
            hashes.insert(ino, [stored, computed]);
        }
    }
    if hashes.is_empty() {
        return Ok(());
    }
    attributes(image, &used, &hashes)?;
    let text = format!("those of {} values in inodes are written", hashes.len());
    image.tell("hashes", text);
    Ok(())
}

/// Returns the bytes of a value; `None` if no value has this size.
fn bytes(image: &Image<'_, '_>, ino: InodeNr, raw: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let core = inode::decode_verified(raw, &image.geo, ino)?;
    if core.size > u64::from(VALUE_INODE_MAX) {
        return Ok(None);
    }
    let mut bytes = vec![0; core.size as usize];
    let size = image.block_size();
    for (logical, block) in image.mapping(core.flags, raw)?.places() {
        let at = (logical as usize).saturating_mul(size);
        if let Some(part) = bytes.get_mut(at..).filter(|part| !part.is_empty()) {
            let stored = image.read(block)?;
            part.iter_mut()
                .zip(stored)
                .for_each(|(to, from)| *to = from);
        }
    }
    Ok(Some(bytes))
}

/// Writes the hashes of the attributes, in inodes and in blocks that inodes share.
fn attributes(
    image: &mut Image<'_, '_>,
    used: &[InodeNr],
    hashes: &BTreeMap<InodeNr, [u32; 2]>,
) -> Result<(), Error> {
    let hashes = |ino| hashes.get(&ino).copied();
    let mut blocks: BTreeSet<BlockNr> = BTreeSet::new();
    for &ino in used {
        let mut raw = image.read_record(ino)?;
        let area = inode::xattr_area(&raw, &image.geo);
        if area.is_some_and(|area| {
            let area = raw.get_mut(area);
            area.is_some_and(|area| xattr::rehash_in_inode(area, hashes))
        }) {
            image.write_record(ino, &mut raw)?;
        }
        let block = inode::file_acl(&raw, &image.geo);
        if block.0 != 0 && blocks.insert(block) {
            let mut bytes = image.read(block)?;
            if xattr::rehash_in_block(&mut bytes, hashes) {
                if image.geo.features.has_metadata_csum() {
                    xattr::set_checksum(&mut bytes, image.geo.csum_seed, block);
                }
                image.write(block, &bytes)?;
            }
        }
    }
    Ok(())
}
