//! A file name: 1 to 255 bytes, neither NUL nor '/'.

use std::cmp::Ordering;
use std::fmt;

/// Why bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Longer than [`NAME_MAX`].
    #[error("file name too long")]
    TooLong,
    /// Of no bytes.
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

impl Name {
    /// Checks length and bytes; "." and ".." are no names to create, so they are refused.
    #[inline]
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > NAME_MAX {
            return Err(NameError::TooLong);
        }
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes == b"." || bytes == b".." {
            return Err(NameError::Refused(
                "\".\" and \"..\" cannot be created or removed",
            ));
        }
        let refused = |b: u8| b == 0 || b == b'/';
        let bad = NameError::Refused("a name holds a NUL byte or a slash");
        let mut inline = [0; INLINE];
        if let Some(place) = inline.get_mut(..bytes.len()) {
            place.copy_from_slice(bytes);
            // The count of refused bytes is compared with the padding behind the name, without a branch for each
            // byte.
            let zeros: u8 = inline.iter().map(|&b| u8::from(refused(b))).sum();
            return match usize::from(zeros) == INLINE - bytes.len() {
                true => Ok(Self(Bytes::Inline(bytes.len() as u8, inline))),
                false => Err(bad),
            };
        }
        match bytes.iter().any(|&b| refused(b)) {
            true => Err(bad),
            false => Ok(Self(Bytes::Heap(Box::from(bytes)))),
        }
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Bytes::Heap(bytes) => bytes,
        }
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
        let long = [&[b'a'; 30][..], b"/"].concat();
        for bad in [&b"."[..], b"..", b"a/b", b"a\0", b"\0", b"/", &long] {
            assert!(
                matches!(Name::new(bad), Err(NameError::Refused(_))),
                "{bad:?}"
            );
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
