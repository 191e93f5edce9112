//! File systems made from SquashFS images: those of mksquashfs, with each compressor, and broken ones.

use crate::it::mkfs::compare::{Snapshot, assert_equal, snapshot};
use crate::it::mkfs::from_tar::{Build, from_bytes, from_tar};
use crate::it::mkfs::from_tree::make_tree;
use crate::it::mkfs::support::{Image, options, output, run, scratch};
use blockdev::{BlockDevice, MemDevice};
use extant_mkfs::{
    self as mkfs, ArchiveInput, MkfsError, MkfsOptions, Source, SquashTree, read_archive, read_tree,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Packs a tree. `None` without mksquashfs.
fn pack(tree: &Path, to: &Path, options: &[&str]) -> Option<Vec<u8>> {
    needs::have(&["mksquashfs"]).then_some(())?;
    let quiet = ["-noappend", "-quiet", "-no-progress"];
    let _ = fs::remove_file(to);
    let names = [tree.to_str().unwrap(), to.to_str().unwrap()];
    output("mksquashfs", &[&names[..], &quiet, options].concat())?;
    Some(fs::read(to).unwrap())
}

/// Returns a tree with one of everything that fits: 32 bits for times, and more names than a header has entries.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    make_tree(&tree);
    for (path, time) in [
        ("usr/fast link", "@1234567890.5"),
        ("usr/nothing", "@4000000000"),
    ] {
        let path = tree.join(path);
        run("touch", &["-hd", time, path.to_str().unwrap()]);
    }
    fs::create_dir(tree.join("many")).unwrap();
    for i in 0..1000 {
        fs::write(
            tree.join(format!("many/{i}")),
            format!("{i}\n").repeat(i / 9),
        )
        .unwrap();
    }
    // Incompressible data are stored uncompressed.
    let mut seed = 1_u64;
    let noise = (0..300_000).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    });
    fs::write(tree.join("noise"), noise.collect::<Vec<_>>()).unwrap();
    fs::copy("/bin/sh", tree.join("program")).unwrap();
    tree
}

/// Returns the part of a tree that SquashFS can hold.
fn held(mut tree: Snapshot) -> Snapshot {
    for e in tree.values_mut() {
        e.times = [(0, 0), (e.times[1].0, 0), (0, 0)];
        e.xattrs.retain(|name, _| !name.starts_with(b"system."));
        if let Some((_, holes)) = &mut e.data {
            holes.clear();
        }
    }
    tree
}

fn tree_of(bytes: &[u8]) -> Result<SquashTree, MkfsError> {
    let device = MemDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).unwrap();
    Ok(SquashTree::open("image", device)?)
}

/// Returns the names, and the sum of all data.
fn read_all(bytes: &[u8]) -> Result<(u64, u64), MkfsError> {
    let (mut members, mut total) = (0, 0);
    read_tree(&tree_of(bytes)?, None, |_, data| {
        members += 1;
        let read = std::io::copy(data, &mut std::io::sink());
        total += read.map_err(|e| MkfsError::Options(e.to_string()))?;
        Ok::<(), MkfsError>(())
    })?;
    Ok((members, total))
}

#[test]
fn every_compressor_keeps_everything() {
    let dir = scratch();
    let tree = tree(dir.path());
    let before = snapshot(&tree);
    for packing in [
        &["-comp", "gzip"][..],
        &["-comp", "gzip", "-b", "4096", "-always-use-fragments"],
        &["-comp", "xz"],
        &["-comp", "xz", "-Xbcj", "x86", "-b", "1M"],
        &["-comp", "zstd", "-no-fragments"],
        &["-comp", "lz4"],
        &["-comp", "lz4", "-Xhc", "-b", "256K"],
        &["-comp", "lzo"],
        &["-noI", "-noD", "-noF", "-noX"],
        &["-no-exports", "-no-duplicates", "-no-sparse"],
    ] {
        let file = dir.path().join("image.squashfs");
        if pack(&tree, &file, packing).is_none() {
            return;
        }
        let image = from_tar(vec![ArchiveInput::File(file)], &options());
        image.check(packing[1]);
        assert!(
            image.report.warnings.is_empty(),
            "{:?}",
            image.report.warnings
        );
        assert_eq!(image.report.hard_links, 2, "{packing:?}");
        let Some(mount) = image.mount() else { return };
        let after = snapshot(&mount.at);
        if packing == ["-comp", "gzip"] {
            let holes = |path: &str| after[Path::new(path)].data.as_ref().unwrap().1.clone();
            assert_eq!(
                holes("usr/sparse"),
                [(0, 2), (10, 12), (2304, 2306), (17_920, 17_922)]
            );
            assert_eq!(holes("usr/all hole"), []);
        }
        assert_equal(held(before.clone()), held(after), |_| {});
    }
}

