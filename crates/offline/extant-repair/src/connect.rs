//! Every inode has a name, every directory a parent, and links are as many as names.

use crate::error::Error;
use crate::session::{DirState, InodeUse, Session, Used};
use crate::{dir_blocks, dir_names, encryption, inline_dirs, inode_map, record, superblock};
use ext4_format::extent::Extent;
use ext4_format::features::{Features, RoCompat};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::{BlockNr, FileType, InodeNr, dir_entry};
use std::collections::BTreeSet;

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Attaches inodes without a name, then sets ".." and link counts.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    if !session.dirs.contains_key(&InodeNr::ROOT.0) {
        make_directory(
            session,
            InodeNr::ROOT,
            InodeNr::ROOT,
            "the root directory is rebuilt",
        )?;
    }
    let mut homeless: Vec<InodeNr> = unreached(session).into_iter().map(InodeNr).collect();
    if !homeless.is_empty() || nameless(session).next().is_some() {
        // Another thing of this name loses it, and is without one then.
        lost_and_found(session)?;
    }
    // lost+found may have lost its name.
    for ino in unreached(session).into_iter().map(InodeNr) {
        if !homeless.contains(&ino) {
            homeless.push(ino);
        }
    }
    homeless.extend(nameless(session));
    for ino in homeless {
        attach(session, ino)?;
    }
    parents(session)?;
    links(session)
}

/// Returns inodes without a name other than directories.
fn nameless(session: &Session<'_, '_>) -> impl Iterator<Item = InodeNr> {
    let nameless = session.inodes.iter().filter(|(ino, used)| {
        used.names == 0
            && matches!(used.kind, InodeUse::File(file_type) if file_type != FileType::Directory)
            && **ino != 2
    });
    nameless.map(|(ino, _)| InodeNr(*ino))
}

/// Returns the directories that the root does not lead to: of each such tree or loop the directory to attach.
fn unreached(session: &mut Session<'_, '_>) -> Vec<u32> {
    let mut reached = BTreeSet::from([InodeNr::ROOT.0]);
    let mut homeless = Vec::new();
    for start in session.dirs.keys().copied().collect::<Vec<_>>() {
        let (mut way, mut at) = (BTreeSet::new(), start);
        while !reached.contains(&at) && way.insert(at) {
            match session.dirs.get(&at).map_or(0, |d| d.parent) {
                0 => break,
                parent => at = parent,
            }
        }
        if !reached.contains(&at) {
            homeless.push(at);
        }
        reached.extend(way);
    }
    homeless
}

fn lost_and_found(session: &mut Session<'_, '_>) -> Result<Option<InodeNr>, Error> {
    for run in inline_dirs::parts(session, InodeNr::ROOT)? {
        let mut names = dir_entry::records(&run, 0, true).map_while(Result::ok);
        if let Some(found) = names.find(|record| record.name == LOST_AND_FOUND)
            && is_home(session, found.inode)
        {
            return Ok(Some(found.inode));
        }
    }
    if !inline_dirs::expand(session, InodeNr::ROOT)? {
        return Ok(None);
    }
    let Some(root) = dir_blocks::blocks(session, InodeNr::ROOT)? else {
        return Ok(None);
    };
    for &block in &root.places {
        let bytes = session.read(block)?;
        let found = dir_entry::entries(&bytes)
            .map_while(Result::ok)
            .find(|entry| entry.name == LOST_AND_FOUND)
            .map(|entry| entry.inode);
        match found {
            Some(ino) if is_home(session, ino) => return Ok(Some(ino)),
            Some(ino) if !take_name(session, (block, bytes), root.seed, ino)? => return Ok(None),
            _ => {}
        }
    }
    // The first record of the part that was never used will do, too.
    let free = (session.geo.first_ino..=session.geo.inodes_count)
        .map(InodeNr)
        .find(|ino| {
            let place = session.geo.group_of_inode(*ino);
            place.is_some_and(|(group, index)| index <= session.records_in(group.0))
                && !session.inodes.contains_key(&ino.0)
        });
    let Some(ino) = free else {
        return Ok(None);
    };
    if !make_directory(session, ino, InodeNr::ROOT, "lost+found is made")? {
        return Ok(None);
    }
    if add_name(session, InodeNr::ROOT, LOST_AND_FOUND, ino)? {
        Ok(Some(ino))
    } else {
        Ok(None)
    }
}

/// Returns whether an inode can be lost+found: a directory whose names are not encrypted.
fn is_home(session: &Session<'_, '_>, ino: InodeNr) -> bool {
    session.dirs.contains_key(&ino.0) && !encryption::is_encrypted(session, ino)
}

