//! Journals and orphans left by one side and found by the other.

use crate::common::*;
use crate::kernel::contents::{make, make_by_kernel, pattern};
use crate::kernel::tree::{Tree, kernel_tree, our_tree, same};
use extant::{Volume, VolumeOptions};
use extant_testing::mounted::{KINDS, Mounted, able, image, open_file};
use std::path::Path;
use std::process::Command;

/// The kernel's power is cut: its journal is recovered here.
#[test]
fn dirty_journals_of_the_kernel() {
    if !able() {
        return;
    }
    for (what, args, options) in [
        ("ext4", &["-t", "ext4"][..], ""),
        ("ext4, data in the journal", &["-t", "ext4"], "data=journal"),
        (
            "ext4, newest features",
            &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
            "",
        ),
        (
            "ext4, asynchronous commit",
            &["-t", "ext4", "-O", "^metadata_csum"],
            "data=writeback,journal_async_commit",
        ),
        ("ext4, 1 KiB", &["-t", "ext4", "-b", "1024"], ""),
        (
            "ext4, no checksums, 32 bits",
            &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
            "",
        ),
        ("ext3", &["-t", "ext3"], ""),
        (
            "ext3, data in the journal",
            &["-t", "ext3", "-b", "1024"],
            "data=journal",
        ),
    ] {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let mounted = Mounted::new(&path, options);
        let at = |p: &str| mounted.path().join(p);
        make_by_kernel(mounted.path(), amount(250, 1_500));
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        // Removed directories and files give revokes; blocks that begin like the journal's are escaped.
        std::fs::remove_dir_all(at("big")).unwrap();
        let magic = [&[0xC0, 0x3B, 0x39, 0x98][..], &[7; 4092]]
            .concat()
            .repeat(4);
        std::fs::write(at("looks like a journal"), &magic).unwrap();
        std::fs::create_dir(at("late")).unwrap();
        (0..300).for_each(|n| std::fs::write(at(&format!("late/f{n}")), pattern(n, 500)).unwrap());
        // A file that is open without a name: an orphan.
        let orphan = std::fs::File::create(at("orphan")).unwrap();
        std::os::unix::fs::FileExt::write_at(&orphan, &pattern(1, 50_000), 0).unwrap();
        std::fs::remove_file(at("orphan")).unwrap();
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let copy = dir.path().join("copy");
        copy_image(&path, &copy);
        let theirs = kernel_tree(mounted.path());
        drop(orphan);
        mounted.unmount();
        // A read-only opening replays in memory and writes nothing.
        let before = data_of(&copy);
        let v = VolumeOptions::new().read_only(true).open(&copy).unwrap();
        assert!(
            v.recovery().transactions > 0,
            "{what}: nothing to recover: the test is void"
        );
        same(&our_tree(&v), &theirs, &format!("{what}, read-only"));
        drop(v);
        assert!(data_of(&copy) == before, "{what}: written though read-only");
        let v = open_file(&copy);
        assert!(v.recovery().transactions > 0);
        same(&our_tree(&v), &theirs, what);
        assert_eq!(v.read("/looks like a journal").unwrap(), magic);
        v.write("/after", b"recovery").unwrap();
        v.close().unwrap();
        assert_clean_file(&copy, what);
    }
}

/// Data and targets of links that wait in the journal are read from there if the volume is opened read-only: their blocks
/// hold older bytes.
#[test]
fn data_in_a_journal_that_is_not_replayed() {
    if !able() {
        return;
    }
    for block in ["1024", "4096"] {
        let dir = needs::memory_dir();
        let path = image(&dir, &["-t", "ext4", "-b", block]);
        let mounted = Mounted::new(&path, "data=journal");
        let at = |name: &str| mounted.path().join(name);
        std::fs::write(at("file"), pattern(1, 100_000)).unwrap();
        std::fs::write(at("large"), pattern(2, 1_000_000)).unwrap();
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let file = std::fs::File::options()
            .write(true)
            .open(at("file"))
            .unwrap();
        let write = |bytes: &[u8], from| {
            std::os::unix::fs::FileExt::write_all_at(&file, bytes, from).unwrap();
        };
        write(&pattern(3, 30_000), 3000);
        write(&pattern(4, 10), 77_777);
        std::fs::write(at("new"), pattern(5, 50_000)).unwrap();
        std::os::unix::fs::symlink("long/".repeat(100), at("link")).unwrap();
        // An fsync commits, and writes nothing to its place.
        file.sync_all().unwrap();
        drop(file);
        let copy = dir.path().join("copy");
        copy_image(&path, &copy);
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        let v = VolumeOptions::new().read_only(true).open(&copy).unwrap();
        assert!(v.recovery().transactions > 0, "{:?}", v.recovery());
        same(&our_tree(&v), &theirs, &format!("blocks of {block} bytes"));
        // In pieces, through the page cache.
        for name in ["file", "new"] {
            let file = v.open_file(format!("/{name}")).unwrap();
            let content = &theirs[Path::new(name)].content;
            for from in (0..content.len()).step_by(999) {
                let mut bytes = [0; 700];
                let read = file.read_at(&mut bytes, from as u64).unwrap();
                assert_eq!(bytes[..read], content[from..from + read], "{name}, {from}");
            }
        }
        v.close().unwrap();
    }
}

