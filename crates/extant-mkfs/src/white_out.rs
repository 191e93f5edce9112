//! The names with which a layer of a container image takes away what lower layers hold (OCI image format,
//! "Layer Filesystem Changeset": whiteouts and opaque whiteouts).

/// The effect of a name on lower layers, if it has one.
///
/// ```
/// use extant_mkfs::WhiteOut;
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
    /// `.wh..wh.` and anything else: AUFS' own, which means nothing in an image.
    Bookkeeping,
}

impl<'a> WhiteOut<'a> {
    /// Reads a name; `None`: it is one like any other.
    pub fn of(name: &'a [u8]) -> Option<Self> {
        Some(match name.strip_prefix(b".wh.")? {
            b".wh..opq" => Self::Opaque,
            other if other.starts_with(b".wh.") => Self::Bookkeeping,
            hidden => Self::Name(hidden),
        })
    }
}
