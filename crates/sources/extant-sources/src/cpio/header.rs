//! The headers of cpio's members: text in hexadecimal (`newc`, and `crc` with a sum of the data) or octal (`odc`).

/// Bytes of the magic that every header begins with.
pub(super) const MAGIC: usize = 6;

/// The kinds of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Newc,
    Crc,
    Odc,
}

impl Format {
    /// Returns the format by the magic.
    pub fn of(magic: &[u8]) -> Option<Self> {
        match magic.get(..MAGIC)? {
            b"070701" => Some(Self::Newc),
            b"070702" => Some(Self::Crc),
            b"070707" => Some(Self::Odc),
            _ => None,
        }
    }

    /// Returns the number of bytes of a header, the magic included.
    pub fn len(self) -> usize {
        match self {
            Self::Newc | Self::Crc => 110,
            Self::Odc => 76,
        }
    }

    /// Returns the padding after `len` bytes from the start of a header.
    pub fn padding(self, len: u64) -> u64 {
        match self {
            Self::Newc | Self::Crc => len.wrapping_neg() % 4,
            Self::Odc => 0,
        }
    }
}

/// The identity of an inode: its device, and its number there.
pub(super) type FileKey = (u32, u32, u32);

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub file: FileKey,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub mtime: u64,
    pub size: u64,
    pub rdev: (u32, u32),
    /// Bytes of the name with the NUL at its end.
    pub name_len: u32,
    /// The sum of the data's bytes, in `crc` archives.
    pub sum: Option<u32>,
}

impl Header {
    /// Parses the fields behind the magic; `None` if a field is not a number.
    pub fn parse(format: Format, fields: &[u8]) -> Option<Self> {
        let mut rest = fields;
        match format {
            Format::Newc | Format::Crc => {
                let mut values = [0u32; 13];
                for value in &mut values {
                    let (field, after) = rest.split_at_checked(8)?;
                    *value = u32::try_from(number(field, 16)?).ok()?;
                    rest = after;
                }
                let [
                    ino,
                    mode,
                    uid,
                    gid,
                    links,
                    mtime,
                    size,
                    major,
                    minor,
                    rmajor,
                    rminor,
                    name_len,
                    sum,
                ] = values;
                Some(Self {
                    file: (major, minor, ino),
                    mode,
                    uid,
                    gid,
                    links,
                    mtime: mtime.into(),
                    size: size.into(),
                    rdev: (rmajor, rminor),
                    name_len,
                    sum: (format == Format::Crc).then_some(sum),
                })
            }
            Format::Odc => {
                let mut values = [0u64; 10];
                for (value, len) in values.iter_mut().zip([6, 6, 6, 6, 6, 6, 6, 11, 6, 11]) {
                    let (field, after) = rest.split_at_checked(len)?;
                    *value = number(field, 8)?;
                    rest = after;
                }
                let [dev, ino, mode, uid, gid, links, rdev, mtime, name_len, size] = values;
                let short = |n: u64| u32::try_from(n).ok();
                Some(Self {
                    file: (0, short(dev)?, short(ino)?),
                    mode: short(mode)?,
                    uid: short(uid)?,
                    gid: short(gid)?,
                    links: short(links)?,
                    mtime,
                    size,
                    rdev: (short(rdev >> 8)?, short(rdev & 0xff)?),
                    name_len: short(name_len)?,
                    sum: None,
                })
            }
        }
    }
}

/// Parses a number that fills its field with digits.
fn number(field: &[u8], radix: u32) -> Option<u64> {
    field.iter().try_fold(0u64, |n, &b| {
        let digit = char::from(b).to_digit(radix)?;
        n.checked_mul(radix.into())?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = b"00000007000081A4000003E8000003E900000002655F1A00000000050000000800000001000000000000000000000004000001F4";
        let header = Header::parse(Format::Newc, text).unwrap();
        assert_eq!(header.file, (8, 1, 7));
        assert_eq!(
            (header.mode, header.uid, header.gid),
            (0o100_644, 1000, 1001)
        );
        assert_eq!((header.links, header.size, header.name_len), (2, 5, 4));
        assert_eq!((header.mtime, header.sum), (0x655f_1a00, None));
        let header = Header::parse(Format::Crc, text).unwrap();
        assert_eq!(header.sum, Some(500));
        let text = b"0000100000071006440017500017510000010011430000000000500000400000000012";
        let header = Header::parse(Format::Odc, text).unwrap();
        assert_eq!((header.file, header.mode), ((0, 8, 7), 0o100_644));
        assert_eq!(
            (header.rdev, header.mtime, header.size),
            ((2, 0o143), 5, 10)
        );
        for bad in [&text[..69], b"x", b""] {
            assert_eq!(Header::parse(Format::Odc, bad), None);
        }
        let mut bad = *text;
        bad[3] = b'8';
        assert_eq!(Header::parse(Format::Odc, &bad), None);
    }
}
