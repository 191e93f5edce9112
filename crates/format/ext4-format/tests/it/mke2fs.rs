//! Images made by mke2fs, judged by this crate, and layouts of this crate, judged by mke2fs.
//!
//! Without mke2fs the tests pass with a note, unless `CI` is set in the environment.

use ext4_format::bitmap;
use ext4_format::features::{Features, FsType};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::inode;
use ext4_format::layout::{Inodes, Layout, LayoutParams, Usage};
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// The configuration of every mke2fs here.
const UPSTREAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mke2fs.conf");

/// An image file, removed at the end.
struct Image {
    path: PathBuf,
    file: File,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Image {
    /// Runs mke2fs on a sparse file; `None` if mke2fs is missing and not required.
    fn make(name: &str, bytes: u64, args: &[&str]) -> Option<Self> {
        let name = format!("ext4-format-{name}-{}.img", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        let image = Self { path, file };
        image.file.set_len(bytes).unwrap();
        let run = Command::new("mke2fs")
            .env("MKE2FS_CONFIG", UPSTREAM)
            .args(["-q", "-F", "-U", UUID, "-E"])
            .arg(format!("nodiscard,lazy_itable_init=1,hash_seed={UUID}"))
            .args(args)
            .arg(&image.path)
            .output();
        match run {
            Ok(out) => {
                let text = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success(), "mke2fs {args:?}: {text}");
                Some(image)
            }
            Err(e) => {
                needs::ignored(&format!("mke2fs (Debian package e2fsprogs): {e}"));
                None
            }
        }
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn superblock(&self) -> RawSuperblock {
        RawSuperblock::parse(&self.read(1024, 1024)).unwrap()
    }

    fn block(&self, geo: &Geometry, block: BlockNr) -> Vec<u8> {
        self.read(block.offset(geo.block_size), geo.block_size as usize)
    }

    fn desc_bytes(&self, geo: &Geometry, g: GroupNr) -> Vec<u8> {
        let (block, at) = geo.desc_location(g);
        let at = block.offset(geo.block_size) + u64::from(at);
        self.read(at, geo.desc_size.into())
    }

    fn descs(&self, geo: &Geometry) -> Vec<GroupDesc> {
        (0..geo.groups)
            .map(GroupNr)
            .map(|g| GroupDesc::decode(&self.desc_bytes(geo, g), geo, g).unwrap())
            .collect()
    }

    fn inode(&self, geo: &Geometry, descs: &[GroupDesc], ino: InodeNr) -> Vec<u8> {
        let (g, i) = geo.group_of_inode(ino).unwrap();
        let at = descs[g.0 as usize].inode_table.offset(geo.block_size)
            + u64::from(i) * u64::from(geo.inode_size);
        self.read(at, geo.inode_size.into())
    }
}

/// Checks that mke2fs' superblocks and descriptors decode, verify, and encode to the same bytes.
fn check_image(image: &Image, name: &str) {
    let sb = image.superblock();
    let geo = Geometry::new(&sb).unwrap();
    let descs = image.descs(&geo);
    let mut again = sb;
    again.set_checksum();
    assert!(again.bytes() == sb.bytes(), "{name}: superblock");

    let (mut free_blocks, mut free_inodes) = (0u64, 0u64);
    for (g, d) in (0..).map(GroupNr).zip(&descs) {
        let stored = image.desc_bytes(&geo, g);
        let mut bytes = stored.clone();
        d.encode(&mut bytes, &geo, g).unwrap();
        assert_eq!(bytes, stored, "{name}: descriptor of group {g}");

        let map = image.block(&geo, d.block_bitmap);
        let mut fresh = vec![0; map.len()];
        bitmap::init_block_bitmap(&mut fresh, &geo, g, d);
        let map = if d.flags & BLOCK_UNINIT != 0 {
            fresh
        } else {
            bitmap::verify_block_bitmap(&map, d, &geo, g).unwrap();
            assert!(bitmap::is_padded(&map, geo.bits_in_group(g)), "{name} {g}");
            // The blocks that a fresh group uses are marked in the bitmap.
            assert!(
                map.iter().zip(&fresh).all(|(m, f)| m & f == *f),
                "{name} {g}"
            );
            map
        };
        let zeros = bitmap::count_zeros(&map, geo.bits_in_group(g));
        assert_eq!(zeros, d.free_blocks, "{name}: free blocks of group {g}");
        free_blocks += u64::from(d.free_blocks);
        free_inodes += u64::from(d.free_inodes);

        if d.flags & INODE_UNINIT != 0 {
            assert_eq!(d.free_inodes, geo.inodes_per_group);
            continue;
        }
        let map = image.block(&geo, d.inode_bitmap);
        bitmap::verify_inode_bitmap(&map, d, &geo, g).unwrap();
        assert!(bitmap::is_padded(&map, geo.inodes_per_group), "{name} {g}");
        assert_eq!(
            bitmap::count_zeros(&map, geo.inodes_per_group),
            d.free_inodes
        );
        let mut at = 0;
        while let Some(i) = bitmap::find_one(&map, at, geo.inodes_per_group) {
            at = i + 1;
            let ino = geo.inode_nr(g, i);
            let raw = image.inode(&geo, &descs, ino);
            if raw.iter().all(|&b| b == 0) {
                continue; // reserved and never written
            }
            let core = inode::decode_core(&raw, &geo, ino).unwrap();
            if raw.get(128..130) == Some(&[0, 0]) {
                continue; // written by mke2fs without the extra part that we would add
            }
            let mut bytes = raw.clone();
            inode::encode_core(&core, &mut bytes, &geo);
            inode::set_sectors(&mut bytes, &geo, inode::sectors(&raw, &geo)).unwrap();
            inode::set_file_acl(&mut bytes, inode::file_acl(&raw, &geo));
            inode::set_checksum(&mut bytes, &geo, ino);
            assert!(bytes == raw, "{name}: inode {ino}");
        }
    }
    assert_eq!(free_blocks, sb.free_blocks(), "{name}");
    assert_eq!(free_inodes, u64::from(sb.free_inodes_count.get()), "{name}");

    let root = image.inode(&geo, &descs, InodeNr::ROOT);
    let core = inode::decode_core(&root, &geo, InodeNr::ROOT).unwrap();
    assert_eq!(
        (core.file_type(), core.links),
        (Some(FileType::Directory), 3)
    );
    assert_eq!(core.size, u64::from(geo.block_size));
    assert_eq!(
        inode::sectors(&root, &geo),
        u64::from(geo.sectors_per_block())
    );
    if geo.features.has_metadata_csum() {
        let wrong = inode::decode_core(&root, &geo, InodeNr(12));
        assert!(matches!(wrong, Err(FormatError::Checksum { .. })));
    }

    // Backups of superblock and descriptors are where the geometry says.
    for g in (1..geo.groups).map(GroupNr).filter(|&g| geo.has_super(g)) {
        let at = geo.group_first_block(g).offset(geo.block_size);
        let copy = RawSuperblock::parse(&image.read(at, 1024)).unwrap();
        let nr = u32::from(copy.block_group_nr.get());
        assert_eq!(nr, g.0.min(65_535), "{name}"); // 16 bits
        assert_eq!(copy.uuid, sb.uuid);
    }
}

/// Checks that the layout for these parameters is mke2fs' layout.
fn compare(image: &Image, params: &LayoutParams, name: &str) {
    let sb = image.superblock();
    let geo = Geometry::new(&sb).unwrap();
    let layout = Layout::new(params).unwrap();
    let mut expected = layout.geometry.clone();
    expected.journal_ino = geo.journal_ino; // the caller makes the journal,
    expected.orphan_file_ino = geo.orphan_file_ino; // and the orphan file
    assert_eq!(expected, geo, "{name}");

    let descs = image.descs(&geo);
    for (g, (ours, theirs)) in layout.groups.iter().zip(&descs).enumerate() {
        let places = |d: &GroupDesc| (d.block_bitmap, d.inode_bitmap, d.inode_table);
        assert_eq!(places(ours), places(theirs), "{name}: group {g}");
        if theirs.flags & BLOCK_UNINIT != 0 {
            assert_eq!(ours.free_blocks, theirs.free_blocks, "{name}: group {g}");
            assert_ne!(ours.flags & BLOCK_UNINIT, 0, "{name}: group {g}");
        }
        assert!(ours.free_blocks >= theirs.free_blocks, "{name}: group {g}");
    }
    let free: u64 = layout.groups.iter().map(|d| u64::from(d.free_blocks)).sum();
    assert_eq!(free, layout.superblock.free_blocks(), "{name}");
    let journal = u64::from(layout.journal_blocks);
    let overhead = u64::from(sb.overhead_blocks.get());
    assert_eq!(layout.overhead + journal, overhead, "{name}: overhead");

    // Beyond the fields of the geometry, the superblocks agree in all fields that the caller does not set.
    let mut ours = layout.superblock;
    ours.set_free_blocks(sb.free_blocks());
    ours.free_inodes_count = sb.free_inodes_count;
    ours.overhead_blocks = sb.overhead_blocks;
    ours.journal_inum = sb.journal_inum;
    ours.orphan_file_inum = sb.orphan_file_inum;
    ours.jnl_backup_type = sb.jnl_backup_type;
    ours.jnl_blocks = sb.jnl_blocks;
    ours.kbytes_written = sb.kbytes_written;
    (ours.wtime, ours.lastcheck, ours.mkfs_time) = (sb.wtime, sb.lastcheck, sb.mkfs_time);
    ours.checksum = sb.checksum;
    let differ: Vec<_> = (0..1024)
        .filter(|&i| ours.bytes()[i] != sb.bytes()[i])
        .collect();
    assert!(differ.is_empty(), "{name}: superblock bytes {differ:x?}");
}

struct Case {
    size: u64,
    fs: FsType,
    block_size: Option<u32>,
    features: &'static str,
    inode_size: u16,
    more: &'static [&'static str],
    change: fn(&mut LayoutParams),
}

const MIB: u64 = 1 << 20;

fn case(size: u64) -> Case {
    Case {
        size,
        fs: FsType::Ext4,
        block_size: None,
        features: "",
        inode_size: 256,
        more: &[],
        change: |_| (),
    }
}

impl Case {
    fn run(&self, name: &str) {
        let fs = match self.fs {
            FsType::Ext2 => "ext2",
            FsType::Ext3 => "ext3",
            FsType::Ext4 => "ext4",
        };
        let inode_size = self.inode_size.to_string();
        let mut args = vec!["-t", fs, "-I", &inode_size];
        let block_size = self.block_size.map(|n| n.to_string());
        if let Some(n) = &block_size {
            args.extend(["-b", n]);
        }
        if !self.features.is_empty() {
            args.extend(["-O", self.features]);
        }
        args.extend(self.more);
        let Some(image) = Image::make(name, self.size, &args) else {
            return;
        };
        check_image(&image, name);

        let mut params = LayoutParams::new(self.size, self.fs, None, self.block_size);
        params.features.apply(self.features).unwrap();
        params.inode_size = self.inode_size;
        let digits: String = UUID.split('-').collect();
        params.uuid = u128::from_str_radix(&digits, 16).unwrap().to_be_bytes();
        params.hash_seed = params.uuid;
        (self.change)(&mut params);
        compare(&image, &params, name);
    }
}

#[test]
fn defaults_by_size() {
    for mib in [
        1, 2, 3, 8, 9, 17, 40, 64, 129, 300, 511, 512, 520, 1025, 1100, 4100, 9000, 40_000,
    ] {
        case(mib * MIB).run(&format!("size-{mib}"));
    }
    for kib in [200, 777, 8193, 8300, 16_500, 24_931] {
        case(kib * 1024).run(&format!("size-{kib}k"));
    }
}

#[test]
#[ignore = "an image that takes 700 MB"]
fn more_blocks_than_32_bits_count() {
    let c = Case {
        features: "meta_bg,^resize_inode",
        block_size: Some(2048),
        ..case(9 << 40)
    };
    c.run("9-tib");
}

/// The features of a new ext4 are those of upstream's mke2fs.
#[test]
fn default_features() {
    let words = "has_journal ext_attr resize_inode dir_index orphan_file filetype extent 64bit flex_bg \
                 metadata_csum_seed sparse_super large_file huge_file dir_nlink extra_isize metadata_csum";
    let mut expected = Features::default();
    expected.apply(words).unwrap();
    assert_eq!(Features::defaults(FsType::Ext4), expected);
    let layout = Layout::new(&LayoutParams::for_size(64 * MIB)).unwrap();
    assert_eq!(Features::of(&layout.superblock), expected);
    // Too small for a journal, and so for features that need one.
    let layout = Layout::new(&LayoutParams::for_size(MIB)).unwrap();
    assert!(!layout.geometry.features.has_orphan_file());
}

#[test]
fn ext2_and_ext3() {
    for fs in [FsType::Ext2, FsType::Ext3] {
        for mib in [4, 20, 100, 700, 2500] {
            let c = Case {
                fs,
                ..case(mib * MIB)
            };
            c.run(&format!("{fs:?}-{mib}"));
        }
    }
}

#[test]
fn block_and_inode_sizes() {
    for block_size in [1024, 2048, 4096] {
        for inode_size in [128, 256, 1024] {
            let c = Case {
                block_size: Some(block_size),
                inode_size,
                ..case(600 * MIB)
            };
            c.run(&format!("bs-{block_size}-{inode_size}"));
        }
    }
}

#[test]
fn features() {
    for (i, features) in [
        "^64bit",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^metadata_csum,uninit_bg,^64bit",
        "^metadata_csum_seed",
        "^metadata_csum_seed,^orphan_file",
        "^flex_bg",
        "^flex_bg,^resize_inode",
        "^resize_inode",
        "meta_bg,^resize_inode",
        "meta_bg,^resize_inode,^flex_bg",
        "meta_bg,^resize_inode,^64bit",
        "sparse_super2",
        "^sparse_super,^resize_inode",
        "^has_journal",
        "^extent,^64bit",
        "^orphan_file",
        "^has_journal,orphan_file",
        "^metadata_csum,metadata_csum_seed",
        "large_dir,inline_data",
        "fast_commit",
        "^dir_index,^huge_file,^dir_nlink,^extra_isize",
    ]
    .into_iter()
    .enumerate()
    {
        for (mib, block_size) in [(600, None), (300, Some(1024)), (1500, Some(1024))] {
            let c = Case {
                features,
                block_size,
                ..case(mib * MIB)
            };
            c.run(&format!("feature-{i}-{mib}"));
        }
    }
}

#[test]
fn other_choices() {
    Case {
        more: &["-N", "300000", "-b", "1024"],
        block_size: Some(1024),
        change: |p| p.inodes = Inodes::Count(300_000),
        ..case(300 * MIB)
    }
    .run("inodes");
    Case {
        more: &["-N", "8"],
        change: |p| p.inodes = Inodes::Count(8),
        ..case(100 * MIB)
    }
    .run("few-inodes");
    Case {
        more: &["-N", "8", "-g", "1024"],
        block_size: Some(1024),
        change: |p| {
            p.inodes = Inodes::Count(8);
            p.blocks_per_group = Some(1024);
        },
        ..case(8 * MIB)
    }
    .run("small-groups");
    Case {
        more: &["-i", "1024"],
        block_size: Some(1024),
        change: |p| p.inodes = Inodes::BytesPerInode(1024),
        ..case(700 * MIB)
    }
    .run("dense");
    Case {
        more: &["-G", "4"],
        change: |p| p.flex_bg_size = 4,
        ..case(2000 * MIB)
    }
    .run("flex-4");
    Case {
        more: &["-G", "1"],
        change: |p| p.flex_bg_size = 1,
        ..case(700 * MIB)
    }
    .run("flex-1");
    Case {
        more: &["-G", "64"],
        block_size: Some(1024),
        change: |p| p.flex_bg_size = 64,
        ..case(900 * MIB)
    }
    .run("flex-64");
    Case {
        more: &["-m", "1.5", "-L", "a label"],
        change: |p| {
            p.reserved_percent = 1.5;
            p.label = "a label".into();
        },
        ..case(100 * MIB)
    }
    .run("percent-label");
    // The last group is cut off, and with it a share of the reserve.
    Case {
        more: &["-m", "3.33"],
        block_size: Some(1024),
        change: |p| p.reserved_percent = 3.33,
        ..case(188_676 << 10)
    }
    .run("percent-cut");
    Case {
        more: &["-J", "size=16"],
        change: |p| p.journal_blocks = Some(4096),
        ..case(1000 * MIB)
    }
    .run("journal");
    Case {
        more: &["-T", "news"],
        block_size: Some(4096),
        change: |p| p.inodes = Inodes::BytesPerInode(Usage::News.inode_ratio()),
        ..case(1000 * MIB)
    }
    .run("news");
}

/// A last group of useless size is dropped. The inodes of the remaining groups then outgrow a group's bitmap, and
/// smaller groups make the dropped blocks usable again.
#[test]
fn groups_shrink_over_all_blocks() {
    Case {
        more: &["-N", "20000", "-b", "1024"],
        block_size: Some(1024),
        change: |p| p.inodes = Inodes::Count(20_000),
        ..case(16_412 << 10)
    }
    .run("shrink-3");
    Case {
        more: &["-N", "28000", "-b", "1024"],
        block_size: Some(1024),
        change: |p| p.inodes = Inodes::Count(28_000),
        ..case(24_620 << 10)
    }
    .run("shrink-4");
    Case {
        more: &["-N", "70000", "-b", "1024"],
        block_size: Some(1024),
        change: |p| p.inodes = Inodes::Count(70_000),
        ..case(65_600 << 10)
    }
    .run("shrink-9");
}

#[test]
fn what_mke2fs_refuses_is_refused() {
    let refuse = |change: fn(&mut LayoutParams)| {
        let mut p = LayoutParams::for_size(100 * MIB);
        change(&mut p);
        assert!(matches!(
            Layout::new(&p),
            Err(FormatError::Unrepresentable(_))
        ));
    };
    refuse(|p| p.block_size = 3000);
    refuse(|p| p.block_size = 512);
    refuse(|p| p.inode_size = 100);
    refuse(|p| p.inode_size = 2048);
    refuse(|p| p.blocks_count = 0);
    refuse(|p| p.blocks_count = 8);
    refuse(|p| p.blocks_count = u64::MAX);
    refuse(|p| p.inodes = Inodes::BytesPerInode(0));
    refuse(|p| p.inodes = Inodes::Count(u32::MAX));
    refuse(|p| p.flex_bg_size = 3);
    refuse(|p| p.reserved_percent = f64::NAN);
    refuse(|p| p.reserved_percent = 51.0);
    refuse(|p| p.label = "longer than sixteen".into());
    refuse(|p| p.journal_blocks = Some(100));
    refuse(|p| p.journal_blocks = Some(1 << 20));
    refuse(|p| p.features.apply("meta_bg").unwrap());
    refuse(|p| p.features.apply("^sparse_super").unwrap());
}
