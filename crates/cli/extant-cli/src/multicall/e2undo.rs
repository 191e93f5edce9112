//! `e2undo UNDO IMAGE`: runs `extant undo`, which reads the undo files of Extant and of e2fsprogs. The option `-z` of
//! `e2fsck`, `tune2fs` and `resize2fs` writes files that e2undo of e2fsprogs reads.

use super::getopt;
use super::{Answer, Answered, refuse};
use crate::commands::undo;
use anyhow::Context as _;
use ext4_image::{E2Undo, Undo};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Options without an equivalent here, and the reason.
pub(super) const WITHOUT: &[(char, &str)] = &[(
    'z',
    "what the undo file holds is written back as it is: make a copy of the image before",
)];

pub(super) fn answer(_: &'static str, args: Vec<OsString>) -> Answered {
    let usage = "usage: e2undo [-f] [-h] [-n] [-o offset] [-v] undo_file device";
    let taken = getopt::take(args, "fhnv", "oz")?;
    taken.refuse(WITHOUT)?;
    if taken.has('h')
        && let Some(file) = taken.operands.first()
    {
        return head(file.as_ref());
    }
    let [file, image] = &taken.operands[..] else {
        return Err(refuse(usage));
    };
    let mut image = image.clone();
    let given = taken.options.iter().find(|(letter, _)| *letter == 'o');
    let offset = match given {
        Some((_, offset)) => Some(offset.clone()),
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
    words.extend(["--".into(), file.clone(), image]);
    Ok(Answer::Words(words))
}

/// Returns the offset of the volume according to an undo file of e2fsprogs, if the offset is not zero.
fn offset_of(file: &Path) -> Option<u64> {
    // Ignore a file that cannot be read, because `extant undo` reports it.
    let theirs = E2Undo::read(File::open(file).ok()?).ok()??;
    Some(theirs.offset()).filter(|offset| *offset > 0)
}

/// Fails if the undo file of `-z` exists. The caller must check before the first write, because a file of another change
/// would pass for the undo file of this one.
pub(super) fn check_new(file: &OsStr) -> Result<(), String> {
    let shown = Path::new(file).display();
    match Path::new(file).symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{shown}: {error}")),
        Ok(_) => Err(format!("{shown}: the file exists: name a new undo file")),
    }
}

/// Converts an undo file of Extant to the format of e2fsprogs. If nothing was changed, the file does not exist.
///
/// # Errors
/// The image is not in the state after the change of the undo file. Then the file keeps its format.
pub(super) fn convert(file: &OsStr, image: &OsStr) -> anyhow::Result<()> {
    let path = Path::new(file);
    let shown = || path.display().to_string();
    if !path.exists() {
        return Ok(());
    }
    let Some(undo) = Undo::read(path).with_context(shown)? else {
        return Ok(());
    };
    let device = crate::commands::inspect::open(image.as_ref())?;
    // The converted file applies to the present superblock, so the image must contain this change and no other one.
    undo.check(&device).with_context(shown)?;
    if let Some(mark) = ext4_image::mark(&device).with_context(shown)? {
        anyhow::bail!("{}: the change was interrupted ({mark})", shown());
    }
    let bytes = undo.to_e2undo(&device)?;
    let write = || -> std::io::Result<()> {
        let mut new = tempfile::Builder::new()
            .prefix(".extant-")
            .tempfile_in(extant_disk::directory(path))?;
        new.write_all(&bytes)?;
        new.as_file().sync_all()?;
        new.persist(path)?;
        Ok(())
    };
    write().with_context(shown)
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

#[cfg(test)]
mod tests {
    use super::*;
    use extant_terminal::output::one_line;

    #[test]
    fn only_the_undo_file_of_the_present_state_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (image, undo) = (path("i.img"), path("undo"));
        let mut bytes = vec![1; 16384];
        let device = blockdev::MemDevice::from_bytes(&bytes);
        let change = [(4096, vec![2; 1024])].into();
        Undo::before(&device, &change)
            .unwrap()
            .write(&undo)
            .unwrap();
        let written = std::fs::read(&undo).unwrap();
        bytes[4096..5120].fill(2);
        // A later change wrote to the second sector.
        bytes[4608] = 3;
        std::fs::write(&image, &bytes).unwrap();
        let error = convert(undo.as_os_str(), image.as_os_str()).unwrap_err();
        assert!(one_line(&error).contains("changed since"), "{error:#}");
        assert_eq!(std::fs::read(&undo).unwrap(), written);
        bytes[4608] = 2;
        std::fs::write(&image, &bytes).unwrap();
        convert(undo.as_os_str(), image.as_os_str()).unwrap();
        let file = File::open(&undo).unwrap();
        assert!(E2Undo::read(file).unwrap().is_some());
        assert!(check_new(undo.as_os_str()).is_err());
    }
}
