//! Each kind of damage is mended: e2fsck finds the image clean, sound files keep their data, and a cut at any write
//! is reverted.

use crate::it::common;
use crate::it::image::{self, files};
use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::GroupNr;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::RawSuperblock;
use extant_repair::{Error, Mend, Plan};
use extant_testing::common::load_image;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOW: u32 = 1_700_000_000;
const CSUM: &[&str] = &[
    "-t",
    "ext4",
    "-b",
    "1024",
    "-g",
    "4096",
    "-J",
    "size=1",
    "-O",
    "metadata_csum,64bit",
];

/// Returns an image with files, without damage.
fn sound() -> MemDevice {
    let device = image::populate_sized("16M", CSUM, false, 200);
    let (clean, text) = verdict::judge(&device);
    assert!(clean, "{text}");
    device.snapshot()
}

fn plan(device: &MemDevice) -> Plan {
    extant_repair::plan(device, NOW, &mut |_| true).unwrap()
}

pub fn mended(device: &MemDevice) -> Plan {
    let plan = plan(device);
    plan.apply(device).unwrap();
    let (clean, text) = verdict::judge(device);
    assert!(clean, "{:#?}\n{text}", plan.mends);
    assert!(plan.after.is_clean());
    plan
}

/// Flips all bits of a range.
pub fn flip(device: &MemDevice, at: u64, len: usize) {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|b| *b = !*b);
    device.write_at(at, &bytes).unwrap();
}

fn geometry(device: &MemDevice) -> Geometry {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Geometry::new(&RawSuperblock::parse(&bytes).unwrap()).unwrap()
}

/// Returns the offsets of the bitmaps and the inode table of the first group.
fn places(device: &MemDevice) -> [u64; 3] {
    let mut desc = [0; 12];
    device.read_at(2048, &mut desc).unwrap();
    [0, 4, 8].map(|at| u64::from(u32::from_le_bytes(desc[at..at + 4].try_into().unwrap())) * 1024)
}

#[test]
fn a_sound_image_has_an_empty_plan() {
    needs::tools!("mke2fs", "e2fsck");
    let plan = plan(&sound());
    assert!(
        plan.is_empty() && plan.mends.is_empty() && plan.bytes() == 0,
        "{:#?}",
        plan.mends
    );
}

#[test]
fn each_structure_is_mended_and_files_keep_their_data() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    assert!(before.len() > 100);
    let [block_bitmap, inode_bitmap, _] = places(&device);
    let damage: [(&str, &[(u64, usize)]); 7] = [
        ("the superblock", &[(1024, 512)]),
        ("the superblock's checksum", &[(2044, 4)]),
        ("a count in the superblock", &[(1024 + 12, 2)]),
        ("the descriptors", &[(2048, 64)]),
        ("the block bitmap", &[(block_bitmap, 300)]),
        ("the inode bitmap", &[(inode_bitmap, 20)]),
        (
            "both bitmaps and a descriptor",
            &[(block_bitmap, 9), (inode_bitmap, 9), (2048 + 12, 8)],
        ),
    ];
    for (what, ranges) in damage {
        let broken = device.snapshot();
        ranges.iter().for_each(|&(at, len)| flip(&broken, at, len));
        assert!(!verdict::judge(&broken).0, "{what} is broken");
        let plan = mended(&broken);
        assert!(
            plan.mends.iter().all(Mend::is_safe),
            "{what}: {:#?}",
            plan.mends
        );
        assert!(files(&broken) == before, "{what}: files are as they were");
    }
}

#[test]
fn an_inode_without_a_name_is_found_again() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(&device, &path);
    let (name, bytes) = before.iter().find(|(_, bytes)| bytes.len() > 2000).unwrap();
    // unlink leaves the inode unchanged.
    let request = format!("unlink /{name}");
    let out = std::process::Command::new("debugfs")
        .args(["-w", "-R", &request])
        .arg(&path)
        .output();
    assert!(out.unwrap().status.success());
    let broken = load_image(&path);
    mended(&broken);
    let after = files(&broken);
    assert_eq!(after.len(), before.len());
    assert!(
        after
            .iter()
            .any(|(name, found)| name.starts_with("lost+found/#") && found == bytes)
    );
}

