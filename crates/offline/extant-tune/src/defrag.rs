//! Files in one piece each: copied into a free run first, then their mappings changed, many at a time.
//!
//! A step copies only into blocks that were free before it, and frees the old ones at its end. So a cut in the copies changes
//! nothing, and one in the changes is taken back by the undo file: the old blocks are as they were.

use crate::clean::require_clean;
use crate::error::{Error, refused};
use crate::image::Image;
use blockdev::BlockDevice;
use ext4_format::extent::Extent;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::mapping::{self, Run};
use ext4_format::remapping::{self, MapSink};
use ext4_format::{BlockNr, FileType, InodeNr};
use ext4_image::{Changes, Mapping, MemOverlay};

/// Files of one step.
const STEP: usize = 256;
/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// Fragmentation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFragments {
    /// The inode.
    pub ino: InodeNr,
    /// Blocks of data.
    pub blocks: u64,
    /// Number of its pieces.
    pub pieces: u64,
}

/// Fragmentation of files and free space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Regular files with data.
    pub files: u64,
    /// Blocks of all files.
    pub blocks: u64,
    /// Pieces of all files.
    pub pieces: u64,
    /// Files in more than one piece, those in most pieces first.
    pub fragmented: Vec<FileFragments>,
    /// Free runs: their lengths in blocks.
    pub free: Vec<u64>,
}

/// Returns the number of pieces of a mapping.
fn pieces(map: &Mapping) -> u64 {
    let follows = |pair: &[Extent]| match pair {
        [a, b] => a.physical.0 + u64::from(a.len) == b.physical.0,
        _ => false,
    };
    let joined = map.extents.windows(2).filter(|pair| follows(pair)).count();
    (map.extents.len() - joined.min(map.extents.len())) as u64
}

/// Returns a regular file with data, its record and its mapping.
fn file(
    image: &Image<'_, '_>,
    ino: InodeNr,
) -> Result<Option<(Vec<u8>, InodeCore, Mapping)>, Error> {
    if ino.0 < image.geo.first_ino || ino.0 == image.geo.orphan_file_ino {
        return Ok(None);
    }
    let raw = image.read_record(ino)?;
    let core = inode::decode_verified(&raw, &image.geo, ino)?;
    let other = core.flags & (flags::INLINE_DATA | flags::EA_INODE) != 0;
    if core.file_type() != Some(FileType::Regular) || core.links == 0 || other {
        return Ok(None);
    }
    let map = image.mapping(core.flags, &raw)?;
    Ok((!map.extents.is_empty()).then_some((raw, core, map)))
}

/// Counts pieces of files and of free space.
///
/// # Errors
/// [`Error`] if the image cannot be read, or its journal must be replayed first.
pub fn fragments(device: &dyn BlockDevice) -> Result<Fragments, Error> {
    let overlay = MemOverlay::new(device);
    let mut image = Image::open(&overlay, true)?;
    let mut found = Fragments::default();
    for ino in image.used_inodes()? {
        if let Some((_, _, map)) = file(&image, ino)? {
            let file = FileFragments {
                ino,
                blocks: map.blocks(),
                pieces: pieces(&map),
            };
            found.files += 1;
            found.blocks += file.blocks;
            found.pieces += file.pieces;
            if file.pieces > 1 {
                found.fragmented.push(file);
            }
        }
    }
    found
        .fragmented
        .sort_by_key(|file| std::cmp::Reverse(file.pieces));
    found.free = image.free_runs(1)?.into_iter().map(|run| run.1).collect();
    Ok(found)
}

/// Moves each file into one piece, as far as free runs allow; `only` names some files. `commit` writes the changes of
/// one step, so that a cut leaves all of them or none. Returns how many files were moved.
///
/// # Errors
/// [`Error`] if the image is not clean or cannot be written. Steps before are complete then.
pub fn defragment(
    device: &dyn BlockDevice,
    only: Option<&[InodeNr]>,
    now: i64,
    commit: &mut dyn FnMut(&Changes) -> Result<(), Error>,
) -> Result<u64, Error> {
    require_clean(device)?;
    // Refused also if no file is fragmented, so that the answer does not depend on the contents.
    let overlay = MemOverlay::new(device);
    let image = Image::open(&overlay, true)?;
    image.needs_blocks("the place of a file")?;
    image.needs_no_quota("files are not moved")?;
    let mut rest: Vec<InodeNr> = fragments(device)?
        .fragmented
        .iter()
        .map(|file| file.ino)
        .collect();
    rest.retain(|ino| only.is_none_or(|only| only.contains(ino)));
    let mut moved = 0;
    for part in rest.chunks(STEP) {
        let overlay = MemOverlay::new(device);
        let mut image = Image::open(&overlay, true)?;
        let mut free = image.free_runs(2)?;
        let mut copied = Vec::new();
        for &ino in part {
            copied.extend(copy_file(device, &image, ino, &mut free)?);
        }
        let mut old = Vec::new();
        for file in copied {
            old.extend(remap(&mut image, file)?);
            moved += 1;
        }
        if old.is_empty() {
            continue;
        }
        for (block, len) in old {
            image.free(block, len)?;
        }
        crate::checksums::write_groups(&mut image, false)?;
        image.sb.set_write_time(now);
        image.write_superblocks()?;
        device.flush()?;
        commit(&overlay.into_changes()?)?;
    }
    Ok(moved)
}

