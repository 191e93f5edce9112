//! File systems made from tar archives: GNU tar's dialects, compression, layers, malformed ones.

use crate::it::mkfs::compare::{Entry, Snapshot, assert_equal, snapshot};
use crate::it::mkfs::from_tree::make_tree;
use crate::it::mkfs::support::{EPOCH, Image, options, run, scratch};
use extant_mkfs::{self as mkfs, ArchiveInput, MkfsError, MkfsOptions, Source};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub fn from_bytes(bytes: Vec<u8>) -> ArchiveInput {
    ArchiveInput::Reader {
        name: "bytes".into(),
        reader: Box::new(std::io::Cursor::new(bytes)),
    }
}

pub fn from_tar(inputs: Vec<ArchiveInput>, options: &MkfsOptions) -> Image {
    let sources: Vec<Source> = inputs.into_iter().map(Source::Archive).collect();
    Image::write(&mkfs::prepare_from(options, sources).unwrap())
}

pub fn refused(bytes: Vec<u8>) -> String {
    let source = Source::Archive(from_bytes(bytes));
    mkfs::prepare_from(&options(), source)
        .err()
        .expect("refused")
        .to_string()
}

/// Packs the fixture by GNU tar. `None` without GNU tar.
fn gnu_tar(tree: &Path, archive: &Path, args: &[&str]) -> Option<()> {
    let (tree, archive) = (tree.to_str().unwrap(), archive.to_str().unwrap());
    let fixed = [
        "-C",
        tree,
        "-cf",
        archive,
        "--numeric-owner",
        "--warning=no-file-ignored",
    ];
    let out = run("tar", &[&fixed, args, &["."]].concat())?;
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(())
}

const ALL: [&str; 5] = [
    "--sparse",
    "--xattrs",
    "--xattrs-include=*",
    "--acls",
    "--format=pax",
];

/// Removes the files from the expectation that tar cannot express.
fn without_sockets(mut tree: Snapshot) -> Snapshot {
    tree.remove(Path::new("usr/socket"));
    tree
}

fn no_atime(e: &mut Entry) {
    e.times[0] = (0, 0);
}

/// Compresses `plain.tar` in the directory by tools: whole, and in pieces.
fn by_tools(dir: &Path) -> Vec<(&'static str, ArchiveInput)> {
    let plain = fs::read(dir.join("plain.tar")).unwrap();
    let (head, tail) = plain.split_at(plain.len() / 3);
    fs::write(dir.join("head"), head).unwrap();
    fs::write(dir.join("tail"), tail).unwrap();
    let mut inputs = Vec::new();
    for tool in [&["xz"][..], &["xz", "-9e", "--check=sha256"], &["bzip2"]] {
        let packed = |file: &str| {
            let file = dir.join(file);
            let out = run(
                tool[0],
                &[&tool[1..], &["-c", file.to_str().unwrap()]].concat(),
            )?;
            assert!(out.status.success());
            Some(out.stdout)
        };
        let (Some(whole), Some(head), Some(tail)) =
            (packed("plain.tar"), packed("head"), packed("tail"))
        else {
            continue;
        };
        let file = dir.join(format!("packed.{}", inputs.len()));
        fs::write(&file, whole).unwrap();
        inputs.push((tool[0], ArchiveInput::File(file)));
        inputs.push((tool[0], from_bytes([head, tail].concat())));
    }
    inputs
}

#[test]
fn pax_archives_keep_everything() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    make_tree(&tree);
    let expected = without_sockets(snapshot(&tree));
    let plain = dir.path().join("plain.tar");
    if gnu_tar(&tree, &plain, &ALL).is_none() {
        return;
    }
    let bytes = fs::read(&plain).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    let compressed = dir.path().join("file.tar.zst");
    fs::write(&compressed, &zstd).unwrap();
    let inputs = [
        ("file", ArchiveInput::File(plain.clone())),
        ("stream", from_bytes(bytes)),
        ("gzip", from_bytes(gzip.finish().unwrap())),
        ("zstd file", ArchiveInput::File(compressed)),
    ]
    .into_iter()
    .chain(by_tools(dir.path()));
    let mut images = Vec::new();
    for (what, input) in inputs {
        let image = from_tar(
            vec![input],
            &MkfsOptions {
                source_date_epoch: Some(EPOCH + (1 << 33)),
                threads: 1 + images.len(),
                ..options()
            },
        );
        image.check(what);
        assert!(
            image.report.warnings.is_empty(),
            "{:?}",
            image.report.warnings
        );
        if let Some(mount) = image.mount() {
            assert_equal(expected.clone(), snapshot(&mount.at), no_atime);
        }
        images.push(fs::read(&image.path).unwrap());
    }
    assert!(
        images.windows(2).all(|w| w[0] == w[1]),
        "the way in makes a difference"
    );
}

