//! Rebuilding directories: with or without room for checksums, an index, types of files; in hash order and without
//! gaps.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::options::TuneOptions;
use ext4_format::directory::{Builder, Named, Shape};
use ext4_format::hash::DirHasher;
use ext4_format::inode::{self, InodeCore, flags, inline};
use ext4_format::mapping::{self, Run};
use ext4_format::{BlockNr, FileType, InodeNr, dir_entry};
use ext4_image::Mapping;

/// A name of a directory.
struct Name {
    name: Vec<u8>,
    hash: (u32, u32),
    ino: InodeNr,
    file_type: Option<FileType>,
}

/// Reasons to rebuild directories.
#[derive(Clone, Copy, Default)]
struct Reasons {
    /// Rebuild all directories.
    all: bool,
    /// Rebuild directories that lack a needed index.
    index: bool,
    /// Rebuild directories with an index.
    indexed: bool,
    /// Rebuild directories that get smaller.
    compact: bool,
}

impl Reasons {
    fn of(image: &Image<'_, '_>, options: &TuneOptions) -> Self {
        let (had, has) = (image.old.features, image.geo.features);
        Self {
            all: had.has_metadata_csum() != has.has_metadata_csum()
                || had.has_filetype() != has.has_filetype(),
            index: has.has_dir_index() && !had.has_dir_index(),
            indexed: had.has_dir_index() && !has.has_dir_index() || options.hash_seed.is_some(),
            compact: options.compact_directories,
        }
    }

    const fn any(&self) -> bool {
        self.all || self.index || self.indexed || self.compact
    }

    fn concern(&self, core: &InodeCore, blocks: u64) -> bool {
        let indexed = core.flags & flags::INDEX != 0;
        self.all
            || self.compact
            || (self.index && !indexed && blocks > 1)
            || (self.indexed && indexed)
    }
}

/// Rebuilds the directories that do not fit the new properties of the volume.
pub(crate) fn follow(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    let reasons = Reasons::of(image, options);
    if !reasons.any() {
        return Ok(());
    }
    let lost_found = lost_found(image)?;
    let (mut count, mut before, mut after) = (0u64, 0, 0);
    for ino in image.used_inodes()? {
        let raw = image.read_record(ino)?;
        let core = inode::decode_verified(&raw, &image.geo, ino)?;
        let inline = core.flags & flags::INLINE_DATA != 0;
        if core.file_type() != Some(FileType::Directory) || core.links == 0 {
            continue;
        }
        if inline {
            follow_inline(image, ino, raw)?;
            continue;
        }
        let map = image.mapping(core.flags, &raw)?;
        let is_lost_found = lost_found == Some(ino);
        if !reasons.concern(&core, map.blocks()) || (is_lost_found && !reasons.all) {
            continue;
        }
        let blocks = map.blocks();
        let now = rebuild(image, ino, raw, &core, map, is_lost_found, reasons.compact)?;
        if let Some(now) = now {
            (count, before, after) = (count + 1, before + blocks, after + now);
        }
    }
    if count > 0 {
        image.tell(
            "directories",
            format!("{count} are rebuilt: {before} blocks become {after}"),
        );
    }
    Ok(())
}

/// Sets the types of files in the names of a directory inside its inode, or clears them.
fn follow_inline(image: &Image<'_, '_>, ino: InodeNr, mut raw: Vec<u8>) -> Result<(), Error> {
    let has = image.geo.features.has_filetype();
    if has == image.old.features.has_filetype() {
        return Ok(());
    }
    let changed = inline::change_records(&mut raw, &image.geo, |record| {
        let file_type = if has {
            let raw = image.read_record(record.inode)?;
            inode::decode_verified(&raw, &image.geo, record.inode)?.file_type()
        } else {
            None
        };
        let byte = file_type.map_or(0, |t| t as u8);
        Ok::<_, Error>((record.inode, byte))
    })?;
    if changed {
        image.write_record(ino, &mut raw)?;
    }
    Ok(())
}

