//! The requests of debugfs. With `-w`, changes of files are operations of a volume, values of the superblock are
//! changes of `extant tune`, and [`raw`] edits structures directly. [`layout`] answers questions. All
//! names are checked before the first request runs. A request that fails is reported; the other requests still run,
//! and the exit code is 1.
//!
//! Requests run in their order. The volume is open for writing while successive requests change it. The volume is
//! closed before a read-only request, which then reads the image from the device, as without `-w`, and sees all
//! earlier changes.

use super::asking;
use super::fields::{is_attribute, set_field, super_options, text, time};
use super::files::{allocate, born, node, say, write};
use super::words::{operand, options};
use super::{deleted, journal, layout, raw};
use crate::call::{Answer, Answered, Called};
use crate::changes;
use crate::getopt;
use anyhow::{Context, Result, anyhow, bail};
use extant::unstable::Node;
use extant::{Credentials, FileType, Timestamp, Volume};
use extant_check::inspect::Request;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::request::path_from;
use extant_cli_core::address::{Address, bytes, join, os};
use extant_cli_core::format::clock;
use extant_cli_core::format::show::show;
use extant_cli_core::format::times::as_ctime;
use extant_cli_core::image::images::{self, Images};
use extant_terminal::output;
use extant_tune::TuneOptions;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

/// Requests by all their names, with the least and the largest number of arguments.
const REQUESTS: &[(&[&str], usize, usize)] = &[
    (&["write"], 2, 2),
    (&["mkdir"], 1, 1),
    (&["rm"], 1, 1),
    (&["unlink"], 1, 1),
    (&["rmdir"], 1, 1),
    (&["symlink"], 2, 2),
    (&["link", "ln"], 2, 2),
    (&["mknod"], 2, 4),
    (&["fallocate"], 2, 3),
    (&["punch", "truncate"], 2, 3),
    (&["set_inode_field", "sif"], 3, 3),
    (&["set_super_value", "ssv"], 2, 2),
    (&["set_current_time"], 1, 1),
    (&["feature", "features"], 1, usize::MAX),
    (&["ea_set"], 3, 6),
    (&["ea_rm"], 2, usize::MAX),
    (&["change_working_directory", "cd"], 1, 1),
    (&["print_working_directory", "pwd"], 0, 0),
    (&["lcd"], 1, 1),
    (&["show_debugfs_params", "params"], 0, 0),
    (&["list_requests", "lr", "?", "help"], 0, 1),
    (&["quit", "q"], 0, 0),
    (&["undelete", "undel"], 1, 2),
    (&["kill_file"], 1, 1),
    (&["dump_unused"], 0, 0),
    (&["journal_open", "jo"], 0, usize::MAX),
    (&["journal_write", "jw"], 1, usize::MAX),
    (&["journal_close", "jc"], 0, 0),
    (&["journal_run", "jr"], 0, 0),
];

/// Requests of debugfs that are refused, and the reason.
pub(crate) const WITHOUT: &[(&[&str], &str)] = &[
    (
        &["open_filesys", "open", "close_filesys", "close"],
        "the image is the one of the command line",
    ),
    (&["init_filesys"], "mke2fs makes file systems"),
    (
        &["change_root_directory", "chroot"],
        "paths begin at the root of the image, or at the directory of cd",
    ),
    (
        &["modify_inode", "mi"],
        "set_inode_field sets one field after the other",
    ),
    (
        &["expand_dir", "expand"],
        "a directory grows when names are added",
    ),
    (
        &["set_mmp_value", "smmp"],
        "tune2fs -E mmp_update_interval sets the interval, and tune2fs -f -E clear_mmp ends a claim",
    ),
    (&["extent_open", "eo"], "mappings are not changed by hand"),
];

/// A request.
pub(super) struct DebugfsRequest {
    what: RequestKind,
    line: Vec<u8>,
}