/// Archives in several pieces, compressed one by one, and with padding of their last block.
#[test]
fn pieces_and_padding() {
    let good = Build::new()
        .file("file", &"x".repeat(3000))
        .dir("d/")
        .bytes();
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let (first, rest) = good.split_at(700);
    // A frame to skip.
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let padding = vec![0; 200_000];
    for (what, bytes) in [
        ("gzip members", [gzip(first), gzip(rest)].concat()),
        ("gzip and zeros", [gzip(&good), padding.clone()].concat()),
        (
            "zeros between members",
            [gzip(first), vec![0; 100], gzip(rest)].concat(),
        ),
        ("zstd frames", [zstd(first), zstd(rest)].concat()),
        ("a skipped frame", [zstd(&good), skipped].concat()),
        ("plain and zeros", [good.clone(), padding].concat()),
    ] {
        let image = from_tar(vec![from_bytes(bytes)], &options());
        image.check(what);
        assert_eq!(
            (image.report.files, image.report.directories),
            (1, 3),
            "{what}"
        );
    }
    let garbage = [gzip(&good), b"garbage".to_vec()].concat();
    assert!(mkfs::prepare_from(&options(), Source::Archive(from_bytes(garbage))).is_err());
}

/// The older dialects know less: seconds, no attributes.
#[test]
fn older_dialects() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    make_tree(&tree);
    let deep = tree.join("d".repeat(90)).join("e".repeat(90));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("f".repeat(200)), b"long").unwrap();
    let expected = without_sockets(snapshot(&tree));
    for args in [
        &["--format=gnu"][..],
        &["--format=gnu", "--sparse"],
        &["--format=oldgnu"],
    ] {
        let archive = dir.path().join("archive.tar");
        if gnu_tar(&tree, &archive, args).is_none() {
            return;
        }
        let image = from_tar(vec![ArchiveInput::File(archive)], &options());
        image.check(&args.join(" "));
        let Some(mount) = image.mount() else { return };
        let sparse = args.len() > 1;
        assert_equal(expected.clone(), snapshot(&mount.at), |e| {
            e.times = [(0, 0), (e.times[1].0, 0), (0, 0)];
            e.xattrs.clear();
            // The bits that correspond to an ACL's mask.
            if e.mode & 0o7070 == 0o0050 {
                e.mode &= !0o070;
            }
            if let Some((_, holes)) = &mut e.data
                && !sparse
            {
                holes.clear();
            }
        });
    }
}

/// All three of GNU's pax formats for sparse files.
#[test]
fn sparse_formats() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    make_tree(&tree);
    let expected = without_sockets(snapshot(&tree));
    for version in ["0.0", "0.1", "1.0"] {
        let archive = dir.path().join("archive.tar");
        let version = format!("--sparse-version={version}");
        if gnu_tar(&tree, &archive, &[&ALL[..], &[&version]].concat()).is_none() {
            return;
        }
        let image = from_tar(vec![ArchiveInput::File(archive)], &options());
        image.check(&version);
        let Some(mount) = image.mount() else { return };
        assert_equal(expected.clone(), snapshot(&mount.at), no_atime);
    }
}

/// Builds small archives by hand.
pub struct Build(tar::Builder<Vec<u8>>);

impl Build {
    pub fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn add(mut self, kind: tar::EntryType, path: &str, link: &str, data: &[u8]) -> Self {
        let mut h = tar::Header::new_ustar();
        h.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        h.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        h.set_entry_type(kind);
        h.set_mode(0o644);
        h.set_uid(3);
        h.set_gid(4);
        h.set_mtime(1_000_000);
        h.set_size(data.len() as u64);
        h.set_device_major(0).unwrap();
        h.set_device_minor(0).unwrap();
        h.set_cksum();
        self.0.append(&h, data).unwrap();
        self
    }

    pub fn file(self, path: &str, data: &str) -> Self {
        self.add(tar::EntryType::Regular, path, "", data.as_bytes())
    }

    fn dir(self, path: &str) -> Self {
        self.add(tar::EntryType::Directory, path, "", b"")
    }

    pub fn link(self, path: &str, to: &str) -> Self {
        self.add(tar::EntryType::Link, path, to, b"")
    }

