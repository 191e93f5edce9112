//! The schemes of addresses of images that are not on this machine.

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

/// Returns all of them.
pub fn schemes() -> impl Iterator<Item = &'static [u8]> {
    NBD.into_iter().chain(OBJECTS).chain(WEB).chain([TLS])
}

fn has_scheme(image: &Path, schemes: &[&[u8]]) -> bool {
    let bytes = image.as_os_str().as_bytes();
    schemes.iter().any(|scheme| bytes.starts_with(scheme))
}

/// Returns whether `extant-remote` serves the image.
pub fn is_served(image: &Path) -> bool {
    has_scheme(image, &OBJECTS) || has_scheme(image, &WEB) || has_scheme(image, &[TLS])
}

/// Returns whether the image is made of objects, which fence writers off by themselves.
pub fn is_of_objects(image: &Path) -> bool {
    has_scheme(image, &OBJECTS)
}

/// Returns whether the image is on an NBD server, a web server or an object store.
pub fn is_remote(image: &Path) -> bool {
    let bytes = image.as_os_str().as_bytes();
    schemes().any(|scheme| bytes.starts_with(scheme))
}

#[test]
fn addresses_of_stores_are_known() {
    assert!(is_served(Path::new("https://h/x")) && !is_of_objects(Path::new("https://h/x")));
    assert!(is_of_objects(Path::new("s3://b/x")));
    assert!(!is_served(Path::new("nbd://h/x")) && !is_served(Path::new("s3:x")));
}