/// The bytes of a new file system depend neither on the form of the source image nor on threads.
#[test]
fn files_and_streams_packed_or_not() {
    let dir = scratch();
    let tree = tree(dir.path());
    let file = dir.path().join("image.squashfs");
    let Some(bytes) = pack(&tree, &file, &["-comp", "zstd"]) else {
        return;
    };
    let made = |input, threads| {
        let options = MkfsOptions {
            threads,
            time: Some(7),
            ..options()
        };
        let image = from_tar(vec![input], &options);
        image.check("streams");
        fs::read(&image.path).unwrap()
    };
    let first = made(ArchiveInput::File(file), 1);
    let gzip = {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&bytes).unwrap();
        gzip.finish().unwrap()
    };
    for (what, input) in [
        ("plain", from_bytes(bytes.clone())),
        ("gzip", from_bytes(gzip)),
    ] {
        assert!(made(input, 3) == first, "{what}");
    }
    let mut members = 0;
    let read = read_archive(from_bytes(bytes.clone()), None, |_, _| {
        members += 1;
        Ok::<(), MkfsError>(())
    });
    read.unwrap();
    assert_eq!(members, read_all(&bytes).unwrap().0);
}

/// Each source is a layer over those before it, with white-outs in all of them.
#[test]
fn layers_of_several_kinds() {
    let dir = scratch();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("a/d")).unwrap();
    fs::create_dir_all(at("b/d")).unwrap();
    fs::write(at("a/d/gone"), "gone").unwrap();
    fs::write(at("a/d/kept"), "kept").unwrap();
    fs::write(at("b/d/.wh.gone"), "").unwrap();
    fs::write(at("b/d/new"), "new").unwrap();
    let file = |name: &str| at(&format!("{name}.squashfs"));
    if pack(&at("a"), &file("a"), &[]).is_none() {
        return;
    }
    pack(&at("b"), &file("b"), &["-comp", "xz"]);
    let tar = Build::new().file("d/over", "over").input();
    let inputs = vec![
        ArchiveInput::File(file("a")),
        tar,
        ArchiveInput::File(file("b")),
    ];
    let image = from_tar(inputs, &options());
    image.check("layers");
    for (name, want) in [("kept", "kept"), ("over", "over"), ("new", "new")] {
        let text = image.debugfs(&format!("cat /d/{name}"));
        assert!(text.is_none_or(|t| t == want), "{name}");
    }
    let list = image.debugfs("ls /d");
    assert!(list.is_none_or(|l| !l.contains("gone")));
}