#[test]
fn inodes_in_a_part_that_a_descriptor_calls_unused_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let geo = geometry(&device);
    let mut raw = vec![0; geo.desc_size.into()];
    device.read_at(2048, &mut raw).unwrap();
    let mut desc = GroupDesc::decode(&raw, &geo, GroupNr(0)).unwrap();
    desc.itable_unused = geo.inodes_per_group - 20;
    desc.encode(&mut raw, &geo, GroupNr(0)).unwrap();
    device.write_at(2048, &raw).unwrap();
    assert!(!verdict::judge(&device).0);
    let plan = mended(&device);
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    assert!(files(&device) == before);
}

#[test]
fn the_map_of_reserved_descriptors_is_made_anew() {
    needs::tools!("mke2fs", "e2fsck");
    let device = sound();
    let [.., table] = places(&device);
    // The record of inode 7, with its map.
    flip(&device, table + 256 * 6 + 40, 60);
    assert!(!verdict::judge(&device).0);
    let plan = mended(&device);
    let text = "the map of reserved descriptors is rebuilt";
    assert!(
        plan.mends.iter().any(|mend| mend.text == text),
        "{:#?}",
        plan.mends
    );
}

#[test]
fn what_is_declined_is_left() {
    needs::tools!("mke2fs", "e2fsck");
    let device = sound();
    let [block_bitmap, ..] = places(&device);
    flip(&device, block_bitmap, 100);
    let plan = extant_repair::plan(&device, NOW, &mut |_| false).unwrap();
    assert!(plan.is_empty() && !plan.declined.is_empty());
    assert!(!plan.after.is_clean());
}

/// A device that tears a write, and refuses all later ones.
struct Cut<'d> {
    device: &'d MemDevice,
    writes: AtomicUsize,
    until: usize,
}

impl BlockDevice for Cut<'_> {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        match self.writes.fetch_add(1, Ordering::Relaxed) {
            n if n < self.until => self.device.write_at(offset, buf),
            n => {
                if n == self.until {
                    self.device
                        .write_at(offset, &buf[..buf.len() / 1024 * 512])?;
                }
                Err(io::Error::other("cut"))
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[test]
fn a_cut_at_any_write_is_taken_back() {
    needs::tools!("mke2fs", "e2fsck");
    let broken = sound();
    let [block_bitmap, inode_bitmap, table] = places(&broken);
    for at in [
        1024 + 12,
        2048 + 14,
        block_bitmap,
        inode_bitmap,
        table + 256 * 20,
    ] {
        flip(&broken, at, 9);
    }
    let old = broken.to_bytes().unwrap();
    let plan = plan(&broken);
    let undo = plan.undo(&broken).unwrap();
    assert!(undo.len() > 3);
    for until in 0..undo.len() {
        let device = broken.snapshot();
        let cut = Cut {
            device: &device,
            writes: AtomicUsize::new(0),
            until,
        };
        plan.apply(&cut).unwrap_err();
        // Reverting may be cut, too, if anything was written.
        let cut = Cut {
            device: &device,
            writes: AtomicUsize::new(0),
            until: until / 2,
        };
        assert_eq!(undo.take_back(&cut).is_ok(), until == 0);
        undo.take_back(&device).unwrap();
        assert!(device.to_bytes().unwrap() == old, "cut at write {until}");
    }
    let device = broken.snapshot();
    plan.apply(&device).unwrap();
    assert!(verdict::judge(&device).0);
    undo.take_back(&device).unwrap();
    assert!(device.to_bytes().unwrap() == old);
}

/// Returns the output of debugfs.
fn debugfs(device: &MemDevice, request: &str) -> String {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    let out = std::process::Command::new("debugfs")
        .args(["-R", request])
        .arg(&path)
        .output()
        .unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns the image after requests to debugfs.
fn edited(device: &MemDevice, requests: &[&str]) -> MemDevice {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    for request in requests {
        let out = std::process::Command::new("debugfs")
            .args(["-w", "-R", request])
            .arg(&path)
            .output();
        assert!(out.unwrap().status.success());
    }
    load_image(&path)
}

/// Returns the first number behind a word in debugfs' output.
pub fn told(device: &MemDevice, request: &str, word: &str) -> u64 {
    told_in(&debugfs(device, request), word)
}

fn told_in(text: &str, word: &str) -> u64 {
    let at = text.find(word).unwrap() + word.len();
    let digits = text[at..].trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap()].parse().unwrap()
}

/// Writes over the image, mends it, and returns the plan; e2fsck complains before.
fn broken_and_mended(device: &MemDevice, writes: &[(u64, &[u8])]) -> Plan {
    for (at, bytes) in writes {
        device.write_at(*at, bytes).unwrap();
    }
    assert!(!verdict::judge(device).0, "it is broken");
    mended(device)
}

/// Returns a sound image of blocks of 1 KiB.
pub fn shaped(args: &[&str]) -> MemDevice {
    let args = [&["-b", "1024"], args].concat();
    image::populate_sized("8M", &args, false, 200).snapshot()
}

#[test]
fn the_dots_before_an_index_are_set_and_the_index_stays() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let root = told(&device, "bmap /big 0", "") * 1024;
    let plan = broken_and_mended(&device, &[(root, &99u32.to_le_bytes()), (root + 7, &[1])]);
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    assert!(files(&device) == before);
    assert!(debugfs(&device, "htree_dump /big").contains("Root node dump"));
}

