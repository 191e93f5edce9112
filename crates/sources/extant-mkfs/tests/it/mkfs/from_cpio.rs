//! File systems made from cpio archives: those of GNU cpio, images that Linux boots from, malformed ones.

use crate::it::mkfs::compare::{Snapshot, assert_equal, snapshot};
use crate::it::mkfs::from_tar::{from_bytes, from_tar, refused};
use crate::it::mkfs::from_tree::make_tree;
use crate::it::mkfs::support::{Image, options, output, run, scratch};
use extant_mkfs::{self as mkfs, ArchiveInput, MkfsError, MkfsOptions, Source, read_archive};
use std::fs;
use std::io::Write;
use std::path::Path;

fn from_cpio(bytes: &[u8]) -> Image {
    from_tar(vec![from_bytes(bytes.to_vec())], &options())
}

/// Returns the part of a tree that a cpio archive can hold.
fn held(mut tree: Snapshot) -> Snapshot {
    for e in tree.values_mut() {
        let seconds = e.times[1].0.rem_euclid(1 << 32); // the value as 32 bits
        e.times = [(0, 0), (seconds, 0), (0, 0)];
        e.xattrs.clear();
        // The bits that correspond to an ACL's mask.
        if e.mode & 0o7070 == 0o0050 {
            e.mode &= !0o070;
        }
        if let Some((_, holes)) = &mut e.data {
            holes.clear();
        }
    }
    tree
}

/// Packs a tree with GNU cpio. `None` without it.
fn gnu_cpio(tree: &Path, archive: &Path, format: &str) -> Option<()> {
    needs::have(&["cpio"]).then_some(())?;
    let script = format!(
        "cd {} && find . -print0 | LC_ALL=C sort -z | cpio --quiet -0 -o -H {format} >{}",
        tree.display(),
        archive.display()
    );
    output("sh", &["-c", &script]).map(drop)
}

#[test]
fn gnu_cpios_archives_keep_what_they_can() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    make_tree(&tree);
    // GNU cpio refuses times and owners that do not fit.
    run(
        "touch",
        &[
            "-hd",
            "@1234567890.5",
            &format!("{}/usr/fast link", tree.display()),
        ],
    );
    run(
        "touch",
        &["-hd", "@77", &format!("{}/usr/nothing", tree.display())],
    );
    for format in ["newc", "crc"] {
        let archive = dir.path().join("archive.cpio");
        if gnu_cpio(&tree, &archive, format).is_none() {
            return;
        }
        let bytes = fs::read(&archive).unwrap();
        let gzip = gzip(&bytes);
        let inputs = [
            ArchiveInput::File(archive),
            from_bytes(bytes),
            from_bytes(gzip),
        ];
        let mut images = Vec::new();
        for input in inputs {
            let image = from_tar(vec![input], &options());
            image.check(format);
            if let Some(mount) = image.mount() {
                // The archive does not even contain readable attributes.
                assert_equal(held(snapshot(&tree)), held(snapshot(&mount.at)), |_| {});
            }
            images.push(fs::read(&image.path).unwrap().len());
        }
        assert!(images.windows(2).all(|w| w[0] == w[1]));
    }
}

#[test]
fn the_old_format_is_read() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("d/odd"), b"odd").unwrap();
    fs::write(tree.join("e"), b"").unwrap();
    fs::hard_link(tree.join("d/odd"), tree.join("hard")).unwrap();
    std::os::unix::fs::symlink("d/odd", tree.join("link")).unwrap();
    let archive = dir.path().join("archive.cpio");
    if gnu_cpio(&tree, &archive, "odc").is_none() {
        return;
    }
    let image = from_cpio(&fs::read(&archive).unwrap());
    image.check("odc");
    let found = (
        image.report.files,
        image.report.hard_links,
        image.report.symlinks,
    );
    assert_eq!(found, (2, 1, 1));
    assert_eq!(image.debugfs("cat /hard").as_deref(), Some("odd"));
    gnu_cpio(&tree, &archive, "bin").unwrap();
    assert!(refused(fs::read(&archive).unwrap()).contains("cpio -H newc"));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Builds small archives by hand.
#[derive(Clone, Default)]
pub struct Build(pub Vec<u8>);

