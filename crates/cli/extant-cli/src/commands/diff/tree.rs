//! Comparison by trees: walks both trees in parallel, in the order of names.

use super::{Args, Change, Difference, Field, Sink, note};
use crate::transfer::{nowhere, side_at};
use anyhow::{Context, Result, bail};
use extant::FileType;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::{Rooted, join};
use extant_cli_core::format::show::show;
use extant_cli_core::format::times;
use extant_cli_core::image::images::Images;
use extant_terminal::interrupt;
use extant_terminal::progress::Progress;
use extant_transfer::{Entered, HostSide, Meta, Side};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// Bytes of content compared at once.
const PIECE: usize = 1 << 20;

/// Two directories with the same path.
struct Pair {
    a: Box<dyn Side>,
    b: Box<dyn Side>,
    path: Vec<u8>,
}

struct Comparison<'s> {
    sink: &'s mut Sink,
    times: bool,
    /// Whether one of the two is a directory of the host, which has no lost+found.
    with_host: bool,
    /// Directories still to be compared.
    left: Vec<Pair>,
    entered: Entered,
    progress: Progress,
}

/// A name on one of the two sides, with its attributes.
struct Half<'d> {
    side: &'d dyn Side,
    name: &'d [u8],
    meta: Meta,
}

impl<'d> Half<'d> {
    fn new(side: &'d dyn Side, name: &'d [u8], follow: bool) -> Result<Self> {
        let meta = side.meta(name, follow)?;
        let meta = meta.ok_or_else(|| nowhere(side, name))?;
        Ok(Self { side, name, meta })
    }

    fn is_dir(&self) -> bool {
        self.meta.kind == FileType::Directory
    }
}

/// Root of a comparison: a side, the path on it, and the path for messages.
struct Top {
    side: Box<dyn Side>,
    path: Vec<u8>,
    shown: Vec<u8>,
}

pub(super) fn compare(args: &Args, sink: &mut Sink) -> Result<()> {
    Images::with(false, |images| {
        let [(a, host_a), (b, host_b)] = [top(images, &args.a)?, top(images, &args.b)?];
        if host_a && host_b {
            bail!("both are directories of the host: diff -r compares them");
        }
        let mut comparison = Comparison {
            sink,
            times: args.times,
            with_host: host_a || host_b,
            left: Vec::new(),
            entered: Entered::default(),
            progress: Progress::count("compare"),
        };
        let done = comparison.tops(&a, &b, host_a);
        comparison.progress.done();
        done
    })
}

/// Returns the root that an argument names, and whether it is a directory of the host.
fn top(images: &mut Images, Rooted(address): &Rooted) -> Result<(Top, bool)> {
    if address.path == b"/" && address.image.is_dir() {
        let path = address.image.as_os_str().as_bytes().to_vec();
        let (side, shown) = (Box::new(HostSide::new()), b"/".to_vec());
        return Ok((Top { side, path, shown }, true));
    }
    let volume = images.get(&address.image)?;
    let mut found = expand(&volume, address, NoMatch::Fails)?;
    let (Some(address), true) = (found.pop(), found.is_empty()) else {
        bail!("{address}: more than one name fits");
    };
    let place = ImagePlace::of(&volume, &address).with_context(|| address.to_string())?;
    let top = Top {
        side: Box::new(side_at(&place)),
        path: if place.path.is_empty() {
            b".".to_vec()
        } else {
            place.path.clone()
        },
        shown: address.path,
    };
    Ok((top, false))
}