#[test]
fn values_of_attributes_in_inodes_need_the_feature() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let block = told(&device, "stat /d1/f1", "File ACL:") * 1024;
    assert!(block > 0);
    broken_and_mended(&device, &[(block + 36, &[7, 7])]);
    assert!(files(&device) == before);
}

#[test]
fn a_table_of_inodes_is_told_from_its_copies_in_the_journal() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = shaped(&[
        "-t",
        "ext4",
        "-J",
        "size=1",
        "-O",
        "metadata_csum,64bit,meta_bg,^resize_inode",
    ]);
    let before = files(&device);
    broken_and_mended(&device, &[(2048, &[0; 64])]);
    assert!(files(&device) == before);
}

/// Returns the blocks of a group's inode table that were ever written, from its first one on.
fn written_table(device: &MemDevice, table: u64) -> Vec<Vec<u8>> {
    let blocks = (table..).map(|block| {
        let mut bytes = vec![0; 1024];
        device.read_at(block * 1024, &mut bytes).unwrap();
        bytes
    });
    let written = |bytes: &Vec<u8>| bytes.iter().any(|&b| b != 0);
    blocks.take_while(written).collect()
}

/// Writes blocks into a part of the log that was never used.
fn write_into_log(device: &MemDevice, blocks: &[Vec<u8>]) {
    for (n, bytes) in blocks.iter().enumerate() {
        let home = told(device, &format!("bmap <8> {}", n + 700), "");
        device.write_at(home * 1024, bytes).unwrap();
    }
}

/// The log has the blocks of the first group's table, and then further records, so that more records are sound there than
/// in the table.
#[test]
fn a_table_of_inodes_is_not_taken_from_the_log_when_checksums_are_wrong() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let table = places(&device)[2] / 1024;
    let blocks = written_table(&device, table);
    write_into_log(&device, &[blocks.clone(), blocks].concat());
    let broken = with_superblock(&device, |sb| sb.uuid = [9; 16]);
    lose_descriptor(&broken, 0);
    mended(&broken);
    assert_eq!(places(&broken)[2] / 1024, table);
    assert!(files(&broken) == before);
}

/// The log comes before the table on the device and holds the same number of sound records.
#[test]
fn a_table_of_inodes_is_not_taken_from_the_log() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let args = ["-t", "ext4", "-g", "2048", "-J", "size=1", "-O"];
    let device = shaped(&[&args[..], &["metadata_csum,64bit,^flex_bg"]].concat());
    let before = files(&device);
    let last = geometry(&device).groups - 1;
    let table = last_table(&device);
    let blocks = written_table(&device, table);
    assert!(!blocks.is_empty() && told(&device, "bmap <8> 700", "") < table);
    write_into_log(&device, &blocks);
    lose_descriptor(&device, last);
    mended(&device);
    assert_eq!(last_table(&device), table);
    assert!(files(&device) == before);
}

