//! Paths as bytes.

use crate::side::{Reason, Side};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashSet;

/// Returns whether a terminal obeys a character instead of showing it: a control character, or one that changes the
/// direction of the text around it, so that a name would look like another.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats a path for messages. Control characters and bytes that are not UTF-8 are escaped, so that a name cannot
/// control the terminal.
pub fn show(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_control(c) {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
        }
        for b in chunk.invalid() {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// Joins a path and a name with one slash.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Returns the last component of a path without trailing slashes. The result is empty for a root.
pub fn base_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let start = path[..end]
        .iter()
        .rposition(|&b| b == b'/')
        .map_or(0, |i| i + 1);
    &path[start..end]
}

/// Joins a directory and a name of a damaged or hostile image.
///
/// # Errors
/// Fails if the path would lead out of the directory.
pub fn below(dir: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(Reason::Name(show(name))).with_context(|| show(dir));
    }
    Ok(join(dir, name))
}

/// Normalizes a path of an archive to names and single slashes. Returns `None` for the top directory.
pub(crate) fn relative(path: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(path.len());
    for name in path
        .split(|&b| b == b'/')
        .filter(|n| !n.is_empty() && *n != b".")
    {
        if name == b".." {
            bail!(anyhow::Error::new(Reason::PathLeaves).context(show(path)));
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(name);
    }
    Ok((!out.is_empty()).then_some(out))
}

/// Inode numbers of the directories that a walk of an image has entered. A valid directory has one name. A second name
/// makes a loop, or a tree that grows without end.
#[derive(Default)]
pub struct Entered(HashSet<u64>);

impl Entered {
    /// Records that a directory is entered.
    ///
    /// # Errors
    /// Fails if the directory has been entered before.
    pub fn enter(&mut self, ino: u64) -> Result<()> {
        ensure!(
            self.0.insert(ino),
            "directory loop: this directory (inode {ino}) has another name already; the image is damaged, run e2fsck"
        );
        Ok(())
    }

    /// Like [`enter`](Self::enter), for a directory of a side. Directories of the host may be entered again, because they may
    /// be mounted twice.
    ///
    /// # Errors
    /// Fails if the directory has been entered before, or cannot be read.
    pub fn enter_side(&mut self, dir: &dyn Side) -> Result<()> {
        match dir.meta(b".", true)?.map(|meta| meta.id) {
            Some((0, ino)) => self.enter(ino),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(relative(b"./a//b/").unwrap().unwrap(), b"a/b");
        assert_eq!(relative(b"/etc").unwrap().unwrap(), b"etc");
        assert_eq!(relative(b"./").unwrap(), None);
        assert!(relative(b"a/../../b").is_err());
    }
}