/// Returns the tree of a volume whose fast commits were replayed. A record of a new name has no time of its directory, so a
/// replay takes that of the file. The kernel reads its clock, which ticks every 4 ms, for each of them, so times of directories
/// are those of the kernel's tree where they differ by few ticks.
fn replayed_tree(volume: &Volume, theirs: &Tree) -> Tree {
    let nanos = |(secs, nanos): (i64, u32)| i128::from(secs) * 1_000_000_000 + i128::from(nanos);
    let mut ours = our_tree(volume);
    for (path, entry) in &mut ours {
        let Some(other) = theirs.get(path) else {
            continue;
        };
        if entry.mode & 0o170_000 == 0o040_000 {
            for (time, other) in [
                (&mut entry.mtime, other.mtime),
                (&mut entry.ctime, other.ctime),
            ] {
                if (nanos(*time) - nanos(other)).abs() < 20_000_000 {
                    *time = other;
                }
            }
        }
    }
    ours
}

/// Fast commits of the kernel are replayed here. The kernel itself fails to replay an inode number that was used again,
/// so the tree that it has in memory is the reference.
#[test]
fn fast_commits_of_the_kernel() {
    if !able() {
        return;
    }
    for args in [
        &["-t", "ext4", "-O", "fast_commit"][..],
        &["-t", "ext4", "-O", "fast_commit", "-b", "1024"],
    ] {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let mounted = Mounted::new(&path, "");
        let at = |name: &str| mounted.path().join(name);
        let synced = |name: &str, content: &[u8]| {
            std::fs::write(at(name), content).unwrap();
            std::fs::File::open(at(name)).unwrap().sync_all().unwrap();
        };
        std::fs::create_dir(at("d")).unwrap();
        std::fs::create_dir(at("gone")).unwrap();
        synced("longer", &[1; 30_000]);
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        (0..50u8).for_each(|n| synced(&format!("d/f{n:02}"), &vec![n; usize::from(n) * 300]));
        std::fs::remove_file(at("d/f07")).unwrap();
        std::fs::rename(at("d/f08"), at("moved")).unwrap();
        std::fs::hard_link(at("d/f09"), at("d/second")).unwrap();
        std::fs::remove_dir(at("gone")).unwrap();
        std::fs::create_dir(at("new")).unwrap();
        synced("new/inside", b"inside");
        let longer = std::fs::File::options()
            .write(true)
            .open(at("longer"))
            .unwrap();
        longer.set_len(5000).unwrap();
        longer.sync_all().unwrap();
        drop(longer);
        synced("d/last", &[9; 70_000]);
        let copy = dir.path().join("copy");
        copy_image(&path, &copy);
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        let before = data_of(&copy);
        let v = VolumeOptions::new().read_only(true).open(&copy).unwrap();
        assert!(v.recovery().fast_changes > 100, "{:?}", v.recovery());
        same(&replayed_tree(&v, &theirs), &theirs, "read-only");
        drop(v);
        assert!(data_of(&copy) == before, "written though read-only");
        let v = open_file(&copy);
        same(&replayed_tree(&v, &theirs), &theirs, "replayed");
        v.close().unwrap();
        assert_clean_file(&copy, "replayed");
    }
}

