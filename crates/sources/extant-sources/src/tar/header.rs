//! The 512-byte header of a tar member: the fields of ustar, and those of GNU and star.

use crate::member::Segment;

/// Bytes of a header, and the unit of everything in an archive.
pub(super) const BLOCK: usize = 512;

/// A header, by offsets of fields.
pub(super) struct Header<'a>(pub &'a [u8; BLOCK]);

impl<'a> Header<'a> {
    fn field(&self, at: usize, len: usize) -> &'a [u8] {
        &self.0[at..at + len] // offsets are constants below 512
    }

    /// Returns a text field, up to a NUL or the field's end.
    fn text(&self, at: usize, len: usize) -> &'a [u8] {
        let field = self.field(at, len);
        let end = field.iter().position(|b| *b == 0).unwrap_or(len);
        &field[..end]
    }

    /// Returns whether the checksum is right; old programs summed signed bytes.
    pub fn is_valid(&self) -> bool {
        let Some(stored) = number(self.field(148, 8)) else {
            return false;
        };
        let bytes = self.0.iter().enumerate();
        let (mut unsigned, mut signed) = (0i64, 0i64);
        for (i, &b) in bytes {
            let b = if (148..156).contains(&i) { b' ' } else { b };
            unsigned += i64::from(b);
            signed += i64::from(b.cast_signed());
        }
        stored == unsigned || stored == signed
    }

    /// Returns whether the header is all zeros: an end mark.
    pub fn is_zero(&self) -> bool {
        blockdev::is_zero(self.0)
    }

    pub fn kind(&self) -> u8 {
        self.0[156]
    }

    /// Returns the kind byte if no archive format knows it: such a member is treated as a file.
    pub fn unknown_kind(&self) -> Option<u8> {
        let kind = self.kind();
        (!matches!(kind, 0 | b'0'..=b'7' | b'D' | b'S')).then_some(kind)
    }

    fn is_gnu(&self) -> bool {
        self.field(257, 8) == b"ustar  \0"
    }

    fn is_star(&self) -> bool {
        self.field(508, 4) == b"tar\0"
    }

    /// Returns the path, its prefix included.
    pub fn path(&self) -> Vec<u8> {
        let name = self.text(0, 100);
        if self.field(257, 6) != b"ustar\0" {
            return name.to_vec();
        }
        match self.text(345, if self.is_star() { 131 } else { 155 }) {
            b"" => name.to_vec(),
            prefix => [prefix, b"/", name].concat(),
        }
    }

    pub fn link(&self) -> Vec<u8> {
        self.text(157, 100).to_vec()
    }

    /// Returns the mode; `None` if the field is not a number.
    pub fn mode(&self) -> Option<i64> {
        number(self.field(100, 8))
    }

    pub fn uid(&self) -> Option<i64> {
        number(self.field(108, 8))
    }

    pub fn gid(&self) -> Option<i64> {
        number(self.field(116, 8))
    }

    pub fn size(&self) -> Option<i64> {
        number(self.field(124, 12))
    }

    pub fn mtime(&self) -> Option<i64> {
        number(self.field(136, 12))
    }

    /// Access and change time, where the dialect has them.
    pub fn more_times(&self) -> Option<(i64, i64)> {
        let (a, c) = if self.is_gnu() {
            (345, 357)
        } else if self.is_star() {
            (476, 488)
        } else {
            return None;
        };
        let given = |at| self.0[at] != 0; // offsets are constants below 512
        let time = |at| number(self.field(at, 12));
        (given(a) && given(c)).then_some((time(a)?, time(c)?))
    }

    pub fn device(&self) -> Option<(i64, i64)> {
        Some((number(self.field(329, 8))?, number(self.field(337, 8))?))
    }

    /// Returns GNU's sparse map in the header: parts, whether more blocks of it follow, and the file's size.
    pub fn gnu_sparse(&self) -> Option<(Vec<Segment>, bool, u64)> {
        let size = u64::try_from(number(self.field(483, 12))?).ok()?;
        let parts = sparse_parts(self.field(386, 96))?;
        Some((parts, self.0[482] != 0, size))
    }
}

/// Returns the parts in a further block of GNU's sparse map, and whether another follows.
pub(super) fn gnu_sparse_more(block: &[u8; BLOCK]) -> Option<(Vec<Segment>, bool)> {
    Some((sparse_parts(&block[..504])?, block[504] != 0))
}

fn sparse_parts(bytes: &[u8]) -> Option<Vec<Segment>> {
    let mut parts = Vec::new();
    for entry in bytes.chunks_exact(24) {
        if entry[0] == 0 {
            break;
        }
        let field = |range: &[u8]| u64::try_from(number(range)?).ok();
        parts.push(Segment {
            start: field(&entry[..12])?,
            len: field(&entry[12..])?,
        });
    }
    Some(parts)
}

/// Returns a numeric field: octal digits with blanks and NULs around, or base 256 after a set high bit. An empty
/// field is 0.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let (&first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        // Two's complement of the whole field, the marker bit replaced by the sign.
        let negative = first & 0x40 != 0;
        let head = i64::from(first & 0x3f) - if negative { 0x40 } else { 0 };
        return rest
            .iter()
            .try_fold(head, |n, &b| n.checked_mul(256)?.checked_add(i64::from(b)));
    }
    let text = field.split(|b| *b == 0).next().unwrap_or(&[]).trim_ascii();
    text.iter().try_fold(0i64, |n, &b| match b {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add(i64::from(b - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"77777777777", Some(0o77_777_777_777)),
            (b"\0\0\0\0", Some(0)),
            (b"12x", None),
            (b"\x80\0\0\0\0\0\x01\0", Some(256)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\x02\0\0\0\0", Some(0x2_0000_0000)),
            (b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }
}
