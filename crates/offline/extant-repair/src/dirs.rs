//! The blocks of directories: names that lead nowhere, wrong types, records that cannot be read, indexes.

use crate::dir_blocks::{self, Blocks, IndexUse};
use crate::dir_names::{self, Name};
use crate::error::Error;
use crate::names::SeenNames;
use crate::session::Session;
use crate::{connect, inline_dirs};
use ext4_format::dir_entry::{self, LeafBuilder};
use ext4_format::htree::{self};
use ext4_format::inode::flags;
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::{BTreeMap, BTreeSet};

/// Mends all directories.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let all: Vec<u32> = session.dirs.keys().copied().collect();
    for ino in all {
        directory(session, InodeNr(ino))?;
    }
    Ok(())
}

/// Records the groups in which names lead to inodes in the part of the table that the descriptor declares unused, or
/// attributes to the inodes of their values. That part must be read before any of these names is removed. Returns whether
/// there are such groups. Without such groups, the directories with several names are found as well.
pub(crate) fn survey(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let values = session.value_inodes.keys().map(|&ino| InodeNr(ino));
    let places = values.filter_map(|ino| session.geo.group_of_inode(ino));
    let unread = places.filter(|&place| session.is_unread(place));
    let mut groups: BTreeSet<u32> = unread.map(|(group, _)| group.0).collect();
    let mut named = NamedDirs::default();
    for &dir in session.dirs.keys() {
        for bytes in parts(session, InodeNr(dir))? {
            for record in dir_entry::records(&bytes, 0, true).map_while(Result::ok) {
                if session.dirs.contains_key(&record.inode.0)
                    && !matches!(record.name, b"." | b"..")
                {
                    named.note(record.inode.0, dir);
                }
                // Even if the inode is not in use, the descriptor is older than the name, and others may be.
                let place = session.geo.group_of_inode(record.inode);
                let unread = place.filter(|&place| session.is_unread(place));
                groups.extend(unread.map(|(group, _)| group.0));
            }
        }
    }
    session.whole_tables.extend(&groups);
    if groups.is_empty() {
        choose_parents(session, &named)?;
    }
    Ok(!groups.is_empty())
}

/// Directories with a name for each directory.
#[derive(Default)]
struct NamedDirs {
    first: BTreeMap<u32, u32>,
    /// All directories, for those with names in several.
    several: BTreeMap<u32, BTreeSet<u32>>,
}

impl NamedDirs {
    fn note(&mut self, ino: u32, dir: u32) {
        let first = *self.first.entry(ino).or_insert(dir);
        if first != dir {
            let all = self.several.entry(ino).or_default();
            all.extend([first, dir]);
        }
    }
}

/// Decides where directories stay that have names in several directories: where their ".." leads to. It was written in
/// the same transaction as that name, by a rename.
fn choose_parents(session: &mut Session<'_, '_>, named: &NamedDirs) -> Result<(), Error> {
    for (&ino, dirs) in &named.several {
        let first = dir_blocks::blocks(session, InodeNr(ino))?;
        let dotdot = match first.as_ref().and_then(|dir| dir.places.first()) {
            Some(&block) => dir_names::dotdot_of(&session.read(block)?),
            None => inline_dirs::parent(session, InodeNr(ino))?.map_or(0, |parent| parent.0),
        };
        if let Some(state) = session.dirs.get_mut(&ino)
            && dirs.contains(&dotdot)
        {
            state.stays_in = dotdot;
        }
    }
    Ok(())
}

/// Returns the parts of a directory that hold names: its blocks, or the two runs inside its inode.
fn parts(session: &Session<'_, '_>, ino: InodeNr) -> Result<Vec<Vec<u8>>, Error> {
    match dir_blocks::blocks(session, ino)? {
        Some(dir) => dir
            .places
            .iter()
            .map(|&block| Ok(session.read(block)?))
            .collect(),
        None => inline_dirs::parts(session, ino),
    }
}

