//! The operations on a broken image. Any error is fine.

use crate::common::Rng;
use crate::common::list;
use extant::{Fallocate, FileType, OpenOptions, RenameMode, SetAttributes, SetXattr, Volume};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Walks the whole tree, ignoring errors. The walk is bounded, because directories may form circles.
pub fn walk(v: &Volume) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut todo = vec![String::from("/")];
    let mut files = Vec::new();
    let mut buf = vec![0; 70_000];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = list(v, &dir) else {
            continue;
        };
        for entry in entries {
            let path = Path::new(&dir).join(OsStr::from_bytes(&entry.name));
            let _ = v.list_xattrs(&path).map(|names| {
                names.iter().for_each(|n| drop(v.get_xattr(&path, n)));
            });
            let _ = v.metadata(&path);
            let Ok(attributes) = v.symlink_metadata(&path) else {
                continue;
            };
            let _ = v.read_link(&path);
            if let Ok(file) = v.open_file(&path) {
                let _ = file.read_at(&mut buf, 0);
                let _ = file.read_at(&mut buf, attributes.len().saturating_sub(5000));
                let mut at = 0;
                for _ in 0..8 {
                    let Ok(data) = file.seek_data(at) else {
                        break;
                    };
                    let _ = file.read_at(&mut buf, data);
                    let Ok(hole) = file.seek_hole(data) else {
                        break;
                    };
                    at = hole;
                }
            }
            let Ok(path) = path.into_os_string().into_string() else {
                continue;
            };
            if entry.file_type == FileType::Directory && seen.insert(entry.ino) && path.len() < 3000
            {
                todo.push(format!("{path}/"));
            }
            if files.len() < 3000 {
                files.push(path);
            }
        }
    }
    files
}

/// A few changes.
pub fn change(v: &Volume, files: &[String], rng: &mut Rng) {
    for _ in 0..30 {
        let mut any = || {
            files
                .get(rng.below(files.len() as u64) as usize)
                .map_or("/none", String::as_str)
        };
        let (some, other) = (any(), any());
        let _ = change_one(v, some, other, rng);
        if rng.below(10) == 0 {
            let _ = v.sync();
        }
        if rng.below(20) == 0 {
            v.drop_caches();
        }
    }
    let _ = v.sync();
    let _ = v.statfs();
}

fn change_one(v: &Volume, some: &str, other: &str, rng: &mut Rng) -> extant::Result<()> {
    match rng.below(16) {
        0 => v.create_new_file(format!("{some}/new")).map(drop),
        1 => v.write(format!("/new{}", rng.below(9)), [1; 9000]),
        2 => v.remove_file(some),
        3 => v.remove_dir(some),
        4 => v.rename(some, other),
        5 => v.rename_with(some, other, RenameMode::Exchange),
        6 => v.set_len(some, rng.below(100_000)),
        7 => v.set_xattr(some, "user.x", &[3; 300], SetXattr::Any),
        8 => v.create_dir(format!("/dir{}", rng.below(9))).map(drop),
        9 => v.hard_link(some, format!("/hard{}", rng.below(9))),
        10 => {
            let mode = Some(0o600);
            v.set_attributes(
                some,
                &SetAttributes {
                    mode,
                    ..Default::default()
                },
            )
        }
        11 => v.remove_xattr(some, "user.large"),
        12 => v.symlink("t".repeat(90), format!("{some}/link")),
        13 => v.mknod(format!("{some}/fifo"), FileType::Fifo, 0o600, 0),
        14 => {
            let f = v.open_file_with(some, &OpenOptions::new().write(true))?;
            f.append(&[4; 3000])?;
            let keep_size = rng.below(2) == 0;
            let how = if rng.below(2) == 0 {
                Fallocate::Allocate { keep_size }
            } else {
                Fallocate::ZeroRange { keep_size }
            };
            f.fallocate(how, rng.below(80) << 10, 50_000)?;
            f.sync_all()
        }
        _ => {
            let f = v.open_file_with(some, &OpenOptions::new().write(true))?;
            f.write_at(&[2; 5000], rng.below(50_000))?;
            f.fallocate(Fallocate::PunchHole, 4096, 20_000)
        }
    }
}

/// Removes all files that it can: every mapping is read and freed.
pub fn remove_all(v: &Volume, files: &[String]) {
    // Paths found last lie deepest.
    for (n, path) in files.iter().rev().enumerate() {
        let _ = v.remove_file(path).or_else(|_| v.remove_dir(path));
        if n % 300 == 0 {
            let _ = v.sync();
        }
    }
    let _ = v.sync();
}
