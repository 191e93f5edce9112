//! Names in directories that fold case.
//!
//! Two names of such a directory are the same if their folded forms are: case folded and canonically decomposed by
//! the tables of Unicode 12.1, without code points that are ignored by default. The index is ordered by the hash of
//! the folded form. The names themselves keep their spelling. A name that is not UTF-8 has no folded form and stands
//! for itself.
//!
//! Code points that Unicode 12.1 does not assign have neither case nor parts: each stands for itself, also if a later
//! version assigned it. The tables come from crates that know later versions. Unicode guarantees that these versions
//! do not change earlier code points, so only later code points must not reach the tables.

mod assigned;

use crate::features::Features;
use crate::inode::flags;
use crate::superblock::RawSuperblock;
use assigned::is_assigned;
use caseless::Caseless;
use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;

/// The encoding of names that a superblock can state: UTF-8, with the tables of Unicode 12.1.
pub const UTF8_12_1: u16 = 1;

/// In the superblock's flags of the encoding: names that are not UTF-8 are refused in directories that fold case.
pub const STRICT: u16 = 1;

/// How names of a directory are compared and hashed.
///
/// ```
/// use ext4_format::fold::Comparison;
/// assert!(Comparison::Folded.same(b"Makefile", b"MAKEFILE"));
/// assert!(!Comparison::Exact.same(b"Makefile", b"MAKEFILE"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Byte by byte.
    #[default]
    Exact,
    /// By their folded forms; names that cannot be folded byte by byte.
    Folded,
    /// By their folded forms; a name that cannot be folded is invalid.
    Strict,
}

impl Comparison {
    /// Returns the comparison in directories of the volume that fold case.
    pub fn of(sb: &RawSuperblock) -> Self {
        match sb.encoding_flags.get() & STRICT {
            _ if !Features::of(sb).has_casefold() => Self::Exact,
            0 => Self::Folded,
            _ => Self::Strict,
        }
    }

    /// Returns the comparison in a directory with these flags; `self` is the comparison of directories that fold
    /// case. Encrypted names are compared byte by byte, because their plain text is not known without the key.
    #[inline]
    pub const fn within(self, directory: u32) -> Self {
        match directory & (flags::CASEFOLD | flags::ENCRYPT) {
            flags::CASEFOLD => self,
            _ => Self::Exact,
        }
    }

    /// Returns whether names are compared by folded forms.
    pub const fn folds(self) -> bool {
        !matches!(self, Self::Exact)
    }

    /// Returns the form of a name for comparing and hashing: the folded form, or the name itself if it cannot be
    /// folded.
    pub fn key(self, name: &[u8]) -> Cow<'_, [u8]> {
        match self {
            Self::Exact => Cow::Borrowed(name),
            _ => key(name),
        }
    }

    /// Returns whether two names are equal.
    pub fn same(self, a: &[u8], b: &[u8]) -> bool {
        a == b || (self.folds() && key(a) == key(b))
    }

    /// Returns whether a directory may have the name, by this rule alone.
    pub fn allows(self, name: &[u8]) -> bool {
        self != Self::Strict || str::from_utf8(name).is_ok()
    }
}

/// Returns the folded form of a name; `None` if the name is not UTF-8.
///
/// The form is at most three times as long as the name, and empty if all of the name is ignored.
///
/// ```
/// use ext4_format::fold::fold;
/// assert_eq!(fold("Straße".as_bytes()).unwrap(), fold(b"STRASSE").unwrap());
/// assert_eq!(fold("\u{c5}ngstr\u{f6}m".as_bytes()).unwrap(), "a\u{30a}ngstro\u{308}m".as_bytes());
/// assert_eq!(fold(b"\xff"), None);
/// ```
pub fn fold(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    if name.is_ascii() {
        return Some(if name.iter().any(u8::is_ascii_uppercase) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        });
    }
    let name = str::from_utf8(name).ok()?;
    let mut folded = String::with_capacity(name.len());
    for part in name.split_inclusive(|c| !is_assigned(c)) {
        let mut chars = part.chars();
        let last = chars.next_back().filter(|&c| !is_assigned(c));
        let chars = if last.is_some() { chars } else { part.chars() };
        folded.extend(chars.default_case_fold().nfd().chain(last));
    }
    // An ignored code point is a starter: marks before it and behind it are not put in order with each other.
    folded.retain(|c| !is_ignored(c));
    Some(Cow::Owned(folded.into_bytes()))
}

/// Returns the form of a name for comparing: the folded form, or the name itself if it cannot be folded.
///
/// ```
/// use ext4_format::fold::key;
/// assert_eq!(key(b"Makefile"), key(b"MAKEFILE"));
/// assert_eq!(key(b"A\xff"), &b"A\xff"[..]);
/// ```
pub fn key(name: &[u8]) -> Cow<'_, [u8]> {
    fold(name).unwrap_or(Cow::Borrowed(name))
}

/// Returns whether the code point is ignored by default (`Default_Ignorable_Code_Point` of Unicode 12.1).
const fn is_ignored(c: char) -> bool {
    matches!(c as u32,
        0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180e | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfff8
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}
