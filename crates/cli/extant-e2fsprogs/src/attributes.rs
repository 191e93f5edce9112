//! `lsattr` and `chattr`: for files of the host with system calls, and for `IMAGE:/PATH` with `extant lsattr` and
//! `extant chattr`. A path that exists is a path of the host.

use super::call::{Answer, Answered, Called, release};
use super::getopt::Options;
use crate::refusal::refuse;
use blockdev::host;
use ext4_format::inode::flags::{DIRSYNC, EXTENTS, USER_MODIFIABLE};
use extant_cli_core::address::Location;
use extant_cli_core::format::attr_flags::{LONG_NAMES, columns_of_host, letter_bit, number};
use extant_terminal::output::complain;
use rustix::fs::{Dir, DirEntry, IFlags, OFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Target of an operand.
enum Operand<'a> {
    Host(&'a Path),
    Image,
}

fn operand_of(operand: &OsStr) -> Operand<'_> {
    let exists = Path::new(operand).symlink_metadata().is_ok();
    match Location::from(operand.to_owned()) {
        Location::Image(_) if !exists => Operand::Image,
        _ => Operand::Host(Path::new(operand)),
    }
}

/// Runs a command for a path in an image; returns whether it succeeded.
fn in_image(called: &Called, words: Vec<OsString>) -> bool {
    match (called.extant.run)(words) {
        Ok(()) => true,
        Err(error) => {
            // The exit code covers all operands.
            let _ = extant_terminal::output::report(&error);
            false
        }
    }
}

/// A file that was opened for its flags.
struct Opened {
    file: File,
    meta: Metadata,
}

/// Opens a file or directory; links are not followed, and other types have no flags.
fn open(path: &Path) -> Result<Opened, String> {
    let meta = path
        .symlink_metadata()
        .map_err(|e| format!("{} while trying to stat {}", plain(&e), path.display()))?;
    let reading = |e: io::Error| format!("{} while reading flags on {}", plain(&e), path.display());
    if !meta.is_file() && !meta.is_dir() {
        return Err(reading(Errno::OPNOTSUPP.into()));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path).map_err(reading)?;
    Ok(Opened { file, meta })
}

/// Returns the text of an error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

fn flags_of(file: &File, path: &Path) -> Result<u32, String> {
    // File systems without flags do not know the call.
    let found = ioctl_getflags(file).map_err(|error| match error {
        Errno::NOTTY => Errno::OPNOTSUPP.into(),
        error => io::Error::from(error),
    });
    let found = found.map(|flags| flags.bits());
    found.map_err(|e| format!("{} while reading flags on {}", plain(&e), path.display()))
}

/// Returns the names in a directory, in their order on disk, with `.` and `..`.
fn names(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let entries = Dir::read_from(File::open(dir)?)?;
        let path = |entry: rustix::io::Result<DirEntry>| -> io::Result<PathBuf> {
            let entry = entry?;
            Ok(dir.join(OsStr::from_bytes(entry.file_name().to_bytes())))
        };
        entries.map(path).collect()
    };
    read().map_err(|e| format!("{}: {}", dir.display(), plain(&e)))
}

/// Returns whether a path of [`names`] is `.` or `..`.
fn is_dot(path: &Path) -> bool {
    let path = path.as_os_str().as_bytes();
    path.ends_with(b"/.") || path.ends_with(b"/..")
}

/// Options of a listing of `lsattr`.
struct Listing {
    all: bool,
    directories: bool,
    recursive: bool,
    long: bool,
    project: bool,
    generation: bool,
    failed: bool,
}

pub(super) const LSATTR: Options = Options::of("RVadlpv");

