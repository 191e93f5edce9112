//! Images with lost parts: rescued files are compared with debugfs' output before the loss, and no broken image makes
//! a rescue panic.

use crate::it::bases;
use crate::it::common;
use crate::it::image::{self, files};
use crate::it::mutant;
use blockdev::{BlockDevice, MemDevice};
use common::Rng;
use ext4_format::superblock::RawSuperblock;
use ext4_format::{FileType, InodeNr};
use extant_rescue::Rescue;
use extant_testing::common::load_image;
use extant_testing::mounted::{self, Mounted};
use std::sync::Arc;

const ARGS: &[&str] = &[
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

fn sound(args: &[&str]) -> MemDevice {
    image::populate_sized("16M", args, false, 200).snapshot()
}

type Files = Vec<(String, Vec<u8>)>;

/// Returns every file that is rescued, with its bytes.
fn rescued(device: &MemDevice) -> Files {
    let (files, lost) = rescued_in_part(device);
    assert_eq!(lost, Vec::<String>::new());
    files
}

/// Returns every file that is rescued, with its bytes, and the parts that are lost.
fn rescued_in_part(device: &MemDevice) -> (Files, Vec<String>) {
    let rescue = Rescue::open(device, &mut |_, _| {}).unwrap();
    let (mut files, mut lost) = (Files::new(), Vec::new());
    for found in rescue.found() {
        if found.file_type != FileType::Regular {
            continue;
        }
        let mut bytes = vec![0; found.size as usize];
        let parts = rescue.read(found, &mut |at, piece| {
            bytes[at as usize..][..piece.len()].copy_from_slice(piece);
            Ok(())
        });
        lost.extend(parts.unwrap());
        files.push((String::from_utf8(found.path.clone()).unwrap(), bytes));
    }
    files.sort();
    (files, lost)
}

fn wipe(device: &MemDevice, at: u64, len: usize) {
    device.write_at(at, &vec![0; len]).unwrap();
}

/// Returns the offset of the inode table of the first group.
fn table(device: &MemDevice) -> u64 {
    let mut desc = [0; 12];
    device.read_at(2048, &mut desc).unwrap();
    u64::from(u32::from_le_bytes(desc[8..12].try_into().unwrap())) * 1024
}

/// The extents that a too long one reaches over stay, and only the file with that extent is said to be damaged.
#[test]
fn an_extent_over_several_others_is_cut() {
    needs::tools!("mke2fs", "debugfs");
    let device = sound(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
    let before = files(&device);
    // A leaf of the file with many extents of one block, eight blocks apart.
    let is_leaf = |at: &u64| {
        let head = part(&device, *at, 8);
        head[..2] == [0x0a, 0xf3] && head[2] > 20 && head[6..8] == [0, 0]
    };
    let leaf = (0..device.len()).step_by(1024).find(is_leaf).unwrap();
    let len = leaf + 12 * 4 + 4;
    assert_eq!(part(&device, len, 2), [1, 0]);
    device.write_at(len, &[128, 0]).unwrap();
    let (rescued, lost) = rescued_in_part(&device);
    assert!(rescued == before);
    assert_eq!(lost.len(), 1, "{lost:?}");
}

#[test]
fn superblocks_and_descriptors_are_replaced() {
    needs::tools!("mke2fs", "debugfs");
    let plain: Vec<&str> = ARGS[..8]
        .iter()
        .copied()
        .chain(["-O", "^metadata_csum,^flex_bg"])
        .collect();
    for args in [ARGS, &plain] {
        let device = sound(args);
        let before = files(&device);
        assert!(before.len() > 200);
        assert!(rescued(&device) == before, "nothing is gone");
        wipe(&device, 0, 2048);
        assert!(rescued(&device) == before, "the superblock is gone");
        wipe(&device, 2048, 1024);
        assert!(rescued(&device) == before, "and the descriptors");
        // Groups of 4,096 blocks begin at unusual places; only the backup of the last group remains.
        wipe(&device, (4096 + 1) * 1024, 2048);
        assert!(rescued(&device) == before, "and the first backup");
        wipe(&device, (3 * 4096 + 2) * 1024, 1024);
        assert!(
            rescued(&device) == before,
            "and all copies of the descriptors"
        );
        wipe(&device, (3 * 4096 + 1) * 1024, 1024);
        assert!(
            Rescue::open(&device, &mut |_, _| {}).is_err(),
            "nothing to begin with"
        );
    }
}

/// Returns the offset of a block of the log.
fn log_block(device: &MemDevice, nth: u32) -> u64 {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    let run = std::process::Command::new("debugfs")
        .args(["-R", &format!("bmap <8> {nth}")])
        .arg(&path)
        .output();
    let said = String::from_utf8(run.unwrap().stdout).unwrap();
    said.trim().parse::<u64>().unwrap() * 1024
}

/// Returns a part of a device.
fn part(device: &MemDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    bytes
}

/// The descriptor of the only group is lost, and the beginning of its table is damaged. The log has a copy of that beginning.
#[test]
fn a_table_of_inodes_is_not_taken_from_the_log() {
    needs::tools!("mke2fs", "debugfs");
    let args = [&ARGS[..4], &ARGS[6..]].concat();
    let device = image::populate_sized("8M", &args, false, 200).snapshot();
    let before = files(&device);
    let (table, log) = (table(&device), log_block(&device, 700));
    device.write_at(log, &part(&device, table, 8192)).unwrap();
    device.write_at(table, &[0xa5; 1024]).unwrap();
    wipe(&device, 2048, 1024);
    assert!(rescued(&device) == before);
    // The journal's inode is the only one that says where the log is.
    wipe(&device, 1024 + 0x10c, 68);
    reseal(&device);
    assert!(rescued(&device) == before);
}

fn reseal(device: &MemDevice) {
    let bytes = part(device, 1024, 1024);
    let sb = RawSuperblock::resealed(bytes.first_chunk().unwrap()).unwrap();
    device.write_at(1024, sb.bytes()).unwrap();
}

/// A file had another name before. The block with the older name is in the log, which comes first on the device.
#[test]
fn names_are_taken_from_the_log_last() {
    needs::tools!("mke2fs", "debugfs");
    let device = sound(ARGS);
    let before = files(&device);
    let root = [2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, 2, 0, 0, 0];
    let bytes = device.to_bytes().unwrap();
    let home = bytes
        .chunks(1024)
        .position(|block| block.starts_with(&root));
    let home = home.unwrap() as u64 * 1024;
    let mut old = part(&device, home, 1024);
    let name = old.windows(4).position(|name| name == b"deep").unwrap();
    old[name..name + 4].copy_from_slice(b"past");
    // The root's names are now behind the log.
    let (log, end) = (log_block(&device, 1), device.len() - 1024);
    device.write_at(log, &old).unwrap();
    device.write_at(end, &part(&device, home, 1024)).unwrap();
    wipe(&device, home, 1024);
    wipe(&device, table(&device) + 256, 256);
    assert!(rescued(&device) == before);
}

#[test]
fn files_are_found_without_any_superblock() {
    needs::tools!("mke2fs", "debugfs");
    let wide = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "metadata_csum,64bit",
    ];
    let short = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^64bit,^flex_bg",
        "-I",
        "128",
    ];
    let large = ["-t", "ext4", "-b", "4096", "-J", "size=4"];
    let old = ["-t", "ext2", "-b", "1024"];
    for args in [&wide[..], &short, &large, &old] {
        let device = sound(args);
        let before = files(&device);
        wipe(&device, 0, 2048);
        if args.contains(&"1024") {
            wipe(&device, 8193 * 1024, 1024);
        }
        let rescue = Rescue::open(&device, &mut |_, _| {}).unwrap();
        assert!(
            rescue.notes()[0].starts_with("all superblocks are lost"),
            "{:?}",
            rescue.notes()
        );
        assert!(rescued(&device) == before, "{args:?}: {:?}", rescue.notes());
    }
}

