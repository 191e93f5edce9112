use super::Fs;
use crate::image::BlockImages;
use crate::item::*;
use blockdev::BlockDevice;
use ext4_format::inode::InodeCore;
use ext4_format::{BlockNr, FileType, InodeNr};

const KINDS: [&[&str]; 8] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit"],
    &[
        "-t",
        "ext4",
        "-O",
        "^flex_bg,^resize_inode,meta_bg",
        "-g",
        "2048",
        "-b",
        "4096",
    ],
    &[
        "-t",
        "ext4",
        "-O",
        "orphan_file,metadata_csum_seed",
        "-b",
        "1024",
    ],
    &["-t", "ext2"],
    &["-t", "ext2", "-I", "128", "-b", "1024", "-O", "none"],
    &["-t", "ext3", "-I", "128", "-b", "2048"],
    &["-t", "ext4", "-I", "512", "-G", "4", "-O", "sparse_super2"],
];

#[test]
fn create_and_unlink_on_every_kind_of_volume() {
    for args in KINDS {
        let Some(mut fs) = Fs::make(16 << 10, args) else {
            return;
        };
        eprintln!("{args:?}");
        let mut cores = Vec::new();
        for i in 0..700u32 {
            let name = format!("a file with the number {i}");
            cores.push((name.clone(), 20 + i, fs.create(2, name.as_bytes(), 20 + i)));
        }
        // 12 is the orphan file, where there is one.
        fs.mkdir(2, b"sub", 13);
        fs.mkdir(13, b"sub sub", 14);
        let root = InodeCore {
            links: 4,
            ..fs.on_disk(2)
        };
        fs.inode(2, InodeEvent::Update, root);
        let sub = InodeCore {
            links: 3,
            ..fs.core(0o040_755)
        };
        fs.inode(13, InodeEvent::Update, sub);
        let output = fs.check();
        assert!(output.freed_inodes.is_empty() && output.revoked.is_empty());
        let dir = output
            .published
            .iter()
            .find(|p| p.ino == InodeNr(2))
            .unwrap();
        assert_eq!(dir.size, Some(fs.on_disk(2).size));
        // Some inodes were made and freed in the batch, some only freed.
        for (name, ino, core) in &cores[100..] {
            fs.unlink(2, name.as_bytes(), *ino, *core);
        }
        let core = fs.create(2, b"brief", 19);
        fs.unlink(2, b"brief", 19, core);
        fs.name(13, b"sub sub", 0, FileType::Directory);
        let core = fs.on_disk(14);
        fs.inode(14, InodeEvent::Free, core);
        let sub = InodeCore {
            links: 2,
            ..fs.on_disk(13)
        };
        fs.inode(13, InodeEvent::Update, sub);
        let output = fs.check();
        assert_eq!(output.freed_inodes.len(), 601);
        assert!(!output.revoked.is_empty());
        let mut fs = fs.reopen();
        fs.create(2, b"after", 700);
        fs.check();
        assert!(fs.debugfs("stat after").contains("Inode: 700"));
    }
}

#[test]
fn unused_groups_and_gaps_in_their_tables() {
    let Some(mut fs) = Fs::make(160 << 10, &["-t", "ext4", "-b", "4096", "-N", "16384"]) else {
        return;
    };
    let per_group = fs.geometry.inodes_per_group;
    assert!(fs.geometry.groups >= 2);
    // The last inode of an unused group, then one in the middle.
    let last = 2 * per_group;
    fs.create(2, b"last", last);
    fs.create(2, b"first block", 20);
    let output = fs.check();
    let gap: u32 = output.zeroed.iter().map(|z| z.1).sum();
    assert_eq!(gap, fs.geometry.itable_blocks() - 1);
    // The gap may not be zeros on the device yet: the next batch must not read it.
    let middle = last - per_group / 2;
    let (block, _) = fs
        .groups
        .inode_location(&fs.geometry, &fs.buffers, InodeNr(middle))
        .unwrap();
    blockdev::BlockDevice::write_at(&fs.dev, block.offset(4096), &[0xa5; 4096]).unwrap();
    fs.create(2, b"middle", middle);
    assert!(fs.check().zeroed.is_empty());
    let mut fs = fs.reopen();
    let core = fs.on_disk(last);
    fs.unlink(2, b"last", last, core);
    fs.check();
}

