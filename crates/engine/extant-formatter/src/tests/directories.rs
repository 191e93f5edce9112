//! Directories of all sizes and shapes, grown and shrunk.

use super::Fs;
use crate::item::*;
use ext4_format::inode::{InodeCore, flags};
use ext4_format::{FileType, InodeNr};

const DIR: u32 = 12;
const FIRST: u32 = 20;

fn name(i: u32) -> Vec<u8> {
    format!("name {i} {}", "y".repeat(i as usize * 7 % 60)).into_bytes()
}

fn volume(count: u32, args: &[&str]) -> Option<Fs> {
    let inodes = (count * 2 + 100).to_string();
    let mut all = vec!["-N", &inodes];
    all.extend(args);
    let mut fs = Fs::make(16 * 1024 + u64::from(count), &all)?;
    fs.mkdir(2, b"d", DIR);
    let root = InodeCore {
        links: 4,
        ..fs.on_disk(2)
    };
    fs.inode(2, InodeEvent::Update, root);
    Some(fs)
}

fn create(fs: &mut Fs, numbers: impl Iterator<Item = u32>) {
    for i in numbers {
        fs.create(DIR, &name(i), FIRST + i);
    }
}

fn unlink(fs: &mut Fs, numbers: impl Iterator<Item = u32>) {
    for i in numbers {
        let core = fs.on_disk(FIRST + i);
        fs.unlink(DIR, &name(i), FIRST + i, core);
    }
}

#[test]
fn names_come_and_go() {
    let kinds: [&[&str]; 5] = [
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,large_dir"],
        &["-t", "ext4", "-b", "1024", "-O", "^64bit", "-I", "128"],
        &["-t", "ext4", "-b", "2048", "-O", "^filetype"],
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
    ];
    for (count, kinds) in [
        (10, &kinds[..]),
        (200, &kinds),
        (5000, &kinds),
        (30_000, &kinds[..2]),
    ] {
        for args in kinds {
            let Some(mut fs) = volume(count, args) else {
                return;
            };
            eprintln!("{count} names, {args:?}");
            create(&mut fs, 0..count);
            fs.check();
            // Remove every third name, then add other names in their room.
            unlink(&mut fs, (0..count).step_by(3));
            create(&mut fs, count..count + count / 2);
            fs.check();
            if count > 10_000 {
                continue;
            }
            unlink(&mut fs, (1..count).step_by(3));
            fs.check();
            let mut fs = fs.reopen();
            create(&mut fs, (0..count).step_by(3));
            fs.check();
            let listed = fs.debugfs("ls -l d");
            assert_eq!(listed.matches(" name ").count() as u32, listed_count(count));
            let indexed = fs.on_disk(DIR).flags & flags::INDEX != 0;
            assert_eq!(indexed, count > 100 && !args.contains(&"^dir_index"));
            // Moved below another directory.
            fs.mkdir(2, b"p", 13);
            fs.name(2, b"d", 0, FileType::Directory);
            fs.name(13, b"d", DIR, FileType::Directory);
            fs.misc(
                DIR,
                MiscEvent::DirParent {
                    parent: InodeNr(13),
                },
            );
            let core = InodeCore {
                links: 3,
                ..fs.core(0o040_755)
            };
            fs.inode(13, InodeEvent::Update, core);
            fs.check();
        }
    }
}

/// Returns how many names exist after all batches: the created names without every `3n + 1`.
fn listed_count(count: u32) -> u32 {
    count + count / 2 - (1..count).step_by(3).count() as u32
}

#[test]
fn one_by_one_through_every_shape() {
    let Some(mut fs) = volume(3000, &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    for i in 0..3000 {
        create(&mut fs, std::iter::once(i));
        if i % 7 == 6 {
            unlink(&mut fs, std::iter::once(i - 3));
        }
        if [5, 30, 60, 500].contains(&i) {
            fs.check();
        } else {
            fs.push();
        }
    }
    fs.check();
}
