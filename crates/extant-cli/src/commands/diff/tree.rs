//! Trees: both are walked side by side, by the order of names.

use super::{Args, Change, Difference, Field, Sink, note};
use crate::address::{Rooted, join, os};
use crate::images::Images;
use crate::interrupt;
use crate::patterns::NoMatch;
use crate::place::ImagePlace;
use crate::progress::Progress;
use crate::show::show;
use crate::walk::{Entered, sorted};
use anyhow::{Context, Result, bail};
use extant::{Dir, DirEntry, FileType, Metadata, OpenOptions};
use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;

/// Bytes of content that are compared at once.
const PIECE: usize = 1 << 20;

/// Two directories of one path.
struct Pair {
    a: Dir,
    b: Dir,
    path: Vec<u8>,
}

struct Comparison<'s> {
    sink: &'s mut Sink,
    times: bool,
    /// Directories that are to be compared.
    left: Vec<Pair>,
    entered: Entered,
    progress: Progress,
}

/// One of two names for the same: where it is, and what its attributes are.
struct Side<'d> {
    dir: &'d Dir,
    name: &'d std::ffi::OsStr,
    meta: Metadata,
}

pub(super) fn compare(args: &Args, sink: &mut Sink) -> Result<()> {
    let mut tops: Vec<ImagePlace> = Vec::new();
    Images::with(false, |images| {
        for Rooted(address) in [&args.a, &args.b] {
            let volume = images.get(&address.image)?;
            let mut found = crate::patterns::expand(&volume, address, NoMatch::Fails)?;
            let (Some(address), true) = (found.pop(), found.is_empty()) else {
                bail!("{address}: more than one name fits");
            };
            let place = ImagePlace::of(&volume, &address);
            tops.push(place.with_context(|| address.to_string())?);
        }
        let [a, b] = &tops[..] else { return Ok(()) };
        let mut comparison = Comparison {
            sink,
            times: args.times,
            left: Vec::new(),
            entered: Entered::default(),
            progress: Progress::count("compare"),
        };
        let done = comparison.tops(a, b);
        comparison.progress.done();
        done
    })
}

impl Comparison<'_> {
    fn tops(&mut self, a: &ImagePlace, b: &ImagePlace) -> Result<()> {
        let kind = |place: &ImagePlace| {
            let meta = place.attributes(true);
            meta.with_context(|| place.address.to_string())
        };
        let (meta_a, meta_b) = (kind(a)?, kind(b)?);
        if meta_a.is_dir() && meta_b.is_dir() {
            let pair = Pair {
                a: a.open_dir()?,
                b: b.open_dir()?,
                path: a.address.path.clone(),
            };
            let here = std::ffi::OsStr::new(".");
            self.both(
                &Side {
                    dir: &pair.a,
                    name: here,
                    meta: meta_a,
                },
                &Side {
                    dir: &pair.b,
                    name: here,
                    meta: meta_b,
                },
                &pair.path,
            )?;
            self.enter(pair)?;
            while let Some(pair) = self.left.pop() {
                self.directories(&pair).with_context(|| show(&pair.path))?;
            }
            return Ok(());
        }
        let side = |place: &'_ ImagePlace| place.path.clone();
        let (name_a, name_b) = (side(a), side(b));
        self.both(
            &Side {
                dir: &a.dir,
                name: os(&name_a),
                meta: meta_a,
            },
            &Side {
                dir: &b.dir,
                name: os(&name_b),
                meta: meta_b,
            },
            &a.address.path,
        )
    }

    fn enter(&mut self, pair: Pair) -> Result<()> {
        self.entered.enter(pair.a.ino().into())?;
        self.left.push(pair);
        Ok(())
    }

    fn directories(&mut self, pair: &Pair) -> Result<()> {
        let (a, b) = (sorted(&pair.a, ".")?, sorted(&pair.b, ".")?);
        let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
        let mut below = Vec::new();
        loop {
            interrupt::check()?;
            self.progress.add(1);
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.file_name().cmp(b.file_name()),
            };
            let (in_a, in_b) = (
                order.is_le().then(|| a.next()).flatten(),
                order.is_ge().then(|| b.next()).flatten(),
            );
            match (in_a, in_b) {
                (Some(a), Some(_)) => below.extend(self.pair_of(pair, &a)?),
                (Some(only), None) => self.only(&pair.path, &only, Change::Removed)?,
                (None, Some(only)) => self.only(&pair.path, &only, Change::Added)?,
                (None, None) => {}
            }
        }
        // The first one is to come next.
        for pair in below.into_iter().rev() {
            self.enter(pair)?;
        }
        Ok(())
    }

    /// What is in one only. Of a directory its contents are, too, and not listed.
    fn only(&mut self, dir: &[u8], entry: &DirEntry, change: Change) -> Result<()> {
        let slash = if entry.file_type() == FileType::Directory {
            "/"
        } else {
            ""
        };
        let path = show(&join(dir, entry.file_name().as_bytes()));
        self.sink
            .add(Difference::only(format!("{path}{slash}"), change))
    }

    /// Compares two of one name; the directories that they are.
    fn pair_of(&mut self, pair: &Pair, entry: &DirEntry) -> Result<Option<Pair>> {
        let name = entry.file_name();
        let path = join(&pair.path, name.as_bytes());
        let context = || show(name.as_bytes());
        let a = Side {
            dir: &pair.a,
            name,
            meta: pair.a.symlink_metadata(name).with_context(context)?,
        };
        let b = Side {
            dir: &pair.b,
            name,
            meta: pair.b.symlink_metadata(name).with_context(context)?,
        };
        self.both(&a, &b, &path).with_context(context)?;
        if !(a.meta.is_dir() && b.meta.is_dir()) {
            return Ok(None);
        }
        let open = |dir: &Dir| dir.open_dir(name).with_context(context);
        let (a, b) = (open(&pair.a)?, open(&pair.b)?);
        Ok(Some(Pair { a, b, path }))
    }

    fn both(&mut self, a: &Side<'_>, b: &Side<'_>, path: &[u8]) -> Result<()> {
        let mut fields = Vec::new();
        let (ma, mb) = (&a.meta, &b.meta);
        let kind = |m: &Metadata| m.file_type();
        note(&mut fields, "type", kind(ma), kind(mb), |t| {
            type_name(*t).into()
        });
        let octal = |mode: &u32| format!("{mode:04o}");
        note(
            &mut fields,
            "mode",
            ma.mode() & 0o7777,
            mb.mode() & 0o7777,
            octal,
        );
        let owner = |m: &Metadata| (m.uid(), m.gid());
        note(&mut fields, "owner", owner(ma), owner(mb), |(u, g)| {
            format!("{u}:{g}")
        });
        if kind(ma) == kind(mb) {
            contents(a, b, &mut fields)?;
        }
        attributes(a, b, &mut fields)?;
        if self.times && !ma.is_dir() {
            note(&mut fields, "changed", ma.mtime(), mb.mtime(), |t| {
                crate::times::local(*t)
            });
        }
        match Difference::changed(show(path), fields) {
            Some(difference) => self.sink.add(difference),
            None => Ok(()),
        }
    }
}

