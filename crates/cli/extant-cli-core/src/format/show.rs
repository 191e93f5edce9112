//! Names, modes and sizes as people read them.

use extant::FileType;
use serde::{Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use extant_terminal::numbers::{count, human, rate};
pub use extant_transfer::{is_control, show};

/// Paths of the host in messages.
pub trait ShowPath {
    /// Formats the path as [`show`] formats the paths of images.
    fn shown(&self) -> String;
}

impl ShowPath for Path {
    fn shown(&self) -> String {
        self.as_os_str().shown()
    }
}

impl ShowPath for OsStr {
    fn shown(&self) -> String {
        show(self.as_bytes())
    }
}

/// Path of the host in a result: escaped by [`show`] for people, and [`exact`] in JSON.
#[derive(Clone, Debug)]
pub struct HostPath(OsString);

impl HostPath {
    /// Returns the address of a partition of this disk.
    pub fn partition(&self, number: impl Display) -> Self {
        let mut address = self.0.clone();
        address.push(format!("@p{number}"));
        Self(address)
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl From<&Path> for HostPath {
    fn from(path: &Path) -> Self {
        Self(path.into())
    }
}

impl Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.shown())
    }
}

impl Serialize for HostPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&exact(self.0.as_bytes()))
    }
}

/// Formats a name or path in a list: unchanged, or quoted as in bash and zsh, `$'caf\xe9'`, if bytes must be escaped.
/// So no two names look the same, and each name can be typed as shown.
pub fn name(path: &[u8]) -> String {
    let plain = std::str::from_utf8(path).ok();
    let plain = plain.filter(|text| !text.contains(is_control) && !text.contains("$'"));
    if let Some(text) = plain {
        return text.to_owned();
    }
    let mut out = String::from("$'");
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                c if is_control(c) => escape(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        escape(&mut out, chunk.invalid());
    }
    out.push('\'');
    out
}

fn escape(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        out.push_str(&format!("\\x{b:02x}"));
    }
}

/// Returns the text of a name or path in JSON: exact if it is UTF-8. Otherwise each invalid byte becomes U+FFFD and
/// two hexadecimal digits, and [`base64_if_odd`] returns the bytes.
pub fn exact(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        out.push_str(chunk.valid());
        for b in chunk.invalid() {
            out.push_str(&format!("\u{fffd}{b:02x}"));
        }
    }
    out
}

/// Returns the bytes of a name or path in base64, if it is not UTF-8.
pub fn base64_if_odd(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).err()?;
    Some(data_encoding::BASE64.encode(path))
}

/// A path in an object of JSON: its text, and its bytes if they are not UTF-8.
#[derive(Serialize)]
pub struct JsonPath {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl From<&[u8]> for JsonPath {
    fn from(path: &[u8]) -> Self {
        Self {
            path: exact(path),
            path_bytes: base64_if_odd(path),
        }
    }
}

/// Returns the letter of a type, as `ls -l` shows it.
pub fn type_letter(kind: FileType) -> char {
    match kind {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// Formats a mode like `drwxr-xr-x`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut out = String::from(type_letter(kind));
    for (shift, special, set, unset) in [
        (6, 0o4000, 's', 'S'),
        (3, 0o2000, 's', 'S'),
        (0, 0o1000, 't', 'T'),
    ] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => unset,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_names() {
        assert_eq!(mode(FileType::Directory, 0o041_777), "drwxrwxrwt");
        assert_eq!(mode(FileType::Regular, 0o104_644), "-rwSr--r--");
        assert_eq!(show(b"a\x1b[2J\xffb"), "a\\u{1b}[2J\\xffb");
        assert_eq!(name("a\\xe9 b".as_bytes()), "a\\xe9 b");
        assert_eq!(name(b"it's\n\x1b\\\xe9"), r"$'it\'s\n\x1b\\\xe9'");
        let turned = "a\u{202e}b\u{61c}".as_bytes();
        assert_eq!(show(turned), "a\\u{202e}b\\u{61c}");
        assert_eq!(name(turned), r"$'a\xe2\x80\xaeb\xd8\x9c'");
        assert_eq!(exact(b"a\nb\xe9"), "a\nb\u{fffd}e9");
        assert_eq!(base64_if_odd(b"plain"), None);
        for (bytes, text) in [
            (&b"\xff"[..], "/w=="),
            (b"a\xff", "Yf8="),
            (b"ab\xff", "YWL/"),
        ] {
            assert_eq!(base64_if_odd(bytes).as_deref(), Some(text));
        }
    }
}
