//! The list of changes.

use std::fmt;

/// One change.
///
/// ```
/// let change = extant_tune::Change { place: "superblock".into(), text: "the label is data".into() };
/// assert_eq!(change.to_string(), "superblock: the label is data");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The changed structure.
    pub place: String,
    /// The change.
    pub text: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
