//! Addresses: `IMAGE:/path` is a path inside an image, everything else is a path of the host.
//!
//! The image's name ends at the first `:/`, or at a `:` that ends the argument (`IMAGE:` is its root). `IMAGE:<12>` is
//! inode 12, and `IMAGE:<12>/path` is a path that starts at that inode, if the inode is a directory. A file of the
//! host whose name looks like an address is written with a leading `./`, `../` or `/`: if a file of exactly that name
//! exists, the argument means that file. So `./a:/b` is the host's file `./a:/b` if that file exists, and otherwise
//! `/b` in the image `./a`.

pub mod advice;
pub mod image_place;
pub mod patterns;
pub mod request;
pub mod schemes;
pub mod walk;
pub use extant_transfer::{base_name, join};

use crate::format::show::{ShowPath, show};
use clap::builder::{OsStringValueParser, TypedValueParser, ValueParser, ValueParserFactory};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns whether a path stands for a standard stream.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns a path or name as the library takes it.
pub fn os(bytes: &(impl AsRef<[u8]> + ?Sized)) -> &OsStr {
    OsStr::from_bytes(bytes.as_ref())
}

/// Returns the bytes of a path or name.
pub fn bytes(name: impl Into<OsString>) -> Vec<u8> {
    name.into().into_vec()
}

/// A path inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// File or block device that holds the image.
    pub image: PathBuf,
    /// Path inside, with a leading '/', or with a leading inode number as `<12>`.
    pub path: Vec<u8>,
}

/// A path of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path inside an image.
    Image(Address),
    /// A path of the host.
    Host(PathBuf),
}

/// An address where a bare image means its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rooted(pub Address);

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let begins = |at: &usize| {
        let rest = &text[at + 1..];
        text[*at] == b':' && (rest.starts_with(b"/") || number(rest).is_some())
    };
    // The colon of a server's scheme does not end the image's name.
    let first = schemes::scheme_len(text).unwrap_or(0);
    let at = match (first..text.len()).find(begins) {
        Some(at) => at,
        None => text.strip_suffix(b":")?.len(),
    };
    let (image, path) = (text.get(..at)?, text.get(at + 1..)?);
    (!image.is_empty()).then_some((image, path))
}

/// Splits a path of an image into its leading inode number and the rest: nothing, or a slash and a path.
fn number(path: &[u8]) -> Option<(u32, &[u8])> {
    let rest = path.strip_prefix(b"<")?;
    let end = rest.iter().position(|&b| b == b'>')?;
    let digits = std::str::from_utf8(&rest[..end]).ok()?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    let rest = &rest[end + 1..];
    let whole = rest.is_empty() || rest.starts_with(b"/");
    // A number that is too large becomes an inode number that no image has.
    (plain && whole && !digits.is_empty()).then(|| (digits.parse().unwrap_or(u32::MAX), rest))
}

impl Address {
    /// Returns the inode number that the path starts at, and the path from there: empty for the inode itself.
    pub fn number(&self) -> Option<(u32, &[u8])> {
        let (ino, rest) = number(&self.path)?;
        let start = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
        // A slash after the number asks for a directory, as after a name.
        let path = match &rest[start..] {
            b"" if !rest.is_empty() => b".",
            path => path,
        };
        Some((ino, path))
    }

    /// Returns the root of an image.
    pub fn root(image: impl Into<PathBuf>) -> Self {
        Self {
            image: image.into(),
            path: b"/".to_vec(),
        }
    }

    /// Returns the address as it is written, in bytes.
    pub fn as_written(&self) -> Vec<u8> {
        [self.image.as_os_str().as_bytes(), b":", &self.path].concat()
    }

