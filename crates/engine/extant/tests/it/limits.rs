//! The limits: the largest offsets a mapping can address, the longest names and paths, the most links.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::{Error, Fallocate, OpenOptions, SetXattr, Volume, mkfs};
use std::sync::Arc;

/// A block at the last offset can be written, and not a byte more.
#[test]
fn the_largest_file() {
    needs::tools!("mke2fs", "e2fsck");
    for args in [
        &["-t", "ext4", "-J", "size=4"][..],
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        &["-t", "ext4", "-O", "^huge_file", "-J", "size=4"],
        &["-t", "ext3", "-J", "size=4"],
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        &["-t", "ext2", "-b", "2048"],
    ] {
        let device = mem_image("24M", args);
        let v = open(&device);
        let extents = v.geometry().features.has_extents();
        let max = v.geometry().max_file_size(extents);
        let what = format!("{args:?}, {max} bytes at most");
        let file = v.create_new_file("/f").unwrap();
        let too_large =
            |r: extant::Result<()>| assert!(matches!(r, Err(Error::FileTooLarge)), "{what}: {r:?}");
        too_large(file.write_at(b"x", max).map(drop));
        // The part that fits is stored.
        assert_eq!(file.write_at(b"last", max - 3).unwrap(), 3, "{what}");
        file.set_len(0).unwrap();
        too_large(file.write_at(b"last", u64::MAX - 1).map(drop));
        too_large(file.set_len(max + 1));
        if extents {
            too_large(file.fallocate(Fallocate::default(), max - 5, 10));
            too_large(file.fallocate(Fallocate::default(), u64::MAX - 5, 10));
        }
        file.write_at(b"last", max - 4)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        file.write_at(b"middle", max / 2).unwrap();
        file.write_at(b"first", 0).unwrap();
        too_large(file.append(b"x").map(drop));
        v.sync().unwrap();
        drop(file);
        v.close().unwrap();
        assert_clean(&device, &what);
        let v = open(&device);
        let file = v
            .open_file_with("/f", &OpenOptions::new().read(true).write(true))
            .unwrap();
        assert_eq!(file.metadata().unwrap().len(), max, "{what}");
        for (at, expected) in [(max - 4, &b"last"[..]), (max / 2, b"middle"), (0, b"first")] {
            let mut found = vec![0; expected.len()];
            assert_eq!(file.read_at(&mut found, at).unwrap(), expected.len());
            assert_eq!(found, expected, "{what}: at {at}");
        }
        assert_eq!(file.read_at(&mut [0; 4], max).unwrap(), 0);
        assert_eq!(file.read_at(&mut [0; 4], u64::MAX - 1).unwrap(), 0);
        let bs = u64::from(v.geometry().block_size);
        assert_eq!(
            file.seek_data(max / 2 + bs).unwrap(),
            (max - 4) / bs * bs,
            "{what}"
        );
        assert_eq!(file.seek_hole(max - 4).unwrap(), max, "{what}");
        file.set_len(10).unwrap();
        v.close().unwrap();
        assert_clean(&device, &format!("{what}, cut"));
    }
}

/// Without huge_file the count of sectors, mapping and attributes included, has 32 bits: a file that has all the
/// blocks it may have fits it.
#[test]
fn two_tib_without_huge_file() {
    let size = 5 << 39;
    let device = Arc::new(MemDevice::new(size));
    let options = mkfs::MkfsOptions {
        size: Some(size),
        features: "^huge_file".into(),
        journal_size: Some(16 << 20),
        zeroed_device: true,
        ..Default::default()
    };
    mkfs::format(&*device, &options).unwrap();
    let v = open(&device);
    let max = v.geometry().max_file_size(true);
    assert!((2_180_000_000_000..1 << 41).contains(&max), "{max}");
    let file = v.create_new_file("/f").unwrap();
    let all = Fallocate::Allocate { keep_size: false };
    assert!(matches!(
        file.fallocate(all, 0, max + 1),
        Err(Error::FileTooLarge)
    ));
    file.fallocate(all, 0, max).unwrap();
    // Short pieces of it are written, so that the mapping is large too.
    for n in 0..2000 {
        file.write_at(b"piece", n << 22).unwrap();
    }
    file.set_xattr("user.large", &vec![7; 900], SetXattr::Any)
        .unwrap();
    assert!(matches!(file.set_len(max + 1), Err(Error::FileTooLarge)));
    v.sync().unwrap();
    let sectors = file.metadata().unwrap().blocks();
    assert!(
        sectors > max / 512 && u32::try_from(sectors).is_ok(),
        "{sectors}"
    );
    drop(file);
    v.close().unwrap();
    assert_eq!(open(&device).metadata("/f").unwrap().len(), max);
}