#[test]
fn symlinks_devices_and_what_only_inodes_say() {
    for args in [&["-t", "ext4"][..], &["-t", "ext2", "-I", "128"]] {
        let Some(mut fs) = Fs::make(12 << 10, args) else {
            return;
        };
        let link = InodeCore {
            size: 6,
            ..fs.core(0o120_777)
        };
        fs.inode(12, InodeEvent::Init, link);
        fs.misc(12, MiscEvent::SymlinkTarget(Box::from(&b"target"[..])));
        fs.name(2, b"fast", 12, FileType::Symlink);
        let slow = InodeCore {
            size: 100,
            ..fs.core(0o120_777)
        };
        fs.inode(13, InodeEvent::Init, slow);
        let block = fs.map(13, 0, 1, false);
        blockdev::BlockDevice::write_at(
            &fs.dev,
            block.offset(fs.geometry.block_size),
            &[b'x'; 100],
        )
        .unwrap();
        blockdev::BlockDevice::write_at(
            &fs.dev,
            block.offset(fs.geometry.block_size) + 100,
            &[0; 1],
        )
        .unwrap();
        fs.name(2, b"slow", 13, FileType::Symlink);
        let dev = InodeCore {
            rdev: ext4_format::inode::makedev(259, 70_000),
            ..fs.core(0o060_600)
        };
        fs.inode(14, InodeEvent::Init, dev);
        fs.name(2, b"dev", 14, FileType::BlockDevice);
        let fifo = fs.core(0o010_600);
        fs.inode(15, InodeEvent::Init, fifo);
        fs.name(2, b"fifo", 15, FileType::Fifo);
        fs.check();
        assert!(
            fs.debugfs("stat fast")
                .contains("Fast link dest: \"target\"")
        );
        assert!(fs.debugfs("stat dev").contains("259:70000"));
        fs.inode(
            14,
            InodeEvent::Update,
            InodeCore {
                mode: 0o060_644,
                ..dev
            },
        );
        fs.name(2, b"slow", 0, FileType::Symlink);
        fs.items.bits.push(BitsItem {
            stamp: 0,
            start: block,
            len: 1,
            alloc: false,
        });
        fs.inode(13, InodeEvent::Free, slow);
        fs.name(2, b"fast", 0, FileType::Symlink);
        fs.inode(12, InodeEvent::Free, link);
        fs.check();
        assert!(fs.debugfs("stat dev").contains("0644"));
    }
}

#[test]
fn a_rename_moves_a_directory() {
    let Some(mut fs) = Fs::make(12 << 10, &["-t", "ext4"]) else {
        return;
    };
    fs.mkdir(2, b"a", 12);
    fs.mkdir(2, b"b", 13);
    fs.mkdir(12, b"child", 14);
    for (ino, links) in [(2, 5), (12, 3), (13, 2)] {
        let core = if ino == 2 {
            fs.on_disk(2)
        } else {
            fs.core(0o040_755)
        };
        fs.inode(ino, InodeEvent::Update, InodeCore { links, ..core });
    }
    fs.check();
    fs.name(12, b"child", 0, FileType::Directory);
    fs.name(13, b"moved", 14, FileType::Directory);
    fs.misc(
        14,
        MiscEvent::DirParent {
            parent: InodeNr(13),
        },
    );
    for (ino, links) in [(12, 2), (13, 3)] {
        let core = InodeCore {
            links,
            ..fs.on_disk(ino)
        };
        fs.inode(ino, InodeEvent::Update, core);
    }
    let before = fs.on_disk(13).mtime;
    fs.name(13, b"later", 15, FileType::Regular);
    let core = fs.core(0o100_600);
    fs.inode(15, InodeEvent::Init, core);
    fs.check();
    assert!(
        fs.on_disk(13).mtime > before,
        "a name without an inode item moves the time"
    );
}

#[test]
fn a_number_lives_twice_in_one_batch() {
    let Some(mut fs) = Fs::make(12 << 10, &["-t", "ext4"]) else {
        return;
    };
    fs.mkdir(2, b"dir", 12);
    let root = InodeCore {
        links: 4,
        ..fs.on_disk(2)
    };
    fs.inode(2, InodeEvent::Update, root);
    fs.check();
    // The directory is removed, and a file gets its number, both before a push.
    let core = fs.on_disk(12);
    fs.name(2, b"dir", 0, FileType::Directory);
    fs.inode(12, InodeEvent::Free, core);
    fs.create(2, b"file", 12);
    fs.inode(2, InodeEvent::Update, InodeCore { links: 3, ..root });
    let output = fs.check();
    assert!(output.freed_inodes.is_empty());
    assert_eq!(output.revoked.len(), 1);
}

