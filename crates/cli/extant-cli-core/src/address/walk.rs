//! Walking a directory tree of an image, in order and with messages of this command.

use crate::address::join;
use anyhow::{Context, Result};
use extant::{Dir, DirEntry, FileType, PathError};
use extant_terminal::output;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An entry found by the walk.
pub struct Met<'a> {
    /// Directory it is in.
    pub parent: &'a Dir,
    /// Its name there.
    pub name: &'a [u8],
    /// Path from the top, for messages.
    pub path: &'a [u8],
    /// Its type.
    pub kind: FileType,
    /// Names between it and the top, itself included.
    pub depth: usize,
}

/// Whether a directory is visited before or after its contents.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The directory comes before its contents.
    Before,
    /// The directory comes after its contents.
    After,
}

/// Returns the names of a directory in order.
pub fn sorted(dir: &Dir, path: impl AsRef<Path>) -> extant::Result<Vec<DirEntry>> {
    let mut names = dir.read_dir(path)?.collect::<extant::Result<Vec<_>>>()?;
    names.sort_by(|a, b| a.file_name().cmp(b.file_name()));
    Ok(names)
}

/// Visits everything below `top`, directories before or after their contents. With [`Order::Before`], `meet` returns
/// whether to enter a directory.
pub fn walk(
    top: &Dir,
    path: &[u8],
    order: Order,
    meet: impl FnMut(&Met<'_>) -> Result<bool>,
) -> Result<()> {
    walk_or(top, path, order, meet, Err)
}

/// Walks like [`walk`], but reports an entry that cannot be read and continues; the walk fails at its end.
pub fn walk_past_errors(
    top: &Dir,
    path: &[u8],
    order: Order,
    meet: impl FnMut(&Met<'_>) -> Result<bool>,
) -> Result<()> {
    let mut failed = false;
    walk_or(top, path, order, meet, |error| {
        if error.downcast_ref::<extant::Error>().is_none() {
            return Err(error);
        }
        output::complain(output::one_line(&error));
        failed = true;
        Ok(())
    })?;
    if failed { Err(output::told()) } else { Ok(()) }
}

fn walk_or(
    top: &Dir,
    path: &[u8],
    order: Order,
    mut meet: impl FnMut(&Met<'_>) -> Result<bool>,
    mut failed: impl FnMut(anyhow::Error) -> Result<()>,
) -> Result<()> {
    let walk = top.walk(".")?.sorted(true);
    let mut walk = walk.contents_first(order == Order::After);
    while let Some(entry) = walk.next() {
        extant_terminal::interrupt::check()?;
        let shown = |below: &Path| {
            // The walk's own top is ".".
            let below = below.strip_prefix(".").unwrap_or(below);
            join(path, below.as_os_str().as_bytes())
        };
        let entry = match entry {
            Err(PathError { path, source, .. }) => {
                let place = crate::format::show::show(&shown(&path));
                failed(anyhow::Error::new(source).context(place))?;
                continue;
            }
            Ok(entry) => entry,
        };
        let path = shown(entry.path());
        let met = Met {
            parent: entry.parent(),
            name: entry.file_name().as_bytes(),
            path: &path,
            kind: entry.file_type(),
            depth: entry.depth(),
        };
        let enters = meet(&met).with_context(|| crate::format::show::show(&path));
        let enters = enters.or_else(|error| failed(error).map(|()| false))?;
        if !enters {
            walk.skip_contents();
        }
    }
    Ok(())
}
