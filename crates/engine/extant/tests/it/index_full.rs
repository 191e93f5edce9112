//! Directories with a full index: a name that finds no place is refused when it is created, as on Linux, and not when
//! it is formatted.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::{Error, FileType, OpenOptions, RenameMode, Volume};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A name of 255 bytes: three to a leaf of 1 KiB.
fn long(n: usize) -> String {
    format!("{n:0>255}")
}

fn volume(args: &[&str]) -> Option<(Arc<MemDevice>, Volume)> {
    if !needs::have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let args = [
        &["-t", "ext4", "-b", "1024", "-J", "size=4", "-N", "4096"][..],
        args,
    ]
    .concat();
    let device = mem_image("96M", &args);
    let v = open(&device);
    for n in 0..8 {
        v.create_new_file(format!("/f{n}")).unwrap();
    }
    v.create_dir("/d").unwrap();
    Some((device, v))
}

/// Links names into /d from several threads until one is refused. Returns their number, and the refused name.
fn fill(v: &Volume, threads: usize) -> (usize, usize) {
    let next = AtomicUsize::new(0);
    let refused = AtomicUsize::new(usize::MAX);
    let full = AtomicBool::new(false);
    std::thread::scope(|s| {
        for t in 0..threads {
            let (v, next, refused, full) = (v.clone(), &next, &refused, &full);
            s.spawn(move || {
                let file = format!("/f{t}");
                while !full.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    match v.hard_link(&file, format!("/d/{}", long(n))) {
                        Ok(()) => assert!(n < 200_000, "never full"),
                        Err(Error::NoSpace(why)) => {
                            assert!(why.contains("index"), "{why}");
                            refused.fetch_min(n, Ordering::Relaxed);
                            full.store(true, Ordering::Relaxed);
                        }
                        Err(e) => panic!("{n}: {e}"),
                    }
                }
            });
        }
    });
    let refused = refused.into_inner();
    (v.read_dir("/d").unwrap().count(), refused)
}

#[test]
fn two_levels() {
    for threads in [1, 6] {
        let Some((device, v)) = volume(&[]) else {
            return;
        };
        let (names, refused) = fill(&v, threads);
        eprintln!("{threads} threads: {names} names");
        // Leaves and nodes are between half full and full.
        assert!(names > 15_498 * 3 / 4, "{names} names");
        let what = format!("{threads} threads, {names} names");
        // Every way to make a name is refused alike, and leaves nothing behind.
        let name = format!("/d/{}", long(refused));
        let full =
            |r: extant::Result<()>| assert!(matches!(r, Err(Error::NoSpace(_))), "{what}: {r:?}");
        full(v.create_new_file(&name).map(drop));
        full(v.create_dir_with_mode(&name, 0o700).map(drop));
        full(v.symlink("t".repeat(100), &name));
        full(v.mknod(&name, FileType::Fifo, 0o600, 0));
        full(v.hard_link("/f0", &name));
        full(v.rename("/f7", &name));
        full(v.rename_with("/f7", &name, RenameMode::NoReplace));
        let before = v.statfs().unwrap();
        // Existing names can be opened, replaced, exchanged and removed.
        let there = list(&v, "/d").unwrap();
        let old = |i: usize| format!("/d/{}", String::from_utf8(there[i].name.clone()).unwrap());
        v.open_file_with(
            old(5),
            &OpenOptions::new().read(true).create(true).mode(0o600),
        )
        .unwrap();
        v.create_new_file("/g").unwrap();
        v.rename("/g", old(9)).unwrap();
        v.create_new_file("/h").unwrap();
        v.rename_with("/h", old(10), RenameMode::Exchange).unwrap();
        v.rename(old(11), "/moved").unwrap();
        v.sync().unwrap();
        full(v.hard_link("/f0", &name));
        assert_eq!(v.read_dir("/d").unwrap().count(), names - 1);
        v.close().unwrap();
        assert_clean(&device, &what);
        // After it was loaded again, the index is as full.
        let v = open(&device);
        full(v.hard_link("/f0", &name));
        assert!(v.statfs().unwrap().free_inodes <= before.free_inodes);
        // With half of the names removed, the leaves have room again.
        for entry in list(&v, "/d").unwrap().iter().step_by(2) {
            v.remove_file(Path::new("/d").join(path(&entry.name)))
                .unwrap();
        }
        v.hard_link("/f0", &name).unwrap();
        for n in 0..500 {
            match v.hard_link("/f0", format!("/d/{}", long(300_000 + n))) {
                Ok(()) | Err(Error::NoSpace(_)) => {}
                Err(e) => panic!("{what}: {e}"),
            }
        }
        v.close().unwrap();
        assert_clean(&device, &format!("{what}, emptied and filled"));
    }
}

/// An index with one level more has room for the names that two levels refuse.
#[test]
fn three_levels() {
    let Some((device, v)) = volume(&["-O", "large_dir"]) else {
        return;
    };
    for n in 0..60_000 {
        v.hard_link(format!("/f{}", n % 8), format!("/d/{}", long(n)))
            .unwrap_or_else(|e| panic!("{n}: {e}"));
    }
    v.close().unwrap();
    assert_clean(&device, "three levels");
    assert_eq!(open(&device).read_dir("/d").unwrap().count(), 60_000);
}

/// Short names in one burst: one context holds all of them.
#[test]
fn a_burst_of_short_names() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(
        "160M",
        &["-t", "ext4", "-b", "1024", "-J", "size=64", "-N", "4096"],
    );
    let v = open(&device);
    v.create_dir("/d").unwrap();
    for n in 0..12 {
        v.create_new_file(format!("/f{n}")).unwrap();
    }
    let mut refused = None;
    for n in 0..720_000 {
        match v.hard_link(format!("/f{}", n / 60_000), format!("/d/{n}")) {
            Ok(()) => {}
            Err(Error::NoSpace(why)) => {
                assert!(why.contains("index"), "{why}");
                refused = Some(n);
                break;
            }
            Err(e) => panic!("{n}: {e}"),
        }
    }
    let refused = refused.expect("full");
    eprintln!("{refused} names");
    assert!(refused > 300_000, "{refused}");
    v.close().unwrap();
    assert_clean(&device, "short names");
}
