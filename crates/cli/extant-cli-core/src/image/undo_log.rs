//! Undo files in the format of e2fsprogs, of all changes that a command makes to an image.

use crate::address::schemes;
use crate::format::show::ShowPath;
use crate::image::{logged_image, store};
use anyhow::{Context, Result};
use blockdev::Access;
use ext4_image::{E2Undo, UndoLog};
use extant_disk::Part;
use extant_terminal::output;
use std::path::Path;
use std::sync::Arc;

/// Fails if the undo file exists. The caller must check before the first write, because a file of another change would pass for the
/// undo file of this one.
fn check_new(file: &Path) -> Result<()> {
    let shown = file.shown();
    match file.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| shown.to_string()),
        Ok(_) => anyhow::bail!("{shown}: the file exists: name a new undo file"),
    }
}

/// Changes an image, and saves the old bytes in a new undo file if one is given. The file is also completed if the change
/// fails, and removed if nothing was written.
pub fn change<R, E: From<anyhow::Error>>(
    image: &Path,
    undo: Option<&Path>,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let Some(undo) = undo else {
        return work();
    };
    check_new(undo)?;
    let name = || undo.shown();
    let log = UndoLog::create(undo).with_context(name);
    let log = Arc::new(log?);
    logged_image::set(Some((image.to_path_buf(), Arc::clone(&log))));
    let done = work();
    logged_image::set(None);
    let is_gone = !schemes::is_remote(image) && !store::file(image).exists();
    let completed = if log.is_empty() || is_gone {
        std::fs::remove_file(undo)
            .with_context(name)
            .map(|()| false)
    } else {
        complete(image, &log).and_then(|()| is_readable(undo))
    };
    match (done, completed) {
        (Ok(done), Ok(_)) => Ok(done),
        (Ok(_), Err(error)) => Err(error.into()),
        (Err(error), completed) => {
            let (image, shown) = (image.shown(), undo.shown());
            match completed {
                Ok(true) => {
                    output::note(format!(
                        "{image}: extant undo {shown} {image} takes back what was written"
                    ));
                }
                Ok(false) => {}
                Err(error) => output::warn(output::one_line(&error)),
            }
            Err(error)
        }
    }
}

/// Returns whether this program can apply a file, and warns if only e2fsprogs can.
fn is_readable(undo: &Path) -> Result<bool> {
    let shown = undo.shown();
    let len = undo.metadata().with_context(|| shown.to_string())?.len();
    let readable = len <= E2Undo::LARGEST_FILE;
    if !readable {
        let text = "larger than 16 GiB, so only e2undo of e2fsprogs can apply it";
        output::warn(format!("{shown}: the undo file is {text}"));
    }
    Ok(readable)
}

fn complete(image: &Path, log: &UndoLog) -> Result<()> {
    let device = store::open(image, Access::ReadOnly)?;
    // Only an offset is a part of the name that e2undo can take from the file.
    let offset = match store::split(image) {
        Some((_, Ok(Part::Bytes { offset, .. }))) => offset,
        _ => 0,
    };
    Ok(log.finish(&device, offset)?)
}