    fn symlink(self, path: &str, to: &str) -> Self {
        self.add(tar::EntryType::Symlink, path, to, b"")
    }

    fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.0
            .append_pax_extensions(records.iter().copied())
            .unwrap();
        self
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }

    pub fn input(self) -> ArchiveInput {
        from_bytes(self.bytes())
    }
}

/// Paths and data of regular files, paths of the rest.
fn listing(image: &Image) -> Option<Vec<(PathBuf, Option<String>)>> {
    image.check("listing");
    let mount = image.mount()?;
    let list = snapshot(&mount.at).into_iter().filter_map(|(path, e)| {
        let shown = !path.as_os_str().is_empty() && path != Path::new("lost+found");
        let text = e.data.map(|(blocks, _)| {
            String::from_utf8(blocks.into_values().flatten().collect()).unwrap()
        });
        let text = text.or(e.target.map(|t| format!("-> {}", t.display())));
        shown.then_some((path, text))
    });
    Some(list.collect())
}

pub fn expect(image: &Image, expected: &[(&str, &str)]) {
    if let Some(list) = listing(image) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(p, t)| (PathBuf::from(p), (*t != "/").then(|| (*t).to_owned())))
            .collect();
        assert_eq!(list, expected);
    }
}

#[test]
fn white_outs_of_layers() {
    let base = || {
        Build::new()
            .dir("etc/")
            .file("etc/gone", "1")
            .file("etc/stays", "2")
            .file("etc/changes", "3")
            .dir("opaque/")
            .dir("opaque/sub/")
            .file("opaque/sub/below", "4")
            .file("opaque/old", "5")
            .dir("tree/")
            .file("tree/leaf", "6")
            .file("becomes", "7")
            .input()
    };
    let top = Build::new()
        .file("etc/.wh.gone", "")
        .file("etc/changes", "new")
        .file("opaque/new", "8")
        .dir("opaque/sub/")
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/sub/fresh", "9")
        .file(".wh.tree", "")
        .file(".wh..wh.plnk", "")
        .dir("becomes/")
        .link("hard", "etc/stays")
        .input();
    let image = from_tar(vec![base(), top], &options());
    expect(
        &image,
        &[
            ("becomes", "/"),
            ("etc", "/"),
            ("etc/changes", "new"),
            ("etc/stays", "2"),
            ("hard", "2"),
            ("opaque", "/"),
            ("opaque/new", "8"),
            ("opaque/sub", "/"),
            ("opaque/sub/fresh", "9"),
        ],
    );
    assert_eq!(image.report.hard_links, 1);
    // In a single archive these are ordinary names.
    let image = from_tar(vec![Build::new().file(".wh.name", "x").input()], &options());
    expect(&image, &[(".wh.name", "x")]);
}

#[test]
fn paths_are_made_and_links_followed() {
    let input = Build::new()
        .file("./a/b/c", "made")
        .symlink("lib", "usr/lib")
        .dir("usr/lib/")
        .file("/lib/libc", "through a link")
        .file("twice", "first")
        .file("twice", "second")
        .link("a/hard", "lib/libc")
        .symlink("up", "../../..")
        .file("up/top", "not above the root")
        .input();
    let image = from_tar(vec![input], &options());
    expect(
        &image,
        &[
            ("a", "/"),
            ("a/b", "/"),
            ("a/b/c", "made"),
            ("a/hard", "through a link"),
            ("lib", "-> usr/lib"),
            ("top", "not above the root"),
            ("twice", "second"),
            ("up", "-> ../../.."),
            ("usr", "/"),
            ("usr/lib", "/"),
            ("usr/lib/libc", "through a link"),
        ],
    );
}

/// More inodes than one group's bitmap counts, and hardly any blocks: groups are small, not many
/// and empty.
#[test]
fn inodes_without_data() {
    let mut build = Build::new();
    for i in 0..40_000 {
        build = build.file(&format!("{i}"), "");
    }
    let image = from_tar(vec![build.input()], &options());
    image.check("inodes");
    assert!(image.report.size < 32 << 20, "{}", image.report.size);
    assert_eq!(image.report.files, 40_000);
}

