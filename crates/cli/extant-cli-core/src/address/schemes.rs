//! The schemes of addresses of images that are not on this machine.

use crate::format::show::ShowPath;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Schemes of NBD servers.
const NBD: [&[u8]; 2] = [b"nbd://", b"nbd+unix://"];
/// Schemes of object stores, where an image is many objects.
const OBJECTS: [&[u8]; 4] = [b"s3://", b"gs://", b"az://", b"file+objects://"];
/// Schemes of web servers.
const WEB: [&[u8]; 2] = [b"https://", b"http://"];
/// Scheme of NBD servers with TLS.
const TLS: &[u8] = b"nbds://";
/// Scheme of images of a Ceph cluster, before the names of a pool and an image.
const RBD: &[u8] = b"rbd:";

/// Returns the length of the scheme of an address; `None` for an image of this machine.
pub fn scheme_len(address: &[u8]) -> Option<usize> {
    let lists = [&NBD[..], &OBJECTS, &WEB, &[TLS]];
    let mut schemes = lists.into_iter().flatten();
    let scheme = schemes.find(|scheme| address.starts_with(scheme));
    // `rbd:/a` and `rbd:<2>/a` are paths in an image of the name `rbd`.
    let names = address.strip_prefix(RBD);
    let is_rbd = |names: &[u8]| {
        names.contains(&b'/') && !names.starts_with(b"/") && !names.starts_with(b"<")
    };
    let rbd = names.filter(|names| is_rbd(names)).map(|_| RBD.len());
    scheme.map(|scheme| scheme.len()).or(rbd)
}

/// Returns why an address of another program is not the address of an image: `ssh://HOST/DISK` is not a path in an image of the name `ssh`.
pub fn unknown_scheme(text: &OsStr) -> Option<String> {
    let bytes = text.as_bytes();
    let at = bytes.windows(3).position(|part| part == b"://")?;
    let (scheme, _) = bytes.split_at(at);
    let is_name = scheme.len() > 1
        && scheme
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-".contains(b));
    if !is_name || scheme_len(bytes).is_some() || Path::new(OsStr::from_bytes(scheme)).exists() {
        return None;
    }
    Some(format!(
        "{}: images have no such address (try nbd://, nbds://, https://, s3://, gs://, az:// or rbd:)",
        text.shown()
    ))
}

fn has_scheme(image: &Path, schemes: &[&[u8]]) -> bool {
    let bytes = image.as_os_str().as_bytes();
    schemes.iter().any(|scheme| bytes.starts_with(scheme))
}

/// Returns whether `extant-remote` serves the image.
pub fn is_served(image: &Path) -> bool {
    is_remote(image) && !has_scheme(image, &NBD)
}

/// Returns whether `extant-remote` makes the image if it is opened with a size, and keeps two writers of it apart: an image of objects
/// or of a Ceph cluster.
pub fn is_made(image: &Path) -> bool {
    has_scheme(image, &OBJECTS) || is_rbd(image)
}

/// Returns whether the image is of a Ceph cluster.
fn is_rbd(image: &Path) -> bool {
    is_remote(image) && has_scheme(image, &[RBD])
}

/// Returns whether the image is on an NBD server, a web server, an object store or a Ceph cluster.
pub fn is_remote(image: &Path) -> bool {
    scheme_len(image.as_os_str().as_bytes()).is_some()
}

#[test]
fn addresses_of_other_programs_are_not_paths() {
    let refused = |text: &str| unknown_scheme(OsStr::new(text)).is_some();
    for text in [
        "ssh://host/disk",
        "tcp://127.0.0.1:10809/disk",
        "iscsi://h/t/1",
    ] {
        assert!(refused(text), "{text}");
    }
    for text in [
        "nbd://h/x",
        "rbd:p/i",
        "disk.img://etc",
        "dir/disk://etc",
        "d://etc",
        "disk:/etc",
    ] {
        assert!(!refused(text), "{text}");
    }
}

#[test]
fn addresses_of_stores_are_known() {
    assert!(is_served(Path::new("https://h/x")) && !is_made(Path::new("https://h/x")));
    assert!(is_made(Path::new("s3://b/x")));
    assert!(!is_served(Path::new("nbd://h/x")) && !is_served(Path::new("s3:x")));
    assert!(is_served(Path::new("rbd:p/i")) && is_made(Path::new("rbd:p/n/i@s")));
    for local in ["rbd:", "rbd:/etc", "rbd:<2>/etc", "rbd:x", "rbd"] {
        assert!(!is_remote(Path::new(local)), "{local}");
    }
}