/// The decompressors that are not there are named.
#[test]
fn what_is_not_read_is_named() {
    let dir = scratch();
    fs::write(dir.path().join("file"), vec![b'x'; 5000]).unwrap();
    let to = scratch();
    let file = to.path().join("image");
    if let Some(bytes) = pack(dir.path(), &file, &["-comp", "lzma"]) {
        let e = tree_of(&bytes).err().unwrap().to_string();
        assert!(e.contains("at byte 20: compressed with lzma"), "{e}");
    }
    let Some(good) = pack(dir.path(), &file, &[]) else {
        return;
    };
    for (at, bytes, what) in [
        (
            0,
            &b"sqsh"[..],
            "at byte 0: not a SquashFS image of version 4.0, little-endian",
        ),
        (
            28,
            b"\x03\0\x01\0",
            "at byte 28: SquashFS of version 3.1, where only 4.0 is read",
        ),
        (20, b"\x09\0", "at byte 20: an unknown compressor, number 9"),
        (
            12,
            b"\0\0\x20\0",
            "at byte 12: an impossible size of blocks",
        ),
        (22, b"\x03", "at byte 12: an impossible size of blocks"),
        (
            40,
            b"\x20\0\0\0",
            "at byte 40: the image ends in its superblock",
        ),
        (40, b"\0\0\0\x09", "at byte 40: the image is cut off"),
        (
            64,
            b"\0\0\0\x09",
            "at byte 64: a table outside of the image",
        ),
        (
            48,
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            "at byte 48: a table that must be there",
        ),
        (32, b"\xff\xff", "beyond the end of a metadata block"),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        let e = read_all(&bad).unwrap_err().to_string();
        assert!(e.contains(what), "{what}: {e}");
        let source = Source::Archive(from_bytes(bad));
        assert!(mkfs::prepare_from(&options(), source).is_err());
    }
    let used = u64::from_le_bytes(*good[40..].first_chunk().unwrap()) as usize;
    for len in [4, 95, 96, used / 2, used - 1] {
        assert!(read_all(&good[..len]).is_err(), "{len}");
    }
}

/// Builds images by hand: metadata that are not compressed, and no data.
#[derive(Clone, Default)]
struct ByHand {
    inodes: Vec<u8>,
    directories: Vec<u8>,
    count: u32,
}

/// Returns the place of a byte of a table in the form of references: the block, and the offset there.
fn place(byte: usize) -> (u32, u16) {
    ((byte / 8192 * 8194) as u32, (byte % 8192) as u16)
}

impl ByHand {
    fn header(&mut self, kind: u16) -> usize {
        let at = self.inodes.len();
        self.count += 1;
        for half in [kind, 0o755, 0, 0] {
            self.inodes.extend(half.to_le_bytes());
        }
        for word in [77, self.count] {
            self.inodes.extend(word.to_le_bytes());
        }
        at
    }

    /// Adds a directory whose entries begin at a byte of the directory table; returns the place of its inode.
    fn dir(&mut self, entries: usize, len: usize) -> usize {
        let at = self.header(1);
        let (block, offset) = place(entries);
        self.inodes
            .extend([block, 2].map(u32::to_le_bytes).concat());
        self.inodes
            .extend([len as u16 + 3, offset].map(u16::to_le_bytes).concat());
        self.inodes.extend(0_u32.to_le_bytes());
        at
    }

    fn fifo(&mut self, links: u32) -> usize {
        let at = self.header(6);
        self.inodes.extend(links.to_le_bytes());
        at
    }

    /// Adds the entries of a directory, by name, place of the inode, its number, and type; returns their start and
    /// length.
    fn list(&mut self, entries: &[(&str, usize, u32, u16)]) -> (usize, usize) {
        let start = self.directories.len();
        for (name, inode, number, kind) in entries {
            let (block, offset) = place(*inode);
            let table = &mut self.directories;
            table.extend([0, block, *number].map(u32::to_le_bytes).concat());
            let len = (name.len() as u16).wrapping_sub(1);
            table.extend([offset, 0, *kind, len].map(u16::to_le_bytes).concat());
            table.extend(name.as_bytes());
        }
        (start, self.directories.len() - start)
    }