fn directory(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    let Some(dir) = dir_blocks::blocks(session, ino)? else {
        return inline_dirs::mend(session, ino);
    };
    let place = format!("directory {ino}");
    let mut index = BTreeMap::new();
    if dir.flags & flags::INDEX != 0 {
        match dir_blocks::read_index(session, &dir)? {
            Some(found) => index = found,
            None if session.ask(
                &place,
                "its index is given up, and its names are searched one by one",
                None,
            ) =>
            {
                dir_blocks::give_up_index(session, ino, &dir)?;
            }
            None => return Ok(()),
        }
    }
    // An index has equal names in one leaf; without an index any block may repeat a name.
    let linear = index.is_empty() && dir.places.len() > 1;
    let blocks = dir.places.iter().filter(|_| linear);
    let blocks = blocks.map(|&block| Ok(session.read(block)?));
    let mut seen = dir_names::names_of(session, dir.flags, blocks)?;
    let each_block_alone = !seen.may_repeat();
    let mut homeless = Vec::new();
    for (logical, &block) in (0u32..).zip(&dir.places) {
        let mut bytes = session.read(block)?;
        if each_block_alone {
            seen.clear();
        }
        if let Some(IndexUse::Node(kind)) = index.get(&logical) {
            if logical == 0 && dots_of_root(session, ino, &mut bytes) {
                if let Some(seed) = dir.seed {
                    htree::set_checksum(&mut bytes, *kind, seed).map_err(Error::Format)?;
                }
                session.write(block, &bytes)?;
            }
            if let Some(seed) = dir.seed
                && htree::verify_checksum(&bytes, *kind, seed).is_err()
                && session.ask(&place, "the checksum of its index is set", None)
            {
                htree::set_checksum(&mut bytes, *kind, seed).map_err(Error::Format)?;
                session.write(block, &bytes)?;
            }
            if logical == 0 {
                dir_names::note_dotdot(session, ino, &bytes);
            }
            continue;
        }
        let place = (logical, block);
        homeless.extend(leaf(session, ino, &dir, place, &mut bytes, &mut seen)?);
    }
    // Names that no longer fit in their block, because the checksum takes its end. They are counted already.
    for name in homeless {
        let target = (name.ino, name.file_type);
        connect::insert_name(session, ino, &name.name, target)?;
    }
    Ok(())
}

/// Sets the number of "." and the types of both dots in the root of an index; returns whether that was wrong.
fn dots_of_root(session: &mut Session<'_, '_>, ino: InodeNr, bytes: &mut [u8]) -> bool {
    let file_type = dir_names::dir_entry_type(session, FileType::Directory);
    let file_type = file_type.map_or(0, |file_type| file_type as u8);
    let mut sound = bytes.to_vec();
    if let Some(number) = sound.get_mut(..4) {
        number.copy_from_slice(&ino.0.to_le_bytes());
    }
    for at in [7, 19] {
        if let Some(byte) = sound.get_mut(at) {
            *byte = file_type;
        }
    }
    let place = format!("directory {ino}");
    let wrong = sound != bytes && session.ask(place, "the dots before its index are set", None);
    if wrong {
        bytes.copy_from_slice(&sound);
    }
    wrong
}

fn leaf(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir: &Blocks,
    (logical, block): (u32, BlockNr),
    bytes: &mut [u8],
    seen: &mut SeenNames,
) -> Result<Vec<Name>, Error> {
    let place = format!("directory {ino}, block {block}");
    let sealed = dir
        .seed
        .is_none_or(|seed| dir_entry::verify_tail(bytes, seed).is_ok());
    let mut read = dir_names::read_leaf(session, ino, dir.flags, logical == 0, bytes, seen);
    if dir.seed.is_some() && sealed && dir_entry::space(bytes, true).is_err() {
        read.tell(|| "a record over its checksum".to_owned());
    }
    if read.bad.is_none() && sealed {
        return Ok(Vec::new());
    }
    let tail = [0, 0, 0, 0, 12, 0, 0, 0xde];
    let tailed = bytes
        .last_chunk::<12>()
        .is_some_and(|t| t.starts_with(&tail));
    if read.bad.is_none() && tailed {
        if session.ask(place, "its checksum is set", None)
            && let Some(seed) = dir.seed
        {
            dir_entry::set_tail(bytes, seed);
            session.write(block, bytes)?;
        }
        return Ok(Vec::new());
    }
    let why = read.bad.as_deref().unwrap_or("it has no checksum");
    if read.ask(session, place, why) {
        return rebuild(session, ino, dir, logical == 0, block, read.kept);
    }
    Ok(Vec::new())
}

/// Rewrites a block of names, and returns the names that no longer fit.
fn rebuild(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir: &Blocks,
    first: bool,
    block: BlockNr,
    kept: Vec<Name>,
) -> Result<Vec<Name>, Error> {
    let csum = session.has_csum();
    let mut bytes = vec![0; session.block_size()];
    let mut names = Vec::new();
    if first {
        let parent = session.dirs.get(&ino.0).map_or(0, |d| d.dotdot);
        let parent = if session.dirs.contains_key(&parent) {
            InodeNr(parent)
        } else {
            InodeNr::ROOT
        };
        let file_type = dir_names::dir_entry_type(session, FileType::Directory);
        for (name, ino) in [(&b"."[..], ino), (b"..", parent)] {
            names.push(Name {
                name: name.to_vec(),
                ino,
                file_type,
            });
        }
        if let Some(state) = session.dirs.get_mut(&ino.0) {
            state.dotdot = parent.0;
        }
    }
    names.extend(kept);
    let mut homeless = Vec::new();
    let mut leaf = LeafBuilder::new(&mut bytes, csum);
    for one in names {
        let has_room = leaf.push_any(&one.name, one.ino, one.file_type);
        if !has_room.map_err(Error::Format)? {
            homeless.push(one);
        }
    }
    leaf.finish();
    if let Some(seed) = dir.seed {
        dir_entry::set_tail(&mut bytes, seed);
    }
    session.write(block, &bytes)?;
    Ok(homeless)
}
