//! The blocks of directories: names that lead nowhere, wrong types, records that cannot be read, indexes.

use crate::Error;
use crate::connect;
use crate::encryption;
use crate::inline_dirs;
use crate::mapping;
use crate::names;
use crate::salvage;
use crate::session::{InodeUse, Session};
use ext4_format::dir_entry::{self, LeafBuilder};
use ext4_format::extent::Extent;
use ext4_format::fold::Comparison;
use ext4_format::hash::DirHasher;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A name that stays in its directory.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: InodeNr,
    pub(crate) file_type: Option<FileType>,
}

/// Mends all directories.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    let all: Vec<u32> = session.dirs.keys().copied().collect();
    for ino in all {
        directory(session, InodeNr(ino))?;
    }
    Ok(())
}

/// Records the groups in which names lead to inodes in the part of the table that the descriptor declares unused.
/// That part must be read before any of these names is removed. Returns whether there are such groups.
pub(crate) fn find_unread_inodes(session: &mut Session<'_, '_>) -> Result<bool, Error> {
    let mut groups = BTreeSet::new();
    for &dir in session.dirs.keys() {
        for bytes in parts(session, InodeNr(dir))? {
            for record in dir_entry::records(&bytes, 0, true).map_while(Result::ok) {
                let Some((group, index)) = session.geo.group_of_inode(record.inode) else {
                    continue;
                };
                if groups.contains(&group.0) || index < session.records_in(group.0) {
                    continue;
                }
                let raw = session.read_record(record.inode)?.unwrap_or_default();
                let in_use = inode::decode_core(&raw, &session.geo, record.inode)
                    .is_ok_and(|core| core.links > 0);
                if in_use {
                    groups.insert(group.0);
                }
            }
        }
    }
    session.whole_tables.extend(&groups);
    Ok(!groups.is_empty())
}

/// State of a directory while its blocks are read.
pub(crate) struct Blocks {
    pub(crate) places: Vec<BlockNr>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) nodes: Vec<BlockNr>,
    pub(crate) seed: Option<u32>,
    pub(crate) flags: u32,
}

/// Returns the blocks of a directory, in logical order.
pub(crate) fn blocks(session: &Session<'_, '_>, ino: InodeNr) -> Result<Option<Blocks>, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) else {
        return Ok(None);
    };
    if core.flags & flags::INLINE_DATA != 0 {
        return Ok(None);
    }
    let seed = session.seed(ino, core.generation);
    let root = inode::i_block(&raw).map_err(Error::Format)?;
    let map = mapping::read(session, core.flags, root, seed)?;
    let places = map
        .extents
        .iter()
        .flat_map(|e| (0..e.len).map(|i| BlockNr(e.physical.0 + u64::from(i))));
    Ok(Some(Blocks {
        places: places.collect(),
        extents: map.extents,
        nodes: map.nodes,
        seed,
        flags: core.flags,
    }))
}

/// Returns the parts of a directory that hold names: its blocks, or the two runs inside its inode.
fn parts(session: &Session<'_, '_>, ino: InodeNr) -> Result<Vec<Vec<u8>>, Error> {
    match blocks(session, ino)? {
        Some(dir) => dir
            .places
            .iter()
            .map(|&block| Ok(session.read(block)?))
            .collect(),
        None => inline_dirs::parts(session, ino),
    }
}

fn directory(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    let Some(dir) = blocks(session, ino)? else {
        return inline_dirs::mend(session, ino);
    };
    let place = format!("directory {ino}");
    let mut index = BTreeMap::new();
    if dir.flags & flags::INDEX != 0 {
        match read_index(session, &dir)? {
            Some(found) => index = found,
            None if session.ask(
                &place,
                "its index is given up, and its names are searched one by one",
                None,
            ) =>
            {
                give_up_index(session, ino, &dir)?;
            }
            None => return Ok(()),
        }
    }
    let mut homeless = Vec::new();
    for (logical, &block) in (0u32..).zip(&dir.places) {
        let mut bytes = session.read(block)?;
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
                note_dotdot(session, ino, &bytes);
            }
            continue;
        }
        homeless.extend(leaf(session, ino, &dir, (logical, block), &mut bytes)?);
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
    let file_type = dir_entry_type(session, FileType::Directory);
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

fn note_dotdot(session: &mut Session<'_, '_>, ino: InodeNr, bytes: &[u8]) {
    let dotdot = bytes
        .get(12..16)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |b| u32::from_le_bytes(*b));
    if let Some(state) = session.dirs.get_mut(&ino.0) {
        state.dotdot = dotdot;
    }
}