pub(super) fn lsattr(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        eprintln!("{}", release(called.name));
    }
    let mut listing = Listing {
        all: taken.has('a'),
        directories: taken.has('d'),
        recursive: taken.has('R'),
        long: taken.has('l'),
        project: taken.has('p'),
        generation: taken.has('v'),
        failed: false,
    };
    let here = [OsString::from(".")];
    let operands = match &taken.operands[..] {
        [] => &here[..],
        some => some,
    };
    for operand in operands {
        match operand_of(operand) {
            Operand::Host(path) => listing.operand(path)?,
            Operand::Image => {
                let letters = taken
                    .options
                    .iter()
                    .filter(|(l, _)| !matches!(l, 'V' | 'l'));
                let words = letters.map(|(letter, _)| format!("-{letter}").into());
                let words = std::iter::once("lsattr".into()).chain(words);
                let words = words.chain(["--".into(), operand.clone()]).collect();
                listing.failed |= !in_image(called, words);
            }
        }
    }
    Ok(Answer::Done(u8::from(listing.failed)))
}

impl Listing {
    fn operand(&mut self, path: &Path) -> Result<(), String> {
        let is_dir = path.metadata().is_ok_and(|meta| meta.is_dir());
        let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        if is_dir && !is_link && !self.directories {
            return self.directory(path);
        }
        self.one(path)
    }

    fn complain(&mut self, line: impl std::fmt::Display) {
        self.failed = true;
        complain(line);
    }

    fn directory(&mut self, dir: &Path) -> Result<(), String> {
        let names = match names(dir) {
            Ok(names) => names,
            Err(line) => {
                self.complain(line);
                return Ok(());
            }
        };
        for path in names {
            let name = path.file_name().unwrap_or_default().as_bytes();
            if (name.starts_with(b".") || is_dot(&path)) && !self.all {
                continue;
            }
            // Directories contain files without flags, such as links. They are reported, but are no failure.
            match self.line(&path) {
                Ok(line) => write(&[&line])?,
                Err(line) => complain(line),
            }
            let is_dir = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
            if self.recursive && is_dir && !is_dot(&path) {
                write(&[b"\n", path.as_os_str().as_bytes(), b":\n"])?;
                self.directory(&path)?;
                write(&[b"\n"])?;
            }
        }
        Ok(())
    }

    fn one(&mut self, path: &Path) -> Result<(), String> {
        match self.line(path) {
            Ok(line) => write(&[&line]),
            Err(line) => {
                self.complain(line);
                Ok(())
            }
        }
    }

    fn line(&self, path: &Path) -> Result<Vec<u8>, String> {
        let opened = open(path)?;
        let flags = flags_of(&opened.file, path)?;
        let failed = |what: &str, e: &io::Error| {
            format!("{} while reading {what} on {}", plain(e), path.display())
        };
        let mut line = Vec::new();
        if self.project {
            let project = host::project(&opened.file).map_err(|e| failed("project", &e))?;
            line.extend(format!("{project:5} ").bytes());
        }
        if self.generation {
            let number = host::generation(&opened.file).map_err(|e| failed("version", &e))?;
            line.extend(format!("{number:<10} ").bytes());
        }
        let name = path.as_os_str().as_bytes();
        if self.long {
            let set = LONG_NAMES.iter().filter(|(bit, _)| flags & bit != 0);
            let set: Vec<&str> = set.map(|(_, name)| *name).collect();
            let set = if set.is_empty() {
                "---".into()
            } else {
                set.join(", ")
            };
            line.extend(format!("{:<28} ", String::from_utf8_lossy(name)).bytes());
            line.extend(set.bytes());
        } else {
            line.extend(columns_of_host(flags).bytes());
            line.push(b' ');
            line.extend(name);
        }
        line.push(b'\n');
        Ok(line)
    }
}

fn write(parts: &[&[u8]]) -> Result<(), String> {
    let written = io::stdout().write_all(&parts.concat());
    written.map_err(|e| format!("standard output: {e}"))
}

