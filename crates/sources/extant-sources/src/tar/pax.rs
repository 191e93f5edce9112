//! Extended headers: records `LENGTH KEY=VALUE\n` that replace or extend the fields of the 512 bytes.

use super::fflags;
use crate::member::RawXattrs;
use crate::member::Segment;
use ext4_format::acl::{Acl, AclEntry, Tag};
use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::{ACL_ACCESS, ACL_DEFAULT};

/// The record of GNU tar's `--selinux`, and its attribute.
const SELINUX_OF_TAR: &[u8] = b"RHT.security.selinux";
const SELINUX: &[u8] = b"security.selinux";

/// The records that extended headers have for a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u64>,
    pub gid: Option<u64>,
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub ctime: Option<Timestamp>,
    pub xattrs: RawXattrs,
    /// GNU's sparse map of the formats 0.0 and 0.1.
    pub sparse: Vec<Segment>,
    /// Format 1.0: the map is in front of the data.
    pub sparse_in_data: bool,
    /// Size of a sparse file.
    pub real_size: Option<u64>,
    /// Flags as chattr sets them.
    pub flags: u32,
    /// Keywords of attributes whose values have no meaning.
    pub malformed: Vec<Vec<u8>>,
    /// ACLs that name users or groups, which mean nothing here.
    unresolved: Vec<Vec<u8>>,
}

impl Pax {
    /// Adds the records of a header. The error is a message.
    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            if blockdev::is_zero(bytes) {
                return Ok(()); // padding of careless writers
            }
            let bad = || "extended header with a malformed record".to_owned();
            let blank = bytes.iter().position(|b| *b == b' ').ok_or_else(bad)?;
            let (digits, _) = bytes.split_at(blank);
            let len = parse::<usize>(digits).ok_or_else(bad)?;
            let record = bytes.get(blank + 1..len).ok_or_else(bad)?;
            let record = record.strip_suffix(b"\n").ok_or_else(bad)?;
            let eq = record.iter().position(|b| *b == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..eq], &record[eq + 1..]);
            self.enter(key, value)
                .ok_or_else(|| format!("extended header with an impossible {}", show(key)))?;
            bytes = &bytes[len..];
        }
        Ok(())
    }

    /// Enters one record; `None` if its value has no meaning.
    fn enter(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let text = (!value.is_empty()).then(|| value.to_vec());
        match key {
            // An empty value removes the record of a global header.
            b"path" | b"GNU.sparse.name" => self.path = text,
            b"linkpath" => self.link = text,
            b"size" => self.size = optional(value, parse)?,
            b"uid" => self.uid = optional(value, parse)?,
            b"gid" => self.gid = optional(value, parse)?,
            b"mtime" => self.mtime = optional(value, time)?,
            b"atime" => self.atime = optional(value, time)?,
            b"ctime" => self.ctime = optional(value, time)?,
            b"GNU.sparse.major" => self.sparse_in_data = value == b"1",
            b"GNU.sparse.realsize" | b"GNU.sparse.size" => {
                self.real_size = optional(value, parse)?;
            }
            b"GNU.sparse.offset" if text.is_some() => self.sparse.push(Segment {
                start: parse(value)?,
                len: 0,
            }),
            b"GNU.sparse.numbytes" if text.is_some() => {
                self.sparse.last_mut()?.len = parse(value)?;
            }
            b"GNU.sparse.map" => self.sparse = sparse_map(value)?,
            b"SCHILY.fflags" => self.flags = fflags::parse(value),
            _ => self.attribute(key, value),
        }
        Some(())
    }

    /// Enters a record of an extended attribute. One without a meaning is not worth the archive.
    fn attribute(&mut self, key: &[u8], value: &[u8]) {
        let acl = match key {
            b"SCHILY.acl.access" => Some(ACL_ACCESS),
            b"SCHILY.acl.default" => Some(ACL_DEFAULT),
            _ => None,
        };
        if let Some(name) = acl {
            self.remove_xattr(name);
            match (value, text_acl(value)) {
                (b"", _) => {}
                (_, Some(Some(acl))) => self.set_xattr(name.to_vec(), acl.to_xattr()),
                (_, Some(None)) => self.unresolved.push(name.to_vec()),
                (_, None) => self.malformed.push(key.to_vec()),
            }
        } else if key == SELINUX_OF_TAR {
            self.remove_xattr(SELINUX);
            if !value.is_empty() {
                // libselinux stores a terminating zero byte.
                let label = value.strip_suffix(b"\0").unwrap_or(value);
                self.set_xattr(SELINUX.to_vec(), [label, b"\0"].concat());
            }
        } else if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
            // GNU tar and star write attributes without a value so.
            self.set_xattr(name.to_vec(), value.to_vec());
        } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
            match base64(value) {
                Some(bytes) => self.set_xattr(url_decode(name), bytes),
                None => self.malformed.push(key.to_vec()),
            }
        }
    }

    /// Returns whether an ACL is lost: given by names only, without numbers.
    pub fn lost_acl(&self) -> bool {
        let kept = |name| self.xattrs.iter().any(|(n, _)| n == name);
        self.unresolved.iter().any(|name| !kept(name))
    }

    fn remove_xattr(&mut self, name: &[u8]) {
        self.xattrs.retain(|(n, _)| n != name);
        self.unresolved.retain(|n| n != name);
    }

    fn set_xattr(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.xattrs.retain(|(n, _)| *n != name);
        self.xattrs.push((name, value));
    }
}

