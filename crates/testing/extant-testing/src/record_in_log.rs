//! Changes of a full volume without an undo file, whose undo record is in the log of the empty journal. A crash at any
//! write leaves the old volume, the new one, or one that every program refuses until the change is reverted.

use blockdev::{BlockDevice, Crash, Event, Log, MemDevice, RecordingDevice};
use ext4_image::{ImageFile, mark};
use extant_check::CheckOptions;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

const BLOCK: u64 = 1024;

/// Returns a clean volume without a free block, with an empty journal.
pub fn full_volume(features: &str) -> Option<MemDevice> {
    if !needs::have(&["mke2fs", "debugfs", "e2fsck", "dumpe2fs"]) {
        return None;
    }
    let dir = needs::memory_dir();
    let (path, tree) = (dir.path().join("disk.img"), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    for i in 0..40u8 {
        std::fs::write(tree.join(format!("file {i}")), vec![i + 1; 3000]).unwrap();
    }
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-m", "0"];
    let more = ["-J", "size=1", "-O", features, "-d"];
    let mut mke2fs = Command::new("mke2fs");
    let made = mke2fs.args(args).args(more).arg(&tree).arg(&path).arg("4M");
    assert!(made.status().unwrap().success());
    let told = run("dumpe2fs", &["-h"], &path).1;
    let free = told.split("Free blocks:").nth(1).unwrap().lines().next();
    let free: usize = free.unwrap().trim().parse().unwrap();
    let fill = dir.path().join("fill");
    std::fs::write(&fill, vec![0xab; free * BLOCK as usize]).unwrap();
    let request = format!("write {} fill", fill.display());
    run("debugfs", &["-w", "-R", &request], &path);
    let told = run("dumpe2fs", &["-h"], &path).1;
    assert!(told.contains("Free blocks:              0\n"), "{told}");
    assert_eq!(run("e2fsck", &["-fn"], &path).0, Some(0));
    Some(MemDevice::from_bytes(&std::fs::read(path).unwrap()))
}

/// Runs a program on an image file; returns its exit code and its output.
fn run(tool: &str, args: &[&str], path: &Path) -> (Option<i32>, String) {
    let out = Command::new(tool).args(args).arg(path).output().unwrap();
    let told = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.code(), told)
}

/// Runs a program on an image; returns its exit code, its output, and whether it left the image unchanged.
fn run_on(tool: &str, args: &[&str], image: &[u8]) -> (Option<i32>, String, bool) {
    let dir = needs::memory_dir();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, image).unwrap();
    let (code, told) = run(tool, args, &path);
    (code, told, std::fs::read(path).unwrap() == image)
}

/// A change of a volume.
pub struct Change<'c> {
    /// Makes the change on a device that has no undo file.
    pub write: &'c dyn Fn(&dyn BlockDevice),
    /// Opens the volume to write, the old one or the new one.
    pub open: &'c dyn Fn(&MemDevice),
}

/// Ends a change at each of its writes, with unflushed writes kept, lost or torn, and opens each image. At least `least` of
/// them must be marked.
pub fn cut_everywhere(base: &MemDevice, change: &Change<'_>, least: usize) {
    let recorder = RecordingDevice::new(base.snapshot());
    (change.write)(&recorder);
    let (log, new) = (recorder.log(), recorder.inner().to_bytes().unwrap());
    let record = expect_record_in_log(base, &log);
    let old = base.to_bytes().unwrap();
    let [old, new] = [old, new].map(|bytes| without(bytes, &record));
    assert_ne!(old, new);
    let (mut seen, mut marked) = (BTreeSet::new(), Vec::new());
    let mut replayer = log.replay(base);
    loop {
        for seed in 0..6 {
            let image = replayer.crash(&Crash::new(seed)).unwrap();
            let bytes = image.to_bytes().unwrap();
            if !seen.insert(ext4_format::checksum::crc32c(!0, &bytes)) {
                continue;
            }
            let turn = seen.len();
            if turn % 3 == 0 {
                (change.open)(&image);
            }
            if mark(&image).unwrap().is_some() {
                expect_refusal(&bytes, turn);
                expect_old(&image, &old, &record);
                marked.push(image);
            } else {
                let bytes = without(bytes, &record);
                assert!(bytes == old || bytes == new, "image {turn}");
            }
        }
        if replayer.step().unwrap().is_none() {
            break;
        }
    }
    assert!(marked.len() >= least, "{} marked images", marked.len());
    let half = &marked[marked.len() / 2];
    cut_reversal(half, &old, &record);
}

