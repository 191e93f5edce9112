//! The mounts of this process's name space: `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount, as listed by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Device number of the file system, as `stat` shows it: (major, minor).
    pub device: (u32, u32),
    /// Mount point.
    pub target: PathBuf,
    /// Type, with the subtype after a dot.
    pub kind: String,
    /// The mount's source: a device, an image, a name.
    pub source: OsString,
    /// Options of the mount.
    pub mount_options: String,
    /// Options of the file system.
    pub options: String,
}

/// Returns all mounts of this process's mount namespace, the latest last.
///
/// ```
/// assert!(fuse_server::mounts()?.iter().any(|mounted| mounted.target.as_os_str() == "/"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mounts() -> io::Result<Vec<Mounted>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// Returns the topmost mount at `target`, which is an absolute path without symbolic links, as the kernel lists it.
pub fn mounted_at(target: &Path) -> io::Result<Option<Mounted>> {
    Ok(mounts()?
        .into_iter()
        .rev()
        .find(|mounted| mounted.target == target))
}

/// Parses a line: id, parent, major:minor, root, target, options, optional fields, "-", type, source, super options.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let target = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
    let mount_options = String::from_utf8_lossy(fields.next()?).into_owned();
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8(unescape(fields.next()?)).ok()?;
    let source = OsString::from_vec(unescape(fields.next()?));
    let options =
        String::from_utf8_lossy(&unescape(fields.next().unwrap_or_default())).into_owned();
    Some(Mounted {
        device: (major.parse().ok()?, minor.parse().ok()?),
        target,
        kind,
        source,
        mount_options,
        options,
    })
}

/// Decodes blanks, newlines, backslashes and `#`, which are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |value, &digit| {
                matches!(digit, b'0'..=b'7').then(|| value * 8 + u32::from(digit - b'0'))
            })
        };
        let escaped = (first == b'\\')
            .then(|| tail.get(..3).and_then(octal))
            .flatten();
        match escaped.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_optional_fields() {
        let line = br"36 35 0:44 /root /mnt/a\040b\134c rw,noatime master:1 shared:2 - fuse.x /img\011z rw,user_id=0";
        let mounted = parse(line).unwrap();
        assert_eq!(mounted.device, (0, 44));
        assert_eq!(mounted.target, Path::new("/mnt/a b\\c"));
        assert_eq!(mounted.kind, "fuse.x");
        assert_eq!(mounted.source, "/img\tz");
        assert_eq!(mounted.mount_options, "rw,noatime");
        assert_eq!(mounted.options, "rw,user_id=0");
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        for line in [
            &b""[..],
            b"1 2 3",
            b"1 2 x:y / / rw - t s o",
            b"1 2 0:1 / /mnt rw no dash",
            b"1 2 0:1 / /mnt rw -",
        ] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn what_is_no_escape_stays() {
        assert_eq!(unescape(br"a\08\"), br"a\08\");
        assert_eq!(unescape(br"\777"), br"\777");
    }
}
