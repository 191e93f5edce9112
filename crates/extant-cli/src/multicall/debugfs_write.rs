//! The requests by which `debugfs -w` changes an image, as operations of a volume; values of the superblock as `extant tune` sets them.
//! All names of requests are known before the first one is done. One that fails is told, the others are still done, and the exit code
//! is 1.
//!
//! Requests are done in their order. The volume is open for writing while one request after the other changes it, and closed before one
//! that only asks: that one reads the image from the device, as without `-w`, and sees all changes before it.

use super::debugfs::asking;
use super::debugfs_fields::{set_field, super_options, text};
use super::{Answer, Answered, Refusal};
use crate::address::{Address, bytes, join, os};
use crate::attr_flags::number;
use crate::clock;
use crate::commands::inspect::path_from;
use crate::commands::tune;
use crate::images::{self, Images};
use crate::place::ImagePlace;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ext4_format::inode::makedev;
use extant::{FileType, SetAttributes, Timestamp, Volume};
use extant_check::inspect::Request;
use extant_terminal::output;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;

/// Requests by all their names, the fewest words behind them, and the most.
const REQUESTS: &[(&[&str], usize, usize)] = &[
    (&["write"], 2, 2),
    (&["mkdir"], 1, 1),
    (&["rm"], 1, 1),
    (&["rmdir"], 1, 1),
    (&["symlink"], 2, 2),
    (&["link", "ln"], 2, 2),
    (&["mknod"], 2, 4),
    (&["set_inode_field", "sif"], 3, 3),
    (&["set_super_value", "ssv"], 2, 2),
    (&["ea_set"], 3, 4),
    (&["ea_rm"], 2, usize::MAX),
    (&["change_working_directory", "cd"], 1, 1),
    (&["print_working_directory", "pwd"], 0, 0),
    (&["quit", "q"], 0, 0),
];

/// A request.
pub(super) struct Asked {
    what: What,
    line: Vec<u8>,
}

enum What {
    /// A request of [`REQUESTS`] by its first name, and the words behind it.
    Own(&'static str, Vec<Vec<u8>>),
    /// A request that only asks, with all its words.
    Asks(Vec<Vec<u8>>),
}

impl Asked {
    /// Whether it is answered as it is without `-w`.
    pub(super) const fn only_asks(&self) -> bool {
        matches!(self.what, What::Asks(_))
    }

    /// Whether it is done on an open volume, which has to be open for writing only if it changes the volume.
    fn on_volume(&self) -> Option<bool> {
        match self.what {
            What::Own("set_super_value" | "quit", _) | What::Asks(_) => None,
            What::Own("change_working_directory" | "print_working_directory", _) => Some(false),
            What::Own(..) => Some(true),
        }
    }
}

/// The requests of lines.
pub(super) fn requests(image: &OsStr, lines: &[Vec<u8>]) -> Result<Vec<Asked>, String> {
    let mut asked = Vec::new();
    for line in lines {
        let words = Request::words_of(line);
        let Some((name, behind)) = words.split_first() else {
            continue;
        };
        if name.starts_with(b"#") {
            continue;
        }
        let word = crate::show::show(name);
        let known = REQUESTS.iter().find(|(names, ..)| names.contains(&&*word));
        let what = match known {
            Some((names, least, most)) => {
                if !(*least..=*most).contains(&behind.len()) {
                    return Err(format!("{word}: wrong number of words"));
                }
                // A name of the table, which is never empty.
                What::Own(names.first().copied().unwrap_or_default(), behind.to_vec())
            }
            None if asking(image, &words, b"/")?.is_some() => What::Asks(words),
            None => {
                return Err(format!(
                    "{word}: no such request; there are write, mkdir, rm, rmdir, symlink, ln, mknod, sif, ssv, ea_set, ea_rm, cd, pwd, cat, dump, rdump, ls, {}",
                    Request::names()
                ));
            }
        };
        let line = line.clone();
        asked.push(Asked { what, line });
    }
    Ok(asked)
}

/// Does the requests. Those of a file are written out before, and go on behind `quit`, as with debugfs.
pub(super) fn run(image: &OsStr, asked: &[Asked], of_file: bool) -> Answered {
    let mut session = Session {
        image: image.as_ref(),
        at: b"/".to_vec(),
        echo: of_file,
        failed: false,
    };
    let mut rest = asked;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match &first.what {
            What::Own("quit", _) if !of_file => break,
            What::Own("quit", _) => session.done(first, |_| Ok(())),
            What::Own("set_super_value", words) => {
                session.done(first, |session| session.super_value(words));
            }
            What::Asks(words) => session.answer(first, words),
            What::Own(..) => {
                let on_volume = |a: &&Asked| a.on_volume().is_some();
                let more = behind.iter().take_while(on_volume).count();
                let (now, later) = behind.split_at(more);
                let opened = session.on_volume(first, now);
                opened.map_err(|error| Refusal(output::one_line(&error), 1))?;
                rest = later;
            }
        }
    }
    Ok(Answer::Done(u8::from(session.failed)))
}

