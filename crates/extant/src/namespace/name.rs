//! A file name: 1 to 255 bytes, neither NUL nor '/'.

use crate::error::{Error, Result};
use smallvec::SmallVec;
use std::fmt;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;

/// A checked name of a directory entry. Names of up to 24 bytes are kept inline.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmallVec<[u8; 24]>);

impl Clone for Name {
    // The derived one copies byte by byte.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl Name {
    /// Checks length and bytes; "." and ".." are no names to create, so they are refused.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if bytes.is_empty() {
            return Err(Error::NotFound);
        }
        if bytes == b"." || bytes == b".." {
            return Err(Error::Invalid(
                "\".\" and \"..\" cannot be created or removed",
            ));
        }
        if bytes.iter().any(|&b| b == 0 || b == b'/') {
            return Err(Error::Invalid("a name holds a NUL byte or a slash"));
        }
        Ok(Self(SmallVec::from_slice(bytes)))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_name() {
        assert!(matches!(Name::new(&[b'a'; 256]), Err(Error::NameTooLong)));
        assert!(matches!(Name::new(b""), Err(Error::NotFound)));
        for bad in [&b"."[..], b"..", b"a/b", b"a\0"] {
            assert!(matches!(Name::new(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
        assert_eq!(Name::new(&[b'a'; 255]).unwrap().as_bytes().len(), 255);
    }
}
