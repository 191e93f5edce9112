//! `fuse2fs IMAGE DIR`: runs `extant mount`.

use super::call::{Answer, Answered, Called};
use super::getopt::{self, Options, ParsedOptions};
use crate::refusal::{Refusal, refuse};
use std::ffi::OsString;
use std::path::PathBuf;

pub(super) const OPTIONS: Options = Options {
    ignored: &[
        "",
        "rw",
        "fakeroot",
        "no_default_opts",
        "acl",
        "user_xattr",
        "minixdf",
        "bsddf",
        "fuse2fs_debug",
        "kernel",
        "direct",
        "noblkdev",
    ],
    ..Options::of("fdsVo:")
};

/// Parsed options.
#[derive(Debug, Default, PartialEq)]
struct Call {
    words: Vec<OsString>,
    /// Options of `extant mount`.
    options: Vec<String>,
    /// Offset of the volume in bytes.
    offset: Option<u64>,
    lock_file: Option<PathBuf>,
}

impl Call {
    fn option(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let bytes = || {
            let bytes = extant_terminal::numbers::size(value);
            bytes.map_err(|_| format!("-o {option}: not a number of bytes"))
        };
        match key {
            "offset" => self.offset = Some(bytes()?).filter(|bytes| *bytes > 0),
            "cache_size" => self.options.push(format!("cache={}", bytes()?)),
            "lockfile" => {
                let file = std::path::absolute(value);
                self.lock_file = Some(file.map_err(|e| format!("-o {option}: {e}"))?);
            }
            "norecovery" => self.options.push("noload".into()),
            _ => self.options.push(option.to_owned()),
        }
        Ok(())
    }
}

fn call(taken: &ParsedOptions) -> Result<Call, String> {
    let mut call = Call::default();
    for (letter, value) in &taken.options {
        match letter {
            // fuse2fs also stays in the foreground for its debug messages.
            'f' | 'd' if call.words.is_empty() => call.words.push("--foreground".into()),
            'o' => {
                let said = getopt::text('o', value)?.split(',');
                for option in said.filter(|option| !OPTIONS.ignored.contains(option)) {
                    call.option(option)?;
                }
            }
            _ => {}
        }
    }
    Ok(call)
}

pub(super) fn answer(called: &Called) -> Answered {
    if called.taken.has('V') {
        return called.version();
    }
    Ok(Answer::Words(words(&called.taken)?))
}

/// Returns the command line of `extant`.
fn words(taken: &ParsedOptions) -> Result<Vec<OsString>, Refusal> {
    let call = call(taken)?;
    let [image, dir] = &taken.operands[..] else {
        return Err(refuse("write an image and a directory"));
    };
    let mut words = vec![OsString::from("mount")];
    words.extend(call.words);
    if !call.options.is_empty() {
        words.extend(["-o".into(), call.options.join(",").into()]);
    }
    if let Some(file) = call.lock_file {
        words.extend(["--lock-file".into(), file.into()]);
    }
    let mut image = image.clone();
    if let Some(offset) = call.offset {
        image.push(format!("@offset={offset}"));
    }
    words.extend([image, dir.clone()]);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn options_are_those_of_extant_mount() {
        let said = |line: &str| {
            let taken = OPTIONS.parse(line.split(' ').map(OsString::from));
            match words(&taken.unwrap()) {
                Ok(words) => words.join(OsStr::new(" ")).into_string().unwrap(),
                Err(Refusal(line, _)) => line,
            }
        };
        for (line, wanted) in [
            ("-o ro d.img m", "mount -o ro d.img m"),
            (
                "-fd d.img m -o fakeroot,norecovery",
                "mount --foreground -o noload d.img m",
            ),
            (
                "-o offset=1m,cache_size=32M d.img m",
                "mount -o cache=33554432 d.img@offset=1048576 m",
            ),
            (
                "-o lockfile=/run/x d.img m",
                "mount --lock-file /run/x d.img m",
            ),
            ("-o offset=x d.img m", "-o offset=x: not a number of bytes"),
            ("d.img", "write an image and a directory"),
        ] {
            assert_eq!(said(line), wanted, "{line}");
        }
        let empty = OPTIONS.parse(["-o", "", "d.img", "m"].map(OsString::from));
        assert!(matches!(words(&empty.unwrap()), Ok(words) if words.len() == 3));
    }
}
