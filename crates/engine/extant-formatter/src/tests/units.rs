use super::Fs;
use crate::item::*;
use ext4_format::xattr::XattrSet;
use std::sync::Arc;

/// Batches large enough for several threads: inodes of all groups, two directories, attribute blocks that
/// groups share.
#[test]
fn groups_are_formatted_side_by_side() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-N", "16000"][..],
        &["-t", "ext2", "-b", "1024", "-N", "16000"],
    ] {
        let Some(mut fs) = Fs::make(64 << 10, args) else {
            return;
        };
        let mut large = XattrSet::default();
        large.set(b"user.b", &[7; 600]).unwrap();
        let large = Arc::new(large);
        fs.mkdir(2, b"d", 5000);
        let mut root = fs.on_disk(2);
        root.links += 1;
        fs.inode(2, InodeEvent::Update, root);
        let numbers: Vec<u32> = (20..12_000).filter(|n| *n != 5000).collect();
        let name = |n: u32| format!("name of inode {n}").into_bytes();
        let dir = |n: u32| if n.is_multiple_of(3) { 5000 } else { 2 };
        let mut cores = Vec::new();
        for &n in &numbers {
            cores.push(fs.create(dir(n), &name(n), n));
            if n.is_multiple_of(10) {
                fs.misc(n, MiscEvent::Xattrs(Arc::clone(&large)));
            }
        }
        fs.check();
        let blocks: std::collections::HashSet<u64> = numbers
            .iter()
            .filter(|n| n.is_multiple_of(10))
            .map(|&n| ext4_format::inode::file_acl(&fs.raw(n), &fs.geometry).0)
            .collect();
        // 1024 inodes at most point at one block.
        assert_eq!(blocks.len(), 2);
        for (&n, core) in numbers.iter().zip(&cores) {
            if !n.is_multiple_of(7) {
                fs.unlink(dir(n), &name(n), n, *core);
            }
        }
        let output = fs.check();
        let gone: Vec<u32> = numbers
            .iter()
            .copied()
            .filter(|n| !n.is_multiple_of(7))
            .collect();
        let freed: Vec<u32> = output.freed_inodes.iter().map(|n| n.0).collect();
        assert_eq!(freed, gone);
        assert!(fs.debugfs("ls -l d").contains("name of inode 21"));
    }
}

/// The number of threads changes neither the places and contents of blocks nor which inodes share attributes.
#[test]
fn threads_write_the_same() {
    let Some(mut fs) = Fs::make(64 << 10, &["-t", "ext4", "-b", "1024", "-N", "16000"]) else {
        return;
    };
    let per_group = fs.geometry.inodes_per_group;
    let dirs: Vec<u32> = (0..7).map(|group| group * per_group + 20).collect();
    for (i, &dir) in dirs.iter().enumerate() {
        fs.mkdir(2, format!("d{i}").as_bytes(), dir);
    }
    for n in (100..12_000).filter(|n| !dirs.contains(n)) {
        let dir = dirs[n as usize % dirs.len()];
        fs.create(dir, format!("name of inode {n}").as_bytes(), n);
        if n % 50 == 0 {
            // Six extents: one more than the inode holds, so that a block is taken for them.
            for i in 0..6 {
                fs.map(n, 2 * i, 1, false);
            }
        }
        if n % 30 == 0 {
            let mut set = XattrSet::default();
            set.set(b"user.b", &[(n % 7) as u8; 600]).unwrap();
            fs.misc(n, MiscEvent::Xattrs(Arc::new(set)));
        }
    }
    let items = std::mem::take(&mut fs.items);
    let with = |threads| {
        let output = fs.format_over(fs.dev.snapshot(), &items, threads);
        output.unwrap()
    };
    let alone = with(1);
    assert!(alone.taken > 200, "{}", alone.taken);
    for threads in [2, 4, 16] {
        let together = with(threads);
        let differs = alone.blocks.iter().zip(&together.blocks);
        let differs = differs.filter(|(a, b)| a.0 != b.0 || **a.1 != **b.1);
        assert_eq!(differs.count(), 0, "{threads} threads");
        assert_eq!(alone.blocks.len(), together.blocks.len());
        assert_eq!(alone.published, together.published);
    }
}