#[derive(Clone, Copy, Debug)]
enum IndexUse {
    Node(IndexBlockKind),
    Leaf,
}

/// Returns the use of each block of an indexed directory; `None` if the index or the order of names breaks a rule.
fn read_index(
    session: &Session<'_, '_>,
    dir: &Blocks,
) -> Result<Option<BTreeMap<u32, IndexUse>>, Error> {
    let (geo, csum) = (&session.geo, session.has_csum());
    let count = dir.places.len() as u32;
    let Some(&first) = dir.places.first() else {
        return Ok(None);
    };
    let bytes = session.read(first)?;
    let Ok(root) = htree::parse_root(&bytes, csum, geo.features.has_large_dir(), count) else {
        return Ok(None);
    };
    let encrypted = dir.flags & flags::ENCRYPT != 0;
    let compared = geo.comparison(dir.flags);
    let hasher = DirHasher::new(root.hash_version, geo.unsigned_hash, geo.hash_seed).ok();
    let hasher = hasher.map(|hasher| hasher.comparing(compared));
    if hasher.is_none() || bytes.get(9..12) != Some(&[0; 3]) || bytes.get(22..24) != Some(&[0; 2]) {
        return Ok(None);
    }
    let mut uses = BTreeMap::from([(0, IndexUse::Node(IndexBlockKind::Root))]);
    let mut work: Vec<(u32, u8, u32, u64)> = Vec::new();
    let spread = |index: &htree::Index<'_>, levels: u8, low: u32, end: u64, work: &mut Vec<_>| {
        index.iter().enumerate().all(|(i, entry)| {
            let from = if i == 0 { low } else { entry.hash };
            let to = index.get(i + 1).map_or(end, |next| next.hash.into());
            work.push((entry.block, levels, from, to));
            from >= low && to <= end
        })
    };
    if !spread(&root.index, root.levels, 0, 1 << 32, &mut work) {
        return Ok(None);
    }
    while let Some((logical, levels, low, end)) = work.pop() {
        let kind = if levels == 0 {
            IndexUse::Leaf
        } else {
            IndexUse::Node(IndexBlockKind::Node)
        };
        let Some(&place) = dir.places.get(logical as usize) else {
            return Ok(None);
        };
        if uses.insert(logical, kind).is_some() {
            return Ok(None);
        }
        let bytes = session.read(place)?;
        if levels > 0 {
            let Ok(index) = htree::parse_node(&bytes, csum, count) else {
                return Ok(None);
            };
            if !spread(&index, levels - 1, low, end, &mut work) {
                return Ok(None);
            }
            continue;
        }
        for record in dir_entry::records(&bytes, 0, true).map_while(Result::ok) {
            let Some(hasher) = hasher.as_ref().filter(|_| !encrypted) else {
                break;
            };
            // A name that will change loses its place, too.
            let renamed = !compared.allows(record.name);
            let hash = hasher.hash(record.name).0;
            if renamed || hash < low & !1 || u64::from(hash) >= end {
                return Ok(None);
            }
        }
    }
    Ok((uses.len() == count as usize).then_some(uses))
}

/// Clears the flag of an index, and makes its blocks leaves: the root keeps the two names before it.
pub(crate) fn give_up_index(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir: &Blocks,
) -> Result<(), Error> {
    connect::edit(session, ino, |core| core.flags &= !flags::INDEX)?;
    let Some(seed) = dir.seed else {
        return Ok(());
    };
    for &block in &dir.places {
        let mut bytes = session.read(block)?;
        if dir_entry::space(&bytes, true).is_ok() {
            continue;
        }
        // A block of the index: one record covers it, or the part of the root behind its dots.
        if dir_entry::make_leaf(&mut bytes).is_ok() {
            dir_entry::set_tail(&mut bytes, seed);
            session.write(block, &bytes)?;
        }
    }
    Ok(())
}