/// Change made by `chattr`.
#[derive(Default)]
struct Change {
    add: u32,
    remove: u32,
    /// All remaining flags, for `=`.
    set: Option<u32>,
    project: Option<u32>,
    generation: Option<u32>,
    recursive: bool,
    verbose: bool,
    silent: bool,
    /// The words that name flags, used for images.
    words: Vec<OsString>,
    failed: bool,
}

const USAGE: &str =
    "usage: chattr [-RVf] [-+=aAcCdDeijPsStTuFx] [-p project] [-v version] files...";

impl Change {
    /// Parses the words before the files, and returns the files.
    fn take(args: Vec<OsString>, name: &str) -> Result<(Self, Vec<OsString>), String> {
        let mut change = Self::default();
        let mut args = args.into_iter().peekable();
        let is_change = |word: &OsString| matches!(word.as_bytes(), [b'-' | b'+' | b'=', ..]);
        while let Some(word) = args.next_if(is_change) {
            if word == "--" {
                break;
            }
            let text = word.to_str().ok_or(USAGE)?;
            let bits = |letters: &str| -> Result<u32, String> {
                let bit = |letter| letter_bit(letter).ok_or_else(|| format!("{text}: {USAGE}"));
                letters
                    .chars()
                    .try_fold(0, |bits, letter| Ok(bits | bit(letter)?))
            };
            match text.split_at_checked(1) {
                Some(("+", letters)) => change.add |= bits(letters)?,
                Some(("=", letters)) => {
                    change.set = Some(change.set.unwrap_or(0) | bits(letters)?);
                }
                Some((_, letters)) if !letters.is_empty() => {
                    let mut removed = String::from("-");
                    for letter in letters.chars() {
                        match letter {
                            'R' => change.recursive = true,
                            'V' if change.verbose => {}
                            'V' => {
                                eprintln!("{}", release(name));
                                change.verbose = true;
                            }
                            'f' => change.silent = true,
                            'p' | 'v' => {
                                let value = args.next().ok_or(USAGE)?;
                                let value = number(value.to_str().ok_or(USAGE)?)?;
                                let field = if letter == 'p' {
                                    &mut change.project
                                } else {
                                    &mut change.generation
                                };
                                *field = Some(value);
                            }
                            letter => {
                                change.remove |= bits(letter.encode_utf8(&mut [0; 4]))?;
                                removed.push(letter);
                            }
                        }
                    }
                    if removed.len() > 1 {
                        change.words.push(removed.into());
                    }
                    continue;
                }
                _ => return Err(USAGE.into()),
            }
            change.words.push(word);
        }
        change.check()?;
        Ok((change, args.collect()))
    }

    fn check(&self) -> Result<(), String> {
        if self.set.is_some() && (self.add | self.remove) != 0 {
            return Err("= goes with neither - nor +".into());
        }
        if self.add & self.remove != 0 {
            return Err("cannot both set and unset the same flag".into());
        }
        let numbers = self.project.or(self.generation);
        if self.words.is_empty() && numbers.is_none() {
            return Err("must use -v, -p, =, - or +".into());
        }
        Ok(())
    }

    fn fail(&mut self, line: &str) {
        self.failed = true;
        if !self.silent {
            complain(line);
        }
    }

    fn path(&mut self, path: &Path) {
        let meta = match self.file(path) {
            Ok(meta) => meta,
            Err(line) => return self.fail(&line),
        };
        if !(self.recursive && meta.is_dir()) {
            return;
        }
        match names(path) {
            Ok(names) => {
                for below in names.into_iter().filter(|path| !is_dot(path)) {
                    // Links and devices below a directory have no flags.
                    let kind = below.symlink_metadata().map(|meta| meta.file_type());
                    if kind.is_ok_and(|kind| kind.is_file() || kind.is_dir()) {
                        self.path(&below);
                    }
                }
            }
            Err(line) => self.fail(&line),
        }
    }

