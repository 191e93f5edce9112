//! The keywords of a line of mtree(5).

use super::lines::unescape;
use crate::archive_member::{ArchiveKind, ArchiveMember};
use crate::attribute_change::AttributeChange;
use crate::error::show;
use ext4_format::inode::{dev_major, dev_minor};
use ext4_format::timestamp::Timestamp;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

type Result<T> = std::result::Result<T, String>;

/// The keywords of a line that are supported; others, such as checksums, are ignored.
const KNOWN: [&[u8]; 12] = [
    b"type",
    b"mode",
    b"uid",
    b"gid",
    b"link",
    b"device",
    b"time",
    b"contents",
    b"optional",
    b"uname",
    b"gname",
    b"size",
];

/// Keywords and their values, as they were written.
#[derive(Clone, Default)]
pub(super) struct Keywords(Vec<(Vec<u8>, Vec<u8>)>);

/// Values that are not part of a line.
pub(super) struct Surroundings<'a> {
    /// Directory for relative paths of the host.
    pub base: &'a Path,
    pub path: &'a [u8],
    /// The default time.
    pub now: Timestamp,
}

/// Description of a file by a line.
pub enum LineEntry {
    /// A member, and the file of the host with its data.
    Member(Box<ArchiveMember>, Option<PathBuf>),
    /// Attributes of a file without data here.
    Change(AttributeChange),
}

/// Returns the error for an unknown `type=`.
fn unknown_type(given: &[u8]) -> String {
    let given = show(given);
    format!("type={given} is not one of block, char, dir, fifo, file, link and socket")
}

