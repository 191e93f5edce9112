//! `tune2fs`, `dumpe2fs` and `e2label`: run `extant tune`, or print listings in the layout of dumpe2fs.

use super::call::{Answer, Answered, Called, device, label, print, release};
use super::getopt::{self, Options, ParsedOptions};
use super::in_use::InUse;
use super::listing::Listed;
use super::listing_groups::Manner;
use super::mke2fs_options::is_on;
use super::{changes, listing};
use crate::refusal::{Refusal, refuse};
use ext4_format::features::Features;
use extant_terminal::output::one_line;
use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

pub(super) const DUMPE2FS: Options = Options {
    without: &[
        ('i', "an image of e2image -r or -Q is listed without it"),
        (
            'm',
            "the lines of -h show which host has claimed a volume with mmp",
        ),
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
        let known = said
            .split_once('=')
            .and_then(|(key, number)| Some((key, getopt::number(number)?)));
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

/// Changes that a call of tune2fs asks for.
#[derive(Default)]
struct Changes {
    /// Words of `extant tune`.
    words: Vec<OsString>,
    features: Option<String>,
    /// Whether `-s 1` asks for the feature `sparse_super`.
    is_sparse: bool,
    /// All lists of `-J`, joined.
    journal: String,
    /// Whether there is an option that asks for nothing, such as an empty list.
    asks_nothing: bool,
    is_forced: bool,
    undo: Option<OsString>,
}

impl Changes {
    fn of(taken: &ParsedOptions) -> Result<Self, Refusal> {
        let mut changes = Self {
            words: vec!["tune".into()],
            ..Self::default()
        };
        for letter in ['O', 'o'] {
            let given = taken.options.iter().filter(|(given, _)| *given == letter);
            if given.count() > 1 {
                return Err(refuse(format!("-{letter} may be given only once")));
            }
        }
        for (letter, value) in &taken.options {
            changes.option(*letter, value, taken)?;
        }
        if changes.is_sparse {
            let features = changes.features.get_or_insert_default();
            features.push_str(",sparse_super");
        }
        if let Some(features) = &changes.features {
            let list = OsString::from(features.trim_matches(','));
            changes.words.extend(["-O".into(), list]);
        }
        let ends_claim =
            |(letter, value): &(char, OsString)| *letter == 'E' && value == "clear_mmp";
        if !changes.is_forced && taken.options.iter().any(ends_claim) {
            return Err(refuse("-E clear_mmp goes with -f"));
        }
        Ok(changes)
    }

    fn option(
        &mut self,
        letter: char,
        value: &OsStr,
        taken: &ParsedOptions,
    ) -> Result<(), Refusal> {
        match letter {
            'l' | 'V' => {}
            // Unsafe changes are refused even with -f.
            'f' => self.is_forced = true,
            'j' => {
                self.words.retain(|word| word != "-j");
                self.words.push("-j".into());
            }
            'z' => self.undo = Some(value.to_owned()),
            'O' | 'E' | 'o' | 'Q' | 'J' if value.is_empty() => {
                self.asks_nothing = true;
                // Only the last list of -E counts.
                if letter == 'E' {
                    getopt::remove_word(&mut self.words, 'E');
                }
            }
            'O' => self.features = Some(feature_list(getopt::text('O', value)?)?),
            // The number of -r is set after the percentage of -m, and stays. Unlike `extant tune`, tune2fs refuses a sign of percent.
            'm' => {
                percent(value)?;
                if !taken.has('r') {
                    getopt::set_word(&mut self.words, 'm', value);
                }
            }
            's' => match getopt::leading_number(getopt::text('s', value)?) {
                0 => {
                    return Err(refuse(
                        "clearing the sparse superblock flag is not supported",
                    ));
                }
                1 => self.is_sparse = true,
                // Other numbers are ignored, as in tune2fs.
                _ => self.asks_nothing = true,
            },
            'L' => getopt::set_word(&mut self.words, 'L', &label(value)),
            'M' => getopt::set_word(&mut self.words, 'M', value),
            'c' | 'C' => {
                let count = mounts(letter, getopt::text(letter, value)?)?;
                getopt::set_word(&mut self.words, letter, count.as_ref());
            }
            _ if value.is_empty() => return Err(refuse(format!("-{letter}: an empty value"))),
            'Q' => getopt::join_word(&mut self.words, 'Q', value),
            'J' => {
                let list = getopt::text('J', value)?;
                self.journal = format!("{},{list}", self.journal);
                self.asks_nothing = true;
            }
            letter => getopt::set_word(&mut self.words, letter, value),
        }
        Ok(())
    }
}

impl Changes {
    /// Adds the journal of `-J`, if there is one to make. Sizes of zero and, without fast commits, the size of their area
    /// ask for nothing. Returns whether the call asks for a journal.
    fn journal(&mut self, has: Features) -> bool {
        let list = self.features.as_deref().unwrap_or_default();
        let has_fast_commit = has.has_fast_commit() || is_on(list, "fast_commit");
        let asks = |option: &&str| match option.split_once('=') {
            Some(("fast_commit_size", size)) => has_fast_commit || getopt::number(size).is_none(),
            _ => !option.is_empty(),
        };
        let mut options: Vec<_> = self.journal.split(',').filter(asks).collect();
        let is_size = |option: &&str| option.starts_with("size=");
        let last = options.iter().copied().rfind(is_size);
        if matches!(last, Some("size=" | "size=0")) {
            options.retain(|option| !is_size(option));
        }
        if !options.is_empty() {
            // The words of -O stay last.
            self.words
                .insert(1, format!("-J={}", options.join(",")).into());
        }
        !options.is_empty() || self.words.iter().any(|word| word == "-j")
    }
}

/// Checks a list of features: clearing a feature that is never cleared fails even where the feature is not set.
fn feature_list(list: &str) -> Result<String, Refusal> {
    let names: Vec<String> = list.split(',').map(getopt::feature).collect();
    for name in &names {
        let cleared = name.strip_prefix('^').unwrap_or_default();
        let mut features = Features::default();
        let is_known = features.apply(cleared).is_ok();
        let rest = features.names();
        let clearable = extant_tune::CLEARABLE.names();
        let is_cleared = |name: &String| clearable.contains(name) || name == "64bit";
        if name.is_empty() || is_known && !rest.iter().all(is_cleared) {
            return Err(refuse(format!("-O {list}: '{name}' is not supported")));
        }
    }
    Ok(names.join(","))
}

/// Parses a number of mounts of `-c` or `-C`. An empty text stands for 0, and `random` for a number from 20 to 39.
fn mounts(letter: char, text: &str) -> Result<String, Refusal> {
    const MOST: i128 = 16_000;
    if letter == 'c' && text == "random" {
        let random = RandomState::new().build_hasher().finish();
        return Ok((20 + random % 20).to_string());
    }
    let count = if text.is_empty() {
        Some(0)
    } else {
        getopt::signed(text)
    };
    // -C keeps the low 16 bits of every negative number.
    let count = count.filter(|&count| count <= MOST && (letter == 'C' || count >= -MOST));
    let bad = || {
        refuse(format!(
            "-{letter} {text}: not a number of mounts up to {MOST}"
        ))
    };
    let count = count.ok_or_else(bad)?;
    Ok(if letter == 'C' {
        (count & i128::from(u16::MAX)).to_string()
    } else {
        count.to_string()
    })
}

/// Fails for changes that the volume has already, and drops those that resize2fs makes.
fn compared(changes: &mut Changes, taken: &ParsedOptions, image: &OsString) -> Result<(), Refusal> {
    let Ok(sb) = listing::superblock_of(image.as_ref()) else {
        // The next step reports why.
        return Ok(());
    };
    let has = Features::of(&sb);
    let list = changes.features.as_deref().unwrap_or_default();
    // The journal is replaced by one of another size.
    let replaces =
        changes.journal.contains("size=") && list.split(',').any(|name| name == "^has_journal");
    if changes.journal(has) && has.has_journal() && !replaces {
        return Err(refuse("the filesystem already has a journal"));
    }
    let mut given = taken.options.iter();
    let size = given.rfind(|(letter, _)| *letter == 'I');
    let size = size.and_then(|(_, size)| size.to_str());
    if let Some(size) = size.filter(|text| getopt::number(text) == Some(sb.inode_size.get().into()))
    {
        return Err(refuse(format!("the inode size is already {size}")));
    }
    let wanted = if has.has_64bit() { "^64bit" } else { "64bit" };
    let list = changes.features.as_deref().unwrap_or_default();
    if list.split(',').any(|name| name == wanted) {
        let (letter, does) = if has.has_64bit() {
            ('s', "disable")
        } else {
            ('b', "enable")
        };
        let name = image.display();
        print(format!(
            "Please run `resize2fs -{letter} {name}' to {does} 64-bit mode.\n\n"
        ))?;
        let others: Vec<_> = list.split(',').filter(|name| *name != wanted).collect();
        changes.words.truncate(changes.words.len() - 2);
        if others.is_empty() {
            changes.asks_nothing = true;
        } else {
            changes.words.extend(["-O".into(), others.join(",").into()]);
        }
    }
    Ok(())
}

pub(super) fn tune2fs(called: &Called) -> Answered {
    let taken = &called.taken;
    if taken.has('V') {
        return called.version();
    }
    let mut changes = Changes::of(taken)?;
    let [image] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    let image = &device(image);
    compared(&mut changes, taken, image)?;
    let lists = taken.has('l');
    let has_words = changes.words.len() > 1;
    if !has_words && !lists {
        return if changes.asks_nothing {
            // A call without changes fails, too, if there is no file system.
            listing::superblock_of(image.as_ref())?;
            Ok(Answer::Done(0))
        } else {
            Err(refuse("nothing to change"))
        };
    }
    if !has_words {
        // As tune2fs does, before the image is opened.
        print(release(called.name) + "\n")?;
        return list(image, Listed::Superblock, Manner::default());
    }
    let undo = changes.undo.as_deref();
    if undo.is_some() && InUse::of(Path::new(image)).is_some() {
        return Err(refuse("-z needs an unmounted volume: unmount it first"));
    }
    if lists {
        print(release(called.name) + "\n")?;
    }
    called.with_undo(image, undo, || match tune(called, changes.words, image)? {
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
            let mut words = vec!["tune".into()];
            getopt::set_word(&mut words, 'L', &label(said));
            words.extend(["--".into(), image.clone()]);
            let options = (called.extant.tune_options)(words)?;
            let path = Path::new(image);
            if let Some(in_use) = InUse::of(path) {
                in_use.tune(options)?;
            } else {
                changes::replay(path)?;
                changes::tune(path, options)?;
            }
            // e2label prints nothing, unlike tune2fs.
            Ok(Answer::Done(0))
        }
        _ => Err(refuse("write a device or file, and a label to set it")),
    }
}