/// Removes the name lost+found of an inode other than a directory, in a block of the root.
fn take_name(
    session: &mut Session<'_, '_>,
    (block, mut bytes): (BlockNr, Vec<u8>),
    seed: Option<u32>,
    ino: InodeNr,
) -> Result<bool, Error> {
    let text = "it can take no names, and does not keep the name lost+found";
    if !session.ask(format!("inode {ino}"), text, None) {
        return Ok(false);
    }
    dir_entry::remove(&mut bytes, LOST_AND_FOUND).map_err(Error::Format)?;
    if let Some(seed) = seed {
        dir_entry::set_tail(&mut bytes, seed);
    }
    session.write(block, &bytes)?;
    if let Some(used) = session.inodes.get_mut(&ino.0) {
        used.names = used.names.saturating_sub(1);
    }
    if let Some(state) = session.dirs.get_mut(&ino.0) {
        state.parent = 0;
        if let Some(root) = session.dirs.get_mut(&InodeNr::ROOT.0) {
            root.children = root.children.saturating_sub(1);
        }
    }
    Ok(true)
}

fn make_directory(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    parent: InodeNr,
    text: &str,
) -> Result<bool, Error> {
    // Without a block, nothing is written: a directory without blocks would be one more fault.
    let Some(physical) = session.allocate() else {
        return Ok(false);
    };
    if !session.ask(format!("inode {ino}"), text, None) {
        session.free(physical);
        return Ok(false);
    }
    let mut raw = vec![0; session.geo.inode_size.into()];
    inode::init(&mut raw, &session.geo);
    let core = InodeCore {
        mode: FileType::Directory.mode_bits() | if ino == InodeNr::ROOT { 0o755 } else { 0o700 },
        links: 2,
        size: session.geo.block_size.into(),
        flags: if session.geo.features.has_extents() {
            flags::EXTENTS
        } else {
            0
        },
        ..InodeCore::default()
    };
    inode::encode_core(&core, &mut raw, &session.geo);
    session.write_record(ino, &mut raw)?;
    if !write_first_block(session, ino, parent, 0, physical)? {
        return Ok(false);
    }
    session.inodes.insert(
        ino.0,
        Used {
            kind: InodeUse::File(FileType::Directory),
            names: 0,
        },
    );
    session.dirs.insert(
        ino.0,
        DirState {
            dotdot: parent.0,
            ..DirState::default()
        },
    );
    Ok(true)
}

/// Gives a directory one block, with the two dots.
pub(crate) fn first_block(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    parent: InodeNr,
    generation: u32,
) -> Result<bool, Error> {
    match session.allocate() {
        Some(physical) => write_first_block(session, ino, parent, generation, physical),
        None => Ok(false),
    }
}

fn write_first_block(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    parent: InodeNr,
    generation: u32,
    physical: BlockNr,
) -> Result<bool, Error> {
    let mut bytes = vec![0; session.block_size()];
    let csum = session.has_csum();
    dir_entry::init_dir(
        &mut bytes,
        csum,
        ino,
        parent,
        session.geo.features.has_filetype(),
    );
    if let Some(seed) = session.seed(ino, generation) {
        dir_entry::set_tail(&mut bytes, seed);
    }
    session.write(physical, &bytes)?;
    let extent = Extent::block(0, physical);
    inode_map::remap(session, ino, vec![extent], Vec::new())
}

fn attach(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    // Without an inode for lost+found, the root takes the name.
    let found = lost_and_found(session)?;
    let text = match found {
        Some(_) => "it has no name, and gets one in lost+found",
        None => "it has no name, and gets one in the root directory",
    };
    let home = found.unwrap_or(InodeNr::ROOT);
    if ino == home || !session.ask(format!("inode {ino}"), text, None) {
        return Ok(());
    }
    add_name(session, home, format!("#{ino}").as_bytes(), ino)?;
    Ok(())
}

/// Adds a name to a directory, and counts it.
fn add_name(
    session: &mut Session<'_, '_>,
    dir: InodeNr,
    name: &[u8],
    ino: InodeNr,
) -> Result<bool, Error> {
    let file_type = match session.inodes.get(&ino.0).map(|used| used.kind) {
        Some(InodeUse::File(file_type)) => Some(file_type),
        _ => None,
    };
    let added = insert_name(session, dir, name, (ino, file_type))?;
    if added {
        dir_names::count(session, dir, ino);
    }
    Ok(added)
}

