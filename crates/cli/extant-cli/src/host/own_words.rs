//! The command line of this process, as if it were given to `extant`: commands that run this program again repeat it.

use std::ffi::OsString;
use std::sync::OnceLock;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Keeps the command line. A second call has no effect.
pub fn keep(words: &[OsString]) {
    WORDS.get_or_init(|| words.to_vec());
}

/// Returns the words after the name of the program.
pub fn after_name() -> impl Iterator<Item = OsString> {
    WORDS.get().into_iter().flatten().skip(1).cloned()
}
