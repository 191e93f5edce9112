//! A file name: 1 to 255 bytes, neither NUL nor '/'.

use std::cmp::Ordering;
use std::fmt;

/// Reason why bytes are not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than [`NAME_MAX`].
    #[error("file name too long")]
    TooLong,
    /// Empty.
    #[error("empty file name")]
    Empty,
    /// Bytes that no name may have: which.
    #[error("{0}")]
    Refused(&'static str),
}

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// Longest name kept inline: with its length and the enum's tag it fills three words.
const INLINE: usize = 22;

#[derive(Clone)]
enum Bytes {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

/// A checked name of a directory entry. Names of up to 22 bytes are kept inline.
#[derive(Clone)]
pub struct Name(Bytes);

const _: () = assert!(size_of::<Name>() == 24);

/// Bytes that were checked to be a name, and stay where they are.
///
/// ```
/// use extant_formatter::name::NameRef;
/// let name = NameRef::new(b"file").unwrap();
/// assert_eq!(name.as_bytes(), b"file");
/// assert_eq!(name.to_name().as_bytes(), b"file");
/// assert!(NameRef::new(b"a/b").is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameRef<'a>(&'a [u8]);

impl<'a> NameRef<'a> {
    /// Checks length and bytes. "." and ".." are refused, because no such name can be created.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        let refused = match bytes {
            [] | [b'.'] | [b'.', b'.'] => true,
            _ => bytes.len() > NAME_MAX || holds_refused(bytes),
        };
        if refused {
            Err(Self::why_refused(bytes))
        } else {
            Ok(Self(bytes))
        }
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns an owned name of these bytes.
    #[inline]
    pub fn to_name(self) -> Name {
        Name::of_checked(self.0)
    }

    #[cold]
    #[inline(never)]
    fn why_refused(bytes: &[u8]) -> NameError {
        match bytes.len() {
            0 => NameError::Empty,
            1..=NAME_MAX if bytes == b"." || bytes == b".." => {
                NameError::Refused("\".\" and \"..\" cannot be created or removed")
            }
            1..=NAME_MAX => NameError::Refused("a name holds a NUL byte or a slash"),
            _ => NameError::TooLong,
        }
    }
}

impl Name {
    /// Checks the bytes as [`NameRef::new`] does.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        NameRef::new(bytes).map(NameRef::to_name)
    }

    #[inline]
    fn of_checked(bytes: &[u8]) -> Self {
        let mut inline = [0; INLINE];
        Self(match inline.get_mut(..bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                Bytes::Inline(bytes.len() as u8, inline)
            }
            None => Bytes::Heap(Box::from(bytes)),
        })
    }

    /// Returns the bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
    }
}

/// Returns true if the bytes hold a NUL byte or a slash. Checks eight bytes at once while eight are left.
#[inline]
fn holds_refused(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    const SLASHES: u64 = ONES * b'/' as u64;
    // Nonzero if a byte is zero: only such a byte, or one above it, has its highest bit set by the subtraction.
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    let refused = |eight: &[u8; 8]| {
        let word = u64::from_le_bytes(*eight);
        zero(word) | zero(word ^ SLASHES) != 0
    };
    match bytes.last_chunk() {
        // The last eight overlap those before, unless the length is a multiple.
        Some(last) => refused(last) || bytes.as_chunks().0.iter().any(refused),
        None => bytes.iter().any(|&b| b == 0 || b == b'/'),
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_name() {
        assert!(matches!(Name::new(&[b'a'; 256]), Err(NameError::TooLong)));
        assert!(matches!(Name::new(b""), Err(NameError::Empty)));
        for bad in [&b"."[..], b".."] {
            assert!(
                matches!(Name::new(bad), Err(NameError::Refused(_))),
                "{bad:?}"
            );
        }
        for len in 1..40 {
            for (at, byte) in (0..len).flat_map(|at| [(at, 0), (at, b'/')]) {
                // Neighbours of refused bytes in value, placed next to them.
                for other in [b'a', 1, 0x80, 0xff, b'/' + 1, b'/' | 0x80, b'.'] {
                    if other == b'.' && len < 3 {
                        continue;
                    }
                    let mut bytes = vec![other; len];
                    assert!(Name::new(&bytes).is_ok(), "{bytes:?}");
                    bytes[at] = byte;
                    assert!(
                        matches!(Name::new(&bytes), Err(NameError::Refused(_))),
                        "{bytes:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn keeps_every_length() {
        for len in 1..=NAME_MAX {
            let bytes = vec![b'a'; len];
            assert_eq!(Name::new(&bytes).unwrap().clone().as_bytes(), bytes);
        }
    }
}