#[test]
fn names_and_paths() {
    needs::tools!("mke2fs");
    let v = open(&mem_image("24M", &["-t", "ext4", "-J", "size=4"]));
    let longest = "n".repeat(255);
    v.create_new_file(&longest).unwrap();
    let too_long = |r: extant::Result<()>, what: &str| {
        assert!(matches!(r, Err(Error::NameTooLong)), "{what}: {r:?}")
    };
    let name = "n".repeat(256);
    too_long(v.create_new_file(&name).map(drop), "create");
    too_long(v.metadata(&name).map(drop), "stat");
    too_long(v.create_dir_with_mode(&name, 0o700).map(drop), "mkdir");
    too_long(v.rename_with(&longest, &name, Default::default()), "rename");
    too_long(v.hard_link(&longest, &name), "link");
    too_long(v.remove_file(&name), "unlink");
    too_long(v.metadata("/a".repeat(2100)).map(drop), "a path");
    for bad in ["a\0b", "\0"] {
        assert!(
            matches!(v.create_new_file(bad), Err(Error::Invalid(_))),
            "{bad:?}"
        );
    }
    for odd in [&b"\xff\xfe"[..], b"new\nline", b" ", b"...", b"\x7f"] {
        let odd = path(odd);
        v.create_new_file(odd).unwrap();
        v.remove_file(odd).unwrap();
    }
    v.symlink("loop", "/loop").unwrap();
    assert!(matches!(v.metadata("/loop"), Err(Error::SymlinkLoop)));
    assert!(matches!(v.metadata(""), Err(Error::NotFound)));
    // 40 links are followed, 41 are not.
    v.write("/l0", b"end").unwrap();
    for n in 1..=41 {
        v.symlink(format!("l{}", n - 1), format!("/l{n}")).unwrap();
    }
    assert_eq!(v.read("/l40").unwrap(), b"end");
    assert!(matches!(v.read("/l41"), Err(Error::SymlinkLoop)));
}

/// A file may have 65,000 links and no more.
#[test]
fn links() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("64M", &["-t", "ext4", "-J", "size=4"]);
    let v = open(&device);
    v.write("/f", b"x").unwrap();
    v.create_dir("/d").unwrap();
    (1..65_000).for_each(|n| v.hard_link("/f", format!("/d/{n}")).unwrap());
    assert_eq!(v.metadata("/f").unwrap().nlink(), 65_000);
    assert!(matches!(
        v.hard_link("/f", "/one-more"),
        Err(Error::TooManyLinks)
    ));
    v.remove_file("/d/7").unwrap();
    v.hard_link("/f", "/one-more").unwrap();
    v.close().unwrap();
    assert_clean(&device, "65,000 links");
}