    /// Returns the image; the root's inode is at a given byte of the inode table.
    fn image(&self, root: usize) -> Vec<u8> {
        let mut all = vec![0; 96];
        let mut tables = Vec::new();
        for table in [&self.inodes[..], &self.directories, &[0; 4]] {
            tables.push(all.len() as u64);
            for block in table.chunks(8192) {
                all.extend((block.len() as u16 | 0x8000).to_le_bytes());
                all.extend(block);
            }
        }
        let ids = all.len() as u64;
        all.extend(tables[2].to_le_bytes());
        let none = u64::MAX;
        let (block, offset) = place(root);
        let root = u64::from(block) << 16 | u64::from(offset);
        let words = [u32::from_le_bytes(*b"hsqs"), self.count, 0, 131_072, 0];
        let halves = [1, 17, 0, 1, 4, 0_u16];
        let long = [
            root,
            all.len() as u64,
            ids,
            none,
            tables[0],
            tables[1],
            none,
            none,
        ];
        let head = [
            words.map(u32::to_le_bytes).concat(),
            halves.map(u16::to_le_bytes).concat(),
            long.map(u64::to_le_bytes).concat(),
        ];
        all[..96].copy_from_slice(&head.concat());
        all
    }

    /// Makes an image with these entries in its root, and with two FIFOs at 0 and 20, the second with two links.
    fn with_root(entries: &[(&str, usize, u32, u16)]) -> Vec<u8> {
        let mut image = Self::default();
        image.fifo(1);
        image.fifo(2);
        let (start, len) = image.list(entries);
        let root = image.dir(start, len);
        assert_eq!(root, 40);
        image.image(root)
    }
}

#[test]
fn impossible_directories_are_refused() {
    let refused = |image: &[u8], what: &str| {
        let e = read_all(image).unwrap_err().to_string();
        assert!(
            e.starts_with("image: at byte ") && e.contains(what),
            "{what}: {e}"
        );
    };
    let good = ByHand::with_root(&[("a", 0, 1, 6), ("b", 20, 2, 6), ("c", 20, 2, 6)]);
    assert_eq!(read_all(&good).unwrap(), (4, 0));
    let report = from_tar(vec![from_bytes(good)], &options()).report;
    assert_eq!((report.specials, report.hard_links), (2, 1));
    for name in [".", "..", "a/b", "/", "a\0", ""] {
        let image = ByHand::with_root(&[(name, 0, 1, 6)]);
        // An empty name cannot be said: it is one of 65,536 bytes.
        refused(
            &image,
            if name.is_empty() {
                "more than 255 bytes"
            } else {
                "an impossible name"
            },
        );
    }
    for (entries, what) in [
        (
            &[("a", 0, 1, 6), ("b", 20, 2, 6), ("a", 20, 2, 6)][..],
            "two entries a",
        ),
        (&[("a", 0, 2, 6)], "another number or type"),
        (&[("a", 0, 1, 7)], "another number or type"),
        (&[("a", 8000, 1, 6)], "beyond the end of a metadata block"),
        (&[("a", 9000, 1, 6)], "at byte"),
        (
            &[("loop", 40, 3, 1)],
            "inode 3: a directory in two places, or below itself",
        ),
    ] {
        refused(&ByHand::with_root(entries), what);
    }
    // A root that is not a directory, too large a number of entries, a header of too many entries.
    let mut image = ByHand::default();
    image.fifo(1);
    refused(&image.image(0), "the root is not a directory");
    let mut image = ByHand::default();
    image.fifo(1);
    let (start, len) = image.list(&[("a", 0, 1, 6)]);
    let short = image.dir(start, len - 1);
    refused(&image.image(short), "reaches beyond its end");
    let long = image.dir(start, len + 1);
    refused(&image.image(long), "reaches beyond its end");
    let (many, _) = image.list(&[("a", 0, 1, 6)]);
    image.directories[many + 1] = 1;
    let root = image.dir(many, 5000);
    refused(&image.image(root), "more than 256 entries");
}