#[test]
fn names_are_found_without_the_inode_of_their_directory() {
    needs::tools!("mke2fs", "debugfs");
    let device = sound(ARGS);
    let before = files(&device);
    let root = u64::from(InodeNr::ROOT.0 - 1) * 256;
    wipe(&device, table(&device) + root, 256);
    assert!(rescued(&device) == before, "the root's inode is gone");
}

#[test]
fn files_are_found_without_their_directory() {
    needs::tools!("mke2fs", "debugfs");
    let device = sound(ARGS);
    let before = files(&device);
    // The block of the root's names.
    let bytes = device.to_bytes().unwrap();
    let root = [2, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0, 2, 0, 0, 0];
    let mut wiped = 0;
    for (n, block) in (0..).zip(bytes.chunks_exact(1024)) {
        if block.starts_with(&root) {
            wipe(&device, n * 1024, 1024);
            wiped += 1;
        }
    }
    assert!(wiped > 0);
    let after = rescued(&device);
    assert_eq!(before.len(), after.len());
    let contents = |files: &Files| {
        let mut all: Vec<Vec<u8>> = files.iter().map(|f| f.1.clone()).collect();
        all.sort();
        all
    };
    assert!(contents(&before) == contents(&after), "every file is there");
    let ends = |files: &Files, end: &str| files.iter().filter(|f| f.0.ends_with(end)).count();
    assert_eq!(
        ends(&before, "/f3"),
        ends(&after, "/f3"),
        "names below it are"
    );
    assert!(
        after.iter().any(|f| f.0.starts_with('#')),
        "the others have numbers"
    );
}

