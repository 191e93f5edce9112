//! `lsattr` and `chattr`: for files of the host with system calls, and for `IMAGE:/PATH` in an open
//! volume. A path that exists is a path of the host.

use super::call::{Answer, Answered, Called, aside, release, write, write_beside};
use super::getopt::Options;
use crate::refusal::refuse;
use anyhow::Context;
use blockdev::host;
use ext4_format::inode::flags::{DIRSYNC, EXTENTS, USER_MODIFIABLE, USER_VISIBLE};
use extant::SetAttributes;
use extant_cli_core::address::advice::about;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::walk::sorted;
use extant_cli_core::address::{Address, Location, host_path, join};
use extant_cli_core::format::attr_flags::{LONG_NAMES, columns_of_host, letter_bit, number};
use extant_cli_core::image::images::Images;
use extant_terminal::interrupt;
use extant_terminal::output::{complain, report_code};
use rustix::fs::{DirEntry, IFlags, OFlags, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Target of an operand.
enum Operand<'a> {
    Host(&'a Path),
    Image(Address),
}

fn operand_of(operand: &OsStr) -> Operand<'_> {
    let exists = Path::new(operand).symlink_metadata().is_ok();
    match Location::from(operand.to_owned()) {
        Location::Image(address) if !exists => Operand::Image(address),
        _ => Operand::Host(Path::new(operand)),
    }
}

/// Calls `host` or `image` for each operand, and `image` for each path that a pattern matches. An operand in an image that
/// fails goes to `fail`, and the others follow. Each image is opened and closed once.
fn each<T>(
    target: &mut T,
    writing: bool,
    operands: &[OsString],
    host: impl Fn(&mut T, &Path) -> anyhow::Result<()>,
    image: impl Fn(&mut T, ImagePlace) -> anyhow::Result<()>,
    fail: impl Fn(&mut T, &anyhow::Error),
) -> anyhow::Result<()> {
    let mut listens = false;
    Images::with(writing, |images| {
        for operand in operands {
            let address = match operand_of(operand) {
                Operand::Host(path) => {
                    host(target, path)?;
                    continue;
                }
                Operand::Image(address) => address,
            };
            if !listens {
                // An open image is closed before the program ends.
                interrupt::install()?;
                listens = true;
            }
            let found = images.get(&address.image).and_then(|volume| {
                let addresses = expand(&volume, &address, NoMatch::Fails)?;
                Ok((volume, addresses))
            });
            // An interrupt ends the program, and is not an error of this operand.
            interrupt::check()?;
            let (volume, addresses) = match found {
                Ok(found) => found,
                Err(error) => {
                    fail(target, &error);
                    continue;
                }
            };
            for address in addresses {
                let place = ImagePlace::of(&volume, &address).and_then(|place| {
                    let seen = place.attributes(false).map(drop);
                    seen.map_err(|e| about(&place, e.into()))?;
                    Ok(place)
                });
                match place.with_context(|| address.to_string()) {
                    Ok(place) => image(target, place)?,
                    Err(error) => {
                        interrupt::check()?;
                        fail(target, &error);
                    }
                }
            }
        }
        Ok(())
    })
}