/// Small images must not expand without limit: a directory in two places, entries shared by several directories, and
/// endlessly nested directories.
#[test]
fn nothing_grows_without_end() {
    let refused = |image: &[u8], what: &str| {
        let e = read_all(image).unwrap_err().to_string();
        assert!(e.contains(what), "{what}: {e}");
    };
    let mut image = ByHand::default();
    image.fifo(1);
    let (names, len) = image.list(&[("x", 0, 1, 6)]);
    let (one, two) = (image.dir(names, len), image.dir(names, len));
    let (start, len) = image.list(&[("a", one, 2, 1), ("b", one, 2, 1)]);
    let root = image.dir(start, len);
    refused(&image.image(root), "inode 2: a directory in two places");
    let (start, len) = image.list(&[("a", one, 2, 1), ("b", two, 3, 1)]);
    let root = image.dir(start, len);
    refused(&image.image(root), "directories that share their entries");

    let deep = |depth: u32| {
        let mut image = ByHand::default();
        let mut inner = image.dir(0, 0);
        for number in 1..=depth {
            let (start, len) = image.list(&[("d", inner, number, 1)]);
            inner = image.dir(start, len);
        }
        image.image(inner)
    };
    assert_eq!(read_all(&deep(2048)).unwrap(), (2049, 0));
    refused(&deep(2049), "more than 2048 directories deep");
}

/// Images with any bytes changed give an error or a clean file system, never a panic.
#[test]
fn damaged_images() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("d/e")).unwrap();
    for i in 0..300 {
        fs::write(tree.join(format!("d/{i}")), "text\n".repeat(i)).unwrap();
    }
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"x", 500_000).unwrap();
    fs::hard_link(tree.join("sparse"), tree.join("d/e/hard")).unwrap();
    std::os::unix::fs::symlink("d", tree.join("link")).unwrap();
    for (name, value) in [("user.a", "b"), ("user.long", &"c".repeat(300))] {
        let value = value.as_bytes();
        let flags = rustix::fs::XattrFlags::empty();
        let _ = rustix::fs::setxattr(tree.join("sparse"), name, value, flags);
        let _ = rustix::fs::setxattr(tree.join("d/e"), name, value, flags);
    }
    let mut seed = 0x9e37_79b9_u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    let share = if std::env::var_os("EXTANT_TORTURE").is_some() {
        1
    } else {
        5
    };
    for (packing, mutants) in [
        (&["-noI", "-noD", "-noF", "-noX", "-b", "4096"][..], 1500),
        (&["-comp", "gzip", "-b", "4096"], 200),
        (&["-comp", "xz", "-Xbcj", "x86"], 200),
        (&["-comp", "zstd"], 200),
        (&["-comp", "lz4"], 200),
        (&["-comp", "lzo"], 200),
    ] {
        let mutants = mutants / share;
        let Some(good) = pack(&tree, &dir.path().join("image"), packing) else {
            return;
        };
        let (members, bytes) = read_all(&good).unwrap();
        assert!(members == 306 && bytes > 224_250, "{members} {bytes}");
        // Tables are at the end, and say more than the data.
        let tables = u64::from_le_bytes(*good[64..].first_chunk().unwrap()) as usize;
        let mut kept = 0;
        for _ in 0..mutants {
            let mut bad = good.clone();
            for _ in 0..1 + next() % 3 {
                let at = match next() % 8 {
                    0 => next() % 96,
                    1 => next() % good.len(),
                    _ => tables + next() % (good.len() - tables),
                };
                bad[at] = match next() % 4 {
                    0 => 0xff,
                    1 => 0,
                    2 => bad[at] ^ 1 << (next() % 8),
                    _ => next() as u8,
                };
            }
            let read = read_all(&bad);
            let options = MkfsOptions {
                size: Some(16 << 20),
                threads: 1,
                ..options()
            };
            let source = Source::Archive(from_bytes(bad));
            let Ok(prepared) = mkfs::prepare_from(&options, source) else {
                continue;
            };
            let device = MemDevice::new(16 << 20);
            let written = prepared.write(&device);
            if read.is_ok() {
                assert!(written.is_ok(), "{written:?}");
                kept += 1;
                if kept % 20 == 0 {
                    Image::write(&prepared).check("a damaged image that was read");
                }
            }
        }
        assert!(kept > 0 && kept < mutants, "{packing:?}: {kept}");
    }
}