/// Checks that the record, the first write of a change, is in the blocks of the journal, and returns its place.
pub fn expect_record_in_log(base: &MemDevice, log: &Log) -> Range<usize> {
    let Some(Event::Write { offset, data }) = log.events().first() else {
        panic!("the record is written first");
    };
    let part = *offset as usize..*offset as usize + data.len();
    let (_, told, _) = run_on(
        "debugfs",
        &["-c", "-n", "-R", "blocks <8>"],
        &base.to_bytes().unwrap(),
    );
    let journal: BTreeSet<u64> = told
        .split_whitespace()
        .map(|b| b.parse().unwrap())
        .collect();
    let blocks = part.start as u64 / BLOCK..(part.end as u64).div_ceil(BLOCK);
    assert!(blocks.clone().all(|b| journal.contains(&b)), "{blocks:?}");
    part
}

/// Returns an image with zeros in the place of the record.
fn without(mut image: Vec<u8>, record: &Range<usize>) -> Vec<u8> {
    image[record.clone()].fill(0);
    image
}

/// Checks that a program refuses a marked image and writes nothing to it; which program depends on the turn.
fn expect_refusal(image: &[u8], turn: usize) {
    let (code, told, is_unchanged) = match turn % 4 {
        0 => run_on("e2fsck", &["-p"], image),
        1 => run_on("e2fsck", &["-fy"], image),
        2 => run_on("debugfs", &["-w", "-R", "mkdir new"], image),
        _ => {
            let options = CheckOptions::default();
            let checked = extant_check::check(&MemDevice::from_bytes(image), &options);
            let error = checked.unwrap_err().to_string();
            return assert!(error.contains("interrupted"), "{error}");
        }
    };
    assert!(is_unchanged && (turn % 4 == 2 || code == Some(8)), "{told}");
}

/// Reverts the change of an image if the image is marked, as the next command does that writes to the device. Returns
/// whether it was.
pub fn reverted(image: &dyn BlockDevice) -> bool {
    let dir = needs::memory_dir();
    let device = dir.path().join("device");
    std::fs::write(&device, "").unwrap();
    let file = ImageFile::of(&device, None).unwrap();
    file.take_back(image).unwrap().is_some()
}

fn expect_old(marked: &MemDevice, old: &[u8], record: &Range<usize>) {
    let image = marked.snapshot();
    assert!(reverted(&image));
    assert!(without(image.to_bytes().unwrap(), record) == old);
}

/// Ends the reversal of a change at each of its writes, and reverts the change again.
fn cut_reversal(marked: &MemDevice, old: &[u8], record: &Range<usize>) {
    let recorder = RecordingDevice::new(marked.snapshot());
    assert!(reverted(&recorder));
    let log = recorder.log();
    let mut replayer = log.replay(marked);
    loop {
        for seed in 0..6 {
            let image = replayer.crash(&Crash::new(seed)).unwrap();
            if mark(&image).unwrap().is_some() {
                expect_old(&image, old, record);
            } else {
                assert!(without(image.to_bytes().unwrap(), record) == old);
            }
        }
        if replayer.step().unwrap().is_none() {
            return;
        }
    }
}

/// Checks that an image is clean for e2fsck, also after e2fsck has replayed its journal.
pub fn expect_clean(image: &MemDevice) {
    let dir = needs::memory_dir();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, image.to_bytes().unwrap()).unwrap();
    let (code, told) = run("e2fsck", &["-p"], &path);
    assert!(matches!(code, Some(0 | 1)), "{told}");
    let (code, told) = run("e2fsck", &["-fn"], &path);
    assert_eq!(code, Some(0), "{told}");
    let (_, told) = run("debugfs", &["-R", "ls -p /"], &path);
    let names = (0..40).filter(|i| told.contains(&format!("/file {i}/")));
    assert_eq!(names.count(), 40, "{told}");
}