    /// Returns another path of the same image, for messages.
    pub fn at(&self, path: &[u8]) -> Self {
        Self {
            image: self.image.clone(),
            path: path.to_vec(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.shown(), show(&self.path))
    }
}

impl From<OsString> for Location {
    fn from(text: OsString) -> Self {
        let bytes = text.as_bytes();
        let explicit = [&b"./"[..], b"../", b"/"]
            .iter()
            .any(|p| bytes.starts_with(p));
        match split(bytes) {
            Some((image, path)) if !(explicit && Path::new(&text).symlink_metadata().is_ok()) => {
                Self::Image(Address {
                    image: OsStr::from_bytes(image).into(),
                    path: if path.is_empty() {
                        b"/".to_vec()
                    } else {
                        path.to_vec()
                    },
                })
            }
            _ => Self::Host(text.into()),
        }
    }
}

impl Address {
    /// Parses an argument as an address. The error suggests what to write instead.
    pub fn given(text: OsString) -> Result<Self, String> {
        if let Some(why) = schemes::unknown_scheme(&text) {
            return Err(why);
        }
        match Location::from(text) {
            Location::Image(address) => Ok(address),
            Location::Host(path) => {
                let meant = slash_forgotten(&path);
                let is_image = path.is_file() && !path.as_os_str().is_empty();
                let path = path.shown();
                let meant = meant.unwrap_or_else(|| {
                    if is_image {
                        format!("{path}:/path")
                    } else {
                        "IMAGE:/path".into()
                    }
                });
                Err(format!("{path} is not a path in an image: write {meant}"))
            }
        }
    }
}

impl ValueParserFactory for Address {
    type Parser = ValueParser;
    fn value_parser() -> ValueParser {
        OsStringValueParser::new().try_map(Self::given).into()
    }
}

impl ValueParserFactory for Rooted {
    type Parser = ValueParser;
    fn value_parser() -> ValueParser {
        OsStringValueParser::new()
            .try_map(
                |text| match (schemes::unknown_scheme(&text), Location::from(text)) {
                    (Some(why), _) => Err(why),
                    (None, Location::Image(address)) => Ok(Self(address)),
                    (None, Location::Host(image)) if is_stream(&image) => Err(
                        "an image is read at many places, not from start to end: name a file"
                            .into(),
                    ),
                    (None, Location::Host(image)) => match slash_forgotten(&image) {
                        Some(meant) => Err(format!("there is no such file: write {meant}?")),
                        None => Ok(Self(Address::root(image))),
                    },
                },
            )
            .into()
    }
}

/// Suggests an address for `disk.img:etc`, if `disk.img` exists and no file has the whole name.
fn slash_forgotten(path: &Path) -> Option<String> {
    let text = path.to_str().filter(|_| !schemes::is_remote(path))?;
    let (image, inside) = text.split_once(':')?;
    let is_image = Path::new(image).is_file() && path.symlink_metadata().is_err();
    is_image.then(|| format!("{image}:/{inside}"))
}

/// Converts bytes to a path of the host.
pub fn host_path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> Option<(String, String)> {
        match Location::from(OsString::from(text)) {
            Location::Image(a) => Some((
                a.image.display().to_string(),
                String::from_utf8(a.path).expect("the tests' paths are UTF-8"),
            )),
            Location::Host(_) => None,
        }
    }

    #[test]
    fn the_image_ends_at_the_first_colon_slash() {
        let is =
            |t: &str, i: &str, p: &str| assert_eq!(image(t), Some((i.into(), p.into())), "{t}");
        is("disk.img:/etc/passwd", "disk.img", "/etc/passwd");
        is("disk.img:", "disk.img", "/");
        is("a:b.img:/x:/y", "a:b.img", "/x:/y");
        is("/tmp/d.img:/", "/tmp/d.img", "/");
        is("d.img:<12>", "d.img", "<12>");
        is("d.img:<12>/a", "d.img", "<12>/a");
        is("a:<x>:<2>", "a:<x>", "<2>");
        is("rbd:/etc", "rbd", "/etc");
        is("rbd:p/i@s?id=x:/etc", "rbd:p/i@s?id=x", "/etc");
        is("d.img:/<12>", "d.img", "/<12>");
        for host in ["file", "a:b", ":", ":/x", "-", "a:<>", "a:<1>b", "a:<-1>"] {
            assert_eq!(image(host), None, "{host}");
        }
    }

    #[test]
    fn numbers_of_inodes() {
        let number = |path: &str| {
            let address = Address::root("i").at(path.as_bytes());
            let found = address.number();
            found.map(|(ino, rest)| (ino, String::from_utf8(rest.to_vec()).unwrap()))
        };
        assert_eq!(number("<12>"), Some((12, String::new())));
        assert_eq!(number("<12>/"), Some((12, ".".into())));
        assert_eq!(number("<12>//a/b"), Some((12, "a/b".into())));
        assert_eq!(number("<99999999999>"), Some((u32::MAX, String::new())));
        assert_eq!(number("/<12>"), None);
    }

    #[test]
    fn a_file_that_exists_and_says_it_is_the_hosts_wins() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("odd:");
        assert!(image(odd.to_str().unwrap()).is_some());
        std::fs::write(&odd, "").unwrap();
        assert!(image(odd.to_str().unwrap()).is_none());
    }

    #[test]
    fn names() {
        assert_eq!(base_name(b"/a/b/"), b"b");
        assert_eq!(base_name(b"b"), b"b");
        assert_eq!(base_name(b"///"), b"");
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"", b"a"), b"a");
    }
}
