//! The members of a cpio archive in the format `newc`, which Linux unpacks when it boots and every cpio reads. Of a file
//! with several names all have the same number, and the last one has the data. It keeps no extended attributes, no holes
//! and no part of a second.

use super::super::{Meta, Source};
use super::{Member, Packer};
use anyhow::{Context, Result};
use ext4_format::inode::{dev_major, dev_minor};
use extant::FileType;
use std::collections::HashMap;

/// The name of the member that ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";

/// Files with several names whose names have not all been met.
#[derive(Default)]
pub(super) struct Held {
    by_id: HashMap<(u64, u64), usize>,
    names: Vec<Vec<Member>>,
}

impl Held {
    /// Keeps a name; returns all names of its file once the last one has come.
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

    /// The names of files that have more of them elsewhere.
    pub fn rest(&mut self) -> Vec<Vec<Member>> {
        let mut names = std::mem::take(&mut self.names);
        names.retain(|names| !names.is_empty());
        names
    }
}

/// The header of a member and its name.
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
    // The name counts its NUL; the sum of the data is for another format.
    text += &format!("{:08X}{:08X}", name.len() + 1, 0);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(name);
    out.push(0);
    pad(out);
}

/// Fills up to a whole unit of the archive, at which `out` began.
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The end of an archive of so many bytes, to a whole block.
pub(super) fn trailer(written: u64) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0], TRAILER);
    let end = (written + out.len() as u64).next_multiple_of(512);
    out.resize((end - written) as usize, 0);
    out
}

/// A name as cpio has it: without `./` in front and a slash at the end.
fn name_of(name: &[u8]) -> Vec<u8> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    match name.strip_suffix(b"/").unwrap_or(name) {
        b"" => b".".to_vec(),
        // Without the directory it would end the archive.
        TRAILER => [b"./", TRAILER].concat(),
        name => name.to_vec(),
    }
}

/// The time of the last change, as far as 32 bits hold it.
fn seconds(meta: &Meta) -> u32 {
    let secs = meta.mtime.secs().clamp(0, u32::MAX.into());
    u32::try_from(secs).unwrap_or_default()
}

/// Says what is lost of a member with extended attributes.
fn warn(packer: &Packer<'_>, member: &Member, has_xattrs: bool) {
    if has_xattrs {
        let place = member.dir.show(&member.path);
        let what = "a cpio archive cannot hold extended attributes";
        packer.monitor.warn(what, &place);
    }
}

/// A member, whole.
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

/// The header of a regular file.
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