/// Returns the leaf in which the index of a directory searches a name.
pub(crate) fn leaf_of(
    session: &Session<'_, '_>,
    dir: &Blocks,
    name: &[u8],
) -> Result<Option<BlockNr>, Error> {
    let (geo, csum, count) = (&session.geo, session.has_csum(), dir.places.len() as u32);
    let Some(&first) = dir.places.first() else {
        return Ok(None);
    };
    let bytes = session.read(first)?;
    let Ok(root) = htree::parse_root(&bytes, csum, geo.features.has_large_dir(), count) else {
        return Ok(None);
    };
    let Ok(hasher) = DirHasher::new(root.hash_version, geo.unsigned_hash, geo.hash_seed) else {
        return Ok(None);
    };
    let hasher = hasher.comparing(geo.comparison(dir.flags));
    // Encrypted names that fold case are hashed with the key.
    if dir.flags & flags::CASEFOLD != 0 && dir.flags & flags::ENCRYPT != 0 {
        return Ok(None);
    }
    let hash = hasher.hash(name).0;
    let child = |index: &htree::Index<'_>| index.get(index.search(hash)).map(|e| e.block);
    let (mut at, mut levels) = (child(&root.index), root.levels);
    while let Some(logical) = at {
        let Some(&place) = dir.places.get(logical as usize) else {
            return Ok(None);
        };
        if levels == 0 {
            return Ok(Some(place));
        }
        let bytes = session.read(place)?;
        let Ok(index) = htree::parse_node(&bytes, csum, count) else {
            return Ok(None);
        };
        (at, levels) = (child(&index), levels - 1);
    }
    Ok(None)
}

/// Result of reading a block of names.
#[derive(Debug, Default)]
pub(crate) struct LeafRead {
    /// The names that stay, behind the dots.
    pub(crate) kept: Vec<Name>,
    /// Description of the damage.
    pub(crate) bad: Option<String>,
    /// Description of the loss.
    pub(crate) lost: Option<&'static str>,
    /// How many of "." and ".." were found in their places.
    dots: u32,
}

impl LeafRead {
    fn tell(&mut self, what: impl FnOnce() -> String) {
        self.bad.get_or_insert_with(what);
    }
}

fn leaf(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir: &Blocks,
    (logical, block): (u32, BlockNr),
    bytes: &mut [u8],
) -> Result<Vec<Name>, Error> {
    let place = format!("directory {ino}, block {block}");
    let sealed = dir
        .seed
        .is_none_or(|seed| dir_entry::verify_tail(bytes, seed).is_ok());
    let mut read = read_leaf(session, ino, dir.flags, logical == 0, bytes);
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
    let why = read.bad.unwrap_or_else(|| "it has no checksum".to_owned());
    if session.ask(place, format!("it is written anew: {why}"), read.lost) {
        return rebuild(session, ino, dir, logical == 0, block, read.kept);
    }
    Ok(Vec::new())
}

/// Returns a valid form of a name for a directory, and records a change. `None` if no valid form exists.
fn possible_name<'n>(
    read: &mut LeafRead,
    found: &'n [u8],
    encrypted: bool,
    compared: Comparison,
) -> Option<Cow<'n, [u8]>> {
    let shown = || found.escape_ascii().to_string();
    let mut name = Cow::Borrowed(found);
    if !compared.allows(&name) {
        name = Cow::Owned(as_utf8(&name));
        let new = name.escape_ascii();
        read.tell(|| format!("\"{}\", which is not UTF-8, becomes \"{new}\"", shown()));
    }
    let possible = encrypted || dir_entry::check_name(&name).is_ok();
    if !possible && let Some(mended) = names::without_bad_bytes(&name) {
        let new = mended.escape_ascii();
        read.tell(|| format!("the name \"{}\" becomes \"{new}\"", shown()));
        return Some(Cow::Owned(mended));
    }
    if !possible || matches!(&*name, b"." | b"..") {
        read.tell(|| format!("the name \"{}\"", shown()));
        read.lost = Some("a name that cannot be");
        return None;
    }
    Some(name)
}