impl Build {
    fn pad(mut self) -> Self {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Returns a member with inode number, mode, links, device and the sum for `crc`.
    fn member(self, path: &str, of: (u32, u32, u32), rdev: (u32, u32), data: &[u8]) -> Self {
        self.with_sum("070701", path, of, rdev, data, 0)
    }

    fn with_sum(
        mut self,
        magic: &str,
        path: &str,
        (ino, mode, links): (u32, u32, u32),
        rdev: (u32, u32),
        data: &[u8],
        sum: u32,
    ) -> Self {
        self.0.extend_from_slice(magic.as_bytes());
        let (size, name) = (data.len() as u32, path.len() as u32 + 1);
        for n in [
            ino, mode, 3, 4, links, 77, size, 8, 1, rdev.0, rdev.1, name, sum,
        ] {
            write!(self.0, "{n:08x}").unwrap();
        }
        self.0.extend_from_slice(path.as_bytes());
        self.0.push(0);
        let mut padded = self.pad();
        padded.0.extend_from_slice(data);
        padded.pad()
    }

    pub fn file(self, path: &str, data: &str) -> Self {
        self.member(path, (1, 0o100_644, 1), (0, 0), data.as_bytes())
    }

    fn linked(self, path: &str, ino: u32, data: &str) -> Self {
        self.member(path, (ino, 0o100_600, 3), (0, 0), data.as_bytes())
    }

    pub fn end(self) -> Self {
        let mut whole = self.member("TRAILER!!!", (0, 0, 1), (0, 0), b"");
        whole.0.resize(whole.0.len().next_multiple_of(512), 0);
        whole
    }
}

/// Wherever the data of a file with several names are, all names have them; several archives know nothing of each
/// other's numbers.
#[test]
fn hard_links_have_their_data_with_any_name() {
    let one = Build::default()
        .linked("last/a", 7, "")
        .linked("first/a", 8, "first")
        .linked("last/b", 7, "")
        .linked("none/a", 9, "")
        .linked("first/b", 8, "")
        .linked("last/c", 7, "last")
        .linked("every/a", 10, "every")
        .linked("none/b", 9, "")
        .linked("every/b", 10, "every")
        .member("tty", (11, 0o020_620, 2), (5, 1), b"")
        .member("tty2", (11, 0o020_620, 2), (5, 1), b"")
        .end();
    let two = Build::default().linked("two", 7, "other").end();
    let image = from_cpio(&[one.0, two.0].concat());
    image.check("links");
    let report = &image.report;
    assert_eq!(
        (report.files, report.hard_links, report.specials),
        (5, 6, 1)
    );
    for (path, want) in [
        ("last/a", "last"),
        ("last/b", "last"),
        ("first/b", "first"),
        ("none/b", ""),
        ("every/b", "every"),
        ("two", "other"),
    ] {
        let text = image.debugfs(&format!("cat /{path}"));
        assert!(text.is_none_or(|t| t == want), "{path}");
    }
}

/// An early archive with microcode, plain, then a compressed one, then more.
#[test]
fn initramfs_of_several_archives() {
    let early = Build::default().file("kernel/x86/microcode", "code").end();
    let main = Build::default()
        .member("bin", (2, 0o040_755, 2), (0, 0), b"")
        .file("bin/init", "#!")
        .end();
    let more = Build::default().file("etc/more", "more").end();
    let zeros = vec![0; 4096];
    let zstd = |b: &[u8]| zstd::encode_all(b, 1).unwrap();
    for (what, parts) in [
        ("plain, gzip", vec![&early.0[..], &gzip(&main.0)]),
        (
            "plain, zeros, zstd, zeros",
            vec![&early.0, &zeros, &zstd(&main.0), &zeros],
        ),
        (
            "plain, gzip, zstd",
            vec![&early.0, &gzip(&main.0), &zeros, &zstd(&more.0)],
        ),
        ("gzip, plain", vec![&gzip(&early.0), &main.0]),
        (
            "gzip, plain, gzip",
            vec![&gzip(&early.0), &zeros, &main.0, &gzip(&more.0)],
        ),
    ] {
        let bytes = parts.concat();
        let dir = scratch();
        let file = dir.path().join("initrd");
        fs::write(&file, &bytes).unwrap();
        for input in [from_bytes(bytes), ArchiveInput::File(file)] {
            let image = from_tar(vec![input], &options());
            image.check(what);
            for (path, want) in [("kernel/x86/microcode", "code"), ("bin/init", "#!")] {
                let text = image.debugfs(&format!("cat /{path}"));
                assert!(text.is_none_or(|t| t == want), "{what}: {path}");
            }
        }
    }
    let garbage = [&early.0[..], b"garbage"].concat();
    let at = early.0.len();
    assert!(refused(garbage).contains(&format!("at byte {at}: other bytes behind")));
    let garbage = [&early.0[..], b"\x04\x22\x4d\x18..."].concat();
    assert!(refused(garbage).contains("lz4 is not a supported compression"));
    let tar = [&early.0[..], &gzip(&[b'x'; 512])].concat();
    assert!(refused(tar).contains("other bytes behind"));
}

#[test]
fn bad_archives_are_refused_with_their_offset() {
    let first = Build::default().file("a", "data");
    let at = first.0.len();
    let second = first.clone().file("b", "more").end().0;
    let with = |offset: usize, text: &[u8]| {
        let mut bytes = second.clone();
        bytes[at + offset..][..text.len()].copy_from_slice(text);
        refused(bytes)
    };
    for (offset, text, what) in [
        (0, &b"070711"[..], "no header of a cpio member"),
        (6, b"0000000g", "not a number"),
        (14, b"00000000", "impossible mode"),
        (14, b"000181a4", "impossible mode"),
        (94, b"00000000", "length of its name"),
        (94, b"ffffffff", "length of its name"),
        (94, b"00000001", "name that does not end"),
    ] {
        let line = with(offset, text);
        assert!(
            line.contains(what) && line.contains(&format!("at byte {at}: ")),
            "{line}"
        );
    }
    assert!(with(54, b"fffffff0").contains("cut off"));
    for len in [7, 100, 111, at, at + 3, 2 * at + 50] {
        let line = refused(second[..len].to_vec());
        assert!(line.contains("cut off"), "{len}: {line}");
    }
    let device = Build::default().member("d", (1, 0o060_600, 1), (4096, 0), b"");
    assert!(refused(device.end().0).contains("impossible device number"));
    let link = Build::default().member("l", (1, 0o120_777, 1), (0, 0), &[b'x'; 5000]);
    assert!(refused(link.end().0).contains("symbolic link"));
    let up = Build::default().file("../x", "").end();
    assert!(refused(up.0).contains(".."));
}

/// The sum of the data is checked, whichever way they are read.
#[test]
fn sums() {
    let with = |sum| {
        let file = (1, 0o100_644, 1);
        Build::default()
            .with_sum("070702", "f", file, (0, 0), b"\x01\x02\xff", sum)
            .end()
            .0
    };
    from_cpio(&with(258)).check("sum");
    assert!(refused(with(259)).contains("wrong checksum"));
    assert!(refused(gzip(&with(259))).contains("wrong checksum"));
    for (bytes, right) in [(with(258), true), (with(257), false)] {
        let read = read_archive(from_bytes(bytes), None, |_, data| {
            let read = data.read_to_end(&mut Vec::new());
            read.map(drop)
                .map_err(|e| MkfsError::Options(e.to_string()))
        });
        assert_eq!(read.is_ok(), right);
    }
}

/// Archives with any bytes changed give an error or a clean image, never a panic.
#[test]
fn damaged_archives() {
    let good = Build::default()
        .member(".", (2, 0o040_755, 2), (0, 0), b"")
        .linked("a", 7, "")
        .linked("d/b", 7, "data")
        .member("s", (3, 0o120_777, 1), (0, 0), b"d")
        .member("null", (4, 0o020_666, 1), (1, 3), b"")
        .end()
        .0;
    let mut seed = 0x9e37_79b9_u64;
    for _ in 0..800 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % bytes.len();
            // Digits are looked at; other bytes are soon refused.
            bytes[at] = b"0123456789abcdef\0/."[(seed >> 20) as usize % 19];
        }
        let options = MkfsOptions {
            size: Some(16 << 20),
            threads: 1,
            ..options()
        };
        let source = Source::Archive(from_bytes(bytes));
        if let Ok(prepared) = mkfs::prepare_from(&options, source) {
            let device = blockdev::MemDevice::new(16 << 20);
            let _ = prepared.write(&device);
        }
    }
}
