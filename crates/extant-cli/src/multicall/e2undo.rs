//! `e2undo UNDO IMAGE`: runs `extant undo`. Its undo files are those of this program.

use super::getopt;
use super::{Answer, Answered, Refusal};
use crate::commands::undo;
use ext4_image::Undo;
use extant_terminal::output::one_line;
use std::ffi::OsString;
use std::path::Path;

/// Options without an equivalent here, and the reason.
pub(super) const WITHOUT: &[(char, &str)] = &[(
    'z',
    "what the undo file holds is written back as it is: make a copy of the image before",
)];

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), 1)
}

pub(super) fn answer(_: &'static str, args: Vec<OsString>) -> Answered {
    let usage = "usage: e2undo [-f] [-h] [-n] [-o offset] [-v] undo_file device";
    let taken = getopt::take(args, "fhnv", "oz").map_err(refuse)?;
    let has = |wanted: char| taken.options.iter().any(|(letter, _)| *letter == wanted);
    if let Some((letter, why)) = WITHOUT.iter().find(|(letter, _)| has(*letter)) {
        return Err(refuse(format!("-{letter} is not supported: {why}")));
    }
    if has('h')
        && let Some(file) = taken.operands.first()
    {
        return head(file.as_ref());
    }
    let [file, image] = &taken.operands[..] else {
        return Err(refuse(usage));
    };
    let mut image = image.clone();
    if let Some((_, offset)) = taken.options.iter().find(|(letter, _)| *letter == 'o') {
        image.push("@offset=");
        image.push(offset);
    }
    if has('n') {
        let fits = undo::fits(file.as_ref(), image.as_ref());
        fits.map_err(|error| refuse(one_line(&error)))?;
        return Ok(Answer::Done(0));
    }
    let mut words: Vec<OsString> = vec!["undo".into()];
    words.extend(has('f').then(|| "--force".into()));
    words.extend(["--".into(), file.clone(), image]);
    Ok(Answer::Words(words))
}

/// Prints the header of an undo file.
fn head(file: &Path) -> Answered {
    let named = |what: &dyn std::fmt::Display| refuse(format!("{}: {what}", file.display()));
    let undo = Undo::read(file).map_err(|error| named(&error))?;
    let undo = undo.ok_or_else(|| named(&"it is unfinished: the image was not written to"))?;
    println!(
        "nr keys:\t{}\nsuper block:\t1024\nblock size:\t512\nidentity:\t{:#018x}",
        undo.len(),
        undo.id()
    );
    Ok(Answer::Done(0))
}