#[test]
fn records_of_other_programs() {
    let long = format!("{}/{}", "p".repeat(200), "q".repeat(200));
    let input = Build::new()
        .pax(&[
            ("path", long.as_bytes()),
            ("uid", b"3000000000"),
            ("mtime", b"12.5"),
            ("LIBARCHIVE.xattr.user.%66oo", b"YmFy"),
            (
                "SCHILY.acl.access",
                b"user::rw-,user:joe:r--:9,group::r--,mask::r--,other::---",
            ),
            ("VENDOR.unknown", b"ignored"),
        ])
        .file("short", "x")
        .pax(&[(
            "SCHILY.acl.access",
            b"user::rw-,user:joe:r--,group::r--,mask::r--,other::---",
        )])
        .file("named", "")
        .pax(&[("SCHILY.xattr.btrfs.compression", b"zstd")])
        .file("foreign", "")
        .input();
    let image = from_tar(vec![input], &options());
    image.check("records");
    assert_eq!(
        image.report.warnings.len(),
        2,
        "{:?}",
        image.report.warnings
    );
    let Some(mount) = image.mount() else { return };
    let e = snapshot(&mount.at).remove(Path::new(&long)).unwrap();
    assert_eq!(
        (e.owner, e.times[1]),
        ((3_000_000_000, 4), (12, 500_000_000))
    );
    assert_eq!(e.xattrs[&b"user.foo"[..]], b"bar");
    assert_eq!(e.xattrs[&b"system.posix_acl_access"[..]].len(), 44);
}

#[test]
fn malformed_archives_are_refused() {
    let good = Build::new().file("file", &"x".repeat(3000)).bytes();
    assert!(refused(Vec::new()).contains("empty"));
    assert!(refused(b"hello world".repeat(100)).contains("not an archive"));
    // An empty archive is accepted, a disk image is not.
    let mut image = vec![0; 10_240];
    let empty = from_tar(vec![from_bytes(image.clone())], &options());
    assert_eq!((empty.report.directories, empty.report.files), (2, 0));
    image[1080..1082].copy_from_slice(&[0x53, 0xef]);
    assert!(refused(image).contains("disk image"));
    assert!(refused(good[..2000].to_vec()).contains("cut off"));
    assert!(refused(b"\xfd7zXZ\0...".repeat(100)).contains("xz"));
    assert!(refused(b"LZIP\x01...".repeat(100)).contains("lzip is not a supported compression"));
    assert!(refused(Build::new().file("a/../../b", "").bytes()).contains(".."));
    assert!(refused(Build::new().link("a", "missing").bytes()).contains("missing"));
    let text = refused(Build::new().file("f", "").file("f/below", "").bytes());
    assert!(text.contains("not a directory"), "{text}");
    let text = refused(
        Build::new()
            .symlink("a", "b")
            .symlink("b", "a")
            .file("a/x", "")
            .bytes(),
    );
    assert!(text.contains("too many"), "{text}");
    let name = "n".repeat(256);
    let text = refused(
        Build::new()
            .pax(&[("path", name.as_bytes())])
            .file("x", "")
            .bytes(),
    );
    assert!(text.contains("255"), "{text}");
    let mut gzip = flate2::read::GzEncoder::new(&good[..], flate2::Compression::fast());
    let mut bytes = Vec::new();
    gzip.read_to_end(&mut bytes).unwrap();
    let at = bytes.len() - 6;
    bytes[at] ^= 1;
    assert!(mkfs::prepare_from(&options(), Source::Archive(from_bytes(bytes))).is_err());
    let missing = Source::Archive(ArchiveInput::File("/no/such.tar".into()));
    assert!(matches!(
        mkfs::prepare_from(&options(), missing),
        Err(MkfsError::Io { .. })
    ));
}

/// Archives with any bytes changed give an error or a clean image, never a panic.
#[test]
fn damaged_archives() {
    let build = Build::new()
        .dir("d/")
        .pax(&[
            ("path", b"d/e"),
            ("GNU.sparse.map", b"0,3,9,3"),
            ("GNU.sparse.size", b"20"),
        ])
        .file("x", "abcdef")
        .link("l", "d/e")
        .symlink("s", "d");
    let good = build.bytes();
    let mut seed = 0x9e37_79b9_u64;
    for round in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % bytes.len();
            bytes[at] = (seed >> 20) as u8;
            // A right checksum, so that the damage is looked at.
            let header = at / 512 * 512;
            if round % 2 == 0 && bytes[header + 257] == b'u' {
                bytes[header + 148..header + 156].fill(b' ');
                let sum: u32 = bytes[header..header + 512]
                    .iter()
                    .map(|b| u32::from(*b))
                    .sum();
                bytes[header + 148..header + 155]
                    .copy_from_slice(format!("{sum:06o}\0").as_bytes());
            }
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