/// Each of two descriptors is sound, and in the place of the other.
#[test]
fn descriptors_that_are_exchanged_are_taken_from_a_backup() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let plain = "^metadata_csum,^metadata_csum_seed,^uninit_bg,64bit";
    let args = [&CSUM[..8], &["-O", plain]].concat();
    let plain = image::populate_sized("16M", &args, false, 200).snapshot();
    for device in [sound(), plain] {
        let before = files(&device);
        let mut descriptors = [0; 128];
        device.read_at(2048, &mut descriptors).unwrap();
        descriptors.rotate_left(64);
        broken_and_mended(&device, &[(2048, &descriptors)]);
        assert!(files(&device) == before);
    }
}

/// Returns the first block of the last group's inode table.
fn last_table(device: &MemDevice) -> u64 {
    let text = debugfs(device, "stats");
    let at = text.rfind("inode table at ").unwrap();
    told_in(&text[at..], "inode table at ")
}

/// Overwrites the descriptor of a group, of 64 bytes, and its backups.
fn lose_descriptor(device: &MemDevice, group: u32) {
    let geo = geometry(device);
    for holder in (0..geo.groups).map(GroupNr).filter(|g| geo.has_super(*g)) {
        let block = geo.group_first_block(holder).0 + 1;
        let at = block * 1024 + u64::from(group) * 64;
        device.write_at(at, &[0xff; 64]).unwrap();
    }
}

#[test]
fn another_thing_named_lost_and_found_loses_the_name() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device).len();
    let device = edited(
        &device,
        &[
            "rmdir /lost+found",
            "write /dev/null /lost+found",
            "unlink /d1/f1",
        ],
    );
    mended(&device);
    let after = files(&device);
    let found = after
        .iter()
        .filter(|(name, _)| name.starts_with("lost+found/#"));
    assert_eq!((found.count(), after.len()), (2, before + 1));
}

#[test]
fn lost_and_found_is_made_where_no_inode_was_free_before() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device).len();
    let root = told(&device, "bmap / 0", "") * 1024;
    broken_and_mended(&device, &[(root, &[0xff; 1024])]);
    assert_eq!(files(&device).len(), before);
}

#[test]
fn a_journal_that_the_superblock_does_not_name_rightly_is_found() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    for request in [
        "ssv journal_inum 12",
        "ssv journal_uuid 01234567-89ab-cdef-0123-456789abcdef",
        "feature -has_journal",
    ] {
        let broken = edited(&device, &[request]);
        // e2fsck tells of a journal without the feature, and its exit code does not.
        let (clean, text) = verdict::judge(&broken);
        assert!(!clean || text.contains("a journal is present"), "{request}");
        mended(&broken);
        assert!(files(&broken) == before, "{request}");
        assert!(debugfs(&broken, "stats").contains("has_journal"));
        assert_eq!(told(&broken, "stats", "Journal inode:"), 8, "{request}");
    }
}

#[test]
fn tables_of_inodes_that_overlap_are_where_a_backup_has_them() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = shaped(&["-t", "ext4", "-g", "2048", "-O", "^metadata_csum,uninit_bg"]);
    let before = files(&device);
    let first = told(&device, "stats", "inode table at ");
    let broken = edited(
        &device,
        &[
            &format!("set_bg 1 inode_table {}", first + 1),
            "set_bg 1 checksum calc",
        ],
    );
    assert!(!verdict::judge(&broken).0);
    mended(&broken);
    assert!(files(&broken) == before);
}

#[test]
fn a_count_of_inodes_without_a_backup_is_that_of_the_groups() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = shaped(&["-t", "ext2"]);
    let before = files(&device);
    broken_and_mended(&device, &[(1024, &[7])]);
    assert!(files(&device) == before);
}

/// Returns the image with its superblock changed, and the checksum of that set.
pub fn with_superblock(device: &MemDevice, change: impl FnOnce(&mut RawSuperblock)) -> MemDevice {
    let changed = device.snapshot();
    let mut bytes = [0; 1024];
    changed.read_at(1024, &mut bytes).unwrap();
    let mut sb = RawSuperblock::parse(&bytes).unwrap();
    change(&mut sb);
    sb.set_checksum();
    changed.write_at(1024, sb.bytes()).unwrap();
    changed
}