/// Adds a name to a directory, with a block more if it is full. Its index stays if the name's place in it has room.
pub(crate) fn insert_name(
    session: &mut Session<'_, '_>,
    dir: InodeNr,
    name: &[u8],
    (ino, file_type): (InodeNr, Option<FileType>),
) -> Result<bool, Error> {
    let csum = session.has_csum();
    if !inline_dirs::expand(session, dir)? {
        return Ok(false);
    }
    let Some(blocks) = dir_blocks::blocks(session, dir)? else {
        return Ok(false);
    };
    let file_type = file_type.filter(|_| session.geo.features.has_filetype());
    let mut places = blocks.places.clone();
    let indexed = blocks.flags & flags::INDEX != 0;
    if indexed {
        places = dir_blocks::leaf_of(session, &blocks, name)?
            .into_iter()
            .collect();
    }
    for block in places {
        let mut bytes = session.read(block)?;
        if dir_entry::insert_any(&mut bytes, csum, name, ino, file_type).unwrap_or(false) {
            if let Some(seed) = blocks.seed {
                dir_entry::set_tail(&mut bytes, seed);
            }
            session.write(block, &bytes)?;
            return Ok(true);
        }
    }
    if indexed {
        dir_blocks::give_up_index(session, dir, &blocks)?;
    }
    let logical = blocks.places.len() as u32;
    let Some(physical) = inode_map::allocate_at(session, &blocks.extents, logical) else {
        return Ok(false);
    };
    let mut bytes = vec![0; session.block_size()];
    dir_entry::init_block(&mut bytes, csum);
    dir_entry::insert_any(&mut bytes, csum, name, ino, file_type).map_err(Error::Format)?;
    if let Some(seed) = blocks.seed {
        dir_entry::set_tail(&mut bytes, seed);
    }
    session.write(physical, &bytes)?;
    let mut extents = blocks.extents;
    extents.push(Extent::block(logical, physical));
    let size = u64::from(logical + 1) * u64::from(session.geo.block_size);
    record::edit(session, dir, |core| core.size = size)?;
    inode_map::remap(session, dir, extents, blocks.nodes)
}

fn parents(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for (ino, state) in session.dirs.clone() {
        let parent = if ino == InodeNr::ROOT.0 {
            ino
        } else {
            state.parent
        };
        if parent == 0
            || parent == state.dotdot
            || !session.ask(
                format!("directory {ino}"),
                format!("its \"..\" leads to {parent}"),
                None,
            )
        {
            continue;
        }
        if inline_dirs::set_parent(session, InodeNr(ino), parent)? {
            continue;
        }
        let Some(dir) = dir_blocks::blocks(session, InodeNr(ino))? else {
            continue;
        };
        let Some(&first) = dir.places.first() else {
            continue;
        };
        let mut bytes = session.read(first)?;
        if let Some(number) = bytes.get_mut(12..16) {
            number.copy_from_slice(&parent.to_le_bytes());
        }
        if let Some(seed) = dir.seed {
            if dir.flags & flags::INDEX != 0 {
                ext4_format::htree::set_checksum(
                    &mut bytes,
                    ext4_format::htree::IndexBlockKind::Root,
                    seed,
                )
                .map_err(Error::Format)?
            } else {
                dir_entry::set_tail(&mut bytes, seed)
            }
        }
        session.write(first, &bytes)?;
    }
    Ok(())
}

fn links(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for (ino, used) in session.inodes.clone() {
        let InodeUse::File(file_type) = used.kind else {
            continue;
        };
        let counted = match (file_type, session.dirs.get(&ino)) {
            (FileType::Directory, Some(dir)) => 2 + dir.children,
            _ => used.names,
        };
        let Some(raw) = session.read_record(InodeNr(ino))? else {
            continue;
        };
        let Ok(core) = inode::decode_verified(&raw, &session.geo, InodeNr(ino)) else {
            continue;
        };
        let many = file_type == FileType::Directory && counted > inode::LINK_MAX;
        if many {
            let text = "dir_nlink is set, as a directory has more links than are counted";
            let needed = Features {
                ro_compat: RoCompat::DIR_NLINK,
                ..Features::default()
            };
            superblock::need(session, needed, text)?;
        }
        let uncounted = core.links == 1 && many;
        if counted != 0
            && core.links != counted
            && !uncounted
            && session.ask(
                format!("inode {ino}"),
                format!("its count of links is set to {counted}"),
                None,
            )
        {
            record::edit(session, InodeNr(ino), |core| core.links = counted)?;
        }
    }
    Ok(())
}