#[test]
fn damage_is_an_error_and_no_panic() {
    let Some(mut fs) = Fs::make(16 << 10, &["-t", "ext4", "-O", "^metadata_csum"]) else {
        return;
    };
    let core = fs.create(2, b"file", 12);
    fs.check();
    let refused = |fs: &mut Fs| {
        let items = std::mem::take(&mut fs.items);
        fs.formatter
            .format(&items, &fs.buffers, &fs.space, usize::MAX)
            .is_err()
    };
    // Allocated twice, freed twice, out of range, a tree that leads into an inode table.
    fs.inode(12, InodeEvent::Init, core);
    assert!(refused(&mut fs));
    fs.inode(13, InodeEvent::Free, core);
    assert!(refused(&mut fs));
    fs.inode(u32::MAX, InodeEvent::Init, core);
    assert!(refused(&mut fs));
    fs.items.bits.push(BitsItem {
        stamp: 0,
        start: BlockNr(u64::MAX),
        len: 3,
        alloc: true,
    });
    assert!(refused(&mut fs));
    fs.items.bits.push(BitsItem {
        stamp: 0,
        start: BlockNr(0),
        len: 1,
        alloc: true,
    });
    assert!(refused(&mut fs));
    let table = fs.formatter.descs(&fs.buffers)[0].inode_table;
    let (block, offset) = fs
        .groups
        .inode_location(&fs.geometry, &fs.buffers, InodeNr(12))
        .unwrap();
    let mut bytes = fs.buffers.image(block).unwrap().to_vec();
    let raw = &mut bytes[offset..offset + usize::from(fs.geometry.inode_size)];
    let child = ext4_format::extent::ExtentIndex {
        logical: 0,
        child: table,
    };
    ext4_format::extent::write_index(ext4_format::inode::i_block_mut(raw).unwrap(), 1, 0, [child])
        .unwrap();
    blockdev::BlockDevice::write_at(&fs.dev, block.offset(fs.geometry.block_size), &bytes).unwrap();
    fs.buffers.forget(block);
    fs.inode(12, InodeEvent::Free, core);
    assert!(refused(&mut fs));
}

/// The throughput of one core; run with `--release --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn two_hundred_thousand_creates() {
    let Some(mut fs) = Fs::make(1 << 20, &["-t", "ext4", "-b", "4096", "-N", "262144"]) else {
        return;
    };
    for round in 0..2 {
        for dir in 0..10 {
            let ino = 20 + round * 101_000 + dir * 10_001;
            fs.mkdir(2, format!("dir {round} {dir}").as_bytes(), ino);
            for i in 0..10_000 {
                fs.create(ino, format!("file{i:08}").as_bytes(), ino + 1 + i);
            }
        }
        let items = fs.items.inodes.len();
        let output = fs.push();
        eprintln!("{items} inodes: {} blocks", output.blocks.len());
    }
    let root = InodeCore {
        links: 23,
        ..fs.on_disk(2)
    };
    fs.inode(2, InodeEvent::Update, root);
    fs.check();
}

/// An image of an inode table stays in memory with the records whose checksums are known to be right. Of another record
/// nothing is known, though the formatter has made the block: its checksum is looked at.
#[test]
fn a_record_beside_a_changed_one_is_still_checked() {
    let Some(mut fs) = Fs::make(16 << 10, KINDS[0]) else {
        return;
    };
    let (sound, rotten) = (fs.create(2, b"sound", 20), fs.create(2, b"rotten", 21));
    fs.check();
    let place = fs
        .groups
        .inode_location(&fs.geometry, &fs.buffers, InodeNr(21));
    let (block, offset) = place.unwrap();
    let at = block.offset(fs.geometry.block_size) + offset as u64 + 8;
    fs.dev.write_at(at, &[0x5a]).unwrap();
    fs.buffers.forget(block);
    let keep = |fs: &mut Fs| {
        let output = fs.push();
        for (block, image) in output.blocks {
            fs.buffers.keep(block, image);
        }
    };
    // Twice: the second time with an image that the formatter made.
    for _ in 0..2 {
        fs.inode(20, InodeEvent::Update, sound);
        keep(&mut fs);
    }
    fs.unlink(2, b"sound", 20, sound);
    keep(&mut fs);
    fs.unlink(2, b"rotten", 21, rotten);
    let refused = fs
        .formatter
        .format(&fs.items, &fs.buffers, &fs.space, usize::MAX);
    assert!(
        format!("{:?}", refused.err()).contains("Checksum"),
        "the record is checked"
    );
}
