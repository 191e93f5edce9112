//! The requests by which `debugfs -w` changes an image, as operations of a volume; values of the superblock as `extant tune` sets them.
//! All names of requests are known before the first one is done. One that fails is told, the others are still done, and the exit code
//! is 1.

use super::{Answer, Answered, Refusal};
use crate::address::{Address, join, os};
use crate::attr_flags::number;
use crate::commands::{tune, tune_values as values};
use crate::place::ImagePlace;
use crate::{clock, images};
use anyhow::{Context, Result, anyhow, bail, ensure};
use ext4_format::inode::flags::{EXTENTS, USER_MODIFIABLE};
use ext4_format::inode::makedev;
use ext4_format::superblock::{ERRORS_CONTINUE, ERRORS_PANIC};
use extant::{FileType, SetAttributes, Timestamp, Volume};
use extant_check::inspect::Request;
use extant_terminal::output;
use extant_tune::TuneOptions;
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

/// Requests that leave the image as it is, and mean something beside others.
const HARMLESS: &[&str] = &[
    "change_working_directory",
    "print_working_directory",
    "quit",
];

/// A request, by its first name.
pub(super) struct Asked {
    name: &'static str,
    words: Vec<Vec<u8>>,
    line: Vec<u8>,
}

/// The requests of lines; `None` if none of them changes anything.
pub(super) fn requests(lines: &[Vec<u8>]) -> Result<Option<Vec<Asked>>, String> {
    let mut unknown = None;
    let mut asked = Vec::new();
    for line in lines {
        let mut words = Request::words_of(line);
        if words.first().is_none_or(|word| word.starts_with(b"#")) {
            continue;
        }
        let word = crate::show::show(&words.remove(0));
        let known = REQUESTS.iter().find(|(names, ..)| names.contains(&&*word));
        let Some((names, least, most)) = known else {
            unknown.get_or_insert(word);
            continue;
        };
        if !(*least..=*most).contains(&words.len()) {
            return Err(format!("{word}: wrong number of words"));
        }
        // A name of the table, which is never empty.
        let name = names.first().copied().unwrap_or_default();
        let line = line.clone();
        asked.push(Asked { name, words, line });
    }
    match (asked.iter().any(|a| !HARMLESS.contains(&a.name)), unknown) {
        (false, _) => Ok(None),
        (true, None) => Ok(Some(asked)),
        (true, Some(word)) => Err(format!(
            "{word}: no request that changes an image; -w has write, mkdir, rm, rmdir, symlink, ln, mknod, sif, ssv, ea_set, ea_rm and cd"
        )),
    }
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
        if first.name == "quit" && !of_file {
            break;
        }
        if first.name == "set_super_value" {
            session.done(first, |session| session.super_value(&first.words));
            rest = behind;
            continue;
        }
        let ends = |a: &Asked| a.name == "set_super_value" || a.name == "quit" && !of_file;
        let count = rest.iter().take_while(|a| !ends(a)).count();
        let (now, later) = rest.split_at(count);
        let opened = images::change(session.image, |volume| {
            for one in now {
                session.done(one, |session| session.of_files(volume, one));
            }
            Ok(())
        });
        if let Err(error) = opened {
            return Err(Refusal(output::one_line(&error), 1));
        }
        rest = later;
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
    /// Does a request, and tells why it failed.
    fn done(&mut self, one: &Asked, work: impl FnOnce(&mut Self) -> Result<()>) {
        if self.echo {
            say(&format!(
                "debugfs: {}",
                crate::show::show(one.line.trim_ascii())
            ));
        }
        if let Err(error) = work(self) {
            self.failed = true;
            let word = Request::words_of(&one.line).into_iter().next();
            let word = crate::show::show(&word.unwrap_or_default());
            output::complain(format_args!("{word}: {}", output::one_line(&error)));
        }
    }

    fn path(&self, word: &[u8]) -> Vec<u8> {
        match word.first() {
            Some(b'/' | b'<') => word.to_vec(),
            _ => join(&self.at, word),
        }
    }

    fn place(&self, volume: &Volume, word: &[u8]) -> Result<ImagePlace> {
        let address = Address::root(self.image).at(&self.path(word));
        ImagePlace::of(volume, &address)
    }

    fn of_files(&mut self, volume: &Volume, one: &Asked) -> Result<()> {
        let words: Vec<&[u8]> = one.words.iter().map(Vec::as_slice).collect();
        let of = |word: &[u8]| self.path(word);
        match (one.name, &words[..]) {
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
                let path = of(path);
                let is_dir = volume.metadata(os(&path)).map(|m| m.is_dir());
                ensure!(
                    is_dir.with_context(|| crate::show::show(&path))?,
                    "{}: not a directory",
                    crate::show::show(&path)
                );
                self.at = path;
                Ok(())
            }
            ("quit", []) => Ok(()),
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

fn text(word: &[u8]) -> Result<&str> {
    std::str::from_utf8(word).map_err(|_| anyhow!("{}: not text", crate::show::show(word)))
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

/// Sets a field of an inode. The time of its last change stays, unless it is the field.
fn set_field(place: &ImagePlace, field: &str, value: &str) -> Result<()> {
    let old = place.attributes(false)?;
    let word = || number(value).map_err(|e| anyhow!(e));
    let time = || -> Result<Timestamp> { Ok(Timestamp::new(values::time(value)?, 0)) };
    let mut set = SetAttributes {
        ctime: Some(old.ctime()),
        ..Default::default()
    };
    match field {
        "mode" => {
            let mode = word()?;
            ensure!(
                mode & !0o7777 == old.mode() & 0o170_000,
                "{value}: another type of file; this one has {:#o}",
                old.mode()
            );
            set.mode = Some((mode & 0o7777) as u16);
        }
        "uid" => set.uid = Some(word()?),
        "gid" => set.gid = Some(word()?),
        "atime" => set.atime = Some(time()?.into()),
        "mtime" => set.mtime = Some(time()?.into()),
        "ctime" => set.ctime = Some(time()?),
        "flags" => {
            let new = word()?;
            ensure!(
                (old.flags() ^ new) & !(USER_MODIFIABLE & !EXTENTS) == 0,
                "{value}: flags that say how an inode is stored stay as they are, {:#x}",
                old.flags()
            );
            set.flags = Some(new);
        }
        "projid" | "project" => set.project = Some(word()?),
        "generation" => set.generation = Some(word()?),
        _ => bail!(
            "{field}: only mode, uid, gid, atime, mtime, ctime, flags, projid and generation can be set"
        ),
    }
    Ok(place.set_attributes(&set, false)?)
}

/// A value of the superblock as a change that `extant tune` makes.
fn super_options(field: &str, value: &[u8]) -> Result<TuneOptions> {
    let mut options = TuneOptions::default();
    let said = text(value)?;
    let word = || number(said).map_err(|e| anyhow!(e));
    let short = || -> Result<u16> {
        let bad = || anyhow!("{said}: no number of 16 bits");
        u16::try_from(word()?).map_err(|_| bad())
    };
    let mut extended = |name: &str| values::extended(&format!("{name}={said}"), &mut options);
    match field {
        "raid_stride" => extended("stride")?,
        "raid_stripe_width" => extended("stripe_width")?,
        "def_hash_version" => extended("hash_alg")?,
        "hash_seed" => extended("hash_seed")?,
        "mmp_update_interval" => extended("mmp_update_interval")?,
        "volume_name" => options.label = Some(value.to_vec()),
        "uuid" => options.uuid = Some(values::uuid(said)?),
        "last_mounted" => options.last_mounted = Some(value.to_vec()),
        "mount_opts" => options.mount_text = Some(value.to_vec()),
        "mnt_count" => options.mounts = Some(short()?),
        "max_mnt_count" => {
            let signed = said.parse().or_else(|_| short().map(u16::cast_signed));
            options.max_mounts = Some(signed?);
        }
        "checkinterval" => options.check_interval = Some(word()?),
        "lastcheck" => options.last_checked = Some(values::time(said)?),
        "errors" => {
            let errors = short()?;
            ensure!(
                (ERRORS_CONTINUE..=ERRORS_PANIC).contains(&errors),
                "{said}: 1, 2 or 3"
            );
            options.errors = Some(errors);
        }
        "r_blocks_count" => options.reserved_blocks = Some(word()?.into()),
        "def_resuid" => options.reserved_uid = Some(short()?),
        "def_resgid" => options.reserved_gid = Some(short()?),
        _ => bail!("{field} cannot be set; extant tune changes features and other properties"),
    }
    Ok(options)
}