/// Returns the inode of `lost+found`.
fn lost_found(image: &Image<'_, '_>) -> Result<Option<InodeNr>, Error> {
    let raw = image.read_record(InodeNr::ROOT)?;
    let core = inode::decode_verified(&raw, &image.geo, InodeNr::ROOT)?;
    let map = image.mapping(core.flags, &raw)?;
    for (_, block) in map.places() {
        if let Some(found) = dir_entry::find(&image.read(block)?, b"lost+found")? {
            return Ok(Some(found.inode));
        }
    }
    Ok(None)
}

/// Returns all names of a directory, and the directory above it.
fn names(
    image: &Image<'_, '_>,
    ino: InodeNr,
    core: &InodeCore,
    map: &Mapping,
) -> Result<(Vec<Name>, InodeNr), Error> {
    let geo = &image.geo;
    let seed = geo.hash_seed;
    let hasher = DirHasher::new(geo.def_hash_version, geo.unsigned_hash, seed)?
        .comparing(geo.comparison(core.flags));
    let types = geo.features.has_filetype();
    let (mut names, mut parent) = (Vec::new(), ino);
    for (_, block) in map.places() {
        let bytes = image.read(block)?;
        for entry in dir_entry::entries_of(&bytes, core.flags & flags::ENCRYPT != 0) {
            let entry = entry?;
            match entry.name {
                b"." => continue,
                b".." => {
                    parent = entry.inode;
                    continue;
                }
                _ => {}
            }
            let file_type = match entry.file_type {
                None if types => {
                    inode::decode_verified(&image.read_record(entry.inode)?, geo, entry.inode)?
                        .file_type()
                }
                known => known,
            };
            names.push(Name {
                name: entry.name.to_vec(),
                hash: hasher.hash(entry.name),
                ino: entry.inode,
                file_type,
            });
        }
    }
    if geo.features.has_dir_index() {
        names.sort_by(|a, b| (a.hash, &a.name).cmp(&(b.hash, &b.name)));
    }
    Ok((names, parent))
}

/// Rebuilds a directory and returns its blocks; `None` if the directory stays because it would not get smaller.
fn rebuild(
    image: &mut Image<'_, '_>,
    ino: InodeNr,
    mut raw: Vec<u8>,
    core: &InodeCore,
    map: Mapping,
    is_lost_found: bool,
    compact: bool,
) -> Result<Option<u64>, Error> {
    if core.flags & flags::CASEFOLD != 0 && core.flags & flags::ENCRYPT != 0 {
        return refused(format!(
            "directory {ino} is encrypted and ignores case: such directories cannot be rebuilt yet"
        ));
    }
    let (names, parent) = names(image, ino, core, &map)?;
    let present = u32::try_from(map.blocks()).unwrap_or(u32::MAX);
    let mut geo = image.geo.clone();
    let mut least = 1;
    if is_lost_found {
        // The directory keeps its room, and empty blocks are not allowed in an index.
        least = present;
        geo.features
            .compat
            .remove(ext4_format::features::Compat::DIR_INDEX);
    }
    let shape = Shape::of(&geo, names.iter().map(|name| name.name.len()), least);
    if compact && shape.blocks > present {
        return Ok(None);
    }
    let places = resize(image, ino, &mut raw, core, &map, shape.blocks)?;
    let builder = Builder {
        geo: &geo,
        own: ino,
        parent,
        seed: image.seed(ino, core.generation),
        hash_version: geo.def_hash_version,
        encrypted: core.flags & flags::ENCRYPT != 0,
        count: names.len(),
        named: |i: usize| {
            let name = &names[i]; // the builder asks for known names only
            Named {
                name: &name.name,
                hash: name.hash.0,
                ino: name.ino,
                file_type: name.file_type,
            }
        },
    };
    let mut places = places.into_iter();
    builder.build(&shape, &mut |bytes: &[u8]| match places.next() {
        Some(block) => Ok(image.write(block, bytes)?),
        None => refused("a directory of more blocks than were counted"),
    })?;
    let mut core = inode::decode_verified(&raw, &image.geo, ino)?;
    core.flags &= !flags::INDEX;
    if shape.is_indexed() {
        core.flags |= flags::INDEX;
    }
    core.size = u64::from(shape.blocks) * u64::from(image.geo.block_size);
    inode::encode_core(&core, &mut raw, &image.geo);
    image.write_record(ino, &mut raw)?;
    Ok(Some(shape.blocks.into()))
}