/// An image that is changed.
struct Session<'a> {
    image: &'a Path,
    /// The directory that paths begin at, from the root.
    at: Vec<u8>,
    echo: bool,
    failed: bool,
}

impl Session<'_> {
    /// Does requests on a volume that is opened for them, for writing if one of them changes it.
    fn on_volume(&mut self, first: &Asked, more: &[Asked]) -> Result<()> {
        let image = self.image;
        let all = || std::iter::once(first).chain(more);
        let mut work = |volume: &Volume| {
            for one in all() {
                if let What::Own(name, words) = &one.what {
                    self.done(one, |session| session.of_files(volume, name, words));
                }
            }
            Ok(())
        };
        match all().any(|one| one.on_volume() == Some(true)) {
            true => images::change(image, work),
            false => Images::with(false, |images| work(&images.get(image)?)),
        }
    }

    /// Answers a request that only asks, in the words in which it is answered without `-w`.
    fn answer(&mut self, one: &Asked, words: &[Vec<u8>]) {
        self.echo(one);
        let command = asking(self.image.as_os_str(), words, &self.at);
        // All requests were known at the beginning.
        let command = command.map(Option::unwrap_or_default);
        let answered = command.map_err(|line| anyhow!(line)).and_then(super::run);
        if let Err(error) = answered {
            self.failed = true;
            // The exit code is that of the session.
            let _ = output::report(&error);
        }
    }

    /// Writes the line of a request out, if it is of a file.
    fn echo(&self, one: &Asked) {
        if self.echo {
            let line = crate::show::show(one.line.trim_ascii());
            say(&format!("debugfs: {line}"));
        }
    }

    /// Does a request, and tells why it failed.
    fn done(&mut self, one: &Asked, work: impl FnOnce(&mut Self) -> Result<()>) {
        self.echo(one);
        if let Err(error) = work(self) {
            self.failed = true;
            let word = Request::words_of(&one.line).into_iter().next();
            let word = crate::show::show(&word.unwrap_or_default());
            output::complain(format_args!("{word}: {}", output::one_line(&error)));
        }
    }

    fn path(&self, word: &[u8]) -> Vec<u8> {
        path_from(&self.at, word)
    }

    fn place(&self, volume: &Volume, word: &[u8]) -> Result<ImagePlace> {
        let address = Address::root(self.image).at(&self.path(word));
        ImagePlace::of(volume, &address)
    }

    fn of_files(&mut self, volume: &Volume, name: &str, words: &[Vec<u8>]) -> Result<()> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let of = |word: &[u8]| self.path(word);
        match (name, &words[..]) {
            ("write", [from, to]) => {
                write(volume, os(from), &of(to)).with_context(|| crate::show::show(from))
            }
            ("mkdir", [path]) => {
                let path = of(path);
                drop(
                    volume
                        .create_dir(os(&path))
                        .with_context(|| crate::show::show(&path))?,
                );
                born(volume, &path, 0o755)
            }
            ("symlink", [path, target]) => {
                let path = of(path);
                volume
                    .symlink(os(target), os(&path))
                    .with_context(|| crate::show::show(&path))?;
                born(volume, &path, 0o777)
            }
            ("mknod", [path, kind @ ..]) => node(volume, &of(path), kind),
            ("link", [from, to]) => Ok(volume
                .hard_link(os(&of(from)), os(&of(to)))
                .with_context(|| crate::show::show(to))?),
            ("rm", [path]) => Ok(volume
                .remove_file(os(&of(path)))
                .with_context(|| crate::show::show(path))?),
            ("rmdir", [path]) => Ok(volume
                .remove_dir(os(&of(path)))
                .with_context(|| crate::show::show(path))?),
            ("set_inode_field", [path, field, value]) => {
                let place = self.place(volume, path)?;
                set_field(&place, text(field)?, text(value)?)
                    .with_context(|| crate::show::show(path))
            }
            ("ea_set", words) => self.set_attribute(volume, words),
            ("ea_rm", [path, names @ ..]) => {
                let place = self.place(volume, path)?;
                for name in names {
                    place
                        .remove_xattr(name)
                        .with_context(|| crate::show::show(name))?;
                }
                Ok(())
            }
            ("change_working_directory", [path]) => {
                let real = real_dir(volume, &of(path));
                self.at = real.with_context(|| crate::show::show(path))?;
                Ok(())
            }
            ("print_working_directory", []) => {
                let ino = volume.metadata(os(&self.at))?.ino();
                let path = crate::show::show(&self.at);
                say(&format!("[pwd]   INODE: {ino:6}  PATH: {path}"));
                say("[root]  INODE:      2  PATH: /\n");
                Ok(())
            }
            _ => bail!("wrong number of words"),
        }
    }

    /// `ea_set [-f FILE] PATH NAME [VALUE]`.
    fn set_attribute(&self, volume: &Volume, words: &[&[u8]]) -> Result<()> {
        let (path, name, value) = match words {
            [b"-f", file, path, name] => {
                let read = std::fs::read(os(file));
                (*path, *name, read.with_context(|| crate::show::show(file))?)
            }
            [path, name, value] if !path.starts_with(b"-") => (*path, *name, value.to_vec()),
            _ => bail!("write ea_set [-f FILE] PATH NAME [VALUE]"),
        };
        let place = self.place(volume, path)?;
        place
            .set_xattr(name, &value)
            .with_context(|| crate::show::show(path))
    }

    fn super_value(&self, words: &[Vec<u8>]) -> Result<()> {
        let [field, value] = words else {
            bail!("write ssv FIELD VALUE");
        };
        let options = super_options(text(field)?, value)?;
        tune::quietly(self.image, options)
    }
}