/// The content of two of one type.
fn contents(a: &Side<'_>, b: &Side<'_>, fields: &mut Vec<Field>) -> Result<()> {
    match a.meta.file_type() {
        FileType::Regular => {
            let (la, lb) = (a.meta.len(), b.meta.len());
            note(fields, "size", la, lb, u64::to_string);
            if let Some(at) = first_difference(a, b, la.min(lb))? {
                fields.push(Field {
                    name: "content from byte".into(),
                    a: String::new(),
                    b: at.to_string(),
                });
            }
        }
        FileType::Symlink => {
            let target = |side: &Side<'_>| side.dir.read_link(side.name);
            note(fields, "target", target(a)?, target(b)?, |t| {
                show(t.as_os_str().as_bytes())
            });
        }
        FileType::CharDevice | FileType::BlockDevice => {
            note(fields, "device", a.meta.rdev(), b.meta.rdev(), |d| {
                format!(
                    "{}:{}",
                    ext4_format::inode::dev_major(*d),
                    ext4_format::inode::dev_minor(*d)
                )
            });
        }
        _ => {}
    }
    Ok(())
}

/// The first of `len` bytes that differs.
fn first_difference(a: &Side<'_>, b: &Side<'_>, len: u64) -> Result<Option<u64>> {
    let open = |side: &Side<'_>| {
        side.dir
            .open_file_with(side.name, &OpenOptions::new().read(true))
    };
    if len == 0 {
        return Ok(None);
    }
    let (a, b) = (open(a)?, open(b)?);
    let piece = len.min(PIECE as u64) as usize;
    let (mut from_a, mut from_b) = (vec![0; piece], vec![0; piece]);
    let mut at = 0;
    while at < len {
        interrupt::check()?;
        let n = (len - at).min(piece as u64) as usize;
        for (file, bytes) in [(&a, &mut from_a), (&b, &mut from_b)] {
            let mut done = 0;
            while done < n {
                match file.read_at(&mut bytes[done..n], at + done as u64)? {
                    0 => bail!("the file is shorter than its size"),
                    more => done += more,
                }
            }
        }
        if from_a[..n] != from_b[..n] {
            let same = from_a.iter().zip(&from_b).take_while(|(a, b)| a == b);
            return Ok(Some(at + same.count() as u64));
        }
        at += n as u64;
    }
    Ok(None)
}

/// Extended attributes and ACLs.
fn attributes(a: &Side<'_>, b: &Side<'_>, fields: &mut Vec<Field>) -> Result<()> {
    if a.meta.is_symlink() || b.meta.is_symlink() {
        return Ok(());
    }
    let all = |side: &Side<'_>| -> Result<std::collections::BTreeMap<std::ffi::OsString, Vec<u8>>> {
        let names = side.dir.list_xattrs(side.name)?.into_iter();
        names
            .map(|name| {
                let value = side.dir.get_xattr(side.name, &name)?;
                Ok((name, value))
            })
            .collect()
    };
    let (a, b) = (all(a)?, all(b)?);
    for name in a
        .keys()
        .chain(b.keys().filter(|name| !a.contains_key(*name)))
    {
        let value =
            |value: &Option<&Vec<u8>>| value.map_or("none".into(), |v| format!("\"{}\"", show(v)));
        note(
            fields,
            &show(name.as_bytes()),
            a.get(name),
            b.get(name),
            value,
        );
    }
    Ok(())
}

const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
