//! All operations of the library, as the commands use them. Any error is accepted.

use crate::common::Rng;
use crate::operations;
use extant::{Fallocate, OpenOptions, SetAttributes, SetXattr, Timestamp, Volume};

/// Reads everything.
pub fn read(volume: &Volume) -> Vec<String> {
    let files = operations::walk(volume);
    let _ = volume.statfs();
    let _ = volume.superblock();
    let _ = volume.label();
    volume.groups().for_each(drop);
    for path in files.iter().take(40) {
        if let Ok(file) = volume.open_file(path) {
            let _ = file.extents();
            let _ = file.list_xattrs();
        }
        let _ = volume.read_dir(path).map(|mut names| names.next());
    }
    files
}

/// Reads, and runs all kinds of changes.
pub fn change(volume: &Volume, rng: &mut Rng) {
    let mut files = match rng.below(2) {
        0 => read(volume),
        _ => ["/d0/f3", "/d1", "/deep", "/big", "/far", "/d2/slow"]
            .map(String::from)
            .into(),
    };
    // e2fsck misses it.
    files.retain(|path| path != "/lost+found");
    operations::change(volume, &files, rng);
    for _ in 0..12 {
        let at = |rng: &mut Rng| rng.below(files.len().max(1) as u64) as usize;
        let none = String::from("/none");
        let some = files.get(at(rng)).unwrap_or(&none);
        let other = files.get(at(rng)).unwrap_or(&none);
        let _ = more(volume, some, other, rng);
    }
    if rng.below(4) == 0 {
        operations::remove_all(volume, &files);
    }
    let _ = volume.trim(0, u64::MAX, 0);
    if let Ok(frozen) = volume.freeze() {
        frozen.thaw();
    }
}

fn more(volume: &Volume, some: &str, other: &str, rng: &mut Rng) -> extant::Result<()> {
    let (offset, len) = (rng.below(80) << 12, (1 + rng.below(20)) << 12);
    let open = |path: &str| volume.open_file_with(path, &OpenOptions::new().read(true).write(true));
    match rng.below(12) {
        0 => open(some)?.fallocate(Fallocate::CollapseRange, offset, len),
        1 => open(some)?.fallocate(Fallocate::InsertRange, offset, len),
        2 => open(some)?
            .copy_range_to(offset, &open(other)?, 0, len)
            .map(drop),
        3 => volume.set_label("other"),
        4 => {
            let file = volume.create_unnamed(0o600)?;
            file.write_at(&[5; 10_000], 0)?;
            volume.link_file(&file, format!("{other}/linked"))
        }
        5 => volume.set_attributes(
            some,
            &SetAttributes {
                uid: Some(5),
                mtime: Some(Timestamp::new(1, 2).into()),
                size: Some(offset),
                ..Default::default()
            },
        ),
        6 => volume.set_xattr(some, "security.capability", &[1; 20], SetXattr::Any),
        7 => {
            for n in 0..40 {
                volume.create_new_file(format!("{some}/more{n:0>100}"))?;
            }
            volume.sync()
        }
        8 => {
            let file = open(some)?;
            // Cover all levels of a mapping.
            for n in 0..30 {
                file.write_at(&[6; 700], (n * 3) << 13)?;
            }
            file.sync_all()
        }
        9 => volume.set_len(some, 1 << 40),
        10 => volume.remove_xattr(some, "user.small"),
        _ => volume.write(format!("{some}/file"), [7; 40_000]),
    }
}