/// Reads the names of a part of a directory, counts those that stay, and records the damage.
pub(crate) fn read_leaf(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir_flags: u32,
    first: bool,
    bytes: &[u8],
) -> LeafRead {
    let encrypted = dir_flags & flags::ENCRYPT != 0;
    let compared = session.geo.comparison(dir_flags);
    let (mut read, mut seen) = (LeafRead::default(), BTreeSet::new());
    let found = salvage::records(session, bytes, encrypted);
    if found.is_damaged {
        read.bad = Some("records that cannot be read".to_owned());
        read.lost = Some("names in the damage");
    }
    for record in found.records {
        if first && read.dots < 2 {
            if is_dot(session, ino, bytes, &record, &mut read) {
                continue;
            }
            read.tell(|| "\".\" and \"..\"".to_owned());
            read.dots = 2;
        }
        let shown = || record.name.escape_ascii().to_string();
        let Some(mut name) = possible_name(&mut read, record.name, encrypted, compared) else {
            continue;
        };
        let leads = verdict(session, ino, record.inode).and_then(|file_type| {
            let target = (&*name, record.inode, file_type);
            match encryption::verdict(session, ino, target) {
                Some(why) => Err(why),
                None => Ok(file_type),
            }
        });
        let file_type = match leads {
            Ok(file_type) => dir_entry_type(session, file_type),
            Err(why) => {
                let target = record.inode;
                read.tell(|| format!("\"{}\" leads to inode {target}, which {why}", shown()));
                read.lost = Some("the name");
                continue;
            }
        };
        if seen.contains(&*compared.key(&name)) {
            let same = |kept: &Name| compared.same(&kept.name, &name) && kept.ino == record.inode;
            let renamed = !encrypted && !read.kept.iter().any(same);
            let new = names::another(&name, compared, &seen).filter(|_| renamed);
            let becomes = new.as_ref().map(|new| new.escape_ascii().to_string());
            read.tell(|| match becomes {
                Some(new) => format!("\"{}\" is there twice, and becomes \"{new}\"", shown()),
                None => format!("\"{}\" is there twice", shown()),
            });
            let Some(new) = new else {
                read.lost = Some("the second of two equal names");
                continue;
            };
            name = Cow::Owned(new);
        }
        seen.insert(compared.key(&name).into_owned());
        if FileType::from_dir_byte(record.file_type) != file_type {
            read.tell(|| format!("the type of \"{}\"", shown()));
        }
        count(session, ino, record.inode);
        read.kept.push(Name {
            name: name.into_owned(),
            ino: record.inode,
            file_type,
        });
    }
    if first && read.dots < 2 {
        read.tell(|| "\".\" and \"..\"".to_owned());
    }
    read
}

/// Converts a name to UTF-8: replaces invalid bytes by dots.
fn as_utf8(name: &[u8]) -> Vec<u8> {
    let mut sound = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        sound.extend(chunk.valid().as_bytes());
        sound.resize(sound.len() + chunk.invalid().len(), b'.');
    }
    sound
}

/// Returns whether a record is the next of "." and "..", in its place.
fn is_dot(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    bytes: &[u8],
    record: &dir_entry::RawRecord<'_>,
    read: &mut LeafRead,
) -> bool {
    let (name, at): (&[u8], usize) = match read.dots {
        0 => (b".", 0),
        _ => (b"..", 12),
    };
    if record.name != name || record.offset != at {
        return false;
    }
    let ends = bytes.get(at + 8 + name.len()) == Some(&0);
    let typed = dir_entry_type(session, FileType::Directory);
    let own = read.dots == 1 || record.inode == ino;
    if !ends || !own || FileType::from_dir_byte(record.file_type) != typed {
        read.tell(|| format!("its \"{}\"", name.escape_ascii()));
    }
    read.dots += 1;
    if read.dots == 2 {
        note_dotdot(session, ino, bytes);
    }
    true
}

/// Returns the type for directory entries of this volume.
pub(crate) fn dir_entry_type(session: &Session<'_, '_>, is: FileType) -> Option<FileType> {
    session.geo.features.has_filetype().then_some(is)
}

/// Returns the type of a name's inode, or the reason why the name is invalid.
fn verdict(
    session: &Session<'_, '_>,
    dir: InodeNr,
    ino: InodeNr,
) -> Result<FileType, &'static str> {
    let Some(used) = session.inodes.get(&ino.0) else {
        return Err("is not in use");
    };
    let elsewhere = || session.dirs.get(&ino.0).is_some_and(|d| d.parent != 0);
    match used.kind {
        InodeUse::Reserved => Err("is reserved"),
        InodeUse::Value => Err("holds the value of an attribute"),
        InodeUse::File(_) if ino == InodeNr::ROOT => Err("is the root"),
        InodeUse::File(FileType::Directory) if ino == dir => Err("is the directory itself"),
        InodeUse::File(FileType::Directory) if elsewhere() => Err("has a name elsewhere"),
        InodeUse::File(file_type) => Ok(file_type),
    }
}

/// Counts a name.
pub(crate) fn count(session: &mut Session<'_, '_>, dir: InodeNr, ino: InodeNr) {
    if let Some(used) = session.inodes.get_mut(&ino.0) {
        used.names += 1;
    }
    if let Some(child) = session.dirs.get_mut(&ino.0) {
        child.parent = dir.0;
        if let Some(own) = session.dirs.get_mut(&dir.0) {
            own.children += 1;
        }
    }
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
        let file_type = dir_entry_type(session, FileType::Directory);
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
