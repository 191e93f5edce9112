//! The last inode, the smallest images, the reserve, and many threads for the last block.

use crate::common::*;
use crate::full::filling::*;
use extant::{Credentials, Error, Fallocate, OpenOptions, RenameMode, SetAttributes, Volume};
use std::collections::BTreeMap;
use std::io::SeekFrom;
use std::sync::{Arc, Mutex};

/// As with the kernel, which looks a name up before it makes anything.
#[test]
fn a_name_that_exists_is_said_to_before_there_is_no_space() {
    needs::tools!("mke2fs");
    let device = mem_image("8M", &["-t", "ext4", "-b", "1024", "-N", "64"]);
    let v = open(&device);
    v.create_new_file("/there").unwrap();
    let exists = |result: Result<(), Error>, what: &str| {
        assert!(matches!(result, Err(Error::Exists)), "{what}: {result:?}");
    };
    let too_long = "t".repeat(1024);
    exists(v.symlink(&too_long, "/there"), "a target of a block");
    let refused = v.symlink(&too_long, "/new");
    assert!(matches!(refused, Err(Error::NameTooLong)), "{refused:?}");
    // Targets that no system call takes are refused before the lookup.
    let refused = v.symlink("", "/there");
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
    let refused = v.symlink("t".repeat(4096), "/there");
    assert!(matches!(refused, Err(Error::NameTooLong)), "{refused:?}");
    while fits(
        v.create_dir(format!("/d{}", v.statfs().unwrap().free_inodes)),
        "mkdir",
    ) {}
    exists(v.create_dir("/there").map(drop), "no inode");
    let fill = v.create_file("/there").unwrap();
    while fits(fill.append(&[7; 65536]), "write") {}
    while fits(fill.append(&[7; 512]), "write") {}
    exists(v.create_dir("/there").map(drop), "no block for a directory");
    exists(
        v.symlink("t".repeat(100), "/there"),
        "no block for a target",
    );
    exists(
        v.mknod("/there", extant::FileType::Fifo, 0o600, 0),
        "no block",
    );
}

#[test]
fn inodes_run_out_and_come_back() {
    needs::tools!("mke2fs", "e2fsck");
    for args in [
        &["-t", "ext4", "-N", "96", "-J", "size=4"][..],
        &["-t", "ext2", "-N", "96"],
    ] {
        let device = mem_image("16M", args);
        let v = open(&device);
        let make_all = |v: &Volume| {
            let mut n = 0;
            while fits(v.create_new_file(format!("/i{n}")), "create") {
                n += 1;
            }
            n
        };
        let first = make_all(&v);
        assert!((80..=96).contains(&first), "{first} files in 96 inodes");
        assert!(!fits(v.create_dir("/d"), "mkdir"));
        assert!(!fits(v.symlink("t", "/l"), "symlink"));
        v.hard_link("/i0", "/hard").expect("a link needs no inode");
        v.remove_file("/hard").unwrap();
        // Both with and without a sync in between.
        for sync in [false, true, false] {
            v.remove_file("/i3").unwrap();
            if sync {
                v.sync().unwrap();
            }
            v.create_new_file("/i3")
                .unwrap_or_else(|e| panic!("{args:?}: the inode just freed, sync {sync}: {e}"));
            assert!(!fits(v.create_new_file("/more"), "create"));
            v.sync().unwrap();
        }
        // The file is open without a name, so it is still in use.
        let held = v.open_file("/i5").unwrap();
        v.remove_file("/i5").unwrap();
        assert!(!fits(
            v.create_new_file("/i5"),
            "create while the inode is open"
        ));
        drop(held);
        v.create_new_file("/i5")
            .expect("the inode freed by closing");
        v.close().unwrap();
        assert_clean(&device, "no inode left");
        let v = open(&device);
        assert_eq!(v.statfs().unwrap().free_inodes, 0);
        (0..first).for_each(|n| v.remove_file(format!("/i{n}")).unwrap());
        v.sync().unwrap();
        assert_eq!(make_all(&v), first);
        v.close().unwrap();
        assert_clean(&device, "no inode left, again");
    }
}