    fn file(&self, path: &Path) -> Result<Metadata, String> {
        let Opened { file, meta } = open(path)?;
        let setting = |what: &str, e: io::Error| {
            format!("{} while setting {what} on {}", plain(&e), path.display())
        };
        if !self.words.is_empty() {
            let old = flags_of(&file, path)?;
            let mut new = match self.set {
                // Keep the mapping flag.
                Some(set) => (old & !(USER_MODIFIABLE & !EXTENTS)) | set,
                None => (old & !self.remove) | self.add,
            };
            if !meta.is_dir() {
                new &= !DIRSYNC;
            }
            let done = ioctl_setflags(&file, IFlags::from_bits_retain(new));
            done.map_err(|e| setting("flags", e.into()))?;
            if self.verbose {
                let line = format!(
                    "Flags of {} set as {}\n",
                    path.display(),
                    columns_of_host(new)
                );
                write(&[line.as_bytes()])?;
            }
        }
        if let Some(generation) = self.generation {
            let done = host::set_generation(&file, generation);
            done.map_err(|e| setting("version", e))?;
        }
        if let Some(project) = self.project {
            let done = host::set_project(&file, project);
            done.map_err(|e| setting("project", e))?;
        }
        Ok(meta)
    }

    /// Changes a path in an image, with one command per word of flags.
    fn image(&mut self, called: &Called, operand: &OsStr) {
        let numbers = [("-p", self.project), ("-v", self.generation)];
        let numbers: Vec<OsString> = numbers
            .into_iter()
            .filter_map(|(letter, value)| Some([letter.into(), value?.to_string().into()]))
            .flatten()
            .collect();
        let mut changes: Vec<Vec<OsString>> =
            self.words.iter().map(|word| vec![word.clone()]).collect();
        if changes.is_empty() {
            changes.push(Vec::new());
        }
        if let Some(first) = changes.first_mut() {
            first.splice(0..0, numbers);
        }
        for change in changes {
            let mut words: Vec<OsString> = vec!["chattr".into()];
            words.extend(self.recursive.then(|| "-R".into()));
            words.extend(change);
            words.push(operand.to_owned());
            self.failed |= !in_image(called, words);
        }
    }
}

pub(super) fn chattr(called: &Called) -> Answered {
    let (mut change, files) = Change::take(called.taken.operands.clone(), called.name)?;
    if files.is_empty() {
        return Err(refuse(USAGE));
    }
    for file in &files {
        match operand_of(file) {
            Operand::Host(path) => change.path(path),
            Operand::Image => change.image(called, file),
        }
    }
    Ok(Answer::Done(u8::from(change.failed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::inode::flags::{APPEND, IMMUTABLE, NODUMP};

    #[test]
    fn changes_are_words_in_front_of_the_files() {
        let taken = |line: &str| {
            let (change, files) =
                Change::take(line.split(' ').map(OsString::from).collect(), "chattr")?;
            let files: Vec<_> = files
                .iter()
                .map(|f| f.to_str().unwrap().to_owned())
                .collect();
            let flags = (change.add, change.remove, change.set);
            Ok::<_, String>((flags, change.recursive, change.project, files.join(" ")))
        };
        let is = |line: &str, flags, recursive, project, files: &str| {
            let wanted = (flags, recursive, project, files.to_owned());
            assert_eq!(taken(line), Ok(wanted), "{line}");
        };
        is(
            "+ia -d a b",
            (IMMUTABLE | APPEND, NODUMP, None),
            false,
            None,
            "a b",
        );
        is("-Rf =a x", (0, 0, Some(APPEND)), true, None, "x");
        is("-R -p 7 +i x", (IMMUTABLE, 0, None), true, Some(7), "x");
        is("-Ri x", (0, IMMUTABLE, None), true, None, "x");
        for bad in ["x", "+q x", "+i -i x", "=i +a x", "- x", "-p x"] {
            assert!(taken(bad).is_err(), "{bad}");
        }
    }
}
