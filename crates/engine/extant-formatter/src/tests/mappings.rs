use super::Fs;
use crate::item::*;
use ext4_format::inode::InodeCore;
use ext4_format::{BlockNr, InodeNr};

/// Maps every second logical block of a file, so that no extents merge, and returns the blocks.
fn scattered(fs: &mut Fs, ino: u32, n: u32) -> Vec<(BlockNr, u32)> {
    (0..n).map(|i| (fs.map(ino, i * 2, 1, false), 1)).collect()
}

fn depth(fs: &Fs, name: &str) -> usize {
    let stat = fs.debugfs(&format!("ex {name}"));
    let last = stat.lines().nth(1).unwrap_or_default().to_string();
    last.split('/')
        .nth(1)
        .map_or(0, |d| d.trim().split(' ').next().unwrap().parse().unwrap())
}

#[test]
fn an_extent_tree_grows_and_shrinks() {
    let Some(mut fs) = Fs::make(20 << 10, &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let bs = u64::from(fs.geometry.block_size);
    let core = fs.create(2, b"file", 12);
    let n = 4000;
    let data = scattered(&mut fs, 12, n);
    let core = InodeCore {
        size: u64::from(n) * 2 * bs,
        ..core
    };
    fs.inode(12, InodeEvent::Update, core);
    let output = fs.check();
    assert_eq!(depth(&fs, "file"), 2);
    let published = output
        .published
        .iter()
        .find(|p| p.ino == InodeNr(12))
        .unwrap();
    assert_eq!(
        published.sectors_delta as u64 + u64::from(n) * bs / 512,
        ext4_format::inode::sectors(&fs.raw(12), &fs.geometry)
    );
    // Fill holes in the middle, one by one and as unwritten runs.
    let mut all = data.clone();
    for i in 700..900 {
        all.push((fs.map(12, i * 2 + 1, 1, i % 3 == 0), 1));
    }
    fs.check();
    // Punch, leaving little: the tree moves back into the inode.
    fs.unmap(12, 2, u32::MAX - 2, &all[1..]);
    let output = fs.check();
    assert_eq!(depth(&fs, "file"), 0);
    assert!(output.revoked.len() > 40);
    fs.items.bits.push(BitsItem {
        stamp: 0,
        start: all[0].0,
        len: 1,
        alloc: false,
    });
    fs.unlink(2, b"file", 12, core);
    fs.check();
}

#[test]
fn punches_leave_nodes_that_join() {
    let Some(mut fs) = Fs::make(20 << 10, &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let core = fs.create(2, b"file", 12);
    let data = scattered(&mut fs, 12, 2000);
    fs.inode(
        12,
        InodeEvent::Update,
        InodeCore {
            size: 4000 * 1024,
            ..core
        },
    );
    fs.check();
    for i in (0..2000).filter(|i| i % 100 != 0) {
        fs.unmap(12, i * 2, 1, &data[i as usize..i as usize + 1]);
    }
    let output = fs.check();
    assert!(output.revoked.len() >= 20, "{}", output.revoked.len());
    assert_eq!(depth(&fs, "file"), 1);
}

#[test]
fn what_was_unwritten_is_written_in_parts() {
    let Some(mut fs) = Fs::make(16 << 10, &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let core = fs.create(2, b"file", 12);
    let first = fs.map(12, 500, 3000, true);
    fs.inode(
        12,
        InodeEvent::Update,
        InodeCore {
            size: 3500 << 10,
            ..core
        },
    );
    fs.check();
    for i in [0, 1000, 2000, 2001, 2002, 2999] {
        fs.stamp += 1;
        let physical = BlockNr(first.0 + u64::from(i));
        fs.items.maps.push(MapItem {
            ino: InodeNr(12),
            stamp: fs.stamp,
            logical: 500 + i,
            len: 1,
            physical,
            unwritten: false,
        });
    }
    let output = fs.check();
    assert_eq!(output.taken, 1);
    let extents = fs.debugfs("ex file");
    assert_eq!(
        (extents.matches("Uninit").count(), extents.lines().count()),
        (3, 9),
        "{extents}"
    );
}

#[test]
fn a_block_map_of_three_levels() {
    let Some(mut fs) = Fs::make(20 << 10, &["-t", "ext2", "-b", "1024"]) else {
        return;
    };
    let core = fs.create(2, b"file", 12);
    let mut data = Vec::new();
    // Direct, single, double, triple; and the seams.
    for (logical, len) in [
        (0, 5),
        (10, 20),
        (267, 3),
        (5000, 300),
        (65_800, 10),
        (200_000, 2),
    ] {
        let physical = fs.map(12, logical, len, false);
        data.push((physical, len));
    }
    let core = InodeCore {
        size: 200_002 * 1024,
        ..core
    };
    fs.inode(12, InodeEvent::Update, core);
    fs.check();
    let stat = fs.debugfs("stat file");
    assert!(stat.contains("(TIND)"), "{stat}");
    // Take the middle out, then the rest.
    fs.unmap(12, 12, 65_836 - 12, &data[2..5]);
    fs.items.bits.push(BitsItem {
        stamp: 0,
        start: BlockNr(data[1].0.0 + 2),
        len: 18,
        alloc: false,
    });
    fs.space.give(BlockNr(data[1].0.0 + 2), 18);
    let output = fs.check();
    assert!(output.revoked.len() >= 5, "{:?}", output.revoked);
    fs.unmap(12, 100_000, u32::MAX - 100_000, &data[5..]);
    fs.inode(
        12,
        InodeEvent::Update,
        InodeCore {
            size: 12 * 1024,
            ..core
        },
    );
    fs.check();
    assert!(!fs.debugfs("stat file").contains("IND"));
    for (start, len) in [(data[0].0, 5), (data[1].0, 2)] {
        fs.items.bits.push(BitsItem {
            stamp: 0,
            start,
            len,
            alloc: false,
        });
    }
    fs.unlink(2, b"file", 12, core);
    fs.check();
}

#[test]
fn a_freed_file_gives_its_nodes_back() {
    for args in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext3", "-b", "1024"],
    ] {
        let Some(mut fs) = Fs::make(20 << 10, args) else {
            return;
        };
        let free = fs
            .formatter
            .descs(&fs.buffers)
            .iter()
            .map(|d| d.free_blocks)
            .sum::<u32>();
        let core = fs.create(2, b"file", 12);
        let data = scattered(&mut fs, 12, 1000);
        fs.inode(
            12,
            InodeEvent::Update,
            InodeCore {
                size: 2000 * 1024,
                ..core
            },
        );
        fs.check();
        fs.unmap(12, 500, u32::MAX - 500, &data[250..]);
        for &(start, len) in &data[..250] {
            fs.items.bits.push(BitsItem {
                stamp: 0,
                start,
                len,
                alloc: false,
            });
        }
        fs.unlink(2, b"file", 12, core);
        let output = fs.check();
        assert!(output.revoked.len() > 3);
        assert_eq!(
            free,
            fs.formatter
                .descs(&fs.buffers)
                .iter()
                .map(|d| d.free_blocks)
                .sum::<u32>()
        );
    }
}