#[test]
fn deleted_files_are_found_in_the_journal() {
    needs::tools!("mke2fs", "debugfs");
    let device = Arc::new(sound(ARGS));
    let before = files(&device);
    let name = |n: usize| format!("d0/deleted{n}");
    let bytes = |n: usize| vec![n as u8 + 1; 3000 * n + 100];
    let volume = image::open_as(&device, false).unwrap();
    for n in 0..5 {
        volume.write(format!("/{}", name(n)), bytes(n)).unwrap();
    }
    // Extents in a separate block.
    let sparse = volume.create_new_file("/sparse").unwrap();
    for n in 0..50 {
        sparse.write_at(&[7; 1024], n * 4096).unwrap();
    }
    volume.sync().unwrap();
    drop(sparse);
    for n in 0..5 {
        volume.remove_file(format!("/{}", name(n))).unwrap();
    }
    volume.remove_file("/sparse").unwrap();
    volume.sync().unwrap();
    volume.close().unwrap();
    assert!(rescued(&device) == before, "they are gone");
    let mut rescue = Rescue::open(&*device, &mut |_, _| {}).unwrap();
    rescue.find_deleted();
    let data = |path: &str| {
        let found = rescue.found().iter().find(|f| f.path == path.as_bytes());
        let found = found.unwrap_or_else(|| panic!("{path} is found"));
        assert!(found.deleted && found.problem.is_none(), "{found:?}");
        let mut all = vec![0; found.size as usize];
        let lost = rescue.read(found, &mut |at, piece| {
            all[at as usize..][..piece.len()].copy_from_slice(piece);
            Ok(())
        });
        assert!(lost.unwrap().is_empty());
        all
    };
    for n in 0..5 {
        assert!(
            data(&format!("#deleted/{}", name(n))) == bytes(n),
            "file {n}"
        );
    }
    let sparse = data("#deleted/sparse");
    assert_eq!(sparse.iter().filter(|&&b| b == 7).count(), 50 << 10);
    // All blocks are in use.
    for group in 0..4 {
        let mut place = [0; 4];
        device.read_at(2048 + 64 * group, &mut place).unwrap();
        let place = u64::from(u32::from_le_bytes(place));
        device.write_at(place * 1024, &[0xff; 512]).unwrap();
    }
    let mut rescue = Rescue::open(&*device, &mut |_, _| {}).unwrap();
    rescue.find_deleted();
    let deleted = || rescue.found().iter().filter(|found| found.deleted);
    assert!(deleted().count() >= 5 && deleted().all(|found| found.problem.is_some()));
}

/// A number that is in use again belongs to another file. Of each file that had it, the journal has the inode and the name.
#[test]
fn deleted_files_are_found_if_their_numbers_are_in_use_again() {
    needs::tools!("mke2fs");
    let device = common::mem_image(
        "16M",
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "32"],
    );
    let volume = common::open(&device);
    volume.create_dir("d").unwrap();
    // All files that fit, so that each round takes the same numbers.
    let count = volume.statfs().unwrap().free_inodes as usize;
    let name = |round: usize, n: usize| format!("d/round{round}-{n}");
    let make = |round: usize| -> Vec<u32> {
        let number = |n| {
            let name = name(round, n);
            // The last files have no blocks, so that no block of the second round is in use again.
            let content = if round < 2 { name.as_bytes() } else { b"" };
            volume.write(&name, content).unwrap();
            volume.metadata(&name).unwrap().ino()
        };
        let mut numbers: Vec<_> = (0..count).map(number).collect();
        volume.sync().unwrap();
        numbers.sort_unstable();
        numbers
    };
    let remove = |round: usize| {
        (0..count).for_each(|n| volume.remove_file(name(round, n)).unwrap());
        volume.sync().unwrap();
    };
    let first = make(0);
    remove(0);
    let second = make(1);
    remove(1);
    assert!(first == second && second == make(2), "{first:?} {second:?}");
    volume.close().unwrap();
    let mut rescue = Rescue::open(&device, &mut |_, _| {}).unwrap();
    rescue.find_deleted();
    for (round, n) in (0..2).flat_map(|round| (0..count).map(move |n| (round, n))) {
        let path = format!("#deleted/{}", name(round, n));
        let found = rescue.found().iter().find(|f| f.path == path.as_bytes());
        let found = found.unwrap_or_else(|| panic!("{path}: {:?}", rescue.found()));
        let mut all = Vec::new();
        let read = rescue.read(found, &mut |_, piece| {
            all.extend_from_slice(piece);
            Ok(())
        });
        assert!(read.unwrap().is_empty());
        // The second round may have blocks of the first.
        let right = all == name(round, n).as_bytes();
        assert!(right || round == 0, "{path}: {}", all.escape_ascii());
    }
    let deleted = rescue.found().iter().filter(|found| found.deleted);
    assert_eq!(deleted.count(), 2 * count);
    let files = rescued(&device);
    assert!(
        (0..count).all(|n| files.contains(&(name(2, n), Vec::new()))),
        "{files:?}"
    );
}