/// A request by its first name, with its arguments.
enum RequestKind {
    /// A request of [`REQUESTS`].
    Own(&'static str, Vec<Vec<u8>>),
    /// A request that edits structures directly.
    Raw(&'static str, Vec<Vec<u8>>),
    /// A read-only request, in the layout of debugfs.
    Shows(&'static str, Vec<Vec<u8>>),
    /// A read-only request, with all its words.
    Asks(Vec<Vec<u8>>),
}

impl DebugfsRequest {
    /// Returns whether the request needs a volume open for writing; `None` if the request runs without an open volume.
    fn on_volume(&self) -> Option<bool> {
        let RequestKind::Own(name, words) = &self.what else {
            return None;
        };
        match *name {
            "set_super_value"
            | "quit"
            | "set_current_time"
            | "feature"
            | "lcd"
            | "show_debugfs_params"
            | "list_requests"
            | "undelete"
            | "kill_file"
            | "dump_unused"
            | "journal_open"
            | "journal_write"
            | "journal_close"
            | "journal_run" => None,
            "set_inode_field" => {
                let field = words.get(1).map(Vec::as_slice).unwrap_or_default();
                let known = std::str::from_utf8(field).is_ok_and(is_attribute);
                known.then_some(true)
            }
            "change_working_directory" | "print_working_directory" => Some(false),
            _ => Some(true),
        }
    }

    /// Returns whether the request changes the image.
    fn changes(&self) -> bool {
        match &self.what {
            RequestKind::Own(name, _) => !matches!(
                *name,
                "quit"
                    | "set_current_time"
                    | "lcd"
                    | "show_debugfs_params"
                    | "list_requests"
                    | "dump_unused"
                    | "change_working_directory"
                    | "print_working_directory"
            ),
            RequestKind::Raw(..) => true,
            RequestKind::Shows(..) | RequestKind::Asks(_) => false,
        }
    }
}

/// A row of a table of requests.
type Row = (&'static [&'static str], usize, usize);

/// Returns the row of a request in a table, by name and number of arguments; an error if the number is wrong.
fn row(table: &'static [Row], word: &str, count: usize) -> Option<Result<&'static str, String>> {
    let mut named = table
        .iter()
        .filter(|(names, ..)| names.contains(&word))
        .peekable();
    named.peek()?;
    let fits = named.find(|(_, least, most)| (*least..=*most).contains(&count));
    // The list of names in a row is never empty.
    let first = fits.map(|(names, ..)| names.first().copied().unwrap_or_default());
    Some(first.ok_or_else(|| format!("{word}: wrong number of words")))
}

/// Returns the names of all supported requests.
fn names() -> String {
    let tables = REQUESTS.iter().chain(raw::REQUESTS).chain(layout::REQUESTS);
    let mut names: Vec<&str> = tables
        .filter_map(|(names, ..)| names.last().copied())
        .collect();
    names.extend(["cat", "dump", "rdump"]);
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names.join(", ")
}

/// Parses the words of a line.
fn what(image: &OsStr, words: Vec<Vec<u8>>) -> Result<RequestKind, String> {
    let Some((name, behind)) = words.split_first() else {
        return Err("no request".into());
    };
    let word = show(name);
    let count = behind.len();
    let behind = behind.to_vec();
    let shows = row(layout::REQUESTS, &word, count);
    if let Some(Ok(name)) = shows {
        return Ok(RequestKind::Shows(name, behind));
    }
    if let Some(name) = row(REQUESTS, &word, count) {
        return Ok(RequestKind::Own(name?, behind));
    }
    if let Some(name) = row(raw::REQUESTS, &word, count) {
        return Ok(RequestKind::Raw(name?, behind));
    }
    if let Some((_, why)) = WITHOUT.iter().find(|(names, _)| names.contains(&&*word)) {
        return Err(format!("{word} is not supported: {why}"));
    }
    if let Some(Err(line)) = shows {
        return Err(line);
    }
    match asking(image, &words, b"/")? {
        Some(_) => Ok(RequestKind::Asks(words)),
        None => Err(format!(
            "{word}: no such request: debugfs -R help lists them"
        )),
    }
}

/// Parses lines into requests.
pub(super) fn requests(image: &OsStr, lines: &[Vec<u8>]) -> Result<Vec<DebugfsRequest>, String> {
    let mut asked = Vec::new();
    for line in lines {
        let words = Request::words_of(line);
        if words.first().is_none_or(|name| name.starts_with(b"#")) {
            continue;
        }
        let line = line.clone();
        asked.push(DebugfsRequest {
            what: what(image, words)?,
            line,
        });
    }
    Ok(asked)
}

/// Runs the requests. Like debugfs, echoes requests from a file, and continues such a file after `quit`.
pub(super) fn run(
    called: &Called,
    image: &OsStr,
    asked: &[DebugfsRequest],
    writes: bool,
) -> Answered {
    let of_file = called.taken.has('f');
    let mut session = Session {
        called,
        image: image.as_ref(),
        at: b"/".to_vec(),
        echo: of_file,
        writes,
        code: 0,
        journal: None,
    };
    let mut rest = asked;
    while let Some((first, behind)) = rest.split_first()
        && !session.is_over()
    {
        rest = behind;
        if first.changes() && !writes {
            session.done(first, |_| bail!("Filesystem opened read/only"));
            continue;
        }
        if first.on_volume().is_some() {
            let more = behind
                .iter()
                .take_while(|one| one.on_volume().is_some() && (writes || !one.changes()))
                .count();
            let (now, later) = behind.split_at(more);
            let opened = session.on_volume(first, now);
            opened?;
            rest = later;
            continue;
        }
        match &first.what {
            RequestKind::Own("quit", _) if !of_file => break,
            RequestKind::Own(name, words) => {
                session.done(first, |session| session.own(name, words))
            }
            RequestKind::Raw(name, words) => session.done(first, |session| {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                raw::run(session.image, &session.at, name, &words)
            }),
            RequestKind::Shows(name, words) => session.done(first, |session| {
                let text = layout::answer(session.image, &session.at, name, words)?;
                Ok(std::io::stdout().write_all(text.as_bytes())?)
            }),
            RequestKind::Asks(words) => session.answer(first, words),
        }
    }
    let closed = journal::close_at_end(session.image, &mut session.journal);
    closed?;
    Ok(Answer::Done(session.code))
}

/// An image being changed.
struct Session<'a> {
    called: &'a Called,
    image: &'a Path,
    /// The current directory, from the root.
    at: Vec<u8>,
    echo: bool,
    writes: bool,
    /// The exit code.
    code: u8,
    /// Transactions of the journal, if the journal is open.
    journal: Option<Vec<journal::Transaction>>,
}

impl Session<'_> {
    /// Runs requests on a volume that is opened for them; for writing if one of the requests changes it.
    fn on_volume(&mut self, first: &DebugfsRequest, more: &[DebugfsRequest]) -> Result<()> {
        let image = self.image;
        let all = || std::iter::once(first).chain(more);
        let mut work = |volume: &Volume| {
            for one in all() {
                if let RequestKind::Own(name, words) = &one.what
                    && !self.is_over()
                {
                    self.done(one, |session| session.of_files(volume, name, words));
                }
            }
            Ok(())
        };
        if all().any(|one| one.on_volume() == Some(true)) {
            images::change(image, work)
        } else {
            Images::with(false, |images| work(&images.get(image)?))
        }
    }

    /// Answers a read-only request with the command that answers it without `-w`.
    fn answer(&mut self, one: &DebugfsRequest, words: &[Vec<u8>]) {
        self.echo(one);
        let command = asking(self.image.as_os_str(), words, &self.at);
        // All requests were checked at the beginning.
        let command = command.map(Option::unwrap_or_default);
        let answered = command
            .map_err(|line| anyhow!(line))
            .and_then(self.called.extant.run);
        if let Err(error) = answered {
            let code = output::report_code(&error);
            self.code = if code == output::CLOSED_PIPE { code } else { 1 };
        }
    }

    /// Returns whether no reader is left for the answers of more requests, and none of them changes the image.
    fn is_over(&self) -> bool {
        self.code == output::CLOSED_PIPE && !self.writes
    }

    /// Echoes the line of a request from a file.
    fn echo(&self, one: &DebugfsRequest) {
        if self.echo {
            let line = show(one.line.trim_ascii());
            say(&format!("debugfs: {line}"));
        }
    }

    /// Runs a request, and reports why it failed.
    fn done(&mut self, one: &DebugfsRequest, work: impl FnOnce(&mut Self) -> Result<()>) {
        self.echo(one);
        if let Err(error) = work(self) {
            if output::silent(&error) {
                self.code = output::CLOSED_PIPE;
                return;
            }
            self.code = 1;
            let word = Request::words_of(&one.line).into_iter().next();
            let word = show(&word.unwrap_or_default());
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
            ("write", [from, to]) => write(volume, os(from), &of(to)).with_context(|| show(from)),
            ("mkdir", [path]) => {
                let path = of(path);
                drop(volume.create_dir(os(&path)).with_context(|| show(&path))?);
                born(volume, &path, 0o755)
            }
            ("symlink", [path, target]) => {
                let path = of(path);
                volume
                    .symlink(os(target), os(&path))
                    .with_context(|| show(&path))?;
                born(volume, &path, 0o777)
            }
            ("mknod", [path, kind @ ..]) => node(volume, &of(path), kind),
            ("link", [from, to]) if from.starts_with(b"<") => {
                link_number(volume, from, &of(to)).with_context(|| show(to))
            }
            ("link", [from, to]) => Ok(volume
                .hard_link(os(&of(from)), os(&of(to)))
                .with_context(|| show(to))?),
            ("fallocate" | "punch", [path, range @ ..]) => {
                let path = of(path);
                allocate(volume, name, &path, range).with_context(|| show(&path))
            }
            ("rm" | "unlink", [path]) => Ok(volume
                .remove_file(os(&of(path)))
                .with_context(|| show(path))?),
            ("rmdir", [path]) => Ok(volume
                .remove_dir(os(&of(path)))
                .with_context(|| show(path))?),
            ("set_inode_field", [path, field, value]) => {
                let place = self.place(volume, path)?;
                set_field(&place, text(field)?, text(value)?).with_context(|| show(path))
            }
            ("ea_set", words) => self.set_attribute(volume, words),
            ("ea_rm", [path, names @ ..]) => {
                let place = self.place(volume, path)?;
                for name in names {
                    place.remove_xattr(name).with_context(|| show(name))?;
                }
                Ok(())
            }
            ("change_working_directory", [path]) => {
                let real = real_dir(volume, &of(path));
                self.at = real.with_context(|| show(path))?;
                Ok(())
            }
            ("print_working_directory", []) => {
                let ino = volume.metadata(os(&self.at))?.ino();
                let path = show(&self.at);
                say(&format!("[pwd]   INODE: {ino:6}  PATH: {path}"));
                say("[root]  INODE:      2  PATH: /");
                Ok(())
            }
            _ => bail!("wrong number of words"),
        }
    }

    /// Runs `ea_set [-r] [-f FILE] PATH NAME [VALUE]`. Values are always taken as they are, as with `-r`.
    fn set_attribute(&self, volume: &Volume, words: &[&[u8]]) -> Result<()> {
        let taken = options("f:r", words)?;
        let (path, name, value) = match (taken.value('f'), &taken.operands[..]) {
            (Some(file), [path, name]) => {
                let read = std::fs::read(file);
                (
                    path,
                    name,
                    read.with_context(|| file.display().to_string())?,
                )
            }
            (None, [path, name, value]) => (path, name, operand(value).to_vec()),
            _ => bail!("write ea_set [-f FILE] PATH NAME [VALUE]"),
        };
        let (path, name) = (operand(path), operand(name));
        let place = self.place(volume, path)?;
        place.set_xattr(name, &value).with_context(|| show(path))
    }

    /// Runs a request that needs no open volume.
    fn own(&mut self, name: &str, words: &[Vec<u8>]) -> Result<()> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match (name, &words[..]) {
            ("undelete", words) => self.undelete(words),
            ("kill_file", [path]) => {
                deleted::kill(self.image, &self.at, path).with_context(|| show(path))
            }
            ("dump_unused", _) => deleted::unused(self.image, &mut output::stdout()),
            ("journal_open" | "journal_write" | "journal_close" | "journal_run", words) => {
                journal::run(self.image, &mut self.journal, name, words)
            }
            ("set_super_value", [field, value]) => self.super_value(text(field)?, value),
            ("set_inode_field", [path, field, value]) => {
                let (field, value) = (text(field)?, text(value)?);
                raw::set_inode_field(self.image, &self.at, path, field, value)
                    .with_context(|| show(path))
            }
            ("set_current_time", [value]) => {
                let seconds = time(text(value)?)?;
                clock::set(seconds);
                let shown = as_ctime(Timestamp::new(seconds, 0));
                say(&format!("Setting current time to {shown}\n"));
                Ok(())
            }
            ("feature", words) => {
                changes::replay(self.image)?;
                let name = |word: &&[u8]| text(word).map(getopt::feature);
                let names: Vec<String> = words.iter().map(name).collect::<Result<_>>()?;
                let options = TuneOptions {
                    features: names.join(","),
                    ..TuneOptions::default()
                };
                changes::tune(self.image, options)?;
                let shown = layout::answer(self.image, &self.at, "feature", &[])?;
                Ok(std::io::stdout().write_all(shown.as_bytes())?)
            }
            ("lcd", [dir]) => std::env::set_current_dir(os(dir)).with_context(|| show(dir)),
            ("show_debugfs_params", []) => {
                let mode = if self.writes {
                    "read-write"
                } else {
                    "read-only"
                };
                say(&format!(
                    "Open mode: {mode}\nFilesystem in use: {}",
                    self.image.display()
                ));
                Ok(())
            }
            ("list_requests", _) => {
                say(&format!("{}, {}", names(), Request::names()));
                Ok(())
            }
            // In a file of requests, `quit` does not end the session, as with debugfs.
            ("quit", _) => Ok(()),
            _ => bail!("wrong number of words"),
        }
    }