/// Of a feature, of a journal that is elsewhere, and of one by which the first block is another.
#[test]
fn words_of_the_superblock_that_fit_nothing_are_cleared() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let seeded = |sb: &mut RawSuperblock| {
        let has = sb.feature_incompat.get();
        sb.feature_incompat.set(has | 0x2000);
        let has = sb.feature_ro_compat.get();
        sb.feature_ro_compat.set(has & !0x400);
    };
    let plain = image::populate_sized("16M", &["-b", "1024", "-O", "^metadata_csum"], false, 200);
    let unsummed = with_superblock(&plain, seeded);
    assert!(!plan(&unsummed).before.is_clean());
    mended(&unsummed);
    let set = |sb: &mut RawSuperblock| sb.feature_ro_compat.set(sb.feature_ro_compat.get() | 0x10);
    let elsewhere = |sb: &mut RawSuperblock| sb.journal_uuid = [7; 16];
    for broken in [
        with_superblock(&device, set),
        with_superblock(&device, elsewhere),
    ] {
        let plan = mended(&broken);
        assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
        assert!(files(&broken) == before);
    }
    // The backups have it, too.
    let clustered =
        |sb: &mut RawSuperblock| sb.feature_ro_compat.set(sb.feature_ro_compat.get() | 0x200);
    let broken = with_superblock(&device, clustered);
    let geo = geometry(&device);
    for group in (1..geo.groups).map(GroupNr).filter(|g| geo.has_super(*g)) {
        flip(&broken, geo.group_first_block(group).0 * 1024, 1024);
    }
    mended(&broken);
    assert!(files(&broken) == before);
}

/// Revision 0 has no features, and inodes of 128 bytes.
#[test]
fn a_revision_without_features_is_set_before_inodes_are_read() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let short = shaped(&["-t", "ext2", "-I", "128"]);
    for device in [sound(), short] {
        let before = files(&device);
        let broken = with_superblock(&device, |sb| sb.rev_level.set(0));
        let plan = mended(&broken);
        assert_eq!(plan.mends[0].text, "its revision is 1, as it has features");
        assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
        assert!(files(&broken) == before);
    }
}

/// The only group has no backup, so the present superblock is sealed. Its inodes have 256 bytes.
#[test]
fn a_revision_is_set_together_with_the_checksum_or_not_at_all() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = shaped(&["-O", "metadata_csum,extents", "-I", "256"]);
    let before = files(&device);
    for first_ino in [11, 3, 0] {
        let revision = with_superblock(&device, |sb| {
            sb.rev_level.set(0);
            sb.first_ino.set(first_ino);
        });
        let error = extant_repair::plan(&revision, NOW, &mut |_| false).unwrap_err();
        assert!(matches!(error, Error::Declined), "{error}");
        let checksum = revision.snapshot();
        flip(&checksum, 1024 + 0x3fc, 4);
        for broken in [revision, checksum] {
            let plan = mended(&broken);
            assert!(plan.mends[0].text.contains("revision"), "{:#?}", plan.mends);
            assert!(files(&broken) == before);
        }
    }
}

/// AFS' inodes and Android's shared blocks do not count as damage.
#[test]
fn features_that_change_no_structure_stay() {
    needs::tools!("mke2fs", "e2fsck");
    let imagic = |sb: &mut RawSuperblock| sb.feature_compat.set(sb.feature_compat.get() | 0x2);
    let shared = |sb: &mut RawSuperblock| {
        sb.feature_ro_compat
            .set(sb.feature_ro_compat.get() | 0x4000)
    };
    let device = sound();
    for device in [
        with_superblock(&device, imagic),
        with_superblock(&device, shared),
    ] {
        assert!(verdict::judge(&device).0);
        assert!(plan(&device).is_empty());
    }
}

/// The checksums of all inodes begin with the volume's UUID. Where that is another one, and no descriptor says where the
/// inodes are, the root among them does.
#[test]
fn a_table_of_inodes_is_found_without_checksums() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = sound();
    let before = files(&device);
    let broken = with_superblock(&device, |sb| sb.uuid = [9; 16]);
    lose_descriptor(&broken, 0);
    mended(&broken);
    assert!(files(&broken) == before);
}
