//! `e2undo UNDO IMAGE`: runs `extant undo`, which reads the undo files of Extant and of e2fsprogs.

use super::call::{self, Answer, Answered, Called};
use super::getopt::Options;
use crate::refusal::refuse;
use anyhow::Context;
use blockdev::Access;
use ext4_image::{E2Undo, Error, Undo};
use extant_cli_core::image::in_place::open_untrusted;
use extant_cli_core::image::store;
use std::ffi::OsString;
use std::path::Path;

pub(super) const OPTIONS: Options = Options::of("fhnvo:z:");

pub(super) fn answer(called: &Called) -> Answered {
    let usage = "usage: e2undo [-f] [-h] [-n] [-o offset] [-v] [-z undo_file] undo_file device";
    let taken = &called.taken;
    if taken.has('h')
        && let Some(file) = taken.operands.first()
    {
        return head(file.as_ref());
    }
    let [file, image] = &taken.operands[..] else {
        return Err(refuse(usage));
    };
    let mut image = image.clone();
    // Ignore a file that cannot be read, because `fits` and `extant undo` report it.
    let read = || E2Undo::read(open_untrusted(file.as_ref()).ok()?).ok()?;
    let theirs = if taken.has('v') || taken.value('o').is_none() {
        read()
    } else {
        None
    };
    let offset = match taken.value('o') {
        Some(offset) => Some(offset.to_owned()),
        // The offset of the volume, if it is not zero.
        None => theirs
            .as_ref()
            .map(E2Undo::offset)
            .filter(|offset| *offset > 0)
            .map(|offset| offset.to_string().into()),
    };
    if let Some(offset) = offset {
        image.push("@offset=");
        image.push(offset);
    }
    if taken.has('n') || taken.has('v') {
        fits(file.as_ref(), image.as_ref(), taken.has('f'))?;
    }
    if let Some(theirs) = theirs.filter(|_| taken.has('v')) {
        call::write_beside(theirs.replayed().as_bytes())?;
    }
    if taken.has('n') {
        return Ok(Answer::Done(0));
    }
    let mut words: Vec<OsString> = vec!["undo".into()];
    words.extend(taken.has('f').then(|| "--force".into()));
    words.extend(["--".into(), file.clone(), image.clone()]);
    called.with_undo(&image, taken.value('z'), || Ok(Answer::Words(words)))
}

/// Fails if an undo file does not fit an image.
fn fits(file: &Path, image: &Path, force: bool) -> anyhow::Result<()> {
    let shown = || file.display().to_string();
    let device = store::open(image, Access::ReadOnly)?;
    let undo = open_untrusted(file).map_err(Error::from);
    let undo = undo.and_then(|opened| Undo::of_file(opened, &device, force));
    match undo.with_context(shown)? {
        Some(undo) if !force => undo.check(&device).with_context(shown),
        _ => Ok(()),
    }
}

/// Prints the header of an undo file.
fn head(file: &Path) -> Answered {
    let named = |what: &dyn std::fmt::Display| refuse(format!("{}: {what}", file.display()));
    let theirs = open_untrusted(file).map_err(Error::from);
    let theirs = theirs.and_then(E2Undo::read);
    if let Some(theirs) = theirs.map_err(|error| named(&error))? {
        return call::print(theirs.lines());
    }
    let undo = Undo::read(file).map_err(|error| named(&error))?;
    let undo =
        undo.ok_or_else(|| named(&"the file is unfinished: the image was not written to"))?;
    call::print(format!(
        "nr keys:\t{}\nsuper block:\t1024\nblock size:\t512\nidentity:\t{:#018x}\n",
        undo.len(),
        undo.id()
    ))
}
