//! Patterns in paths of an image: `*`, `?` and `[...]`, as shells have them. A name that exists as it is written wins.

use crate::address::advice::missing;
use crate::address::image_place::ImagePlace;
use crate::address::walk::sorted;
use crate::address::{Address, join, os};
use crate::messages::advised::advised;
use anyhow::{Context, Result, bail};
use extant::{Dir, Error, FileType, Volume};
use std::os::unix::ffi::OsStrExt;

/// The meaning of a pattern that matches no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMatch {
    /// An error.
    Fails,
    /// No names.
    IsNothing,
    /// The pattern is the name of something new, as shells leave it.
    IsName,
}

fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|b| b"*?[".contains(b))
}

/// Translates a component into the matcher's language. Escapes braces and a leading `!`, which shells take literally.
fn compiled(component: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(component.len());
    let mut bytes = component.iter().copied().enumerate();
    while let Some((at, byte)) = bytes.next() {
        if byte == b'\\' {
            // The next byte is escaped already.
            pattern.push(byte);
            pattern.extend(bytes.next().map(|(_, next)| next));
            continue;
        }
        if b"{},".contains(&byte) || byte == b'!' && at == 0 {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

/// Returns whether a name matches a pattern. As in shells, only a pattern with a leading dot matches hidden names.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    (!name.starts_with(b".") || pattern.starts_with(b".")) && fast_glob::glob_match(pattern, name)
}

/// Returns the addresses that an address stands for: the matching names if it is a pattern, else the address itself.
pub fn expand(volume: &Volume, address: &Address, otherwise: NoMatch) -> Result<Vec<Address>> {
    if !is_pattern(&address.path) {
        return Ok(vec![address.clone()]);
    }
    let context = || address.to_string();
    let place = ImagePlace::of(volume, address).with_context(context)?;
    if place.attributes(false).is_ok() {
        return Ok(vec![address.clone()]);
    }
    let found = matches(&place.dir, &place.path).with_context(context)?;
    if found.is_empty() {
        return match otherwise {
            NoMatch::Fails => {
                let error = format!("{address}: no name matches this pattern");
                match missing(&place.dir, &place.path, |path| place.at(path).to_string()) {
                    Some(advice) => Err(advised(error, advice)),
                    None => bail!(error),
                }
            }
            NoMatch::IsNothing => Ok(Vec::new()),
            NoMatch::IsName => Ok(vec![address.clone()]),
        };
    }
    let start = address.number().map(|(ino, _)| format!("<{ino}>"));
    let start = start.unwrap_or_default().into_bytes();
    let at = |path: Vec<u8>| address.at(&join(&start, &path));
    Ok(found.into_iter().map(at).collect())
}

/// Returns the paths below a directory that match a pattern, sorted by name.
fn matches(dir: &Dir, path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut found = vec![if path.starts_with(b"/") {
        b"/".to_vec()
    } else {
        Vec::new()
    }];
    let mut components = path
        .split(|&b| b == b'/')
        .filter(|c| !c.is_empty())
        .peekable();
    while let Some(component) = components.next() {
        extant_terminal::interrupt::check()?;
        let last = components.peek().is_none();
        if !is_pattern(component) {
            found
                .iter_mut()
                .for_each(|path| *path = join(path, component));
            if last {
                found.retain(|path| dir.symlink_metadata(os(&path)).is_ok());
            }
            continue;
        }
        let pattern = compiled(component);
        let mut next = Vec::new();
        for above in found {
            for entry in names(dir, &above)? {
                let way = matches!(entry.1, FileType::Directory | FileType::Symlink);
                if (last || way) && fits(&pattern, &entry.0) {
                    next.push(join(&above, &entry.0));
                }
            }
        }
        found = next;
    }
    if path.ends_with(b"/") {
        found.iter_mut().for_each(|path| path.push(b'/'));
        found.retain(|path| dir.open_dir(os(&path)).is_ok());
    }
    Ok(found)
}

/// Lists the names in a directory. A missing directory, or a file instead of a directory, yields an empty list.
fn names(dir: &Dir, path: &[u8]) -> Result<Vec<(Vec<u8>, FileType)>> {
    let path = if path.is_empty() { b"." } else { path };
    match sorted(dir, os(path)) {
        Ok(names) => Ok(names
            .into_iter()
            .map(|e| (e.file_name().as_bytes().to_vec(), e.file_type()))
            .collect()),
        Err(Error::NotDirectory | Error::NotFound | Error::SymlinkLoop) => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| crate::format::show::show(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_shells_say() {
        let fit = |pattern: &str, name: &[u8]| fits(&compiled(pattern.as_bytes()), name);
        for (pattern, name) in [
            ("*", &b"a.conf"[..]),
            ("*.conf", b"a.conf"),
            ("[!a]*", b"b"),
            ("[a-c]?", b"bz"),
            ("**", b"ab"),
            (".*", b".hidden"),
            ("{a,b}*", b"{a,b}x"),
            ("!*", b"!x"),
            ("\\*?", b"*a"),
            ("*ü*", "aüb".as_bytes()),
            ("a*", b"a\xff\xfe"),
        ] {
            assert!(fit(pattern, name), "{pattern}");
        }
        for (pattern, name) in [
            ("*", &b".hidden"[..]),
            ("?", b"."),
            ("*.conf", b"a.config"),
            ("{a,b}*", b"ax"),
            ("!*", b"x"),
            ("\\*", b"a"),
            ("[ab", b"a"),
        ] {
            assert!(!fit(pattern, name), "{pattern}");
        }
    }

    /// Names are bytes; no name or pattern may make the process panic.
    #[test]
    fn any_bytes_are_names_and_patterns() {
        let some = [
            b'*', b'?', b'[', b']', b'\\', b'{', b'!', b'-', b'a', 0xc3, 0xff, 0xf0,
        ];
        let text = |mut n: usize| {
            let mut bytes = Vec::new();
            while n > 0 {
                bytes.push(some[n % some.len()]);
                n /= some.len();
            }
            bytes
        };
        for n in 0..20_000 {
            let (pattern, name) = (text(n * 7919 % 248_832), text(n * 104_729 % 248_832));
            fits(&compiled(&pattern), &name);
        }
        assert!(fits(b"*", &[0xff, 0xc3]));
    }
}
