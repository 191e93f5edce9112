//! `debugfs`: answers requests about files and directories with `extant cat`, `cp` and `ls`, and requests about
//! structures with `extant inspect`. With `-w` the requests of [`write`] change an image; read-only requests
//! may stand between them.

mod deleted;
mod dirs;
mod fields;
mod files;
mod journal;
mod layout;
mod log;
mod mapping;
mod queried_image;
mod quota;
mod raw;
mod runs;
mod words;
pub(super) mod write;

use crate::call::{Answer, Answered, Called};
use crate::getopt::Options;
use crate::listing;
use crate::refusal::{Refusal, refuse};
use extant_check::inspect::Request;
use extant_cli_core::address::request::{path_from, words_from};
use extant_cli_core::format::show::show;
use extant_cli_core::image::images;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub(super) const OPTIONS: Options = Options {
    without: &[
        ('b', "backups of the superblock are found without it"),
        ('s', "backups of the superblock are found without it"),
        (
            'd',
            "files of e2image are read without it where they are images",
        ),
        (
            'i',
            "files of e2image are read without it where they are images",
        ),
        ('o', "write the image as IMAGE@offset=BYTES"),
    ],
    ..Options::of("wcinDVb:s:d:f:R:z:o:")
};

pub(super) fn answer(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        return called.version();
    }
    taken.refuse(&OPTIONS)?;
    let [image] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    let writes = taken.has('w');
    if writes && let Some(letter) = ['c', 'n'].into_iter().find(|letter| taken.has(*letter)) {
        return Err(refuse(format!("-{letter} cannot be combined with -w")));
    }
    // -c skips the bitmaps, and therefore the journal. -n and -D have no effect: damage is reported and never ends a
    // request.
    images::leave_journals(taken.has('c'));
    let Some(lines) = lines(&taken.options)? else {
        if writes {
            return Err(refuse("-w takes requests by -R, -f or standard input"));
        }
        let mut words: Vec<OsString> = Vec::new();
        words.extend(taken.has('c').then(|| "--noload".into()));
        words.extend(["inspect".into(), image.clone()]);
        return Ok(Answer::Words(words));
    };
    let asked = write::requests(image, &lines)?;
    if asked.is_empty() {
        // A call without requests fails, too, if there is no file system.
        listing::superblock_of(image.as_ref())?;
    }
    called.with_undo(image, taken.value('z').filter(|_| writes), || {
        write::run(called, image, &asked, writes)
    })
}

/// Reads the requests of `-R`, `-f` or standard input; `None` if standard input is a terminal, where a prompt reads
/// them.
fn lines(options: &[(char, OsString)]) -> Result<Option<Vec<Vec<u8>>>, Refusal> {
    let of = |letter: char| options.iter().filter(move |(l, _)| *l == letter);
    // The last -R counts.
    let last = of('R').next_back();
    let mut lines: Vec<Vec<u8>> = last
        .map(|(_, line)| line.as_bytes().to_vec())
        .into_iter()
        .collect();
    let mut add = |text: &[u8]| lines.extend(text.split(|&b| b == b'\n').map(<[u8]>::to_vec));
    for (_, file) in of('f') {
        let text = if file == "-" {
            std::io::stdin().lock().bytes().collect()
        } else {
            std::fs::read(file)
        };
        add(&text.map_err(|error| refuse(format!("{}: {error}", file.display())))?);
    }
    if of('R').chain(of('f')).next().is_none() {
        let mut text = Vec::new();
        let mut input = std::io::stdin().lock();
        if input.is_terminal() {
            return Ok(None);
        }
        let read = input.read_to_end(&mut text);
        read.map_err(|error| refuse(format!("standard input: {error}")))?;
        add(&text);
    }
    Ok(Some(lines))
}

/// Returns the command for a read-only request whose paths begin at `dir`, or `None` for any other request.
pub(super) fn asking(
    image: &OsStr,
    request: &[Vec<u8>],
    dir: &[u8],
) -> Result<Option<Vec<OsString>>, String> {
    if let Some(words) = of_files(image, request, dir)? {
        return Ok(Some(words));
    }
    if !request.first().is_some_and(|name| Request::is_name(name)) {
        return Ok(None);
    }
    let words = words_from(request.to_vec(), dir).map_err(|error| error.to_string())?;
    let words = words.into_iter().map(OsString::from_vec);
    let command = ["inspect".into(), image.to_owned()].into_iter();
    Ok(Some(command.chain(words).collect()))
}

/// Returns the command for a request about the content of files; paths begin at a directory.
fn of_files(
    image: &OsStr,
    request: &[Vec<u8>],
    dir: &[u8],
) -> Result<Option<Vec<OsString>>, String> {
    let words: Vec<&[u8]> = request.iter().map(Vec::as_slice).collect();
    let Some((name, args)) = words.split_first() else {
        return Ok(None);
    };
    let at = |path: &[u8]| {
        let path = path_from(dir, path);
        OsString::from_vec([image.as_bytes(), b":", &path].concat())
    };
    let host = |path: &[u8]| OsString::from_vec(path.to_vec());
    let (options, paths): (Vec<&[u8]>, Vec<&[u8]>) =
        args.iter().partition(|arg| arg.starts_with(b"-"));
    let known: &[&[u8]] = match *name {
        b"cat" | b"rdump" => &[],
        b"dump" | b"dump_inode" => &[b"-p"],
        _ => return Ok(None),
    };
    if let Some(option) = options.iter().find(|option| !known.contains(option)) {
        let (name, option) = (show(name), show(option));
        return Err(format!("{name}: {option}: no such option"));
    }
    Ok(Some(match (*name, &paths[..]) {
        (b"cat", [path]) => vec!["cat".into(), at(path)],
        (b"dump" | b"dump_inode", [path, to]) => {
            let keeps = options.contains(&&b"-p"[..]);
            let mut words: Vec<OsString> = vec!["cp".into()];
            words.extend(keeps.then(|| "-p".into()));
            words.extend([at(path), host(to)]);
            words
        }
        (b"rdump", [from @ .., to]) if !from.is_empty() => {
            let from = from.iter().map(|path| at(path));
            let mut words: Vec<OsString> = vec!["cp".into(), "-a".into()];
            // The destination must be an existing directory.
            let to = OsString::from_vec([*to, b"/."].concat());
            words.extend(from.chain([to]));
            words
        }
        (b"cat" | b"dump" | b"dump_inode" | b"rdump", _) => {
            return Err(format!(
                "{}: wrong number of paths",
                String::from_utf8_lossy(name)
            ));
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_requests_that_ask_begin_at_a_directory() {
        let asked = |line: &str| {
            let words = Request::words_of(line.as_bytes());
            let command = asking("d.img".as_ref(), &words, b"/etc");
            command.map(|words| words.map(|words| words.join(OsStr::new(" "))))
        };
        for (line, command) in [
            ("cat motd", "cat d.img:/etc/motd"),
            ("cat <12>", "cat d.img:<12>"),
            ("dump -p ../a b", "cp -p d.img:/etc/../a b"),
            ("rdump a b to", "cp -a d.img:/etc/a d.img:/etc/b to/."),
            ("xattrs motd", "inspect d.img xattrs /etc/motd"),
            ("logdump", "inspect d.img logdump"),
        ] {
            assert_eq!(asked(line), Ok(Some(command.into())), "{line}");
        }
        assert_eq!(asked("clri <12>"), Ok(None));
        assert_eq!(asked("cat"), Err("cat: wrong number of paths".into()));
        assert_eq!(asked("dump -x a b"), Err("dump: -x: no such option".into()));
    }
}
