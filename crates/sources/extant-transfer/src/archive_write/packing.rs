//! Archive formats and compressions, by the suffixes of names.

use anyhow::{Context, Result};
use std::path::Path;

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Tar,
    Cpio,
}

impl Format {
    /// Returns the block size to which headers and data are padded.
    pub fn unit(self) -> u64 {
        match self {
            Self::Tar => 512,
            Self::Cpio => 4,
        }
    }
}

/// The compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// The format and compression of an archive that is written.
///
/// ```
/// use extant_transfer::Packing;
/// assert_eq!(Packing::of_name("rootfs.tar".as_ref()), Some(Packing::TAR));
/// assert!("zip".parse::<Packing>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    pub(super) format: Format,
    pub(super) compression: Compression,
}

/// Suffixes of names.
const ENDINGS: [(&str, Packing); 8] = [
    ("tar", Packing::TAR),
    ("tar.gz", Packing::new(Format::Tar, Compression::Gzip)),
    ("tgz", Packing::new(Format::Tar, Compression::Gzip)),
    ("tar.zst", Packing::new(Format::Tar, Compression::Zstd)),
    ("tzst", Packing::new(Format::Tar, Compression::Zstd)),
    ("cpio", Packing::new(Format::Cpio, Compression::None)),
    ("cpio.gz", Packing::new(Format::Cpio, Compression::Gzip)),
    ("cpio.zst", Packing::new(Format::Cpio, Compression::Zstd)),
];

impl Packing {
    /// A plain tar archive.
    pub const TAR: Self = Self::new(Format::Tar, Compression::None);

    const fn new(format: Format, compression: Compression) -> Self {
        Self {
            format,
            compression,
        }
    }

    /// Returns the packing that an archive's name asks for; `None` if the name is not that of an archive.
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let ends = |end: &str| name.strip_suffix(end).is_some_and(|n| n.ends_with('.'));
        ENDINGS
            .iter()
            .find_map(|(end, packing)| ends(end).then_some(*packing))
    }
}

impl std::str::FromStr for Packing {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = ENDINGS.iter().find(|(end, _)| *end == text);
        let known = known.map(|(_, packing)| *packing);
        known.context("use tar, tar.gz, tar.zst, cpio, cpio.gz or cpio.zst")
    }
}