/// The generation of a file in use can be changed: its older images are not a deleted file.
#[test]
fn a_file_with_a_changed_generation_is_not_deleted() {
    if !mounted::able() || !needs::have(&["chattr"]) {
        return;
    }
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let args = ["-t", "ext4", "-b", "1024", "-I", "256", "-J", "size=1"];
    // The generation is part of checksums, so that Linux does not change it on volumes that have them.
    let features = ["-O", "^metadata_csum"];
    common::mke2fs(&path, "16M", &[&args[..], &features].concat());
    let mounted = Mounted::new(&path, "");
    let commit = || {
        let root = std::fs::File::open(mounted.path()).unwrap();
        root.sync_all().unwrap();
    };
    for name in ["kept", "deleted"] {
        let file = mounted.path().join(name);
        std::fs::write(&file, name).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        for generation in ["5", "6"] {
            commit();
            let mut chattr = std::process::Command::new("chattr");
            let changed = chattr.args(["-v", generation]).arg(&file).status();
            assert!(changed.unwrap().success());
        }
        commit();
    }
    std::fs::remove_file(mounted.path().join("deleted")).unwrap();
    commit();
    mounted.unmount();
    let device = load_image(&path);
    let mut rescue = Rescue::open(&device, &mut |_, _| {}).unwrap();
    rescue.find_deleted();
    let deleted = rescue.found().iter().filter(|found| found.deleted);
    let deleted: Vec<_> = deleted.map(|f| (&f.path[..], f.generation)).collect();
    assert_eq!(deleted, [(&b"#deleted/deleted"[..], 6)]);
}

/// A deleted file's clusters are looked up in the bitmap, where they are free.
#[test]
fn deleted_files_in_clusters_are_found() {
    if !mounted::able() {
        return;
    }
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let args = ["-t", "ext4", "-b", "1024", "-C", "16384", "-J", "size=1"];
    let features = ["-O", "bigalloc,^resize_inode"];
    common::mke2fs(&path, "16M", &[&args[..], &features].concat());
    let mounted = Mounted::new(&path, "");
    let sync = || {
        let root = std::fs::File::open(mounted.path()).unwrap();
        root.sync_all().unwrap();
    };
    let bytes = vec![7; 200_000];
    for name in ["kept", "deleted"] {
        let file = mounted.path().join(name);
        std::fs::write(&file, &bytes).unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
    }
    sync();
    std::fs::remove_file(mounted.path().join("deleted")).unwrap();
    sync();
    mounted.unmount();
    let device = load_image(&path);
    assert_eq!(rescued(&device), [("kept".to_owned(), bytes)]);
    let mut rescue = Rescue::open(&device, &mut |_, _| {}).unwrap();
    rescue.find_deleted();
    let found = rescue
        .found()
        .iter()
        .find(|f| f.path == b"#deleted/deleted");
    let found = found.unwrap_or_else(|| panic!("{:?}", rescue.found()));
    assert!(found.deleted && found.problem.is_none(), "{found:?}");
}

#[test]
fn broken_images_make_no_panic() {
    needs::tools!("mke2fs");
    let bases = bases::all();
    let mut read = 0;
    for seed in common::seeds(0, 60, 10_000) {
        let (_, device, _) = mutant::mutant(&bases, &mut Rng::new(seed));
        let Ok(mut rescue) = Rescue::open(&device, &mut |_, _| {}) else {
            continue;
        };
        rescue.find_deleted();
        for found in rescue.found() {
            let whole = found
                .path
                .split(|&b| b == b'/')
                .all(|part| !matches!(part, b"" | b"." | b".."));
            assert!(whole, "seed {seed}: {found:?}");
            let done = rescue.read(found, &mut |at, piece| {
                assert!(
                    at + piece.len() as u64 <= rescue.attributes(found).unwrap().size,
                    "seed {seed}"
                );
                read += piece.len();
                Ok(())
            });
            done.unwrap();
        }
    }
    assert!(read > 1 << 20);
}
