//! `tune2fs`, `dumpe2fs` and `e2label`: run `extant tune`, or print listings in the layout of dumpe2fs.

use super::call::{Answer, Answered, Called, device, label, print, release};
use super::getopt::{self, Options};
use super::in_use::InUse;
use super::listing::Listed;
use super::listing_groups::Manner;
use super::{changes, listing};
use crate::refusal::refuse;
use extant_terminal::output::one_line;
use std::ffi::{OsStr, OsString};
use std::path::Path;

pub(super) const DUMPE2FS: Options = Options {
    without: &[
        ('i', "an image of e2image -r or -Q is listed without it"),
        ('m', "the lines of -h tell who has a volume under mmp"),
    ],
    ..Options::of("hfVbgmxo:i:")
};

pub(super) const TUNE2FS: Options = Options::of("fjlVc:e:i:m:o:r:s:u:C:E:I:J:L:M:O:T:U:g:z:Q:");

/// Prints the listing of an image.
fn list(image: &OsString, what: Listed, manner: Manner) -> Answered {
    print(listing::lines(image.as_ref(), what, manner)?)
}

pub(super) fn dumpe2fs(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        return called.version();
    }
    taken.refuse(&DUMPE2FS)?;
    let [image] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    let image = &device(image);
    if taken.has('b') {
        // No image has bad blocks, because no list of them is kept.
        return Ok(Answer::Done(0));
    }
    let what = if taken.has('h') {
        Listed::Journal
    } else {
        Listed::Groups
    };
    let manner = Manner {
        hex: taken.has('x'),
        colons: taken.has('g'),
        copy: copy_of(image, &taken.options)?,
    };
    list(image, what, manner)
}

/// Returns the copy of the superblock of `-o superblock=`; `-o blocksize=` is its block size.
fn copy_of(image: &OsString, options: &[(char, OsString)]) -> Result<Option<(u64, u64)>, String> {
    let (mut block, mut size) = (None, None);
    for (_, value) in options.iter().filter(|(letter, _)| *letter == 'o') {
        let said = getopt::text('o', value)?;
        let known = said.split_once('=').and_then(|(key, number)| {
            let number: u64 = number.parse().ok()?;
            Some((key, number))
        });
        match known {
            Some(("superblock", number)) => block = Some(number),
            Some(("blocksize", number)) => size = Some(number),
            _ => return Err(format!("-o {said}: superblock=BLOCK or blocksize=BYTES")),
        }
    }
    match (block, size) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err("-o blocksize= goes with -o superblock=".into()),
        (Some(block), Some(size)) => Ok(Some((block, size))),
        (Some(block), None) => {
            let found = listing::place_of_copy(image.as_ref(), block);
            let found = found.map_err(|error| one_line(&error));
            Ok(Some(found?))
        }
    }
}

pub(super) fn tune2fs(called: &Called) -> Answered {
    let taken = &called.taken;
    let [image] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    let image = &device(image);
    let mut words = vec![OsString::from("tune")];
    let (mut lists, mut features) = (false, Vec::new());
    let mut undo = None;
    for (letter, value) in &taken.options {
        match letter {
            'V' => return called.version(),
            'l' => lists = true,
            // Unsafe changes are refused even with -f.
            'f' => {}
            'j' => words.push("-j".into()),
            'z' => undo = Some(value.as_os_str()),
            'O' => features.push(value.clone()),
            // The number of -r is set after the percentage of -m, and stays.
            'm' if taken.has('r') => drop(percent(value)?),
            's' => match getopt::text('s', value)? {
                "0" => {
                    return Err(refuse(
                        "clearing the sparse superblock flag is not supported",
                    ));
                }
                "1" => features.push("sparse_super".into()),
                // Other numbers are ignored, as in tune2fs.
                _ => {}
            },
            letter => {
                let mut word = OsString::from(format!("-{letter}"));
                match letter {
                    'L' => word.push(label(value)),
                    _ => word.push(value),
                }
                words.push(word);
            }
        }
    }
    if !features.is_empty() {
        words.extend(["-O".into(), features.join(OsStr::new(","))]);
    }
    let asks_nothing = taken.options.iter().all(|(l, _)| matches!(l, 's' | 'f'));
    if words.len() == 1 && !taken.options.is_empty() && asks_nothing {
        return Ok(Answer::Done(0));
    }
    if lists && words.len() == 1 {
        // As tune2fs does, before the image is opened.
        print(release(called.name) + "\n")?;
        return list(image, Listed::Superblock, Manner::default());
    }
    if undo.is_some() && InUse::of(Path::new(image)).is_some() {
        return Err(refuse("-z needs an unmounted volume: unmount it first"));
    }
    if lists {
        print(release(called.name) + "\n")?;
    }
    called.with_undo(image, undo, || match tune(called, words, image)? {
        Answer::Words(words) if lists => match called.code_of(words) {
            0 => list(image, Listed::Superblock, Manner::default()),
            code => Ok(Answer::Done(code)),
        },
        Answer::Done(0) if lists => list(image, Listed::Superblock, Manner::default()),
        answer => Ok(answer),
    })
}

/// Parses the percentage of `-m`.
fn percent(value: &OsStr) -> Result<f64, String> {
    let text = getopt::text('m', value)?;
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.0..=50.0).contains(percent))
        .ok_or_else(|| format!("-m {text}: not a percentage from 0 to 50"))
}

/// Applies changes with the options of `extant tune`, without the image. A journal that needs recovery is replayed
/// first.
fn tune(called: &Called, mut words: Vec<OsString>, image: &OsString) -> Answered {
    words.extend(["--".into(), image.clone()]);
    let path = Path::new(image);
    if let Some(in_use) = InUse::of(path) {
        let options = (called.extant.tune_options)(words)?;
        in_use.tune(options)?;
        return Ok(Answer::Done(0));
    }
    changes::replay(path)?;
    Ok(Answer::Words(words))
}

pub(super) fn e2label(called: &Called) -> Answered {
    match &called.taken.operands[..] {
        [image] => {
            let image = device(image);
            let sb = listing::superblock_of(image.as_ref())?;
            print([sb.label(), b"\n"].concat())
        }
        [image, said] => {
            let image = &device(image);
            let mut word = OsString::from("-L");
            word.push(label(said));
            tune(called, vec!["tune".into(), word], image)
        }
        _ => Err(refuse("write a device or file, and a label to set it")),
    }
}