/// Converts regular files from block maps to extents, as `e2fsck -E bmap2extent` does; their data stay where they are.
/// `commit` writes the changes of one step, so that a cut leaves all of them or none. Returns how many files were changed.
///
/// # Errors
/// [`Error`] if the image is not clean, lacks the feature `extent` or cannot be written. Steps before are complete then.
pub fn map_by_extents(
    device: &dyn BlockDevice,
    now: i64,
    commit: &mut dyn FnMut(&Changes) -> Result<(), Error>,
) -> Result<u64, Error> {
    require_clean(device)?;
    let mut rest = Vec::new();
    {
        let overlay = MemOverlay::new(device);
        let mut image = Image::open(&overlay, true)?;
        if !image.geo.features.has_extents() {
            return refused("without the feature extent no file is mapped by extents");
        }
        for ino in image.used_inodes()? {
            let found = file(&image, ino)?;
            if found.is_some_and(|(_, core, _)| core.flags & flags::EXTENTS == 0) {
                rest.push(ino);
            }
        }
    }
    for part in rest.chunks(STEP) {
        let overlay = MemOverlay::new(device);
        let mut image = Image::open(&overlay, true)?;
        image.needs_blocks("a file")?;
        image.needs_no_quota("files are not changed")?;
        let mut free = image.free_runs(1)?;
        for &ino in part {
            let Some((raw, core, map)) = file(&image, ino)? else {
                continue;
            };
            let copied = planned(&image, ino, (raw, core, map), None, &mut free)?;
            let copied = copied.ok_or(Error::NoSpace("the mapping of a file"))?;
            // The data stay: only nodes of the old map are left over.
            let runs = copied.map.extents.len();
            for (block, len) in remap(&mut image, copied)?.into_iter().skip(runs) {
                image.free(block, len)?;
            }
        }
        crate::checksums::write_groups(&mut image, false)?;
        image.sb.set_write_time(now);
        image.write_superblocks()?;
        commit(&overlay.into_changes()?)?;
    }
    Ok(rest.len() as u64)
}

/// Takes `blocks` blocks from the shortest run that has them.
fn take(free: &mut [(u64, u64)], blocks: u64) -> Option<u64> {
    let fitting = free.iter_mut().filter(|run| run.1 >= blocks);
    let run = fitting.min_by_key(|run| run.1)?;
    let start = run.0;
    (run.0, run.1) = (run.0 + blocks, run.1 - blocks);
    Some(start)
}

/// A file that was copied.
struct Copied {
    ino: InodeNr,
    raw: Vec<u8>,
    core: InodeCore,
    map: Mapping,
    /// Its extents at the new place.
    extents: Vec<Extent>,
    /// Blocks for the nodes of the new map: those of the old one first.
    nodes: Vec<u64>,
    /// Number of nodes that are needed.
    count: usize,
}

/// Copies a file into one run; `None` if the file stays. Nothing is written to the overlay, whose grains may be
/// larger than blocks.
fn copy_file(
    device: &dyn BlockDevice,
    image: &Image<'_, '_>,
    ino: InodeNr,
    free: &mut [(u64, u64)],
) -> Result<Option<Copied>, Error> {
    let Some((raw, core, map)) = file(image, ino)? else {
        return Ok(None);
    };
    let Some(start) = take(free, map.blocks()) else {
        return Ok(None);
    };
    let (mut extents, mut physical): (Vec<Extent>, u64) = (Vec::new(), start);
    for run in &map.extents {
        // Unwritten extents have no data to copy.
        if !run.unwritten {
            copy(device, image, run.physical.0, physical, run.len.into())?;
        }
        let here = Extent {
            physical: BlockNr(physical),
            ..*run
        };
        match extents
            .last_mut()
            .and_then(|last| Some((last.merge(&here)?, last)))
        {
            Some((longer, last)) => *last = longer,
            None => extents.push(here),
        }
        physical += u64::from(run.len);
    }
    planned(image, ino, (raw, core, map), Some(extents), free)
}