fn show(key: &[u8]) -> String {
    crate::error::show(key)
}

/// Parses a decimal number.
pub(super) fn parse<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

#[expect(clippy::option_option)] // no value, and an invalid value
fn optional<T>(value: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    if value.is_empty() {
        return Some(None);
    }
    parse(value).map(Some)
}

/// Seconds with a fraction, possibly before 1970.
fn time(bytes: &[u8]) -> Option<Timestamp> {
    let (negative, digits) = match bytes.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, bytes),
    };
    let dot = digits.iter().position(|b| *b == b'.');
    let (whole, fraction) = digits.split_at(dot.unwrap_or(digits.len()));
    let secs: i64 = parse(whole)?;
    let mut nanos = 0u32;
    let fraction = fraction.get(1..).unwrap_or(&[]);
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    for i in 0..9 {
        let digit = fraction.get(i).map_or(0, |d| u32::from(d - b'0'));
        nanos = nanos * 10 + digit;
    }
    let (secs, nanos) = match (negative, nanos) {
        (false, _) => (secs, nanos),
        (true, 0) => (-secs, 0),
        // Nanoseconds count forward from the second before.
        (true, _) => (-secs - 1, 1_000_000_000 - nanos),
    };
    Some(Timestamp::new(secs, nanos))
}

/// Parses `OFFSET,LENGTH,OFFSET,LENGTH...`
fn sparse_map(value: &[u8]) -> Option<Vec<Segment>> {
    if value.is_empty() {
        return Some(Vec::new());
    }
    let numbers: Vec<u64> = value
        .split(|b| *b == b',')
        .map(parse)
        .collect::<Option<_>>()?;
    let (pairs, []) = numbers.as_chunks::<2>() else {
        return None;
    };
    let segments = pairs.iter().map(|&[start, len]| Segment { start, len });
    Some(segments.collect())
}

fn url_decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&b, after)) = rest.split_first() {
        let hex = |d: Option<&u8>| char::from(*d?).to_digit(16);
        rest = after;
        match (b, hex(after.first()), hex(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8); // both below 16
                rest = &after[2..];
            }
            _ => out.push(b),
        }
    }
    out
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 3);
    let (mut word, mut bits) = (0u32, 0);
    for &b in text.iter().filter(|b| !matches!(b, b'=' | b'\n')) {
        let digit = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(digit);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8); // the low eight bits of it
        }
    }
    Some(out)
}

