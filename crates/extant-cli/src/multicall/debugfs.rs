//! `debugfs`: requests about files and directories by `extant cat`, `cp` and `ls`, structures by `extant inspect`. With `-w` an image
//! is changed by the requests of [`debugfs_write`].

use super::{Answer, Answered, Refusal, version};
use super::{debugfs_write, getopt};
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
    if let [request] = &requests[..]
        && let Some(words) = of_files(image, request).map_err(refuse)?
    {
        return Ok(Answer::Words(words));
    }
    words.push(image.clone());
    for request in requests {
        words.extend(["-R".into(), request]);
    }
    Ok(Answer::Words(words))
}

/// Does the requests of `-R` and `-f`, or of standard input, if they change the image. `None`: they only ask.
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
    let asked = debugfs_write::requests(&lines).map_err(refuse)?;
    match asked {
        Some(asked) => debugfs_write::run(image, &asked, of('f').next().is_some()).map(Some),
        None if asks_here => Err(refuse("-w: no request that changes the image")),
        None => Ok(None),
    }
}

/// The command for a request about the content of files.
fn of_files(image: &OsStr, request: &OsStr) -> Result<Option<Vec<OsString>>, String> {
    let words: Vec<&[u8]> = request
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let Some((name, args)) = words.split_first() else {
        return Ok(None);
    };
    let at = |path: &[u8]| {
        let root: &[u8] = if path.starts_with(b"/") || path.starts_with(b"<") {
            b""
        } else {
            b"/"
        };
        OsString::from_vec([image.as_bytes(), b":", root, path].concat())
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
        (b"ls", []) => vec!["ls".into(), "-la".into(), at(b"/")],
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
        assert!(said(&["-cw", "-R", "rm x", "d.img"]).starts_with("-c goes not"));
        assert_eq!(said(&["d.img"]), "inspect d.img");
    }
}