/// Images so small that they hold few files: every image that mke2fs makes opens, accepts writes until it is full, and
/// stays clean.
#[test]
fn tiny_images() {
    needs::tools!("mke2fs", "e2fsck");
    let kinds: &[&[&str]] = &[
        &["-t", "ext4"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext2", "-b", "4096", "-N", "16"],
    ];
    for args in kinds {
        for size in ["256k", "1M", "2M", "3M", "4M"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image");
            let made = std::process::Command::new("mke2fs")
                .args(["-q", "-F"])
                .args(*args)
                .arg(&path)
                .arg(size)
                .output()
                .unwrap();
            if !made.status.success() {
                continue;
            }
            let what = format!("{args:?} of {size}");
            let device = Arc::new(load_image(&path));
            let v = open(&device);
            if let Some(why) = v.read_only() {
                panic!("{what}: {why}");
            }
            let mut kept = BTreeMap::new();
            if fits(v.create_dir("/d"), &what) {
                kept = fill(&v, "/d", &[3_000, 50_000, 0]);
            }
            v.sync().unwrap_or_else(|e| panic!("{what}: {e}"));
            intact(&v, &kept, &what);
            v.close().unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_clean(&device, &what);
            let v = open(&device);
            kept.keys().for_each(|p| v.remove_file(p).unwrap());
            v.close().unwrap();
            assert_clean(&device, &what);
        }
    }
}

/// Threads race for the last blocks. Every write that a thread was promised exists.
#[test]
fn many_threads_at_the_brink() {
    needs::tools!("mke2fs", "e2fsck");
    for seed in 0..if torture() { 40 } else { 3 } {
        let device = mem_image("12M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
        let v = open(&device);
        let kept = Mutex::new(BTreeMap::new());
        std::thread::scope(|s| {
            for t in 0..4u64 {
                let (v, kept) = (v.clone(), &kept);
                s.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + t);
                    let mut mine: BTreeMap<String, Vec<u8>> = BTreeMap::new();
                    for n in 0..400u64 {
                        let path = format!("/t{t}.{n}");
                        let bytes = content(n, rng.below(60_000) as usize);
                        if let Ok(file) = v.create_new_file(&path) {
                            fits(file.write_at(&bytes, 0), "write");
                            let size = file.metadata().unwrap().len() as usize;
                            mine.insert(path, bytes[..size].to_vec());
                            if rng.below(8) == 0 {
                                file.sync_all().expect("fsync");
                            }
                        }
                        if rng.below(3) == 0
                            && let Some(path) = mine
                                .keys()
                                .nth(rng.below(mine.len() as u64) as usize)
                                .cloned()
                        {
                            mine.remove(&path);
                            v.remove_file(&path).expect("unlink");
                        }
                    }
                    kept.lock().unwrap().append(&mut mine);
                });
            }
        });
        let kept = kept.into_inner().unwrap();
        v.sync().unwrap();
        intact(&v, &kept, "threads");
        v.close().unwrap();
        assert_clean(&device, "threads");
        intact(&open(&device), &kept, "threads, reopened");
    }
}

