//! The names by which a layer of a container image removes files of lower layers (OCI image format, "Layer Filesystem
//! Changeset": whiteouts and opaque whiteouts).

/// The effect of a name on lower layers, if it has one.
///
/// ```
/// use extant_sources::WhiteOut;
/// assert_eq!(WhiteOut::of(b".wh.motd"), Some(WhiteOut::Name(b"motd")));
/// assert_eq!(WhiteOut::of(b".wh..wh..opq"), Some(WhiteOut::Opaque));
/// assert_eq!(WhiteOut::of(b"motd"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhiteOut<'a> {
    /// `.wh.NAME`: lower layers' NAME in this directory is gone, with all below it.
    Name(&'a [u8]),
    /// `.wh..wh..opq`: all that lower layers have in this directory is gone.
    Opaque,
    /// `.wh..wh.` with any other suffix: a name of AUFS itself, without a meaning in an image.
    Bookkeeping,
}

impl<'a> WhiteOut<'a> {
    /// Parses a name; `None` for an ordinary name.
    pub fn of(name: &'a [u8]) -> Option<Self> {
        Some(match name.strip_prefix(b".wh.")? {
            b".wh..opq" => Self::Opaque,
            other if other.starts_with(b".wh.") => Self::Bookkeeping,
            hidden => Self::Name(hidden),
        })
    }
}
