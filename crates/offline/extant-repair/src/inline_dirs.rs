//! Directories with names in their inodes (`inline_data`): read and mended there, and moved to blocks where a name
//! needs more room.

use crate::dir_names::{self, Name};
use crate::error::Error;
use crate::inode_map;
use crate::session::Session;
use ext4_format::dir_entry::{self, LeafBuilder};
use ext4_format::extent::Extent;
use ext4_format::inode::inline::{self, Inline};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::{FileType, InodeNr, xattr};
use std::ops::Range;

/// Directory with its names inside its record.
pub(crate) struct InlineDir {
    raw: Vec<u8>,
    core: InodeCore,
    /// Directory that it says is its parent.
    pub(crate) parent: InodeNr,
    /// Places in the record of the two runs of directory records.
    runs: [Range<usize>; 2],
}

/// Reads a directory, if it is one of this kind.
pub(crate) fn read(session: &Session<'_, '_>, ino: InodeNr) -> Result<Option<InlineDir>, Error> {
    let Some(raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) else {
        return Ok(None);
    };
    let directory = core.file_type() == Some(FileType::Directory);
    if !directory || core.flags & flags::INLINE_DATA == 0 {
        return Ok(None);
    }
    let Ok(inline) = Inline::undamaged_part(&raw, &session.geo) else {
        return Ok(None);
    };
    let parent = inline.parent();
    let runs = inline::record_ranges(&raw, &session.geo).map_err(Error::Format)?;
    Ok(Some(InlineDir {
        raw,
        core,
        parent,
        runs,
    }))
}

impl InlineDir {
    fn run(&self, range: &Range<usize>) -> &[u8] {
        self.raw.get(range.clone()).unwrap_or(&[])
    }
}

/// Returns the runs of directory records; none for a directory of another kind.
pub(crate) fn parts(session: &Session<'_, '_>, ino: InodeNr) -> Result<Vec<Vec<u8>>, Error> {
    let dir = read(session, ino)?;
    let runs = |dir: InlineDir| {
        dir.runs
            .clone()
            .map(|range| dir.run(&range).to_vec())
            .to_vec()
    };
    Ok(dir.map_or_else(Vec::new, runs))
}

/// Returns the parent of a directory; none for a directory of another kind.
pub(crate) fn parent(session: &Session<'_, '_>, ino: InodeNr) -> Result<Option<InodeNr>, Error> {
    Ok(read(session, ino)?.map(|dir| dir.parent))
}

/// Mends the names of a directory, counts them, and notes its parent.
pub(crate) fn mend(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    let Some(mut dir) = read(session, ino)? else {
        return Ok(());
    };
    if let Some(state) = session.dirs.get_mut(&ino.0) {
        state.dotdot = dir.parent.0;
    }
    let runs = dir.runs.iter().map(|range| Ok(dir.run(range).to_vec()));
    let mut seen = dir_names::names_of(session, dir.core.flags, runs)?;
    let mut changed = false;
    for range in dir.runs.clone() {
        let run = dir.run(&range).to_vec();
        let read = dir_names::read_leaf(session, ino, dir.core.flags, false, &run, &mut seen);
        let Some(why) = &read.bad else {
            continue;
        };
        let place = format!("directory {ino}, in its inode");
        if read.ask(session, place, why)
            && let Some(run) = dir.raw.get_mut(range)
        {
            pack(run, &read.kept)?;
            changed = true;
        }
    }
    if changed {
        inline::clear_hash(&mut dir.raw, &session.geo);
        session.write_record(ino, &mut dir.raw)?;
    }
    Ok(())
}

/// Writes names into a run. A file whose name does not fit gets a name in lost+found.
fn pack(run: &mut [u8], names: &[Name]) -> Result<(), Error> {
    if run.len() < dir_entry::MIN_REC_LEN {
        run.fill(0);
        return Ok(());
    }
    let mut leaf = LeafBuilder::new(run, false);
    for name in names {
        leaf.push_any(&name.name, name.ino, name.file_type)
            .map_err(Error::Format)?;
    }
    leaf.finish();
    Ok(())
}

/// Sets the parent of a directory; returns whether it is one of this kind.
pub(crate) fn set_parent(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    parent: u32,
) -> Result<bool, Error> {
    let Some(mut dir) = read(session, ino)? else {
        return Ok(false);
    };
    let map = inode::i_block_mut(&mut dir.raw).map_err(Error::Format)?;
    if let Some(number) = map.first_chunk_mut() {
        *number = parent.to_le_bytes();
    }
    session.write_record(ino, &mut dir.raw)?;
    Ok(true)
}

/// Moves the names of a directory, which must be sound, from its inode to a block; returns whether they are in blocks then.
pub(crate) fn expand(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<bool, Error> {
    let Some(mut dir) = read(session, ino)? else {
        return Ok(true);
    };
    let Some(physical) = session.allocate() else {
        return Ok(false);
    };
    let file_type = dir_names::dir_entry_type(session, FileType::Directory);
    let mut bytes = vec![0; session.block_size()];
    let mut leaf = LeafBuilder::new(&mut bytes, session.has_csum());
    for (name, ino) in [(&b"."[..], ino), (b"..", dir.parent)] {
        leaf.push(name, ino, file_type).map_err(Error::Format)?;
    }
    for range in &dir.runs {
        let run = dir.run(range);
        for record in dir_entry::records(run, 0, true).map_while(Result::ok) {
            let file_type = FileType::from_dir_byte(record.file_type);
            leaf.push_any(record.name, record.inode, file_type)
                .map_err(Error::Format)?;
        }
    }
    leaf.finish();
    if let Some(seed) = session.seed(ino, dir.core.generation) {
        dir_entry::set_tail(&mut bytes, seed);
    }
    session.write(physical, &bytes)?;
    if let Some(area) =
        inode::xattr_area(&dir.raw, &session.geo).and_then(|range| dir.raw.get_mut(range))
    {
        xattr::remove_in_inode(area, |a| (a.index, a.rest) == inline::ATTRIBUTE);
    }
    dir.core.flags &= !flags::INLINE_DATA;
    if session.geo.features.has_extents() {
        dir.core.flags |= flags::EXTENTS;
    }
    dir.core.size = session.geo.block_size.into();
    inode::i_block_mut(&mut dir.raw)
        .map_err(Error::Format)?
        .fill(0);
    inode::encode_core(&dir.core, &mut dir.raw, &session.geo);
    session.write_record(ino, &mut dir.raw)?;
    let extent = Extent::block(0, physical);
    inode_map::remap(session, ino, vec![extent], Vec::new())
}
