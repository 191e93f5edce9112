//! `fuse2fs IMAGE DIR`: runs `extant mount`.

use super::getopt;
use super::{Answer, Answered, refuse, version};
use std::ffi::OsString;
use std::path::PathBuf;

/// Options without an effect here: defaults, and tuning of fuse2fs itself.
pub(super) const SAY_NOTHING: &[&str] = &[
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
];

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

fn call(taken: &getopt::ParsedOptions) -> Result<Call, String> {
    let mut call = Call::default();
    for (letter, value) in &taken.options {
        match letter {
            // fuse2fs also stays in the foreground for its debug messages.
            'f' | 'd' if call.words.is_empty() => call.words.push("--foreground".into()),
            'o' => {
                let said = getopt::text('o', value)?.split(',');
                for option in said.filter(|option| !SAY_NOTHING.contains(option)) {
                    call.option(option)?;
                }
            }
            _ => {}
        }
    }
    Ok(call)
}

pub(super) fn answer(name: &'static str, args: Vec<OsString>) -> Answered {
    let taken = getopt::take(args, "fdsV", "o")?;
    if taken.options.iter().any(|(letter, _)| *letter == 'V') {
        return version(name);
    }
    let call = call(&taken)?;
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
    Ok(Answer::Words(words))
}

#[cfg(test)]
mod tests {
    use super::super::Refusal;
    use super::*;

    #[test]
    fn options_are_those_of_extant_mount() {
        let said = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            match answer("fuse2fs", words) {
                Ok(Answer::Words(words)) => {
                    let words: Vec<_> = words.iter().map(|w| w.to_str().unwrap()).collect();
                    words.join(" ")
                }
                Ok(Answer::Done(code)) => code.to_string(),
                Err(Refusal(line, _)) => line,
            }
        };
        for (line, words) in [
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
            assert_eq!(said(line), words, "{line}");
        }
        let empty = ["-o", "", "d.img", "m"].map(OsString::from).to_vec();
        assert!(matches!(answer("fuse2fs", empty), Ok(Answer::Words(words)) if words.len() == 3));
    }
}