/// Plans the nodes of a file's new map, over new extents or its own. Returns `None` if the nodes find no room.
fn planned(
    image: &Image<'_, '_>,
    ino: InodeNr,
    (raw, core, map): (Vec<u8>, InodeCore, Mapping),
    extents: Option<Vec<Extent>>,
    free: &mut [(u64, u64)],
) -> Result<Option<Copied>, Error> {
    let extents = extents.unwrap_or_else(|| map.extents.clone());
    let count = if image.geo.features.has_extents() {
        mapping::nodes_for(extents.len() as u64, image.geo.block_size)
    } else {
        mapping::address_blocks(&runs(&extents), image.geo.block_size)
    };
    let mut nodes: Vec<u64> = map.nodes.iter().map(|node| node.0).collect();
    while nodes.len() < count as usize {
        let Some(node) = take(free, 1) else {
            return Ok(None);
        };
        nodes.push(node);
    }
    Ok(Some(Copied {
        ino,
        raw,
        core,
        map,
        extents,
        nodes,
        count: count as usize,
    }))
}

/// Converts extents to runs for a block map, where all are written.
fn runs(extents: &[Extent]) -> Vec<Run> {
    let run = |extent: &Extent| Run {
        logical: extent.logical,
        len: extent.len,
        physical: extent.physical.0,
    };
    extents.iter().map(run).collect()
}

/// The planned blocks of a mapping.
struct Sink<'s, 'i, 'd> {
    nodes: std::slice::Iter<'s, u64>,
    image: &'s Image<'i, 'd>,
}

impl MapSink for Sink<'_, '_, '_> {
    type Error = Error;

    fn take(&mut self) -> Option<BlockNr> {
        self.nodes.next().copied().map(BlockNr)
    }

    fn write(&mut self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        Ok(self.image.write(block, bytes)?)
    }
}

/// Maps a file to its copy, and returns the old blocks.
fn remap(image: &mut Image<'_, '_>, file: Copied) -> Result<Vec<(BlockNr, u64)>, Error> {
    let (mut raw, mut core, map, mut nodes) = (file.raw, file.core, file.map, file.nodes);
    for extent in &file.extents {
        image.mark(extent.physical, extent.len.into(), true)?;
    }
    for node in nodes.iter().skip(map.nodes.len()) {
        image.mark(BlockNr(*node), 1, true)?;
    }
    let place = |run: &Extent| (run.physical, u64::from(run.len));
    let mut old: Vec<_> = map.extents.iter().map(place).collect();
    old.extend(nodes.drain(file.count..).map(|node| (BlockNr(node), 1)));
    let mut root = [0; inode::I_BLOCK_SIZE];
    let seed = image.seed(file.ino, core.generation);
    let features = image.geo.features;
    let seed = features.has_metadata_csum().then_some(seed);
    let tree = features.has_extents().then_some(seed);
    let size = image.geo.block_size;
    let mut sink = Sink {
        nodes: nodes.iter(),
        image,
    };
    if !remapping::build(&mut sink, size, tree, &file.extents, &mut root)? {
        return Err(Error::Refused(
            "the mapping needs more blocks than were reserved".into(),
        ));
    }
    if image.geo.features.has_extents() {
        core.flags |= flags::EXTENTS;
    }
    inode::encode_core(&core, &mut raw, &image.geo);
    *inode::i_block_mut(&mut raw)? = root;
    let per = u64::from(image.geo.sectors_per_block());
    let sectors = inode::sectors(&raw, &image.geo).saturating_sub(map.nodes.len() as u64 * per);
    inode::set_sectors(&mut raw, &image.geo, sectors + file.count as u64 * per)?;
    image.write_record(file.ino, &mut raw)?;
    Ok(old)
}

/// Copies blocks on the device itself: where they go to nothing is in use.
fn copy(
    device: &dyn BlockDevice,
    image: &Image<'_, '_>,
    from: u64,
    to: u64,
    blocks: u64,
) -> Result<(), Error> {
    let size = u64::from(image.geo.block_size);
    let (from, to, len) = (from * size, to * size, blocks * size);
    let mut bytes = vec![0; PIECE.min(len) as usize];
    let mut done = 0;
    while done < len {
        let piece = PIECE.min(len - done) as usize;
        let part = bytes.get_mut(..piece).unwrap_or_default();
        device.read_at(from + done, part)?;
        device.write_at(to + done, part)?;
        done += piece as u64;
    }
    Ok(())
}
