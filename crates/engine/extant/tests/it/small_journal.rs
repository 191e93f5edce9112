//! The smallest journal, with work that changes more blocks than it holds: the work is committed in parts, and nothing
//! stops.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::{Fallocate, OpenOptions, Volume, VolumeOptions};
use std::sync::Arc;

const RW: OpenOptions = OpenOptions::new().read(true).write(true);

/// 1,024 blocks of 1 KiB.
fn small_journal(size: &str, more: &[&str]) -> Arc<MemDevice> {
    let args = [&["-t", "ext4", "-b", "1024", "-J", "size=1"][..], more].concat();
    mem_image(size, &args)
}

/// Runs `f` for each of `count` things in order, distributed over many threads.
fn in_threads(v: &Volume, count: usize, f: impl Fn(&Volume, usize) + Sync) {
    const THREADS: usize = 16;
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (v, f) = (v.clone(), &f);
            s.spawn(move || (t..count).step_by(THREADS).for_each(|n| f(&v, n)));
        }
    });
}

fn name(n: usize) -> String {
    format!("/d/name-{n:06}")
}

/// A directory of thousands of leaves with a name or two in each: every operation changes another leaf.
#[test]
fn a_huge_sparse_directory() {
    needs::tools!("mke2fs", "e2fsck");
    const NAMES: usize = 200_000;
    let device = small_journal("96M", &["-N", "4096"]);
    let left: Vec<usize> = (0..NAMES).filter(|n| n % 67 == 0).collect();
    {
        let v = open(&device);
        v.create_dir("/d").unwrap();
        // Links, because a link costs no inode.
        for n in 0..4 {
            v.create_new_file(format!("/f{n}")).unwrap();
        }
        in_threads(&v, NAMES, |v, n| {
            v.hard_link(format!("/f{}", n % 4), name(n)).unwrap()
        });
        in_threads(&v, NAMES, |v, n| {
            if n % 67 != 0 {
                v.remove_file(name(n)).unwrap();
            }
        });
        v.close().unwrap();
        assert_clean(&device, "made sparse");
    }
    for round in 0..3 {
        let before = device.snapshot();
        let device = Arc::new(before);
        let v = open(&device);
        assert!(
            v.metadata("/d").unwrap().len() > 4 << 20,
            "the leaves are there"
        );
        // All in one burst: the remaining names are removed in an order that jumps from leaf to leaf, or the same
        // number is made, or both.
        in_threads(&v, left.len(), |v, i| {
            let n = left[i];
            if round != 1 {
                v.remove_file(name(n)).unwrap();
            }
            if round != 0 {
                v.hard_link("/f0", name(n + 1)).unwrap();
            }
        });
        v.sync().unwrap();
        let expected = [0, left.len() * 2, left.len()][round];
        assert_eq!(v.read_dir("/d").unwrap().count(), expected);
        v.close().unwrap();
        assert_clean(&device, &format!("round {round}"));
        let v = open(&device);
        assert_eq!(v.read_dir("/d").unwrap().count(), expected);
    }
}

/// Files whose every block is a separate run: a mapping of more blocks than the journal has.
#[test]
fn scattered_blocks_of_one_file() {
    needs::tools!("mke2fs", "e2fsck");
    // The blocks of the mapping are more than those of the journal.
    const PAGES: u64 = 100_000;
    for kind in ["ext4", "ext3"] {
        let device = mem_image("400M", &["-t", kind, "-b", "1024", "-J", "size=1"]);
        let v = VolumeOptions::new()
            .background(false)
            .cache_bytes(8 << 30)
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        let file = v.create_new_file("/f").unwrap();
        for page in 0..PAGES {
            file.write_at(&page.to_le_bytes(), page * 2048).unwrap();
        }
        v.sync().unwrap_or_else(|e| panic!("{kind}: {e}"));
        let size = file.metadata().unwrap().len();
        drop(file);
        v.close().unwrap();
        assert_clean(&device, kind);
        let v = open(&device);
        let file = v.open_file_with("/f", &RW).unwrap();
        assert_eq!(file.metadata().unwrap().len(), size);
        for page in (0..PAGES).step_by(97) {
            let mut bytes = [0; 8];
            file.read_at(&mut bytes, page * 2048).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), page);
        }
        file.set_len(5000).unwrap();
        drop(file);
        v.remove_file("/f").unwrap();
        v.close().unwrap();
        assert_clean(&device, &format!("{kind}, removed"));
    }
}

/// A run over more groups than the journal has blocks.
#[test]
fn a_file_over_a_thousand_groups() {
    needs::tools!("mke2fs", "e2fsck");
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    mke2fs(
        &path,
        "12G",
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "20000"],
    );
    let open = || VolumeOptions::new().background(false).open(&path).unwrap();
    for way in ["unlink", "truncate", "punch", "close"] {
        let v = open();
        let file = v.create_new_file("/f").unwrap();
        file.fallocate(Fallocate::default(), 0, 10 << 30).unwrap();
        v.sync().unwrap();
        match way {
            "truncate" => file.set_len(1 << 20).unwrap(),
            "punch" => file.fallocate(Fallocate::PunchHole, 4096, 9 << 30).unwrap(),
            // A file without a name, but open: freed when the handle is closed or the volume ends.
            "unlink" | "close" => v.remove_file("/f").unwrap(),
            _ => unreachable!(),
        }
        let file = (way == "close").then_some(file);
        v.sync().unwrap_or_else(|e| panic!("{way}: {e}"));
        v.close().unwrap_or_else(|e| panic!("{way}: {e}"));
        drop(file);
        assert_clean_file(&path, way);
        let v = open();
        let _ = v.remove_file("/f");
        v.close().unwrap();
    }
}

/// Numbers made and freed in one context are free at once, also when parts of the context had them in use.
#[test]
fn numbers_freed_at_once_are_free_once() {
    needs::tools!("mke2fs", "e2fsck");
    IN_PARTS.set(Some(20));
    let device = small_journal("16M", &["-N", "1024"]);
    let v = open(&device);
    let mut inos = std::collections::HashMap::new();
    for round in 0..4 {
        let mut make = |n: u32| {
            let path = format!("/{round}-{n:0>100}");
            let ino = v.create_new_file(&path).unwrap().ino();
            if let Some(other) = inos.insert(ino, path.clone()) {
                panic!("{path} and {other} are both inode {ino}");
            }
            (path, ino)
        };
        let made: Vec<_> = (0..150).map(&mut make).collect();
        for (path, ino) in &made[..100] {
            v.remove_file(path).unwrap();
            inos.remove(ino);
        }
        v.sync().unwrap();
    }
    let mut n = 1000;
    while let Ok(file) = v.create_new_file(format!("/{n}")) {
        let other = inos.insert(file.ino(), n.to_string());
        assert!(other.is_none(), "{n} is inode {} of {other:?}", file.ino());
        n += 1;
    }
    assert_eq!(inos.len(), 1024 - 11);
    v.close().unwrap();
    assert_clean(&device, "all numbers in use");
}