impl Keywords {
    pub fn set<'w>(&mut self, words: impl Iterator<Item = &'w [u8]>) -> Result<()> {
        for word in words {
            let mut parts = word.splitn(2, |b| *b == b'=');
            let (key, value) = (parts.next().unwrap_or_default(), parts.next());
            if !KNOWN.contains(&key) {
                continue;
            }
            if value.is_none() && key != b"optional" {
                return Err(format!("{} has no value", show(key)));
            }
            self.0.retain(|(k, _)| k != key);
            self.0
                .push((key.to_vec(), value.unwrap_or_default().to_vec()));
        }
        Ok(())
    }

    pub fn unset<'w>(&mut self, words: impl Iterator<Item = &'w [u8]>) {
        for word in words {
            self.0.retain(|(k, _)| word != b"all" && k != word);
        }
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        let found = self.0.iter().find(|(k, _)| k == key.as_bytes());
        found.map(|(_, value)| value.as_slice())
    }

    pub fn is_directory(&self) -> bool {
        self.get("type") == Some(b"dir")
    }

    fn number(&self, key: &str, radix: u32) -> Result<Option<u64>> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let parsed = std::str::from_utf8(text)
            .ok()
            .and_then(|t| u64::from_str_radix(t, radix).ok());
        parsed
            .map(Some)
            .ok_or_else(|| format!("{key}={} is not a number", show(text)))
    }

    fn id(&self, key: &str, name: &str) -> Result<Option<u32>> {
        match self.number(key, 10)?.map(u32::try_from) {
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(_)) => Err(format!("{key} is more than 32 bits")),
            None => match self.get(name) {
                Some(b"root" | b"wheel") => Ok(Some(0)),
                Some(other) => Err(format!(
                    "{name}={} without {key}: names mean nothing here",
                    show(other)
                )),
                None => Ok(None),
            },
        }
    }

    /// Parses seconds and, after the point, nanoseconds as a separate number.
    fn time(&self) -> Result<Option<Timestamp>> {
        let Some(text) = self.get("time") else {
            return Ok(None);
        };
        let parse = || {
            let text = std::str::from_utf8(text).ok()?;
            let (secs, nanos) = text.split_once('.').unwrap_or((text, "0"));
            let nanos: u32 = nanos.parse().ok().filter(|n| *n < 1_000_000_000)?;
            Some(Timestamp::new(secs.parse().ok()?, nanos))
        };
        parse()
            .map(Some)
            .ok_or_else(|| format!("time={} is not a time", show(text)))
    }

    /// Parses `FORMAT,MAJOR,MINOR`, or a number in Linux's encoding.
    fn device(&self) -> Result<(u32, u32)> {
        let text = self.get("device").ok_or("a device without device=")?;
        let bad = || format!("device={} is not a device", show(text));
        let number = |t: &str| match t.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => t.parse().ok(),
        };
        let words: Vec<_> = std::str::from_utf8(text)
            .map_err(|_| bad())?
            .split(',')
            .collect();
        let (major, minor) = match words[..] {
            [_, major, minor] => (
                number(major).ok_or_else(bad)?,
                number(minor).ok_or_else(bad)?,
            ),
            [one] => {
                let dev = number(one).ok_or_else(bad)?;
                (dev_major(dev), dev_minor(dev))
            }
            _ => return Err(bad()),
        };
        if major > 0xfff || minor > 0xf_ffff {
            return Err(bad());
        }
        Ok((major, minor))
    }

    /// Returns the file of the host with the data of a regular file.
    fn contents(&self, place: &Surroundings<'_>) -> Result<PathBuf> {
        let path = match self.get("contents") {
            Some(text) => unescape(text)?,
            None => place.path.to_vec(),
        };
        Ok(place.base.join(OsStr::from_bytes(&path)))
    }

    /// Returns what a line describes; `None` for a file that is optional and missing.
    pub fn entry(&self, place: &Surroundings<'_>) -> Result<Option<LineEntry>> {
        let mut host: Option<(PathBuf, Metadata)> = None;
        let kind = match self.get("type").unwrap_or(b"file") {
            b"file" => {
                let file = self.contents(place)?;
                let bad = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
                let contents = self.get("contents").is_some();
                match std::fs::metadata(&file) {
                    Ok(meta) if !meta.is_file() => return Err(bad(&"is not a regular file")),
                    Ok(meta) => {
                        let size = meta.len();
                        if self.number("size", 10)?.is_some_and(|s| s != size) {
                            return Err(bad(&format_args!("has {size} bytes, not size=")));
                        }
                        host = Some((file, meta));
                        let stretches = if size == 0 {
                            Vec::new()
                        } else {
                            vec![(0, size)]
                        };
                        ArchiveKind::File { size, stretches }
                    }
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(bad(&e)),
                    Err(_) if contents && self.get("optional").is_some() => return Ok(None),
                    Err(_) if contents => return Err(bad(&"no such file")),
                    // An empty file needs no data.
                    Err(_) if self.get("size") == Some(b"0") => ArchiveKind::File {
                        size: 0,
                        stretches: Vec::new(),
                    },
                    Err(_) => return self.change(place).map(LineEntry::Change).map(Some),
                }
            }
            b"dir" => ArchiveKind::Directory,
            b"link" => ArchiveKind::Symlink(unescape(
                self.get("link").ok_or("type=link without link=")?,
            )?),
            b"char" => self
                .device()
                .map(|(major, minor)| ArchiveKind::CharDevice(major, minor))?,
            b"block" => self
                .device()
                .map(|(major, minor)| ArchiveKind::BlockDevice(major, minor))?,
            b"fifo" => ArchiveKind::Fifo,
            b"socket" => ArchiveKind::Socket,
            other => return Err(unknown_type(other)),
        };
        let meta = host.as_ref().map(|(_, meta)| meta);
        let mode = match self.mode()? {
            Some(mode) => mode,
            None => match (meta, &kind) {
                (Some(meta), _) => (meta.mode() & 0o7777) as u16,
                (None, ArchiveKind::Directory) => 0o755,
                (None, _) => 0o644,
            },
        };
        let mut member = ArchiveMember::new(place.path, kind, mode);
        member.uid = self.id("uid", "uname")?.unwrap_or_default();
        member.gid = self.id("gid", "gname")?.unwrap_or_default();
        let of_host = || meta.map(|m| Timestamp::new(m.mtime(), m.mtime_nsec() as u32));
        let time = self.time()?.or_else(of_host).unwrap_or(place.now);
        (member.atime, member.mtime, member.ctime) = (time, time, time);
        let file = host.map(|(file, _)| file);
        Ok(Some(LineEntry::Member(Box::new(member), file)))
    }

    fn mode(&self) -> Result<Option<u16>> {
        let Some(mode) = self.number("mode", 8)? else {
            return Ok(None);
        };
        let mode = u16::try_from(mode).ok().filter(|m| *m <= 0o7777);
        mode.map(Some)
            .ok_or_else(|| "mode of more than 07777".into())
    }

    /// Returns the change of a file that an earlier source has.
    fn change(&self, place: &Surroundings<'_>) -> Result<AttributeChange> {
        Ok(AttributeChange {
            path: place.path.to_vec(),
            line: String::new(),
            mode: self.mode()?,
            uid: self.id("uid", "uname")?,
            gid: self.id("gid", "gname")?,
            time: self.time()?,
            optional: self.get("optional").is_some(),
        })
    }
}