/// Returns the answer of a program after its last operand.
fn ended(done: anyhow::Result<()>, failed: bool) -> Answer {
    Answer::Done(match done {
        Ok(()) => u8::from(failed),
        Err(error) => report_code(&error),
    })
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

/// Returns the names in a directory with `.` and `..`: on the host in their order on disk, in an image sorted.
fn names(image: Option<&ImagePlace>, dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", shown(image, dir));
    if let Some(place) = image {
        // The number of a directory makes it the start of the place, whose path is then ".".
        let path = below(place, dir).unwrap_or_else(|| host_path(&place.path));
        let found = sorted(&place.dir, path).map_err(|e| failed(&e))?;
        let dots = [".", ".."].map(|name| dir.join(name));
        let found = found.iter().map(|entry| dir.join(entry.file_name()));
        return Ok(dots.into_iter().chain(found).collect());
    }
    let read = || -> io::Result<Vec<PathBuf>> {
        let entries = rustix::fs::Dir::read_from(File::open(dir)?)?;
        let path = |entry: rustix::io::Result<DirEntry>| -> io::Result<PathBuf> {
            let entry = entry?;
            Ok(dir.join(OsStr::from_bytes(entry.file_name().to_bytes())))
        };
        entries.map(path).collect()
    };
    read().map_err(|e| failed(&plain(&e)))
}

/// Returns a path for messages; in an image with the name of the image.
fn shown(image: Option<&ImagePlace>, path: &Path) -> String {
    match image {
        Some(place) => place.address.at(path.as_os_str().as_bytes()).to_string(),
        None => path.display().to_string(),
    }
}

/// Returns a path in an image as one from the start of the place, or nothing for the place itself, which may be an inode
/// without a path. The path begins as the address of the place does.
fn below(place: &ImagePlace, path: &Path) -> Option<PathBuf> {
    let path = path.as_os_str().as_bytes();
    let below = path.get(place.address.path.len()..).unwrap_or_default();
    let below = below.strip_prefix(b"/").unwrap_or(below);
    (!below.is_empty()).then(|| host_path(&join(&place.path, below)))
}

/// Returns the attributes of a path in an image; links are not followed.
fn stat_in(place: &ImagePlace, path: &Path) -> Result<extant::Metadata, String> {
    let found = match below(place, path) {
        Some(below) => place.dir.symlink_metadata(below),
        None => place.attributes(false),
    };
    found.map_err(|e| format!("{e} while trying to stat {}", shown(Some(place), path)))
}

/// Returns the attributes of a file or directory in an image; other types have no flags.
fn attributes_in(place: &ImagePlace, path: &Path) -> Result<extant::Metadata, String> {
    let a = stat_in(place, path)?;
    if !a.is_file() && !a.is_dir() {
        let error = plain(&Errno::OPNOTSUPP.into());
        let path = shown(Some(place), path);
        return Err(format!("{error} while reading flags on {path}"));
    }
    Ok(a)
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
    /// The image that the paths are in.
    image: Option<ImagePlace>,
}

pub(super) const LSATTR: Options = Options::of("RVadlpv");

pub(super) fn lsattr(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        aside(release(called.name));
    }
    let mut listing = Listing {
        all: taken.has('a'),
        directories: taken.has('d'),
        recursive: taken.has('R'),
        long: taken.has('l'),
        project: taken.has('p'),
        generation: taken.has('v'),
        failed: false,
        image: None,
    };
    let here = [OsString::from(".")];
    let operands = match &taken.operands[..] {
        [] => &here[..],
        some => some,
    };
    let done = each(
        &mut listing,
        false,
        operands,
        Listing::operand,
        Listing::in_image,
        |listing, error| {
            report_code(error);
            listing.failed = true;
        },
    );
    Ok(ended(done, listing.failed))
}

impl Listing {
    fn operand(&mut self, path: &Path) -> anyhow::Result<()> {
        if self.is_dir(path) && !self.directories {
            return self.directory(path);
        }
        self.one(path)
    }

    /// Lists an operand in an image.
    fn in_image(&mut self, place: ImagePlace) -> anyhow::Result<()> {
        let path = host_path(&place.address.path);
        self.image = Some(place);
        let done = self.operand(&path);
        self.image = None;
        done
    }

    /// Returns whether a path is a directory; links are not followed.
    fn is_dir(&self, path: &Path) -> bool {
        match &self.image {
            Some(place) => attributes_in(place, path).is_ok_and(|a| a.is_dir()),
            None => path.symlink_metadata().is_ok_and(|meta| meta.is_dir()),
        }
    }

    /// Returns the flags, the project and the generation.
    fn attributes(&self, path: &Path) -> Result<(u32, u32, u32), String> {
        if let Some(place) = &self.image {
            let a = attributes_in(place, path)?;
            return Ok((a.flags(), a.project(), a.generation()));
        }
        let failed = |what: &str, e: &io::Error| {
            format!("{} while reading {what} on {}", plain(e), path.display())
        };
        let opened = open(path)?;
        let flags = flags_of(&opened.file, path)?;
        let (mut project, mut generation) = (0, 0);
        if self.project {
            let read = host::project(&opened.file);
            project = read.map_err(|e| failed("project", &e))?;
        }
        if self.generation {
            let read = host::generation(&opened.file);
            generation = read.map_err(|e| failed("version", &e))?;
        }
        Ok((flags, project, generation))
    }

