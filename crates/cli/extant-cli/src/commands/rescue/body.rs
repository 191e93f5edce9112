//! The body file of the Sleuth Kit, which mactime sorts into a time line: a line for each file, with its times.

use anyhow::Result;
use ext4_format::FileType;
use ext4_format::inode::InodeCore;
use extant_cli_core::format::show::{self, show};
use extant_rescue::Rescue;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

/// Writes the files found. With `deleted`, the records of other deleted inodes follow, as `<IMAGE-dead-INODE>`.
pub fn write(image: &Path, rescue: &Rescue<'_>, deleted: bool, out: &mut impl Write) -> Result<()> {
    for found in rescue.found() {
        let mut path = [b"/", &found.path[..]].concat();
        if found.deleted {
            path.extend_from_slice(b" (deleted)");
        }
        let core = rescue.attributes(found);
        line(&path, found.ino.0, Some(found.file_type), core, out)?;
    }
    if !deleted {
        return Ok(());
    }
    let name = image.file_name().unwrap_or_default().display();
    // The journal may still have what the record of such an inode was.
    let found: BTreeSet<_> = rescue
        .found()
        .iter()
        .map(|f| (f.ino, f.generation))
        .collect();
    let others = rescue
        .dead_inodes()
        .filter(|(ino, core)| !found.contains(&(*ino, core.generation)));
    for (ino, core) in others {
        let path = format!("<{name}-dead-{ino}>");
        line(path.as_bytes(), ino.0, None, Some(core), out)?;
    }
    Ok(())
}

/// Writes the line of a name, whose entry has a type. If the inode is lost, its attributes are zeros.
fn line(
    path: &[u8],
    ino: u32,
    entry: Option<FileType>,
    core: Option<InodeCore>,
    out: &mut impl Write,
) -> Result<()> {
    let core = core.unwrap_or_default();
    let letter = |kind: FileType| match kind {
        FileType::Regular => 'r',
        FileType::Socket => 'h',
        kind => show::type_letter(kind),
    };
    let of_entry = entry.map_or('-', letter);
    let kind = core.file_type().or(entry).unwrap_or(FileType::Regular);
    let of_inode = letter(kind);
    let mode = show::mode(kind, core.mode.into());
    let mode = mode.get(1..).unwrap_or_default();
    // A `|` in a name would separate fields.
    let path = show(path).replace('|', "\\x7c");
    let (uid, gid, size) = (core.uid, core.gid, core.size);
    write!(
        out,
        "0|{path}|{ino}|{of_entry}/{of_inode}{mode}|{uid}|{gid}|{size}"
    )?;
    for time in [core.atime, core.mtime, core.ctime, core.crtime] {
        write!(out, "|{}", time.secs())?;
    }
    Ok(writeln!(out)?)
}
