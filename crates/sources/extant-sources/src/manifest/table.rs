//! Device tables for genext2fs, Buildroot's makedevs and mkfs.ubifs: lines
//! `NAME TYPE MODE UID GID MAJOR MINOR START INC COUNT`, where `-` stands for an unused field.

use super::lines::Lines;
use crate::archive::compression::decompressed;
use crate::archive_member::{ArchiveKind, ArchiveMember};
use crate::error::{Result, SourceError, show};
use std::fs::File;
use std::path::Path;

/// The most devices of one line.
const MOST: u32 = 1 << 16;

/// Action of a line.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Creates a directory or a special file. The name must be new or a directory.
    Make(ArchiveKind),
    /// Sets owner and permissions of an existing file.
    Change {
        /// Whether all files below are changed, too.
        recursive: bool,
        /// Whether the file may be missing.
        optional: bool,
    },
}

/// A line of a table, one of its devices.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub line: u64,
    pub path: Vec<u8>,
    pub order: Order,
    /// `None`: it stays.
    pub mode: Option<u16>,
    pub uid: u32,
    pub gid: u32,
}

/// A device table. It adds directories, devices and FIFOs to the files of earlier sources, and sets owners and
/// permissions of these files. Its owners are final: they are not translated.
///
/// ```
/// use extant_sources::DeviceTable;
/// assert!(DeviceTable::is_table(b"# devices\n/dev/tty c 666 0 5 4 0 0 1 8\n"));
/// assert!(DeviceTable::is_table(b"/dev/tty x 666 root tty\n"), "with mistakes, which `open` reports");
/// assert!(!DeviceTable::is_table(b"/some/text that is none\n"));
/// ```
#[derive(Clone, Debug)]
pub struct DeviceTable {
    #[doc(hidden)]
    pub name: String,
    #[doc(hidden)]
    pub entries: Vec<Entry>,
}

impl DeviceTable {
    /// Returns whether `head` is the start of a device table: the first line other than a comment must begin with a path, a
    /// letter and three more fields.
    pub fn is_table(head: &[u8]) -> bool {
        // The last line may be cut off.
        let Ok(Some((_, line))) = Lines::new(head).next() else {
            return false;
        };
        let mut words = words(&line);
        let is_letter = words.nth(1).is_some_and(|word| word.len() == 1);
        line.starts_with(b"/") && line.is_ascii() && is_letter && words.count() >= 3
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not valid in a table.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        let io = |e| SourceError::io(format!("reading {name}"), e);
        let file = File::open(&path).map_err(|e| SourceError::io(format!("opening {name}"), e))?;
        let mut lines = Lines::new(decompressed(Box::new(file)).map_err(io)?);
        let mut entries = Vec::new();
        while let Some((number, line)) = lines.next().map_err(io)? {
            let bad = |what| SourceError::source(&name, format!("line {number}: {what}"));
            entries.extend(parse(number, &line).map_err(bad)?);
        }
        Ok(Self { name, entries })
    }
}

#[doc(hidden)]
impl Entry {
    /// Returns the member of the line, if it creates one.
    pub fn member(&self) -> Option<ArchiveMember> {
        let Order::Make(kind) = &self.order else {
            return None;
        };
        let mode = self.mode.unwrap_or(0o755);
        let mut member = ArchiveMember::new(self.path.clone(), kind.clone(), mode);
        (member.uid, member.gid) = (self.uid, self.gid);
        Some(member)
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty())
}

