//! Paths in requests of `extant inspect` and debugfs, which begin at a current directory.

use super::join;
use extant_check::inspect::{InspectError, Request};

/// Returns an absolute path for a path that starts at `dir`; an inode number stays unchanged.
pub fn path_from(dir: &[u8], word: &[u8]) -> Vec<u8> {
    match word.first() {
        Some(b'/' | b'<') => word.to_vec(),
        _ => join(dir, word),
    }
}

/// Returns the words of a request, with relative paths resolved from a directory.
pub fn words_from(mut words: Vec<Vec<u8>>, dir: &[u8]) -> Result<Vec<Vec<u8>>, InspectError> {
    let named = Request::new(words.clone())?;
    if named.takes_inode() {
        let mut paths = words.iter_mut().skip(1);
        match paths.find(|word| !word.starts_with(b"-")) {
            Some(path) => *path = path_from(dir, path),
            // A listing without a directory lists the current one.
            None => words.push(dir.to_vec()),
        }
    }
    Ok(words)
}