/// The superblock's reserve is for root, and for the user and group in the superblock. For all other callers the volume
/// is full earlier, and statfs shows that.
#[test]
fn the_reserve_is_roots() {
    needs::tools!("mke2fs", "e2fsck");
    let user = Credentials::new(1000, 1000, &[]);
    for (args, entitled) in [
        (
            &["-t", "ext4", "-b", "1024", "-m", "20"][..],
            Credentials::root(),
        ),
        (&["-t", "ext2", "-m", "20"], Credentials::root()),
        (
            &["-t", "ext4", "-b", "1024", "-m", "20", "-J", "size=1"],
            Credentials::new(44, 1, &[]),
        ),
        (
            &["-t", "ext3", "-b", "1024", "-m", "20"],
            Credentials::new(1, 1, &[9, 55]),
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        mke2fs(&path, "24M", args);
        let tuned = std::process::Command::new("tune2fs")
            .args(["-u", "44", "-g", "55"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(tuned.status.success());
        let device = Arc::new(load_image(&path));
        let what = format!("{args:?}, {entitled:?}");
        let v = open(&device);
        v.create_dir_with_mode("/u", 0o777).unwrap();
        v.set_attributes(
            "/u",
            &SetAttributes {
                mode: Some(0o777),
                ..Default::default()
            },
        )
        .unwrap();
        let reserved = v.superblock().unwrap().reserved_blocks();
        assert!(reserved * 4 > v.statfs().unwrap().free_blocks / 2, "{what}");
        let (other, entitled) = (v.as_user(user.clone()), v.as_user(entitled));
        let mut kept = fill(&other, "/u", &[200_000, 3_000, 0, 30_000]);
        // A write returns the rest of its reservation when the mapping is made.
        v.sync().unwrap();
        if fits(other.write("/u/last", b""), "create") {
            let file = other
                .open_file_with("/u/last", &OpenOptions::new().append(true))
                .unwrap();
            while fits(file.append(&[7; 500]), "append") {}
            kept.insert("/u/last".into(), v.read("/u/last").unwrap());
        }
        v.sync().unwrap();
        let full = v.statfs().unwrap();
        assert!(full.available_blocks < 8, "{what}: {full:?}");
        assert!(full.free_blocks >= reserved, "{what}: {full:?}");
        // No call of another user may take from the reserve, whichever kind of block it needs.
        let long = "t".repeat(100);
        for n in 0..8 {
            let _ = other.symlink(&long, format!("/u/fill{n}"));
        }
        assert!(!fits(other.create_dir_with_mode("/u/d", 0o700), "mkdir"));
        assert!(!fits(other.symlink(&long, "/u/l"), "symlink"));
        assert!(!fits(other.write("/u/more", [1; 9000]), "write"));
        let file = other.create_new_file("/u/pre").ok();
        match file.map(|f| f.fallocate(Fallocate::default(), 0, 100_000)) {
            None | Some(Err(Error::NoSpace(_) | Error::Unsupported(_))) => {}
            other => panic!("{what}: fallocate: {other:?}"),
        }
        let before = v.statfs().unwrap().free_blocks;
        assert!(before >= reserved, "{what}: a failure took of the reserve");
        // Entitled users can continue.
        let bs = v.geometry().block_size as usize;
        let most = (reserved as usize - 20) * bs * 9 / 10;
        entitled.create_dir_with_mode("/u/entitled", 0o700).unwrap();
        entitled
            .write("/u/entitled/f", content(1, most))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let file = entitled
            .open_file_with("/u/entitled/f", &OpenOptions::new().append(true))
            .unwrap();
        while fits(file.append(&[7; 5000]), "append") {}
        drop(file);
        v.sync().unwrap();
        let end = v.statfs().unwrap();
        assert_eq!(end.available_blocks, 0, "{what}");
        assert!(
            end.free_blocks < before - reserved * 9 / 10,
            "{what}: {end:?}"
        );
        assert!(!fits(other.write("/u/more", [1; 9000]), "write"));
        intact(&v, &kept, &what);
        // Freed blocks fill the reserve first.
        entitled.remove_file("/u/entitled/f").unwrap();
        v.sync().unwrap();
        assert!(!fits(other.write("/u/more", [1; 100_000]), "write"));
        for path in kept.keys().take(kept.len() / 2) {
            other.remove_file(path).unwrap();
        }
        v.sync().unwrap();
        assert!(fits(other.write("/u/more", [1; 100_000]), "write"));
        let open_now = v.statfs().unwrap();
        v.close().unwrap();
        assert_clean(&device, &what);
        let again = open(&device).statfs().unwrap();
        assert_eq!(
            (again.blocks, again.free_inodes),
            (open_now.blocks, open_now.free_inodes)
        );
        assert!(again.free_blocks >= open_now.free_blocks, "{what}");
    }
}

/// A write that finds room for a part returns the number of stored bytes, and the next write fails for lack of space.
#[test]
fn short_writes() {
    needs::tools!("mke2fs", "e2fsck");
    for args in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext2"],
    ] {
        let device = mem_image("12M", args);
        let v = open(&device);
        let bytes = content(7, 20 << 20);
        let no_space =
            |r: extant::Result<usize>| assert!(matches!(r, Err(Error::NoSpace(_))), "{r:?}");
        // Writes start at an offset inside a block.
        let file = v.create_new_file("/at").unwrap();
        let n = file.write_at(&bytes, 333).unwrap();
        assert!((5 << 20..12 << 20).contains(&n), "{n} of 20 MiB");
        no_space(file.write_at(&bytes[n..], 333 + n as u64));
        assert_eq!(file.metadata().unwrap().len() as usize, 333 + n);
        let all = file.write_all_at(&bytes, 333);
        assert!(matches!(all, Err(Error::NoSpace(_))), "{all:?}");
        assert_eq!(v.read("/at").unwrap()[333..], bytes[..n]);
        file.set_len(4 << 20).unwrap();
        v.sync().unwrap();
        // Writes append to the end.
        let log = v.create_new_file("/log").unwrap();
        assert_eq!(log.append(b"begin").unwrap(), 0..5);
        let part = log.append(&bytes).unwrap();
        assert_eq!(part.start, 5);
        assert!(part.end > 1 << 20 && part.end < 12 << 20, "{part:?}");
        no_space(log.append(&bytes).map(|_| 0));
        assert_eq!(log.metadata().unwrap().len(), part.end);
        file.set_len(3 << 20).unwrap();
        v.sync().unwrap();
        // Writes go to the position, which follows the stored bytes.
        for options in [RW, RW.append(true)] {
            let log = v.open_file_with("/log", &options).unwrap();
            let before = log.seek(SeekFrom::End(0)).unwrap();
            let n = log.write(&bytes).unwrap() as u64;
            assert!((1 << 19..12 << 20).contains(&n), "{n}");
            assert_eq!(log.stream_position().unwrap(), before + n);
            no_space(log.write(&bytes));
            assert_eq!(log.stream_position().unwrap(), before + n);
            assert_eq!(log.metadata().unwrap().len(), before + n);
            file.set_len(file.metadata().unwrap().len() - (1 << 20))
                .unwrap();
            v.sync().unwrap();
        }
        v.close().unwrap();
        assert_clean(&device, &format!("{args:?}"));
    }
}

/// Reservations of names that need no block are returned by a push. Threads that take them again at once do not make
/// another find the volume full.
#[test]
fn reservations_do_not_fill_a_volume() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", &["-t", "ext4", "-J", "size=4", "-N", "8192"]);
    let v = open(&device);
    std::thread::scope(|s| {
        for thread in 0..6 {
            let v = v.clone();
            s.spawn(move || {
                for n in 0..12_000 {
                    let path = format!("/{thread}-{}", n % 40);
                    v.create_new_file(&path)
                        .map(drop)
                        .and_then(|()| v.remove_file(&path))
                        .unwrap_or_else(|e| panic!("{path}, {n}: {e}"));
                }
            });
        }
    });
    v.close().unwrap();
    assert_clean(&device, "reservations");
}

/// Calls that remove or change existing files work on a full volume.
#[test]
fn what_makes_room_needs_none() {
    needs::tools!("mke2fs", "e2fsck");
    for args in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-m", "0"][..],
        &["-t", "ext4", "-J", "size=4", "-m", "0"],
        &["-t", "ext2", "-b", "1024", "-m", "0"],
    ] {
        let device = mem_image("16M", args);
        let v = open(&device);
        let what = format!("{args:?}");
        let bs = v.geometry().block_size as usize;
        let value = vec![b'v'; bs / 2];
        for name in ["/a", "/b", "/c"] {
            v.write(name, name.as_bytes()).unwrap();
            v.set_xattr(name, "user.large", &value, Default::default())
                .unwrap();
        }
        let acl = [
            (1, 6, !0),
            (2, 6, 7),
            (4, 4, !0),
            (0x10, 6, !0),
            (0x20, 4, !0),
        ];
        v.set_xattr(
            "/c",
            "system.posix_acl_access",
            &acl_bytes(&acl),
            Default::default(),
        )
        .unwrap();
        v.create_dir("/d").unwrap();
        v.create_dir("/e").unwrap();
        v.sync().unwrap();
        fill(&v, "/d", &[70_000]);
        // The last blocks are taken one by one.
        let large = v.open_file_with("/d/file0", &RW).unwrap();
        let mut last = 100;
        while fits(large.write_at(b"x", (last * bs) as u64), "write") {
            last += 2;
        }
        v.sync().unwrap();
        while fits(large.write_at(b"x", (last * bs) as u64), "write") {
            last += 2;
        }
        let full = |v: &Volume| assert!(!fits(v.create_dir("/new"), "mkdir"), "{what}");
        full(&v);
        v.set_xattr("/a", "user.large", &[b'w'; 20], Default::default())
            .unwrap_or_else(|e| panic!("{what}: a smaller attribute: {e}"));
        v.set_xattr("/a", "user.small", b"", Default::default())
            .unwrap_or_else(|e| panic!("{what}: a small attribute: {e}"));
        v.remove_xattr("/b", "user.large")
            .unwrap_or_else(|e| panic!("{what}: remove an attribute: {e}"));
        let mode = SetAttributes {
            mode: Some(0o600),
            ..Default::default()
        };
        v.set_attributes("/c", &mode)
            .unwrap_or_else(|e| panic!("{what}: the mode of a file with an ACL: {e}"));
        if v.geometry().features.has_extents() {
            large
                .fallocate(Fallocate::default(), 0, 60_000)
                .unwrap_or_else(|e| panic!("{what}: allocate what is allocated: {e}"));
        }
        full(&v);
        v.rename_with("/d", "/e", RenameMode::Exchange)
            .unwrap_or_else(|e| panic!("{what}: exchange: {e}"));
        v.rename("/c", "/b")
            .unwrap_or_else(|e| panic!("{what}: rename over: {e}"));
        for hole in 0..40 {
            large
                .fallocate(
                    Fallocate::PunchHole,
                    (100 + 2 * hole) * bs as u64,
                    bs as u64,
                )
                .unwrap_or_else(|e| panic!("{what}: hole {hole}: {e}"));
        }
        large
            .fallocate(Fallocate::PunchHole, 0, 60_000)
            .unwrap_or_else(|e| panic!("{what}: a large hole: {e}"));
        v.sync().unwrap();
        v.create_dir("/new").unwrap();
        v.close().unwrap();
        assert_clean(&device, &what);
        let v = open(&device);
        assert_eq!(v.read("/b").unwrap(), b"/c");
    }
}