/// A volume from `extant mkfs` keeps its orphans in its orphan file, whether the kernel or this engine leaves and
/// finds them.
#[test]
fn orphans_in_the_orphan_file_of_a_new_volume() {
    if !able() {
        return;
    }
    // More than one block of the file holds.
    const ORPHANS: u64 = 600;
    for block_size in [1024, 4096] {
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        let options = extant::mkfs::MkfsOptions {
            size: Some(128 << 20),
            block_size: Some(block_size),
            ..Default::default()
        };
        let prepared = extant::mkfs::prepare(&options).unwrap();
        let device = blockdev::FileDevice::create(&path, prepared.size()).unwrap();
        prepared.write(&device).unwrap();
        drop(device);
        assert_clean_file(&path, "new");
        let free = |path: &Path| {
            let s = open_file(path).statfs().unwrap();
            (s.free_blocks, s.free_inodes)
        };
        let fresh = free(&path);
        let in_file = |path: &Path| {
            let out = Command::new("dumpe2fs")
                .arg("-h")
                .arg(path)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.contains("orphan_present"), "{text}");
            assert!(!text.contains("First orphan inode"), "{text}");
        };
        // Left by the kernel, found here and by e2fsck.
        let mounted = Mounted::new(&path, "");
        let held: Vec<_> = (0..ORPHANS)
            .map(|n| {
                let at = mounted.path().join(format!("o{n}"));
                std::fs::write(&at, pattern(n, 5_000)).unwrap();
                let file = std::fs::File::open(&at).unwrap();
                std::fs::remove_file(&at).unwrap();
                file
            })
            .collect();
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let (copy, again) = (dir.path().join("copy"), dir.path().join("again"));
        copy_image(&path, &copy);
        copy_image(&path, &again);
        drop(held);
        mounted.unmount();
        in_file(&copy);
        let text = repair(&again, "orphans of the kernel, e2fsck");
        assert!(text.contains("orphan"), "{text}");
        assert_eq!(free(&again), fresh);
        let v = open_file(&copy);
        let s = v.statfs().unwrap();
        assert_eq!((s.free_blocks, s.free_inodes), fresh);
        v.close().unwrap();
        assert_clean_file(&copy, "orphans of the kernel");
        // Left here, found by the kernel.
        let v = open_file(&path);
        let held: Vec<_> = (0..ORPHANS)
            .map(|n| {
                let name = format!("/o{n}");
                v.write(&name, pattern(n, 5_000)).unwrap();
                let file = v.open_file(&name).unwrap();
                v.remove_file(&name).unwrap();
                file
            })
            .collect();
        v.sync().unwrap();
        copy_image(&path, &copy);
        drop(held);
        v.close().unwrap();
        assert_clean_file(&path, "orphans of ours, closed");
        in_file(&copy);
        let mounted = Mounted::new(&copy, "");
        let s = rustix::fs::statvfs(mounted.path()).unwrap();
        assert_eq!((s.f_bfree, s.f_ffree), fresh);
        mounted.unmount();
        assert_clean_file(&copy, "orphans of ours, found by the kernel");
    }
}

/// Our power is cut: the kernel, and e2fsck, recover our journal.
#[test]
fn our_dirty_journals() {
    if !able() {
        return;
    }
    for (what, args) in KINDS
        .iter()
        .filter(|(_, a)| !a.contains(&"^has_journal") && !a.contains(&"ext2"))
    {
        let dir = needs::memory_dir();
        let path = image(&dir, args);
        let v = open_file(&path);
        make(&v, 3_000);
        v.sync().unwrap();
        // Revokes, escapes, an orphan, and names taken again.
        v.write(
            "/looks like a journal",
            [0xC0, 0x3B, 0x39, 0x98].repeat(4096),
        )
        .unwrap();
        for n in 0..3_000 {
            let _ = v.remove_file(format!("/big/name number {n}"));
        }
        let orphan = v.open_file("/kinds/file5").unwrap();
        v.remove_file("/kinds/file5").unwrap();
        v.remove_file("/big/link5").unwrap();
        v.remove_file("/kinds/shredded").unwrap();
        v.write("/kinds/reuses", pattern(3, 2_000_000)).unwrap();
        v.sync().unwrap();
        let ours = our_tree(&v);
        let copy = dir.path().join("copy");
        copy_image(&path, &copy);
        // Not synced: must not be seen.
        v.write("/too late", b"x").unwrap();
        let checked = dir.path().join("checked");
        copy_image(&copy, &checked);
        drop(orphan);
        v.close().unwrap();
        let mounted = Mounted::new(&copy, "");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        same(&ours, &theirs, &format!("{what}, recovered by the kernel"));
        assert_clean_file(&copy, &format!("{what}, recovered by the kernel"));
        repair(&checked, &format!("{what}, recovered by e2fsck"));
        let mounted = Mounted::new(&checked, "ro");
        same(
            &ours,
            &kernel_tree(mounted.path()),
            &format!("{what}, recovered by e2fsck"),
        );
        mounted.unmount();
        let dropped = open_file(&path);
        assert!(dropped.metadata("/too late").is_ok());
    }
}
