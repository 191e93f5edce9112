//! The headers of an archive's members: ustar, with pax records for values that ustar cannot hold.

use crate::meta::{Meta, Xattr};
use anyhow::{Context, Result};
use ext4_format::FileType;
use ext4_format::acl::Acl;
use ext4_format::inode::{dev_major, dev_minor};
use ext4_format::timestamp::Timestamp;
use tar::{EntryType, Header};

/// Pads to a whole block of the archive; `out` began at a block's start.
pub(super) fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(512), 0);
}

/// Appends a member's header, after a pax header if some values do not fit.
pub(super) fn header(
    out: &mut Vec<u8>,
    meta: &Meta,
    name: &[u8],
    kind: EntryType,
    link: &[u8],
    size: u64,
    mut pax: Pax,
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(meta.mode.into());
    let short = |n: u64, limit: u64| if n < limit { n } else { 0 };
    header.set_uid(short(meta.uid.into(), 0o10_000_000));
    header.set_gid(short(meta.gid.into(), 0o10_000_000));
    header.set_size(short(size, 1 << 33));
    header.set_mtime(short(
        u64::try_from(meta.mtime.secs()).unwrap_or(u64::MAX),
        1 << 33,
    ));
    if matches!(meta.kind, FileType::CharDevice | FileType::BlockDevice) && kind != EntryType::Link
    {
        header.set_device_major(dev_major(meta.rdev))?;
        header.set_device_minor(dev_minor(meta.rdev))?;
    }
    let ustar = header.as_ustar_mut().context("a ustar header")?;
    for (field, key, value) in [
        (&mut ustar.name, "path", name),
        (&mut ustar.linkname, "linkpath", link),
    ] {
        let n = value.len().min(field.len());
        field[..n].copy_from_slice(&value[..n]);
        if n < value.len() {
            pax.set(key, value);
        }
    }
    if u64::from(meta.uid) >= 0o10_000_000 {
        pax.set("uid", meta.uid.to_string().as_bytes());
    }
    if u64::from(meta.gid) >= 0o10_000_000 {
        pax.set("gid", meta.gid.to_string().as_bytes());
    }
    if size >= 1 << 33 {
        pax.set("size", size.to_string().as_bytes());
    }
    if meta.mtime.nanos() != 0 || !(0..1 << 33).contains(&meta.mtime.secs()) {
        pax.set("mtime", decimal(meta.mtime).as_bytes());
    }
    if meta.atime != meta.mtime {
        pax.set("atime", decimal(meta.atime).as_bytes());
    }
    let flags = extant_mkfs::flag_names(meta.flags);
    if !flags.is_empty() && kind != EntryType::Link {
        pax.set("SCHILY.fflags", flags.as_bytes());
    }
    if !pax.0.is_empty() {
        let mut extension = Header::new_ustar();
        extension.set_entry_type(EntryType::XHeader);
        extension.set_mode(0o644);
        extension.set_size(pax.0.len() as u64);
        let shown = crate::paths::join(b"./PaxHeaders", crate::paths::base_name(name));
        let field = &mut extension.as_ustar_mut().context("a ustar header")?.name;
        let n = shown.len().min(field.len());
        field[..n].copy_from_slice(&shown[..n]);
        extension.set_cksum();
        out.extend_from_slice(extension.as_bytes());
        out.extend_from_slice(&pax.0);
        pad(out);
    }
    header.set_cksum();
    out.extend_from_slice(header.as_bytes());
    Ok(())
}

fn decimal(t: Timestamp) -> String {
    // Nanoseconds count forwards from the second below, but the sign of a decimal covers the fraction too.
    match (t.secs(), t.nanos()) {
        (secs, 0) => secs.to_string(),
        (secs, nanos) if secs < 0 => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos),
        (secs, nanos) => format!("{secs}.{nanos:09}"),
    }
}

/// Records of a pax header.
#[derive(Default)]
pub(super) struct Pax(Vec<u8>);

impl Pax {
    pub fn set(&mut self, key: &str, value: &[u8]) {
        self.record(key.as_bytes(), value);
    }

    /// Adds an extended attribute. An ACL is also added as text, the form that readers take when asked for ACLs.
    pub fn xattr(&mut self, (name, value): &Xattr) {
        let key = match name.as_slice() {
            b"system.posix_acl_access" => Some("SCHILY.acl.access"),
            b"system.posix_acl_default" => Some("SCHILY.acl.default"),
            _ => None,
        };
        if let Some((key, acl)) = key.zip(Acl::from_xattr(value).ok()) {
            self.set(key, acl.to_string().as_bytes());
        }
        self.record(&[b"SCHILY.xattr.", name.as_slice()].concat(), value);
    }

    /// Appends `LENGTH KEY=VALUE\n`, where the length includes its own digits.
    fn record(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for n in [0, 1, 2, 86, 87, 88, 89, 90, 91, 987, 988, 989, 990] {
            let mut pax = Pax::default();
            pax.set("path", &vec![b'x'; n]);
            let text = String::from_utf8(pax.0).unwrap();
            let (length, _) = text.split_once(' ').unwrap();
            assert_eq!(length.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn times_before_1970_too() {
        let t = |secs, nanos| decimal(Timestamp::new(secs, nanos));
        assert_eq!(t(5, 7), "5.000000007");
        assert_eq!(t(-1, 500_000_000), "-0.500000000");
        assert_eq!(t(-2, 0), "-2");
    }
}
