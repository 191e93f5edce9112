//! Checks of `extant cp` before it copies anything.

use anyhow::{Context, Result, bail};
use extant::FileType;
use extant_cli_core::address::advice::above;
use extant_cli_core::address::{Location, base_name};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::present_content;
use extant_cli_core::messages::advised::advised;
use extant_transfer::Side;
use std::collections::HashSet;

/// Fails if the directory of a path is missing or not a directory.
pub fn has_place(side: &dyn Side, path: &[u8]) -> Result<()> {
    let parent = above(path);
    if parent.is_empty() {
        return Ok(());
    }
    match side.meta(parent, true) {
        Ok(None) => Err(advised(
            format_args!("{}: no such file or directory", side.show(path)),
            format_args!("{} {} makes its directory", side.mkdir(), side.show(parent)),
        )),
        Ok(Some(meta)) if meta.kind != FileType::Directory => Err(advised(
            format_args!("{}: not a directory", side.show(path)),
            format_args!("{} is none", side.show(parent)),
        )),
        // The copy itself reports other errors.
        _ => Ok(()),
    }
}

/// Returns the address of an image's root, if the location is the image file.
pub fn root_of(location: &Location) -> Option<String> {
    let Location::Host(path) = location else {
        return None;
    };
    let held = path
        .is_file()
        .then(|| present_content::content(path).ok())
        .flatten()??;
    held.contains("ext4").then(|| format!("{}:/", path.shown()))
}

/// Returns the name of a copy in a directory.
pub fn new_name<'p>(src: &dyn Side, from: &'p [u8]) -> Result<&'p [u8]> {
    match base_name(from) {
        b"." if src.show(from).ends_with('>') => {
            bail!("{}: has no name here: say that of the copy", src.show(from))
        }
        name => Ok(name),
    }
}

/// Fails if the destination is inside the copied directory, given by its name and identity.
pub fn not_into_itself(from: &str, id: (u64, u64), (side, to): (&dyn Side, &[u8])) -> Result<()> {
    let there = side.meta(to, true).with_context(|| side.show(to))?;
    let start = match there {
        Some(_) => to,
        // The copy does not exist yet, so check its directory.
        None => above(to),
    };
    let start = if start.is_empty() { b"." } else { start };
    let mut at = match side.directory(start, true) {
        Ok(directory) => directory,
        // An existing file is in the way, which the copy itself reports.
        Err(_) => return Ok(()),
    };
    let mut seen = HashSet::new();
    loop {
        let here = at.meta(b".", true)?.map(|meta| meta.id);
        if here == Some(id) {
            bail!("{from}: cannot be copied into itself, {}", side.show(to));
        }
        // The root is its own parent; a damaged image may contain other loops.
        if !seen.insert(here) {
            return Ok(());
        }
        at = at.directory(b"..", true).with_context(|| side.show(to))?;
    }
}
