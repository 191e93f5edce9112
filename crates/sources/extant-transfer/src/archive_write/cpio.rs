//! The members of a cpio archive in the format `newc`, which Linux unpacks at boot and every cpio reads. All names of
//! one file have the same inode number, and the last name has the data. The format has no extended attributes, no
//! holes and no fractions of seconds.

use super::{Member, Packer};
use crate::meta::Meta;
use crate::side::Source;
use anyhow::{Context, Result};
use ext4_format::FileType;
use ext4_format::inode::{dev_major, dev_minor};
use std::collections::HashMap;

/// The name of the member that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";

/// Files of which some names have not been met yet.
#[derive(Default)]
pub(super) struct Held {
    by_id: HashMap<(u64, u64), usize>,
    names: Vec<Vec<Member>>,
}

impl Held {
    /// Keeps a name; returns all names of its file with the last one.
    pub fn hold(&mut self, member: Member) -> Option<Vec<Member>> {
        let (id, links) = (member.meta.id, member.meta.links);
        let at = *self.by_id.entry(id).or_insert(self.names.len());
        if at == self.names.len() {
            self.names.push(Vec::new());
        }
        let names = self.names.get_mut(at)?;
        names.push(member);
        (names.len() as u64 == links).then(|| {
            self.by_id.remove(&id);
            std::mem::take(names)
        })
    }

    /// Returns the names of files that have more names outside the tree.
    pub fn rest(&mut self) -> Vec<Vec<Member>> {
        let mut names = std::mem::take(&mut self.names);
        names.retain(|names| !names.is_empty());
        names
    }
}

/// Appends the header of a member and its name.
fn header(out: &mut Vec<u8>, member: &Member, size: u64) -> Result<()> {
    let Member { meta, number, .. } = member;
    let size = u32::try_from(size)
        .context("larger than 4 GiB, which a cpio archive cannot hold: use a tar archive")?;
    let rdev = match meta.kind {
        FileType::CharDevice | FileType::BlockDevice => {
            (dev_major(meta.rdev), dev_minor(meta.rdev))
        }
        _ => (0, 0),
    };
    let name = name_of(&member.name);
    let fields = [
        *number,
        u32::from(meta.kind.mode_bits() | meta.mode),
        meta.uid,
        meta.gid,
        u32::try_from(meta.links).unwrap_or(u32::MAX),
        seconds(meta),
        size,
        0,
        0,
        rdev.0,
        rdev.1,
    ];
    write(out, &fields, &name);
    Ok(())
}

fn write(out: &mut Vec<u8>, fields: &[u32; 11], name: &[u8]) {
    let mut text = String::from("070701");
    for field in fields {
        text += &format!("{field:08X}");
    }
    // The length of the name includes its NUL; the checksum is for another format.
    text += &format!("{:08X}{:08X}", name.len() + 1, 0);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(name);
    out.push(0);
    pad(out);
}

/// Pads the archive, of which `out` is the end, to a whole unit.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the end of an archive of `written` bytes, padded to a whole block.
pub(super) fn trailer(written: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], TRAILER);
    let end = (written + out.len() as u64).next_multiple_of(512);
    out.resize((end - written) as usize, 0);
    out
}

/// Returns a name as cpio stores it: without a leading `./` and a trailing slash.
fn name_of(name: &[u8]) -> Vec<u8> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    match name.strip_suffix(b"/").unwrap_or(name) {
        b"" => b".".to_vec(),
        // Without the directory, the name would end the archive.
        TRAILER => [b"./", TRAILER].concat(),
        name => name.to_vec(),
    }
}

/// Returns the modification time, clamped to 32 bits.
fn seconds(meta: &Meta) -> u32 {
    let secs = meta.mtime.secs().clamp(0, u32::MAX.into());
    u32::try_from(secs).unwrap_or_default()
}

/// Warns that extended attributes of a member are lost.
fn warn(packer: &Packer<'_>, member: &Member, has_xattrs: bool) {
    if has_xattrs {
        let place = member.dir.show(&member.path);
        let what = "a cpio archive cannot hold extended attributes";
        packer.monitor.warn(what, &place);
    }
}

/// Appends a whole member.
pub(super) fn member(packer: &Packer<'_>, out: &mut Vec<u8>, member: &Member) -> Result<()> {
    let Member {
        dir, path, meta, ..
    } = member;
    match meta.kind {
        FileType::Regular if member.first.is_some() => {
            header(out, member, 0)?;
            packer.monitor.linked();
            return Ok(());
        }
        FileType::Regular => {
            let source = dir.open(path, member.follow)?;
            head(packer, out, member, &*source)?;
            packer.data(out, &*source, 0, meta.size)?;
            pad(out);
        }
        kind => {
            if packer.rules.keep_xattrs {
                warn(packer, member, !dir.xattrs(path)?.is_empty());
            }
            let data = match kind {
                FileType::Symlink => dir.read_link(path)?,
                _ => Vec::new(),
            };
            header(out, member, data.len() as u64)?;
            out.extend_from_slice(&data);
            pad(out);
            if member.first.is_some() {
                packer.monitor.linked();
                return Ok(());
            }
        }
    }
    packer.monitor.made(meta.kind);
    Ok(())
}

/// Appends the header of a regular file.
pub(super) fn head(
    packer: &Packer<'_>,
    out: &mut Vec<u8>,
    member: &Member,
    source: &dyn Source,
) -> Result<()> {
    if packer.rules.keep_xattrs {
        warn(packer, member, !source.xattrs()?.is_empty());
    }
    header(out, member, member.meta.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let name = |n: &[u8]| String::from_utf8(name_of(n)).unwrap();
        for (given, want) in [
            ("./", "."),
            ("./etc/", "etc"),
            ("./etc/passwd", "etc/passwd"),
            ("file", "file"),
            ("./TRAILER!!!", "./TRAILER!!!"),
            ("./a/TRAILER!!!", "a/TRAILER!!!"),
        ] {
            assert_eq!(name(given.as_bytes()), want);
        }
    }

    #[test]
    fn an_end_fills_up_its_block() {
        for written in [0, 4, 388, 392, 512] {
            let end = trailer(written);
            assert!(end.starts_with(b"070701"));
            assert_eq!((written + end.len() as u64) % 512, 0);
        }
    }
}
