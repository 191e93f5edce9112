//! Attributes that a source gives to a file of an earlier source.

use ext4_format::timestamp::Timestamp;

/// New attributes of a file that an earlier source has; `None` leaves one as it is.
///
/// ```
/// use extant_sources::AttributeChange;
/// let change = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
/// assert_eq!(change.uid, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// Path of the file.
    pub path: Vec<u8>,
    /// Name of the source and its line, for messages.
    pub line: String,
    /// Permissions.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Times of the last access and the last change.
    pub time: Option<Timestamp>,
    /// Whether the file may be missing.
    pub optional: bool,
}

impl AttributeChange {
    /// Returns why the change cannot be made without its file.
    pub fn missing(&self) -> String {
        let path = crate::error::show(&self.path);
        format!("{}: {path}: {NO_DATA}", self.line)
    }

    /// Returns why the change cannot be made to an object of another type.
    pub fn not_a_file(&self) -> String {
        let path = crate::error::show(&self.path);
        format!(
            "{}: {path}: not a regular file in the earlier sources",
            self.line
        )
    }
}

const NO_DATA: &str =
    "no such file, and no earlier source has it: contents=FILE names the file with the data";