/// Links that are followed on the way to a directory, as with Linux.
const LINKS: usize = 40;

/// The path of a directory without links, `.` and `..`: requests about structures follow no links.
fn real_dir(volume: &Volume, path: &[u8]) -> Result<Vec<u8>> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/').rev();
        names.map(<[u8]>::to_vec).collect()
    };
    let mut before: Vec<Vec<u8>> = vec![b"/".to_vec()];
    let (mut left, mut links) = (names(path), 0);
    while let Some(name) = left.pop() {
        let at = before.last().map_or(&b"/"[..], |dir| dir);
        match name.as_slice() {
            b"" | b"." => continue,
            b".." => {
                // The root is above itself.
                before.truncate(before.len().saturating_sub(1).max(1));
                continue;
            }
            _ => {}
        }
        let here = join(at, &name);
        match volume.symlink_metadata(os(&here))?.file_type() {
            FileType::Directory => before.push(here),
            FileType::Symlink if links < LINKS => {
                links += 1;
                let target = bytes(volume.read_link(os(&here))?);
                if target.starts_with(b"/") {
                    before.truncate(1);
                }
                left.extend(names(&target));
            }
            FileType::Symlink => bail!("too many symbolic links"),
            _ => bail!("not a directory"),
        }
    }
    Ok(before.pop().unwrap_or_default())
}

/// A line on standard output; that nobody reads it is no fault of the request.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// What debugfs makes is root's, with the present time.
fn made(mode: u16) -> Result<SetAttributes> {
    let now = Timestamp::new(clock::stamp()?, 0);
    Ok(SetAttributes {
        mode: Some(mode),
        uid: Some(0),
        gid: Some(0),
        atime: Some(now.into()),
        mtime: Some(now.into()),
        ctime: Some(now),
        ..Default::default()
    })
}

fn born(volume: &Volume, path: &[u8], mode: u16) -> Result<()> {
    Ok(volume.set_symlink_attributes(os(path), &made(mode)?)?)
}

fn allocated(volume: &Volume, path: &[u8]) -> Result<()> {
    let ino = volume.symlink_metadata(os(path))?.ino();
    say(&format!("Allocated inode: {ino}"));
    Ok(())
}

/// Copies a file of the host, with its permissions; the name is taken away again if that fails.
fn write(volume: &Volume, from: &OsStr, to: &[u8]) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let mut source = std::fs::File::open(from)?;
    let about = source.metadata()?;
    ensure!(about.is_file(), "not a regular file");
    let file = volume.create_new_file(os(to));
    let file = file.with_context(|| crate::show::show(to))?;
    let mut copy = || -> Result<()> {
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let count = source.read(&mut piece)?;
            let Some(bytes) = piece.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            // Zeros are a hole, as those of debugfs.
            if bytes.iter().any(|&byte| byte != 0) {
                file.write_all_at(bytes, at)?;
            }
            at += count as u64;
        }
        file.set_len(at)?;
        Ok(file.set_attributes(&made((about.mode() & 0o7777) as u16)?)?)
    };
    if let Err(error) = copy() {
        // The first error is the one to tell.
        let _ = volume.remove_file(os(to));
        return Err(error);
    }
    allocated(volume, to)
}

/// `mknod PATH p`, or `c` or `b` with two numbers.
fn node(volume: &Volume, path: &[u8], kind: &[&[u8]]) -> Result<()> {
    let (kind, rdev) = match kind {
        [b"p"] => (FileType::Fifo, 0),
        [kind @ (b"c" | b"b"), major, minor] => {
            let part = |word: &[u8]| number(text(word)?).map_err(|e| anyhow!(e));
            let (major, minor) = (part(major)?, part(minor)?);
            ensure!(major < 1 << 12 && minor < 1 << 20, "no such device number");
            let kind = match kind {
                [b'c'] => FileType::CharDevice,
                _ => FileType::BlockDevice,
            };
            (kind, makedev(major, minor))
        }
        _ => bail!("write mknod PATH p, or c or b with two numbers"),
    };
    let made = volume.mknod(os(path), kind, 0, rdev);
    made.with_context(|| crate::show::show(path))?;
    born(volume, path, 0)?;
    allocated(volume, path)
}
