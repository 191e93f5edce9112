//! Errors with advice: a user reads after an error what to do about it.

use extant::Error;
use std::fmt;

/// An error with advice. The text includes its causes.
#[derive(Debug)]
struct Advised(String);

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Advised {}

/// Appends advice to an error.
pub fn advised(error: impl fmt::Display, advice: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Advised(format!("{error}: {advice}")))
}

/// Returns advice by the kind of an error, for all commands.
pub fn in_general(error: &anyhow::Error) -> Option<&'static str> {
    error
        .chain()
        .find_map(|cause| match cause.downcast_ref::<Error>()? {
            Error::NoSpace(_) => {
                Some("extant df shows what is free, extant resize makes an image larger")
            }
            Error::Format(ext4_format::FormatError::Corrupt {
                what: "image is shorter than its count of blocks",
                ..
            }) => Some(
                "the file is truncated, or a part of a split image: extant rescue copies out what is left",
            ),
            Error::Format(
                ext4_format::FormatError::Corrupt { .. }
                | ext4_format::FormatError::Checksum { .. },
            ) => Some(
                "the image is damaged: extant repair -n lists what it would mend, and extant rescue copies out what is left",
            ),
            Error::NoAttribute => Some("see extant getfattr -m -"),
            Error::Unsupported("attribute name space") => {
                Some("names begin with user., trusted., security. or system.")
            }
            _ => None,
        })
}