/// Changes the number of blocks of a directory; the record is changed, but not written.
fn resize(
    image: &mut Image<'_, '_>,
    ino: InodeNr,
    raw: &mut [u8],
    core: &InodeCore,
    map: &Mapping,
    blocks: u32,
) -> Result<Vec<BlockNr>, Error> {
    let mut places: Vec<BlockNr> = map.places().map(|(_, block)| block).collect();
    let present = places.len();
    let whole = map
        .places()
        .zip(0..)
        .all(|((logical, _), i): ((u32, BlockNr), u32)| logical == i);
    if present == blocks as usize && whole {
        return Ok(places);
    }
    if !whole {
        // Its blocks would move inside their clusters.
        image.needs_blocks("a directory with holes")?;
    }
    let ratio = image.geo.cluster_ratio as usize;
    let kept = (blocks as usize).next_multiple_of(ratio);
    for block in places.drain(kept.min(present)..) {
        image.free(block, 1)?;
    }
    places.truncate(blocks as usize);
    if present < blocks as usize {
        // The last cluster has blocks that are not in use.
        while !places.len().is_multiple_of(ratio) && places.len() < blocks as usize {
            let next = places.last().map_or(0, |block| block.0 + 1);
            places.push(BlockNr(next));
        }
        let goal = places.last().map_or(0, |block| block.0 + 1);
        let more = image.allocate(blocks - places.len() as u32, goal, "a directory")?;
        places.extend(
            more.iter()
                .flat_map(|run| (0..run.len).map(|i| BlockNr(run.physical + u64::from(i)))),
        );
    }
    for node in &map.nodes {
        image.free(*node, 1)?;
    }
    let runs = runs(&places);
    let extents = image.geo.features.has_extents();
    let needed = if extents {
        mapping::extent_nodes(&runs, image.geo.block_size)
    } else {
        mapping::address_blocks(&runs, image.geo.block_size)
    };
    let goal = places.first().map_or(0, |block| block.0);
    let nodes = match needed {
        0 => Vec::new(),
        count => image.allocate_nodes(count, goal)?,
    };
    let mut root = [0; inode::I_BLOCK_SIZE];
    let seed = image.seed(ino, core.generation);
    let mut emit = |block: u64, bytes: &[u8]| image.write(BlockNr(block), bytes);
    mapping::build(&image.geo, &runs, &nodes, seed, &mut root, &mut emit)?;
    *inode::i_block_mut(raw)? = root;
    let mut core = *core;
    core.flags = if extents {
        core.flags | flags::EXTENTS
    } else {
        core.flags & !flags::EXTENTS
    };
    inode::encode_core(&core, raw, &image.geo);
    let clusters = |blocks: u64, nodes: usize| blocks.div_ceil(ratio as u64) + nodes as u64;
    let per = u64::from(image.geo.sectors_per_block()) * ratio as u64;
    let gone = clusters(map.blocks(), map.nodes.len()) * per;
    let come = clusters(blocks.into(), nodes.len()) * per;
    let sectors = inode::sectors(raw, &image.geo).saturating_sub(gone) + come;
    inode::set_sectors(raw, &image.geo, sectors)?;
    Ok(places)
}

/// Joins blocks into runs.
fn runs(places: &[BlockNr]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (logical, block) in (0..).zip(places) {
        match runs.last_mut() {
            Some(run) if run.physical + u64::from(run.len) == block.0 => run.len += 1,
            _ => runs.push(Run {
                logical,
                len: 1,
                physical: block.0,
            }),
        }
    }
    runs
}
