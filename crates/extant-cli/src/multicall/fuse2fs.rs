//! `fuse2fs IMAGE DIR`: by `extant mount`.

use super::getopt;
use super::{Answer, Answered, Refusal, version};
use std::ffi::OsString;

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), 1)
}

/// Options that say what is so here in any case, or how fuse2fs itself is to work.
const SAY_NOTHING: &[&str] = &[
    "rw",
    "fakeroot",
    "no_default_opts",
    "acl",
    "user_xattr",
    "minixdf",
    "bsddf",
    "fuse2fs_debug",
    "kernel",
];

pub(super) fn answer(name: &'static str, args: Vec<OsString>) -> Answered {
    let taken = getopt::take(args, "fdsV", "o").map_err(refuse)?;
    let mut words = vec![OsString::from("mount")];
    let mut options: Vec<String> = Vec::new();
    for (letter, value) in &taken.options {
        match letter {
            'V' => return version(name),
            // One thread, or messages for debugging, are fuse2fs' own; it stays for the latter.
            'f' | 'd' => words.push("--foreground".into()),
            'o' => {
                let text = getopt::text('o', value).map_err(refuse)?;
                let said = text.split(',').filter(|o| !SAY_NOTHING.contains(o));
                options.extend(said.map(|o| match o {
                    "norecovery" => "noload".into(),
                    other => other.to_owned(),
                }));
            }
            _ => {}
        }
    }
    words.dedup();
    let [image, dir] = &taken.operands[..] else {
        return Err(refuse("write an image and a directory"));
    };
    if !options.is_empty() {
        words.extend(["-o".into(), options.join(",").into()]);
    }
    words.extend([image.clone(), dir.clone()]);
    Ok(Answer::Words(words))
}
