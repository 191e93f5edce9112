//! Reads the names of a directory, in blocks or inside its inode, and finds the damaged ones.

use crate::error::Error;
use crate::names::SeenNames;
use crate::session::{DirState, InodeUse, NAME_OF_EMPTY_INODE, Session};
use crate::{encryption, names, salvage};
use ext4_format::fold::Comparison;
use ext4_format::group_desc::INODE_UNINIT;
use ext4_format::inode::{self, flags};
use ext4_format::{FileType, InodeNr, dir_entry};
use std::borrow::Cow;
use std::fmt::Display;

/// A name that stays in its directory.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) name: Vec<u8>,
    pub(crate) ino: InodeNr,
    pub(crate) file_type: Option<FileType>,
}

/// Returns the inode number of ".." in the first block of a directory.
pub(crate) fn dotdot_of(bytes: &[u8]) -> u32 {
    let number = bytes.get(12..16).and_then(<[u8]>::first_chunk);
    number.map_or(0, |b| u32::from_le_bytes(*b))
}

pub(crate) fn note_dotdot(session: &mut Session<'_, '_>, ino: InodeNr, bytes: &[u8]) {
    let dotdot = dotdot_of(bytes);
    if let Some(state) = session.dirs.get_mut(&ino.0) {
        state.dotdot = dotdot;
    }
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
    /// Inodes that are empty, although the inode bitmap has them in use.
    empty_inodes: Vec<u32>,
    /// How many of "." and ".." were found in their places.
    dots: u32,
}

impl LeafRead {
    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        self.bad.get_or_insert_with(what);
    }

    /// Notes the loss of a name that leads to no file.
    fn remove_name_of(&mut self, session: &Session<'_, '_>, target: InodeNr) {
        match target_use(session, target) {
            TargetUse::Free => {}
            TargetUse::Empty => {
                self.lost.get_or_insert(NAME_OF_EMPTY_INODE);
                self.empty_inodes.push(target.0);
            }
            TargetUse::Other => self.lost = Some("the name"),
        }
    }

    /// Asks whether to replace the names by those that stay.
    pub(crate) fn ask(
        &self,
        session: &mut Session<'_, '_>,
        place: impl Display,
        why: &str,
    ) -> bool {
        let yes = session.ask(place, format!("it is rewritten: {why}"), self.lost);
        if !yes {
            session.named_empty_inodes.extend(&self.empty_inodes);
        }
        yes
    }
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

/// Returns the names of a directory, of which none is kept yet.
pub(crate) fn names_of(
    session: &Session<'_, '_>,
    dir_flags: u32,
    parts: impl Iterator<Item = Result<Vec<u8>, Error>>,
) -> Result<SeenNames, Error> {
    let encrypted = dir_flags & flags::ENCRYPT != 0;
    let compared = session.geo.comparison(dir_flags);
    let mut seen = SeenNames::default();
    for part in parts {
        let part = part?;
        let records = dir_entry::records(&part, 0, encrypted).map_while(Result::ok);
        let of_files = records.filter(|record| !matches!(record.name, b"." | b".."));
        of_files.for_each(|record| seen.add(&compared.key(record.name)));
    }
    seen.sort();
    Ok(seen)
}

/// Reads the names of a part of a directory, counts those that stay, and records the damage. `seen` holds the names of
/// the whole directory.
pub(crate) fn read_leaf(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    dir_flags: u32,
    first: bool,
    bytes: &[u8],
    seen: &mut SeenNames,
) -> LeafRead {
    let encrypted = dir_flags & flags::ENCRYPT != 0;
    let compared = session.geo.comparison(dir_flags);
    let mut read = LeafRead::default();
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
                read.remove_name_of(session, target);
                continue;
            }
        };
        if let Some(other) = seen.inode(&compared.key(&name)) {
            let renamed = !encrypted && other != record.inode;
            let new = names::another(&name, compared, seen).filter(|_| renamed);
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
        seen.keep(compared.key(&name).into_owned(), record.inode);
        if record.file_type != dir_entry::type_byte(file_type) {
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
    if !ends || !own || record.file_type != dir_entry::type_byte(typed) {
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
    let taken = |d: &DirState| d.parent != 0 || d.stays_in != 0 && d.stays_in != dir.0;
    let elsewhere = || session.dirs.get(&ino.0).is_some_and(taken);
    match used.kind {
        InodeUse::Reserved => Err("is reserved"),
        InodeUse::Value => Err("holds the value of an attribute"),
        InodeUse::File(_) if ino == InodeNr::ROOT => Err("is the root"),
        InodeUse::File(FileType::Directory) if ino == dir => Err("is the directory itself"),
        InodeUse::File(FileType::Directory) if elsewhere() => Err("has a name elsewhere"),
        InodeUse::File(file_type) => Ok(file_type),
    }
}

/// State of an inode that has a name, and is not a file.
enum TargetUse {
    /// The inode is free, so that nothing is lost with the name.
    Free,
    /// The record is empty, but the inode bitmap has it in use: the name is the last trace of a file.
    Empty,
    /// The record cannot be read, another mend would clear it, or no file can have it. The number may be damaged.
    Other,
}

fn target_use(session: &Session<'_, '_>, ino: InodeNr) -> TargetUse {
    if ino.0 < session.geo.first_ino {
        return TargetUse::Other;
    }
    let Ok(Some(raw)) = session.read_record(ino) else {
        return TargetUse::Other;
    };
    match inode::decode_verified(&raw, &session.geo, ino) {
        Ok(core) if core.links != 0 => TargetUse::Other,
        Ok(core) if core.dtime != 0 => TargetUse::Free,
        Ok(core) if core.mode != 0 => TargetUse::Other,
        Ok(_) if is_free_in_bitmap(session, ino) => TargetUse::Free,
        Ok(_) => TargetUse::Empty,
        Err(_) => TargetUse::Other,
    }
}

/// Returns whether the inode bitmap has an inode as free; `false` if the bitmap cannot be read.
fn is_free_in_bitmap(session: &Session<'_, '_>, ino: InodeNr) -> bool {
    let place = session.geo.group_of_inode(ino);
    place.is_some_and(|place| session.is_free(place, INODE_UNINIT, |desc| desc.inode_bitmap))
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
