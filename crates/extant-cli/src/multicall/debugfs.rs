//! `debugfs`: requests about files and directories by `extant cat`, `cp` and `ls`, structures by `extant inspect`. With `-w` the
//! requests of [`debugfs_write`] change an image, and those that ask are between them.

use super::{Answer, Answered, Refusal, version};
use super::{debugfs_write, getopt};
use crate::commands::inspect;
use extant_check::inspect::Request;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const REFUSED: u8 = 1;

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), REFUSED)
}

pub(super) fn answer(name: &'static str, args: Vec<OsString>) -> Answered {
    let taken = getopt::take(args, "wcinDV", "bsdfRzo").map_err(refuse)?;
    let mut words = vec![OsString::from("inspect")];
    let (mut requests, mut writes) = (Vec::new(), false);
    let given = taken.options.clone();
    for (letter, value) in taken.options {
        match letter {
            'V' => return version(name),
            'R' => requests.push(value),
            'f' => words.extend(["--file".into(), value]),
            // Damage is told and ends no answer, whatever its checksum.
            'n' | 'D' => {}
            // Without the bitmaps, and so without the journal.
            'c' => words.insert(0, "--noload".into()),
            'w' => writes = true,
            other => return Err(refuse(format!("-{other} is not supported"))),
        }
    }
    let [image] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    if writes && let Some(done) = changed(image, &given)? {
        return Ok(done);
    }
    if let [request] = &requests[..] {
        let request = Request::words_of(request.as_bytes());
        if let Some(words) = of_files(image, &request, b"/").map_err(refuse)? {
            return Ok(Answer::Words(words));
        }
    }
    words.push(image.clone());
    for request in requests {
        words.extend(["-R".into(), request]);
    }
    Ok(Answer::Words(words))
}

/// Does the requests of `-R` and `-f`, or of standard input. `None`: those of `-R` and `-f` only ask, as without `-w`.
fn changed(image: &OsStr, options: &[(char, OsString)]) -> Result<Option<Answer>, Refusal> {
    let of = |letter: char| options.iter().filter(move |(l, _)| *l == letter);
    if let Some((letter, _)) = of('c').chain(of('n')).next() {
        return Err(refuse(format!("-{letter} goes not with -w")));
    }
    let mut lines: Vec<Vec<u8>> = of('R').map(|(_, line)| line.as_bytes().to_vec()).collect();
    let mut add = |text: &[u8]| lines.extend(text.split(|&b| b == b'\n').map(<[u8]>::to_vec));
    for (_, file) in of('f') {
        let text = std::fs::read(file);
        add(&text.map_err(|error| refuse(format!("{}: {error}", file.display())))?);
    }
    let asks_here = of('R').chain(of('f')).next().is_none();
    if asks_here {
        let mut text = Vec::new();
        let mut input = std::io::stdin().lock();
        if input.is_terminal() {
            return Err(refuse("-w takes requests by -R, -f or standard input"));
        }
        let read = input.read_to_end(&mut text);
        read.map_err(|error| refuse(format!("standard input: {error}")))?;
        add(&text);
    }
    let asked = debugfs_write::requests(image, &lines).map_err(refuse)?;
    if !asks_here && asked.iter().all(debugfs_write::Asked::only_asks) {
        return Ok(None);
    }
    debugfs_write::run(image, &asked, of('f').next().is_some()).map(Some)
}

/// The command for a request that leaves the image as it is, and whose paths begin at a directory. `None`: there is no such request.
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
    let words = inspect::words_from(request.to_vec(), dir).map_err(|error| error.to_string())?;
    let words = words.into_iter().map(OsString::from_vec);
    let command = ["inspect".into(), image.to_owned()].into_iter();
    Ok(Some(command.chain(words).collect()))
}

/// The command for a request about the content of files; paths begin at a directory.
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
        let path = inspect::path_from(dir, path);
        OsString::from_vec([image.as_bytes(), b":", &path].concat())
    };
    let host = |path: &[u8]| OsString::from_vec(path.to_vec());
    let (options, paths): (Vec<&[u8]>, Vec<&[u8]>) =
        args.iter().partition(|arg| arg.starts_with(b"-"));
    Ok(Some(match (*name, &paths[..]) {
        (b"cat", [path]) => vec!["cat".into(), at(path)],
        (b"dump", [path, to]) => {
            let keeps = options.contains(&&b"-p"[..]);
            let mut words: Vec<OsString> = vec!["cp".into()];
            words.extend(keeps.then(|| "-a".into()));
            words.extend([at(path), host(to)]);
            words
        }
        (b"rdump", [from @ .., to]) if !from.is_empty() => {
            let from = from.iter().map(|path| at(path));
            let mut words: Vec<OsString> = vec!["cp".into(), "-a".into()];
            words.extend(from.chain([host(to)]));
            words
        }
        (b"ls", []) => vec!["ls".into(), "-la".into(), at(dir)],
        (b"ls", [path]) => vec!["ls".into(), "-la".into(), at(path)],
        (b"cat" | b"dump" | b"rdump" | b"ls", _) => {
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

    fn said(args: &[&str]) -> String {
        match answer("debugfs", args.iter().map(OsString::from).collect()) {
            Ok(Answer::Words(words)) => {
                let words: Vec<_> = words.iter().map(|w| w.to_str().unwrap()).collect();
                words.join(" ")
            }
            Ok(Answer::Done(code)) => code.to_string(),
            Err(Refusal(line, _)) => line,
        }
    }

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
            ("ls -l", "ls -la d.img:/etc"),
            ("dump -p ../a b", "cp -a d.img:/etc/../a b"),
            ("stat motd", "inspect d.img stat /etc/motd"),
            ("ex /motd", "inspect d.img ex /motd"),
            ("bmap motd 0", "inspect d.img bmap /etc/motd 0"),
            ("icheck 12", "inspect d.img icheck 12"),
        ] {
            assert_eq!(asked(line), Ok(Some(command.into())), "{line}");
        }
        assert_eq!(asked("clri <12>"), Ok(None));
        assert_eq!(asked("stat"), Err("usage: stat INODE".into()));
    }

    #[test]
    fn requests_are_commands() {
        assert_eq!(
            said(&["-R", "cat /etc/motd", "d.img"]),
            "cat d.img:/etc/motd"
        );
        assert_eq!(
            said(&["-R", "dump -p etc/motd out", "d.img"]),
            "cp -a d.img:/etc/motd out"
        );
        assert_eq!(
            said(&["-R", "rdump /a /b to", "d.img"]),
            "cp -a d.img:/a d.img:/b to"
        );
        assert_eq!(
            said(&["-R", "stat <12>", "d.img"]),
            "inspect d.img -R stat <12>"
        );
        assert_eq!(
            said(&["-c", "-R", "stats", "d.img"]),
            "--noload inspect d.img -R stats"
        );
        assert_eq!(said(&["-R", "cat", "d.img"]), "cat: wrong number of paths");
        assert_eq!(
            said(&["-w", "-R", "stat <12>", "d.img"]),
            "inspect d.img -R stat <12>"
        );
        assert_eq!(said(&["-R", "cat \"a b\"", "d.img"]), "cat d.img:/a b");
        assert!(said(&["-cw", "-R", "rm x", "d.img"]).starts_with("-c goes not"));
        assert_eq!(said(&["d.img"]), "inspect d.img");
    }
}