    fn complain(&mut self, line: impl std::fmt::Display) {
        self.failed = true;
        complain(line);
    }

    fn directory(&mut self, dir: &Path) -> anyhow::Result<()> {
        let names = match names(self.image.as_ref(), dir) {
            Ok(names) => names,
            Err(line) => {
                self.complain(line);
                return Ok(());
            }
        };
        for path in names {
            interrupt::check()?;
            let name = path.file_name().unwrap_or_default().as_bytes();
            if (name.starts_with(b".") || is_dot(&path)) && !self.all {
                continue;
            }
            // Directories contain files without flags, such as links. They are reported, but are no failure.
            match self.line(&path) {
                Ok(line) => write(&line)?,
                Err(line) => complain(line),
            }
            if self.recursive && self.is_dir(&path) && !is_dot(&path) {
                write(&[b"\n", path.as_os_str().as_bytes(), b":\n"].concat())?;
                self.directory(&path)?;
                write(b"\n")?;
            }
        }
        Ok(())
    }

    fn one(&mut self, path: &Path) -> anyhow::Result<()> {
        interrupt::check()?;
        match self.line(path) {
            Ok(line) => write(&line),
            Err(line) => {
                self.complain(line);
                Ok(())
            }
        }
    }

    fn line(&self, path: &Path) -> Result<Vec<u8>, String> {
        let (flags, project, number) = self.attributes(path)?;
        let mut line = Vec::new();
        if self.project {
            line.extend(format!("{project:5} ").bytes());
        }
        if self.generation {
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
    has_flags: bool,
    failed: bool,
    /// The image that the paths are in.
    image: Option<ImagePlace>,
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
                    for letter in letters.chars() {
                        match letter {
                            'R' => change.recursive = true,
                            'V' if change.verbose => {}
                            'V' => {
                                aside(release(name));
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
                                change.has_flags = true;
                            }
                        }
                    }
                    continue;
                }
                _ => return Err(USAGE.into()),
            }
            change.has_flags = true;
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
        if !self.has_flags && numbers.is_none() {
            return Err("must use -v, -p, =, - or +".into());
        }
        Ok(())
    }

    /// Returns whether a path has a type without flags. A path whose type cannot be read may have flags.
    fn is_without_flags(&self, path: &Path) -> bool {
        match &self.image {
            Some(place) => stat_in(place, path).is_ok_and(|a| !a.is_file() && !a.is_dir()),
            None => path
                .symlink_metadata()
                .is_ok_and(|meta| !meta.is_file() && !meta.is_dir()),
        }
    }

    fn fail(&mut self, line: &str) {
        self.failed = true;
        if !self.silent {
            complain(line);
        }
    }

    fn path(&mut self, path: &Path) -> anyhow::Result<()> {
        interrupt::check()?;
        let is_dir = match self.file(path) {
            Ok(is_dir) => is_dir,
            Err(line) => {
                self.fail(&line);
                return Ok(());
            }
        };
        if !(self.recursive && is_dir) {
            return Ok(());
        }
        match names(self.image.as_ref(), path) {
            Ok(names) => {
                for below in names.into_iter().filter(|path| !is_dot(path)) {
                    // Links and devices below a directory have no flags.
                    if !self.is_without_flags(&below) {
                        self.path(&below)?;
                    }
                }
            }
            Err(line) => self.fail(&line),
        }
        Ok(())
    }

    /// Changes an operand in an image.
    fn in_image(&mut self, place: ImagePlace) -> anyhow::Result<()> {
        let path = host_path(&place.address.path);
        self.image = Some(place);
        let done = self.path(&path);
        self.image = None;
        done
    }

    /// Changes a path, and returns whether it is a directory.
    fn file(&self, path: &Path) -> Result<bool, String> {
        if let Some(place) = &self.image {
            return self.file_in(place, path);
        }
        let Opened { file, meta } = open(path)?;
        let setting = |what: &str, e: io::Error| {
            format!("{} while setting {what} on {}", plain(&e), path.display())
        };
        if self.verbose || self.has_flags {
            let new = self.new_flags(flags_of(&file, path)?, meta.is_dir());
            self.tell("Flags", path, columns_of_host(new))?;
            let done = ioctl_setflags(&file, IFlags::from_bits_retain(new));
            done.map_err(|e| setting("flags", e.into()))?;
        }
        if let Some(generation) = self.generation {
            self.tell("Version", path, generation)?;
            let done = host::set_generation(&file, generation);
            done.map_err(|e| setting("version", e))?;
        }
        if let Some(project) = self.project {
            self.tell("Project", path, project)?;
            let done = host::set_project(&file, project);
            done.map_err(|e| setting("project", e))?;
        }
        Ok(meta.is_dir())
    }

    /// Changes a path in the image, and returns whether it is a directory.
    fn file_in(&self, place: &ImagePlace, path: &Path) -> Result<bool, String> {
        let a = attributes_in(place, path)?;
        let setting = |what: &str, e: &dyn std::fmt::Display| {
            format!("{e} while setting {what} on {}", shown(Some(place), path))
        };
        let change = |what: &str, set: SetAttributes| {
            let done = match below(place, path) {
                Some(below) => place.dir.set_symlink_attributes(below, &set),
                None => place.set_attributes(&set, false),
            };
            done.map_err(|e| setting(what, &e))
        };
        let unchanged = SetAttributes::default();
        if self.verbose || self.has_flags {
            let old = a.flags() & USER_VISIBLE;
            let new = self.new_flags(old, a.is_dir());
            self.tell("Flags", path, columns_of_host(new))?;
            // Linux ignores the other flags that a mount shows and that no program may change.
            if new & !USER_VISIBLE != 0 {
                let error = plain(&Errno::OPNOTSUPP.into());
                return Err(setting("flags", &error));
            }
            let flags = Some(new);
            change("flags", SetAttributes { flags, ..unchanged })?;
        }
        // Set the attributes one by one, as on the host, so that the message names what failed.
        if let Some(new) = self.generation {
            self.tell("Version", path, new)?;
            let generation = Some(new);
            change(
                "version",
                SetAttributes {
                    generation,
                    ..unchanged
                },
            )?;
        }
        if let Some(new) = self.project {
            self.tell("Project", path, new)?;
            let project = Some(new);
            change(
                "project",
                SetAttributes {
                    project,
                    ..unchanged
                },
            )?;
        }
        Ok(a.is_dir())
    }

    /// Returns the flags after the change. `FlagChange` does not fit: it drops flags that only other file systems of
    /// the host have.
    fn new_flags(&self, old: u32, is_dir: bool) -> u32 {
        let new = match self.set {
            // Keep the mapping flag.
            Some(set) => (old & !(USER_MODIFIABLE & !EXTENTS)) | set,
            None => (old & !self.remove) | self.add,
        };
        if is_dir { new } else { new & !DIRSYNC }
    }

    /// Prints a new attribute of a file, with `-V`. Like e2fsprogs, before the change, which may fail.
    fn tell(&self, what: &str, path: &Path, value: impl std::fmt::Display) -> Result<(), String> {
        if !self.verbose {
            return Ok(());
        }
        let line = format!("{what} of {} set as {value}\n", path.display());
        let done = write_beside(line.as_bytes());
        done.map_err(|error| error.to_string())
    }
}

pub(super) fn chattr(called: &Called) -> Answered {
    let (mut change, files) = Change::take(called.taken.operands.clone(), called.name)?;
    if files.is_empty() {
        return Err(refuse(USAGE));
    }
    let done = each(
        &mut change,
        true,
        &files,
        Change::path,
        Change::in_image,
        |change, error| {
            if !change.silent {
                report_code(error);
            }
            change.failed = true;
        },
    );
    Ok(ended(done, change.failed))
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
