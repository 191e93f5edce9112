//! Advice about paths in an image.

use super::image_place::ImagePlace;
use super::{base_name, bytes, os};
use crate::format::show::show;
use crate::messages::advised::advised;
use ext4_format::inode::flags;
use extant::{Dir, Error, FileType};

/// Returns the directory part of a path; empty if the path is one name.
pub fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let path = &path[..end - base_name(path).len()];
    match path.iter().rposition(|&b| b != b'/') {
        Some(at) => &path[..=at],
        None if path.is_empty() => path,
        None => b"/",
    }
}

/// Returns a directory part that is empty means the directory itself.
fn asked(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Returns the nearest existing ancestor of a path, with its type.
fn nearest<'p>(dir: &Dir, path: &'p [u8]) -> Option<(&'p [u8], FileType)> {
    let mut at = path;
    loop {
        let next = above(at);
        if next == at {
            return None;
        }
        at = next;
        if let Ok(attributes) = dir.metadata(os(asked(at))) {
            return Some((asked(at), attributes.file_type()));
        }
    }
}

/// Adds advice to an error about a place, if there is any.
pub fn about(place: &ImagePlace, error: anyhow::Error) -> anyhow::Error {
    // An error with a context is about something below the place.
    let Some(kind) = error
        .downcast_ref::<Error>()
        .filter(|_| error.chain().count() == 1)
    else {
        return error;
    };
    let address = &place.address;
    match kind {
        Error::NotFound | Error::NotDirectory if place.node().is_none() => {
            let name = |path: &[u8]| place.at(path).to_string();
            match missing(&place.dir, &place.path, name) {
                Some(advice) => advised(kind, advice),
                None => error,
            }
        }
        Error::IsDirectory => advised(kind, format_args!("extant ls {address} lists it")),
        Error::SymlinkLoop => advised(
            kind,
            format_args!("extant ls -l {address} shows where it leads"),
        ),
        Error::NotEmpty => advised(kind, "use -r"),
        Error::NotPermitted => match protection(place) {
            Some(advice) => advised(kind, advice),
            None => error,
        },
        _ => error,
    }
}

/// Returns the command that takes away the flag which protects a place, or the directory of its name.
pub fn protection(place: &ImagePlace) -> Option<String> {
    let above = asked(above(&place.path));
    let own = place.attributes(false).ok();
    let own = own.map(|found| (place.address.clone(), found.flags()));
    let directory = place.dir.metadata(os(above)).ok();
    let directory = directory.map(|found| (place.at(above), found.flags()));
    let both = own.into_iter().chain(directory);
    let mut letters = both.filter_map(|(address, set)| {
        let letter = match set {
            set if set & flags::IMMUTABLE != 0 => 'i',
            set if set & flags::APPEND != 0 => 'a',
            _ => return None,
        };
        Some(format!(
            "extant chattr -{letter} {address} takes the flag away that protects it"
        ))
    });
    letters.next()
}

/// Returns advice about a path that does not exist; `name` turns a path from the same directory into an address.
pub fn missing(dir: &Dir, path: &[u8], name: impl Fn(&[u8]) -> String) -> Option<String> {
    if let Ok(target) = dir.read_link(os(path)) {
        return Some(format!(
            "it is a symbolic link to {}, which does not exist",
            show(&bytes(target))
        ));
    }
    if let Ok(attributes) = dir.symlink_metadata(os(path)) {
        return Some(format!("it is a {}", attributes.file_type().name()));
    }
    let (there, kind) = nearest(dir, path)?;
    Some(match kind {
        FileType::Directory => format!("see extant ls {}", name(there)),
        _ => format!("{} is not a directory", name(there)),
    })
}

/// Adds advice to an error about a new name, whose directory may be missing.
pub fn about_new(place: &ImagePlace, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(kind @ Error::NotFound)
            if place
                .dir
                .symlink_metadata(os(asked(above(&place.path))))
                .is_err() =>
        {
            let parent = place.at(above(&place.path));
            advised(
                kind,
                format_args!("extant mkdir -p {parent} makes its directory"),
            )
        }
        Some(kind @ Error::Exists) => advised(kind, "with -p a directory may be there"),
        _ => about(place, error),
    }
}