impl Comparison<'_> {
    fn tops(&mut self, a: &Top, b: &Top, first_is_host: bool) -> Result<()> {
        let shown = if first_is_host { &b.shown } else { &a.shown };
        let half_a = Half::new(&*a.side, &a.path, true)?;
        let half_b = Half::new(&*b.side, &b.path, true)?;
        self.both(&half_a, &half_b, shown)?;
        if half_a.is_dir() && half_b.is_dir() {
            self.enter(Pair {
                a: a.side.directory(&a.path, true)?,
                b: b.side.directory(&b.path, true)?,
                path: shown.clone(),
            })?;
        }
        while let Some(pair) = self.left.pop() {
            self.directories(&pair).with_context(|| show(&pair.path))?;
        }
        Ok(())
    }

    fn enter(&mut self, pair: Pair) -> Result<()> {
        let half = Half::new(&*pair.a, b".", true)?;
        // The host's kernel prevents loops of directories, which may be mounts.
        if half.meta.id.0 == 0 {
            self.entered.enter(half.meta.id.1)?;
        }
        self.left.push(pair);
        Ok(())
    }

    fn directories(&mut self, pair: &Pair) -> Result<()> {
        let names = |side: &dyn Side| -> Result<Vec<(Vec<u8>, FileType)>> {
            let mut names = side.list()?;
            if self.with_host && pair.path == b"/" {
                names.retain(|(name, _)| name != b"lost+found");
            }
            names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
            Ok(names)
        };
        let (a, b) = (names(&*pair.a)?, names(&*pair.b)?);
        let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
        let mut below = Vec::new();
        loop {
            interrupt::check()?;
            self.progress.add(1);
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.0.cmp(&b.0),
            };
            let (in_a, in_b) = (
                order.is_le().then(|| a.next()).flatten(),
                order.is_ge().then(|| b.next()).flatten(),
            );
            match (in_a, in_b) {
                (Some((name, _)), Some(_)) => below.extend(self.pair_of(pair, &name)?),
                (Some(only), None) => self.only(&pair.path, &only, Change::Removed)?,
                (None, Some(only)) => self.only(&pair.path, &only, Change::Added)?,
                (None, None) => {}
            }
        }
        // The first directory must be on top of the stack.
        for pair in below.into_iter().rev() {
            self.enter(pair)?;
        }
        Ok(())
    }

    /// Reports a name in only one tree. The contents of a directory are not listed.
    fn only(&mut self, dir: &[u8], entry: &(Vec<u8>, FileType), change: Change) -> Result<()> {
        let slash = match entry.1 {
            FileType::Directory => "/",
            _ => "",
        };
        let path = join(dir, &entry.0);
        let place = format!("{}{slash}", show(&path));
        self.sink.add(Difference::only(place, change).of(&path))
    }

    /// Compares two files of one name; returns the pair if both are directories.
    fn pair_of(&mut self, pair: &Pair, name: &[u8]) -> Result<Option<Pair>> {
        let path = join(&pair.path, name);
        let context = || show(name);
        let a = Half::new(&*pair.a, name, false).with_context(context)?;
        let b = Half::new(&*pair.b, name, false).with_context(context)?;
        self.both(&a, &b, &path).with_context(context)?;
        if !(a.is_dir() && b.is_dir()) {
            return Ok(None);
        }
        let open = |side: &dyn Side| side.directory(name, false).with_context(context);
        let (a, b) = (open(&*pair.a)?, open(&*pair.b)?);
        Ok(Some(Pair { a, b, path }))
    }

    fn both(&mut self, a: &Half<'_>, b: &Half<'_>, path: &[u8]) -> Result<()> {
        let mut fields = Vec::new();
        let (ma, mb) = (&a.meta, &b.meta);
        note(&mut fields, "type", ma.kind, mb.kind, |t| {
            type_name(*t).into()
        });
        note(&mut fields, "mode", ma.mode, mb.mode, |mode| {
            format!("{mode:04o}")
        });
        let owner = |m: &Meta| (m.uid, m.gid);
        note(&mut fields, "owner", owner(ma), owner(mb), |(u, g)| {
            format!("{u}:{g}")
        });
        if ma.kind == mb.kind {
            contents(a, b, &mut fields)?;
        }
        attributes(a, b, &mut fields)?;
        if self.times && !a.is_dir() {
            note(&mut fields, "changed", ma.mtime, mb.mtime, |t| {
                times::local(*t)
            });
        }
        match Difference::changed(show(path), fields) {
            Some(difference) => self.sink.add(difference.of(path)),
            None => Ok(()),
        }
    }
}

/// Compares the content of two files of one type.
fn contents(a: &Half<'_>, b: &Half<'_>, fields: &mut Vec<Field>) -> Result<()> {
    match a.meta.kind {
        FileType::Regular => {
            let (la, lb) = (a.meta.size, b.meta.size);
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
            let target = |half: &Half<'_>| half.side.read_link(half.name);
            note(fields, "target", target(a)?, target(b)?, |t| show(t));
        }
        FileType::CharDevice | FileType::BlockDevice => {
            note(fields, "device", a.meta.rdev, b.meta.rdev, |d| {
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

/// Returns the position of the first difference in `len` bytes.
fn first_difference(a: &Half<'_>, b: &Half<'_>, len: u64) -> Result<Option<u64>> {
    if len == 0 {
        return Ok(None);
    }
    let open = |half: &Half<'_>| half.side.open(half.name, false);
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
                match file.read_at(at + done as u64, &mut bytes[done..n])? {
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

/// Compares extended attributes and ACLs.
fn attributes(a: &Half<'_>, b: &Half<'_>, fields: &mut Vec<Field>) -> Result<()> {
    if [a, b]
        .iter()
        .any(|half| half.meta.kind == FileType::Symlink)
    {
        return Ok(());
    }
    let all = |half: &Half<'_>| -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        Ok(half.side.xattrs(half.name)?.into_iter().collect())
    };
    let (a, b) = (all(a)?, all(b)?);
    for name in a
        .keys()
        .chain(b.keys().filter(|name| !a.contains_key(*name)))
    {
        let value =
            |value: &Option<&Vec<u8>>| value.map_or("none".into(), |v| format!("\"{}\"", show(v)));
        note(fields, &show(name), a.get(name), b.get(name), value);
    }
    Ok(())
}

const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        other => other.name(),
    }
}