/// A name needs no block if a block of its directory has room. Then it is made on a full volume, too, as on Linux.
#[test]
fn names_go_into_blocks_that_are_there() {
    needs::tools!("mke2fs", "e2fsck");
    // Fifteen names fill a block.
    let name = |dir: &str, n: usize| format!("/{dir}/{}{n:03}", "n".repeat(245));
    for args in [&["-t", "ext4", "-m", "0"][..], &["-t", "ext2", "-m", "0"]] {
        let device = mem_image("16M", &[args, &["-b", "4096"]].concat());
        let v = open(&device);
        for dir in ["one", "split", "raced", "rest"] {
            v.create_dir(format!("/{dir}")).unwrap();
            v.create_new_file(name(dir, 0)).unwrap();
        }
        // An indexed directory of two leaves, of which the names of at least one have room.
        (1..16).for_each(|n| v.hard_link(name("split", 0), name("split", n)).unwrap());
        v.write("/moved", b"moved").unwrap();
        let full = v.create_new_file("/full").unwrap();
        while fits(full.append(&[7; 1 << 16]), "append") {
            v.sync().unwrap();
        }
        while fits(full.append(&[7; 4096]), "append") {
            v.sync().unwrap();
        }
        // Space that is too small for data is enough for names.
        let rest = |&n: &usize| fits(v.hard_link(name("rest", 0), name("rest", n)), "link");
        assert!((1..1000).take_while(rest).count() < 900);
        let makes = |n: usize| {
            let to = name("one", n);
            match n {
                1 => fits(v.create_new_file(&to), "create"),
                2 => fits(v.symlink("short", &to), "symlink"),
                3 => fits(v.rename("/moved", &to), "rename"),
                4 => fits(
                    v.rename_with(name("one", 3), &to, RenameMode::Whiteout),
                    "whiteout",
                ),
                _ => fits(v.hard_link(name("one", 0), &to), "link"),
            }
        };
        let made = (1..30).take_while(|&n| makes(n)).count();
        assert_eq!(made, 14, "{args:?}: until the block is full");
        assert!(!fits(v.create_dir("/one/dir"), "mkdir"));
        v.remove_file(name("one", 7)).unwrap();
        v.create_new_file(name("one", 90))
            .expect("the place of what was removed");
        let more =
            (16..60).filter(|&n| fits(v.hard_link(name("split", 0), name("split", n)), "link"));
        assert!(more.count() > 0, "{args:?}: leaves that are half full");

        // Each thread finds space for some files, all together for fewer than they want.
        let made: usize = std::thread::scope(|s| {
            let tasks: Vec<_> = (0..4)
                .map(|task| {
                    let (v, name) = (&v, &name);
                    s.spawn(move || {
                        let link = |n: &usize| {
                            let to = name("raced", 10 + 20 * task + n);
                            fits(v.hard_link(name("raced", 0), to), "link")
                        };
                        (0..20).filter(link).count()
                    })
                })
                .collect();
            tasks.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert!(made >= 14, "{args:?}: {made}");
        assert_eq!(v.read_dir("/raced").unwrap().count(), 1 + made);
        v.close().unwrap();
        assert_clean(&device, "names on a full volume");
        let v = open(&device);
        assert_eq!(v.read_dir("/raced").unwrap().count(), 1 + made);
        assert_eq!(v.read(name("one", 4)).unwrap(), b"moved");
        v.remove_file("/full").unwrap();
        v.create_dir("/one/dir").unwrap();
        v.close().unwrap();
        assert_clean(&device, "and with room");
    }
}