/// Without dir_nlink the link count limits the number of subdirectories.
#[test]
fn subdirectories_without_dir_nlink() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(
        "600M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "70000",
            "-O",
            "^dir_nlink",
        ],
    );
    let v = open(&device);
    let mut made = 0;
    let refused = loop {
        match v.create_dir(format!("/{made}")) {
            Ok(_) => made += 1,
            Err(e) => break e,
        }
        assert!(made < 66_000);
    };
    assert!(matches!(refused, Error::TooManyLinks), "{refused:?}");
    // lost+found is one of them.
    assert_eq!(v.metadata("/").unwrap().nlink(), made + 3);
    v.create_new_file("/files-are-not-counted").unwrap();
    v.remove_dir("/5").unwrap();
    v.create_dir("/again").unwrap();
    let within = v.create_dir("/again/within").map(drop);
    within.unwrap();
    let moved = || v.rename("/again/within", "/moved");
    assert!(matches!(moved(), Err(Error::TooManyLinks)));
    // Threads at the limit: it is never exceeded, and links that they release can be used again.
    (100..140).for_each(|n| v.remove_dir(format!("/{n}")).unwrap());
    let refused: u32 = at_once(&v, |v, t| {
        let (mut mine, mut refused) = (Vec::new(), 0);
        for n in 0..400 {
            let name = format!("/{t}.{n}");
            match v.create_dir(&name) {
                Ok(_) => mine.push(name),
                Err(Error::TooManyLinks) => {
                    refused += 1;
                    mine.drain(..).for_each(|name| v.remove_dir(name).unwrap());
                }
                Err(e) => panic!("{e}"),
            }
            assert!(v.metadata("/").unwrap().nlink() <= 65_000);
        }
        v.sync().unwrap();
        refused
    });
    assert!(refused > 0);
    let mut more = v.metadata("/").unwrap().nlink();
    while v.create_dir(format!("/more{more}")).is_ok() {
        more += 1;
    }
    assert_eq!((more, v.metadata("/").unwrap().nlink()), (65_000, 65_000));
    v.remove_dir("/6").unwrap();
    moved().unwrap();
    v.close().unwrap();
    assert_clean(&device, "as many subdirectories as links");
    assert_eq!(open(&device).metadata("/").unwrap().nlink(), 65_000);
}

/// With dir_nlink threads add subdirectories beyond the link count's range. From then on they are not counted, and not
/// on disk either.
#[test]
fn subdirectories_with_dir_nlink() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("600M", &["-t", "ext4", "-b", "1024", "-N", "70000"]);
    let v = open(&device);
    (0..64_990).for_each(|n| drop(v.create_dir(format!("/{n}")).unwrap()));
    v.sync().unwrap();
    assert_eq!(v.metadata("/").unwrap().nlink(), 64_993);
    at_once(&v, |v, t| {
        for n in 0..20 {
            v.create_dir(format!("/{t}.{n}")).unwrap();
            v.remove_dir(format!("/{}", 100 * t + n)).unwrap();
            v.sync().unwrap();
        }
        0
    });
    assert_eq!(v.metadata("/").unwrap().nlink(), 64_993);
    at_once(&v, |v, t| {
        for n in 0..20 {
            v.create_dir(format!("/more {t}.{n}")).unwrap();
        }
        0
    });
    assert_eq!(v.metadata("/").unwrap().nlink(), 1);
    v.close().unwrap();
    assert_clean(&device, "more subdirectories than links");
    let v = open(&device);
    assert_eq!(v.metadata("/").unwrap().nlink(), 1);
    v.remove_dir("/9000").unwrap();
    assert_eq!(v.metadata("/").unwrap().nlink(), 1);
}

/// Runs four threads, and returns the sum of their results.
fn at_once(v: &Volume, work: impl Fn(Volume, u32) -> u32 + Sync) -> u32 {
    let work = &work;
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..4)
            .map(|t| {
                let v = v.clone();
                s.spawn(move || work(v, t))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    })
}

/// Reading a whole file that memory cannot hold is an error, not the end of the process.
#[test]
fn a_file_larger_than_memory() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    needs::tools!("mke2fs");
    let limit = Rlimit {
        current: Some(64 << 30),
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let device = mem_image("24M", &["-t", "ext4", "-J", "size=4"]);
    let v = open(&device);
    let file = v.create_new_file("/f").unwrap();
    file.set_len(8 << 40).unwrap();
    let error = v.read("/f").expect_err("8 TiB in memory");
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

/// An object without data refuses a write, even one of no bytes.
#[test]
fn nothing_is_written_to_a_fifo() {
    needs::tools!("mke2fs");
    let v = open(&mem_image("8M", &["-t", "ext4"]));
    v.mknod("/fifo", extant::FileType::Fifo, 0o600, 0).unwrap();
    let fifo = v
        .open_file_with("/fifo", &OpenOptions::new().write(true))
        .unwrap();
    for bytes in [&b""[..], b"some"] {
        assert_eq!(fifo.write_at(bytes, 0).unwrap_err().errno(), 22);
        assert_eq!(fifo.append(bytes).unwrap_err().errno(), 22);
    }
    v.close().unwrap();
}
