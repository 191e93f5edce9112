//! `e2undo UNDO IMAGE`: runs `extant undo`, which reads the undo files of Extant and of e2fsprogs.

use super::getopt;
use super::{Answer, Answered, refuse};
use crate::commands::undo;
use ext4_image::{E2Undo, Undo};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;

pub(super) fn answer(_: &'static str, args: Vec<OsString>) -> Answered {
    let usage = "usage: e2undo [-f] [-h] [-n] [-o offset] [-v] [-z undo_file] undo_file device";
    let taken = getopt::take(args, "fhnv", "oz")?;
    if taken.has('h')
        && let Some(file) = taken.operands.first()
    {
        return head(file.as_ref());
    }
    let [file, image] = &taken.operands[..] else {
        return Err(refuse(usage));
    };
    let mut image = image.clone();
    let offset = match taken.value('o') {
        Some(offset) => Some(offset.to_owned()),
        None => offset_of(file.as_ref()).map(|offset| offset.to_string().into()),
    };
    if let Some(offset) = offset {
        image.push("@offset=");
        image.push(offset);
    }
    if taken.has('n') {
        let fits = undo::fits(file.as_ref(), image.as_ref());
        fits?;
        return Ok(Answer::Done(0));
    }
    let mut words: Vec<OsString> = vec!["undo".into()];
    words.extend(taken.has('f').then(|| "--force".into()));
    words.extend(["--".into(), file.clone(), image.clone()]);
    super::with_undo(&image, taken.value('z'), || Ok(Answer::Words(words)))
}

/// Returns the offset of the volume according to an undo file of e2fsprogs, if the offset is not zero.
fn offset_of(file: &Path) -> Option<u64> {
    // Ignore a file that cannot be read, because `extant undo` reports it.
    let theirs = E2Undo::read(File::open(file).ok()?).ok()??;
    Some(theirs.offset()).filter(|offset| *offset > 0)
}

/// Prints the header of an undo file.
fn head(file: &Path) -> Answered {
    let named = |what: &dyn std::fmt::Display| refuse(format!("{}: {what}", file.display()));
    let theirs = File::open(file).map_err(ext4_image::Error::from);
    let theirs = theirs.and_then(E2Undo::read);
    if let Some(theirs) = theirs.map_err(|error| named(&error))? {
        print!("{}", theirs.lines());
        return Ok(Answer::Done(0));
    }
    let undo = Undo::read(file).map_err(|error| named(&error))?;
    let undo =
        undo.ok_or_else(|| named(&"the file is unfinished: the image was not written to"))?;
    println!(
        "nr keys:\t{}\nsuper block:\t1024\nblock size:\t512\nidentity:\t{:#018x}",
        undo.len(),
        undo.id()
    );
    Ok(Answer::Done(0))
}