    /// Runs `undelete <INODE> [PATH]`. If the name cannot be made, the inode is deleted again.
    fn undelete(&self, words: &[&[u8]]) -> Result<()> {
        let (ino, path) = deleted::parse_undelete(words)?;
        deleted::restore(self.image, ino).with_context(|| show(ino))?;
        let Some(path) = path.map(|path| self.path(path)) else {
            return Ok(());
        };
        let linked = images::change(self.image, |volume| link_number(volume, ino, &path));
        if let Err(error) = linked {
            deleted::kill(self.image, b"/", ino)?;
            return Err(error.context(show(&path)));
        }
        // The restored inode had one link without a name, and the new name added another: set the count to 1.
        raw::set_inode_field(self.image, b"/", ino, "links_count", "1")
    }

    fn super_value(&self, field: &str, value: &[u8]) -> Result<()> {
        changes::replay(self.image)?;
        match super_options(field, value)? {
            Some(options) => changes::tune(self.image, options),
            None => raw::set_super_value(self.image, field, text(value)?),
        }
    }
}

/// Adds a name to an inode that is given as `<12>`.
fn link_number(volume: &Volume, ino: &[u8], path: &[u8]) -> Result<()> {
    let place = ImagePlace::of(volume, &Address::root(Path::new("")).at(ino))?;
    let node = place.node().context("not the inode number of a file")?;
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (path.get(..slash), path.get(slash + 1..)),
        None => (None, Some(path)),
    };
    let (dir, name) = (dir.unwrap_or_default(), name.unwrap_or_default());
    let dir = if dir.is_empty() { b"/" } else { dir };
    let dir = Node::of_number(volume, volume.metadata(os(dir))?.ino())?;
    Ok(node.link(&Credentials::root(), &dir, name)?)
}

/// Largest number of links to follow on the way to a directory, as in Linux.
const LINKS: usize = 40;

/// Resolves links, `.` and `..` of a directory's path, because requests about structures follow no links.
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
                // The root is its own parent.
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