fn parse(number: u64, line: &[u8]) -> Result<Vec<Entry>, String> {
    let words: Vec<&[u8]> = words(line).collect();
    let (&[path, kind, mode, uid, gid], rest) = words
        .split_first_chunk::<5>()
        .ok_or("fewer than five fields: NAME TYPE MODE UID GID")?;
    if rest.len() > 5 {
        return Err("more than ten fields".into());
    }
    if !path.starts_with(b"/") {
        return Err(format!("{} does not begin with a slash", show(path)));
    }
    let more = |i: usize| match rest.get(i) {
        None | Some(&b"-") => Ok(0),
        Some(text) => number_in(text, 10),
    };
    let (major, minor, start, step, count) = (more(0)?, more(1)?, more(2)?, more(3)?, more(4)?);
    let entry = Entry {
        line: number,
        path: path.to_vec(),
        order: Order::Change {
            recursive: kind == b"r",
            optional: kind == b"F",
        },
        mode: mode_in(mode)?,
        uid: number_in(uid, 10)?,
        gid: number_in(gid, 10)?,
    };
    let make = |kind| Entry {
        order: Order::Make(kind),
        ..entry.clone()
    };
    match kind {
        b"f" | b"F" | b"r" => return Ok(vec![entry]),
        b"d" => return Ok(vec![make(ArchiveKind::Directory)]),
        b"p" => return Ok(vec![make(ArchiveKind::Fifo)]),
        b"s" => return Ok(vec![make(ArchiveKind::Socket)]),
        b"c" | b"b" => {}
        other => {
            return Err(format!(
                "{} is not a type: use d, f, r, c, b, p or s",
                show(other)
            ));
        }
    }
    let first = |minor| device(kind, major, minor);
    if count == 0 {
        return Ok(vec![make(first(minor)?)]);
    }
    if count > MOST {
        return Err(format!("{count} devices, where {MOST} are the most"));
    }
    let one = |i: u32| {
        let number = u64::from(start) + u64::from(i);
        let minor = u64::from(minor) + u64::from(i) * u64::from(step);
        let path = [path, number.to_string().as_bytes()].concat();
        let kind = first(u32::try_from(minor).unwrap_or(u32::MAX))?;
        Ok(Entry { path, ..make(kind) })
    };
    (0..count).map(one).collect()
}

/// Creates a device of a checked type.
fn device(kind: &[u8], major: u32, minor: u32) -> Result<ArchiveKind, String> {
    match (kind, major <= 0xfff && minor <= 0xf_ffff) {
        (_, false) => Err(format!("{major}, {minor} is not a device")),
        (b"c", true) => Ok(ArchiveKind::CharDevice(major, minor)),
        (_, true) => Ok(ArchiveKind::BlockDevice(major, minor)),
    }
}

/// Parses a number in a field.
fn number_in(text: &[u8], radix: u32) -> Result<u32, String> {
    let parsed = std::str::from_utf8(text).ok();
    let parsed = parsed.and_then(|t| u32::from_str_radix(t, radix).ok());
    parsed.ok_or_else(|| format!("'{}' is not a number", show(text)))
}

/// Parses permissions; `None` for -1. Some tables include the type.
fn mode_in(text: &[u8]) -> Result<Option<u16>, String> {
    if text == b"-1" {
        return Ok(None);
    }
    let bits = number_in(text, 8)?;
    let mode = u16::try_from(bits).map_err(|_| "an impossible mode")?;
    Ok(Some(mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_devices() {
        let all = parse(7, b"/dev/hda b 640 0 6 3 1 1 2 3").unwrap();
        let found: Vec<_> = all
            .iter()
            .map(|e| (String::from_utf8_lossy(&e.path), &e.order))
            .collect();
        let block = |minor| Order::Make(ArchiveKind::BlockDevice(3, minor));
        let want = [
            ("/dev/hda1", block(1)),
            ("/dev/hda2", block(3)),
            ("/dev/hda3", block(5)),
        ];
        for ((path, order), want) in found.iter().zip(&want) {
            assert_eq!((&**path, *order), (want.0, &want.1));
        }
        assert_eq!((all.len(), all[0].mode, all[0].gid), (3, Some(0o640), 6));
        let one = parse(1, b"/dev/null c 666 0 0 1 3 - - -").unwrap();
        assert_eq!(one[0].order, Order::Make(ArchiveKind::CharDevice(1, 3)));
        let kept = parse(1, b"/home r -1 1000 1000 - - - - -").unwrap();
        assert_eq!((kept[0].mode, kept[0].uid), (None, 1000));
    }

    #[test]
    fn other_lines_are_refused() {
        for bad in [
            &b"/dev/x c 666 0"[..],
            b"dev/x c 666 0 0 1 1",
            b"/dev/x q 666 0 0",
            b"/dev/x c 9 0 0 1 1",
            b"/dev/x c 666 root 0 1 1",
            b"/dev/x c 666 0 0 5000 1",
            b"/dev/x c 666 0 0 1 1 0 1 70000",
            b"/dev/x c 666 0 0 1 1048575 0 1 2",
            b"/dev/x c 666 0 0 1 1 0 4294967295 3",
            b"/x d 755 0 0 1 2 3 4 5 6",
        ] {
            assert!(parse(1, bad).is_err(), "{}", show(bad));
        }
    }
}