/// Returns an ACL as GNU tar and star write it: `user::rwx,user:NAME:r-x[:ID],mask::r-x`. `Some(None)`: it has a name
/// without a number.
#[expect(clippy::option_option)]
fn text_acl(text: &[u8]) -> Option<Option<Acl>> {
    let mut entries = Vec::new();
    for entry in text.split(|b| matches!(b, b',' | b'\n')) {
        let entry = entry.split(|b| *b == b'#').next()?.trim_ascii();
        if entry.is_empty() {
            continue;
        }
        let fields: Vec<&[u8]> = entry.split(|b| *b == b':').collect();
        let (class, name, perm, id) = match fields[..] {
            [class, perm] => (class, &b""[..], perm, None),
            [class, name, perm] => (class, name, perm, None),
            [class, name, perm, id] => (class, name, perm, Some(id)),
            _ => return None,
        };
        let id = match (name, id) {
            (b"", _) => None,
            (_, Some(id)) => Some(parse::<u32>(id)?),
            (name, None) => match parse::<u32>(name) {
                Some(id) => Some(id),
                None => return Some(None),
            },
        };
        let tag = match (class, id) {
            (b"user" | b"u", None) => Tag::UserObj,
            (b"user" | b"u", Some(id)) => Tag::User(id),
            (b"group" | b"g", None) => Tag::GroupObj,
            (b"group" | b"g", Some(id)) => Tag::Group(id),
            (b"mask" | b"m", None) => Tag::Mask,
            (b"other" | b"o", None) => Tag::Other,
            _ => return None,
        };
        let perm = perm.iter().try_fold(0, |p, b| match b {
            b'r' => Some(p | 4),
            b'w' => Some(p | 2),
            b'x' => Some(p | 1),
            b'-' => Some(p),
            _ => None,
        })?;
        entries.push(AclEntry { tag, perm });
    }
    entries.sort_by_key(|e| e.tag);
    Acl::new(entries).ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let mut pax = Pax::default();
        let text = b"12 path=a/b\n22 mtime=-1.250000001\n27 SCHILY.xattr.user.a=x\ny\n";
        pax.read(text).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a/b"[..]));
        let time = Timestamp::new(-2, 749_999_999);
        assert_eq!(pax.mtime, Some(time));
        assert_eq!(pax.xattrs, [(b"user.a".to_vec(), b"x\ny".to_vec())]);
        pax.read(b"8 path=\n").unwrap();
        assert_eq!(pax.path, None);
        // An empty value deletes any record, and an attribute that cannot be read is not worth the archive.
        let deleted = b"23 SCHILY.acl.default=\n25 RHT.security.selinux=\n18 SCHILY.fflags=\n24 GNU.sparse.realsize=\n22 GNU.sparse.offset=\n";
        pax.read(deleted).unwrap();
        pax.read(b"30 LIBARCHIVE.xattr.user.a=%%\n").unwrap();
        assert_eq!(pax.malformed, [b"LIBARCHIVE.xattr.user.a"]);
        pax.read(b"33 RHT.security.selinux=a:b:c:s0\n").unwrap();
        let label = (b"security.selinux".to_vec(), b"a:b:c:s0\0".to_vec());
        assert!(pax.xattrs.contains(&label));
        for bad in [
            &b"99 path=a\n"[..],
            b"x",
            b"9 path=ab",
            b"9 uid=-1\n",
            b"0 a=\n",
        ] {
            assert!(Pax::default().read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn encodings() {
        assert_eq!(base64(b"aGVsbG8=").unwrap(), b"hello");
        assert_eq!(url_decode(b"user.%41%zz%"), b"user.A%zz%");
        assert_eq!(sparse_map(b"0,5,10,7").unwrap().len(), 2);
        assert!(sparse_map(b"0,5,10").is_none());
        let acl = text_acl(b"user::rwx,user:5:r-x,group::r--,mask::r-x,other::---").unwrap();
        assert_eq!(acl.unwrap().mode(), 0o750);
        let acl = text_acl(b"user::rwx\nuser:joe:r-x:70\ngroup::r--\nmask:r-x\nother:---").unwrap();
        assert!(
            acl.unwrap()
                .entries()
                .iter()
                .any(|e| e.tag == Tag::User(70))
        );
        assert!(
            text_acl(b"user::rwx,user:joe:r--,group::r--,mask::r--,other::---")
                .unwrap()
                .is_none()
        );
        assert!(text_acl(b"user::rwx").is_none());
    }
}
