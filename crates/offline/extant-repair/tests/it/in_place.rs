//! Changes in place that a crash ends at any write: the image is the old one, the new one, or one that cannot be
//! mounted.

use crate::it::common;
use crate::it::record_in_log::{self, Change};
use blockdev::{BlockDevice, Crash, FaultDevice, FileDevice, MemDevice, Op, RecordingDevice};
use ext4_image::{Changes, Error, ImageFile, MemOverlay, Undo, mark};
use extant_repair::Plan;
use extant_testing::common::load_image;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const NOW: u32 = 1_700_000_000;

/// Returns an image with wrong counts, and lost bitmaps.
fn broken() -> Option<MemDevice> {
    if !needs::have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, tree) = (dir.path().join("disk.img"), dir.path().join("tree"));
    std::fs::create_dir(&tree).unwrap();
    for i in 0..40u8 {
        std::fs::write(tree.join(format!("file {i}")), vec![i; 3000]).unwrap();
    }
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "1024", "-d"])
        .arg(&tree)
        .arg(&path)
        .arg("8M")
        .status();
    assert!(made.unwrap().success());
    let device = load_image(path);
    let mut desc = [0; 12];
    device.read_at(2048, &mut desc).unwrap();
    for at in [0, 4] {
        let block = u32::from_le_bytes(desc[at..at + 4].try_into().unwrap());
        let place = u64::from(block) * 1024;
        device.write_at(place, &[0x5a; 90]).unwrap();
    }
    device.write_at(1024 + 12, &[9, 9]).unwrap();
    Some(device)
}

fn plan(device: &MemDevice) -> Plan {
    extant_repair::plan(device, NOW, &mut |_| true).unwrap()
}

/// Runs `e2fsck -p`; returns its exit code and whether the image is unchanged.
fn preen(device: &MemDevice) -> (Option<i32>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let before = device.to_bytes().unwrap();
    std::fs::write(&path, &before).unwrap();
    let out = Command::new("e2fsck").arg("-p").arg(&path).output();
    (
        out.unwrap().status.code(),
        std::fs::read(path).unwrap() == before,
    )
}

/// Crashes at every recorded write, with unflushed writes lost, kept or torn; returns the images that are neither of `ends`.
fn cut(base: &MemDevice, log: &blockdev::Log, ends: [&[u8]; 2]) -> Vec<MemDevice> {
    let mut between = Vec::new();
    let mut replayer = log.replay(base);
    loop {
        for seed in 0..6 {
            let image = replayer.crash(&Crash::new(seed)).unwrap();
            if !ends.contains(&&image.to_bytes().unwrap()[..]) {
                between.push(image);
            }
        }
        if replayer.step().unwrap().is_none() {
            return between;
        }
    }
}

#[test]
fn a_cut_leaves_the_old_the_new_or_what_nothing_mounts() {
    let Some(base) = broken() else { return };
    cut_everywhere(&base);
}

#[test]
fn a_lost_superblock_is_mended_under_a_mark() {
    let Some(base) = broken() else { return };
    for lost in [0..512, 512..1024, 0..1024, 56..58] {
        let base = base.snapshot();
        let zeros = vec![0; lost.len()];
        base.write_at(1024 + lost.start as u64, &zeros).unwrap();
        cut_everywhere(&base);
    }
}

/// Crashes at every write of a repair, and of its undo.
fn cut_everywhere(base: &MemDevice) {
    let plan = plan(base);
    let undo = plan.undo(base).unwrap();
    let old = base.to_bytes().unwrap();
    let recorder = RecordingDevice::new(base.snapshot());
    plan.apply(&recorder).unwrap();
    let new = recorder.inner().to_bytes().unwrap();
    assert!(plan.after.is_clean() && new != old);
    let cuts = cut(base, &recorder.log(), [&old, &new]);
    assert!(cuts.len() > 20, "{}", cuts.len());
    for (nth, image) in cuts.iter().enumerate() {
        let found = mark(image).unwrap();
        assert_eq!(found.map(|mark| mark.id()), Some(undo.id()), "cut {nth}");
        let refused = extant_repair::plan(image, NOW, &mut |_| true).unwrap_err();
        assert!(refused.to_string().contains("interrupted"), "{refused}");
        if nth % 10 == 0 {
            assert_eq!(preen(image), (Some(8), true), "cut {nth}: e2fsck");
        }
        let back = image.snapshot();
        undo.take_back(&back).unwrap();
        assert!(back.to_bytes().unwrap() == old, "cut {nth}: taken back");
    }
    // Reverting is a change, too, of a partly changed image and of a completely changed one.
    for from in [&cuts[cuts.len() / 2], &MemDevice::from_bytes(&new)] {
        let recorder = RecordingDevice::new(from.snapshot());
        undo.take_back(&recorder).unwrap();
        let begun = from.to_bytes().unwrap();
        for image in cut(from, &recorder.log(), [&old, &begun]) {
            assert!(mark(&image).unwrap().is_some());
            undo.take_back(&image).unwrap();
            assert!(image.to_bytes().unwrap() == old);
        }
    }
}

#[test]
fn a_write_that_fails_is_taken_back_at_once() {
    let Some(base) = broken() else { return };
    let plan = plan(&base);
    let old = base.to_bytes().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (keep, beside) = (dir.path().join("keep"), dir.path().join("beside"));
    let recorder = RecordingDevice::new(base.snapshot());
    plan.apply(&recorder).unwrap();
    let mut failed = 0;
    for event in recorder.log().events() {
        let blockdev::Event::Write { offset, data } = event else {
            continue;
        };
        // A full host refuses new blocks, and still accepts overwrites.
        if *offset == 1024 {
            continue;
        }
        let device = FaultDevice::new(base.snapshot());
        device.fail_range(Op::Write, *offset..*offset + data.len() as u64);
        let error = plan.write(&device, Some(&keep), Some(&beside)).unwrap_err();
        assert!(matches!(error, Error::TakenBack(_)), "{error}");
        assert!(device.inner().to_bytes().unwrap() == old, "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        failed += 1;
    }
    assert!(failed > 3, "{failed}");
    // Nothing is begun without an undo file.
    let nowhere = dir.path().join("no folder/undo");
    plan.write(&base, Some(&keep), Some(&nowhere)).unwrap_err();
    assert!(base.to_bytes().unwrap() == old && !keep.exists());
}

/// Creates an image file with the mark of a change, and its undo file.
fn interrupted(dir: &Path) -> Option<(ImageFile, FileDevice, Vec<u8>)> {
    interrupted_at(&dir.join("disk.img"))
}

fn interrupted_at(path: &Path) -> Option<(ImageFile, FileDevice, Vec<u8>)> {
    let base = broken()?;
    let old = base.to_bytes().unwrap();
    std::fs::write(path, &old).unwrap();
    let file = ImageFile::of(path, None).unwrap();
    let device = FaultDevice::new(FileDevice::open(path, blockdev::Access::ReadWrite).unwrap());
    device.fail_after(Op::Write, 3);
    let beside = file.place_of_undo().unwrap();
    let error = plan(&base).write(&device, None, beside.as_deref());
    assert!(matches!(error, Err(Error::Interrupted { .. })), "{error:?}");
    drop(device);
    let device = FileDevice::open(path, blockdev::Access::ReadWrite).unwrap();
    assert!(mark(&device).unwrap().is_some());
    Some((file, device, old))
}

#[test]
fn an_undo_file_that_others_could_have_written_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let Some((file, device, old)) = interrupted(dir.path()) else {
        return;
    };
    let undo = dir.path().join("disk.img.extant-undo");
    let mode = |mode| std::fs::set_permissions(&undo, PermissionsExt::from_mode(mode)).unwrap();
    assert_eq!(undo.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    for (bits, why) in [(0o620, "others may write"), (0o602, "others may write")] {
        mode(bits);
        let error = file.take_back(&device).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    mode(0o644);
    let elsewhere = dir.path().join("elsewhere");
    std::fs::rename(&undo, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &undo).unwrap();
    let error = file.take_back(&device).unwrap_err().to_string();
    assert!(error.contains("it is a symbolic link"), "{error}");
    std::fs::remove_file(&undo).unwrap();
    let error = file.take_back(&device).unwrap_err().to_string();
    assert!(error.contains("it is not there"), "{error}");
    // Opening a FIFO must not block.
    rustix::fs::mkfifoat(rustix::fs::CWD, &undo, rustix::fs::Mode::RUSR).unwrap();
    let error = file.take_back(&device).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    std::fs::remove_file(&undo).unwrap();
    std::fs::rename(&elsewhere, &undo).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&undo, Some(12345), None).unwrap();
        let error = file.take_back(&device).unwrap_err().to_string();
        assert!(error.contains("it belongs to user 12345"), "{error}");
        // The owner of the image may write it anyway.
        let image = dir.path().join("disk.img");
        std::os::unix::fs::chown(&image, Some(12345), None).unwrap();
    }
    let file = ImageFile::of(&dir.path().join("disk.img"), None).unwrap();
    assert_eq!(file.take_back(&device).unwrap(), Some(undo.clone()));
    assert!(std::fs::read(dir.path().join("disk.img")).unwrap() == old && !undo.exists());
    assert_eq!(file.take_back(&device).unwrap(), None);
}

#[test]
fn an_undo_file_that_another_image_needs_stays() {
    let dir = tempfile::tempdir().unwrap();
    let Some((_, device, old)) = interrupted(dir.path()) else {
        return;
    };
    drop(device);
    let at = |name: &str| dir.path().join(name);
    // The image gets another name, and another image its name.
    std::fs::rename(at("disk.img"), at("moved.img")).unwrap();
    std::fs::write(at("disk.img"), &old).unwrap();
    let other = ImageFile::of(&at("disk.img"), None).unwrap();
    let place = other.place_of_undo().unwrap().unwrap();
    assert!(place.ends_with("disk.img.extant-undo.2"), "{place:?}");
    assert!(at("disk.img.extant-undo").exists());
    let moved = ImageFile::of(&at("moved.img"), None).unwrap();
    let device = FileDevice::open(at("moved.img"), blockdev::Access::ReadWrite).unwrap();
    assert!(moved.take_back(&device).unwrap().is_some());
    assert!(std::fs::read(at("moved.img")).unwrap() == old);
    assert!(!at("disk.img.extant-undo").exists(), "nobody needs it");
}

#[test]
fn an_undo_file_that_no_image_needs_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let Some((file, device, _)) = interrupted(dir.path()) else {
        return;
    };
    let place = dir.path().join("disk.img.extant-undo");
    let mut undo = std::fs::read(&place).unwrap();
    // A crash just after the change leaves the file of a complete change, one just before leaves an unfinished file.
    Undo::read(&place)
        .unwrap()
        .unwrap()
        .take_back(&device)
        .unwrap();
    assert_eq!(file.place_of_undo().unwrap(), Some(place.clone()));
    assert!(!place.exists());
    undo[..64].fill(0);
    std::fs::write(&place, undo).unwrap();
    std::fs::set_permissions(&place, PermissionsExt::from_mode(0o600)).unwrap();
    // The writer of an unfinished file holds a lock.
    let writer = std::fs::File::open(&place).unwrap();
    writer.lock().unwrap();
    let next = dir.path().join("disk.img.extant-undo.2");
    assert_eq!(file.place_of_undo().unwrap(), Some(next));
    assert!(place.exists());
    writer.unlock().unwrap();
    assert_eq!(file.place_of_undo().unwrap(), Some(place.clone()));
    assert!(!place.exists());
}

/// The mark has the end of a long path, and here no more than a part of its last name.
#[test]
fn an_undo_file_with_a_long_name_is_found_after_a_rename() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join(format!("{}.img", "n".repeat(200)));
    let Some((_, device, old)) = interrupted_at(&long) else {
        return;
    };
    drop(device);
    let renamed = dir.path().join("moved.img");
    std::fs::rename(&long, &renamed).unwrap();
    // Another file with the same end.
    let other = format!("another {}.img.extant-undo", "n".repeat(200));
    std::fs::write(dir.path().join(other), "of no use").unwrap();
    let file = ImageFile::of(&renamed, None).unwrap();
    let device = FileDevice::open(&renamed, blockdev::Access::ReadWrite).unwrap();
    assert!(file.take_back(&device).unwrap().is_some());
    assert!(std::fs::read(&renamed).unwrap() == old);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_image_whose_undo_file_would_have_too_long_a_name_keeps_the_record_inside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n".repeat(250));
    let Some((file, device, old)) = interrupted_at(&path) else {
        return;
    };
    assert_eq!(file.place_of_undo().unwrap(), None);
    let place = mark(&device).unwrap().unwrap().offset().unwrap() as usize;
    assert!(file.take_back(&device).unwrap().is_some());
    let now = std::fs::read(&path).unwrap();
    assert_eq!(differ(&now, &old, place..place + 200_000), 0);
}

/// Returns a change of one byte of an unused block.
fn change(device: &MemDevice, at: u64) -> Changes {
    let overlay = MemOverlay::new(device);
    overlay.write_at(at, &[7]).unwrap();
    overlay.into_changes().unwrap()
}

#[test]
fn undo_files_of_two_changes_are_of_use_in_their_order() {
    let Some(device) = broken() else { return };
    let old = device.to_bytes().unwrap();
    plan(&device).apply(&device).unwrap();
    let sound = device.to_bytes().unwrap();
    let first = change(&device, 7 << 20);
    let undo_first = first.undo(&device).unwrap();
    first.apply(&device).unwrap();
    let second = change(&device, 6 << 20);
    let undo_second: Undo = second.undo(&device).unwrap();
    second.apply(&device).unwrap();
    // The two changes write to different places. Still the second one depends on the first.
    let error = undo_first.take_back(&device).unwrap_err();
    assert!(error.to_string().contains("changed since"), "{error}");
    undo_second.take_back(&device).unwrap();
    undo_first.take_back(&device).unwrap();
    assert!(device.to_bytes().unwrap() == sound && sound != old);
}

/// Returns the bytes in which two images differ, outside of a range.
fn differ(a: &[u8], b: &[u8], except: std::ops::Range<usize>) -> usize {
    let pairs = a.iter().zip(b).enumerate();
    pairs
        .filter(|(at, (a, b))| a != b && !except.contains(at))
        .count()
}

#[test]
fn the_record_of_a_device_without_files_is_in_its_free_blocks() {
    let Some(base) = broken() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    std::fs::write(&path, "").unwrap();
    let file = ImageFile::of(&path, None).unwrap();
    let plan = plan(&base);
    let old = base.to_bytes().unwrap();
    let recorder = RecordingDevice::new(base.snapshot());
    plan.write(&recorder, None, None).unwrap();
    let new = recorder.inner().to_bytes().unwrap();
    assert!(judge(&MemDevice::from_bytes(&new)));
    let record = plan.undo(&base).unwrap();
    let mut taken = 0;
    let mut area = None;
    for image in cut(&base, &recorder.log(), [&old, &new]) {
        let Some(mark) = mark(&image).unwrap() else {
            continue;
        };
        assert_eq!(mark.id(), record.id());
        let place = mark.offset().unwrap() as usize;
        area = Some(place);
        file.take_back(&image).unwrap().unwrap();
        // The record may be torn off nowhere: it was durable before the mark.
        assert_eq!(
            differ(&image.to_bytes().unwrap(), &old, place..place + 200_000),
            0
        );
        taken += 1;
    }
    assert!(taken > 10, "{taken}");
    // Nothing of the new image is where the record was.
    let applied = base.snapshot();
    plan.apply(&applied).unwrap();
    let applied = applied.to_bytes().unwrap();
    let place = area.unwrap();
    assert_eq!(differ(&applied, &new, place..place + 200_000), 0);
    // A volume whose blocks are all in use has no room for the record.
    let full = MemDevice::from_bytes(&[1; 8192]);
    let changes = MemOverlay::new(&full);
    changes.write_at(4096, &[2; 512]).unwrap();
    let changes = changes.into_changes().unwrap();
    let error = changes.write(&full, None, None).unwrap_err();
    assert!(matches!(error, Error::NoRoomForUndo(_)), "{error}");
    assert!(full.to_bytes().unwrap() == [1; 8192]);
}

#[test]
fn a_record_is_in_the_log_only_if_the_bitmap_has_the_log_in_use() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let run = |tool: &str, args: &[&str]| {
        let out = Command::new(tool).args(args).arg(&path).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{tool} {args:?}: {told}");
        String::from_utf8(out.stdout).unwrap()
    };
    std::fs::write(&path, vec![0; 8 << 20]).unwrap();
    run("mke2fs", &["-q", "-F", "-t", "ext4", "-b", "1024"]);
    // Allocate all blocks of the only group.
    run("debugfs", &["-w", "-R", "setb 1 8191"]);
    let write = || {
        let device = load_image(&path);
        let done = change(&device, 7 << 20).write(&device, None, None);
        let mut byte = [0];
        device.read_at(7 << 20, &mut byte).unwrap();
        (done, byte[0] == 7)
    };
    let (done, is_written) = write();
    done.unwrap();
    assert!(is_written);
    // Free one block of the log. The record is longer than a block.
    let block = run("debugfs", &["-R", "bmap <8> 20"]);
    run("debugfs", &["-w", "-R", &format!("freeb {}", block.trim())]);
    let (done, is_written) = write();
    assert!(matches!(done, Err(Error::NoRoomForUndo(_))), "{done:?}");
    assert!(!is_written);
}

/// The superblock and the bitmap are damaged: the bitmap has all blocks in use, and the repair frees some of them.
#[test]
fn a_record_is_not_in_blocks_that_a_damaged_volume_has_in_use() {
    let Some(base) = record_in_log::full_volume("metadata_csum,64bit") else {
        return;
    };
    let mut table = [0; 4];
    base.read_at(2048 + 8, &mut table).unwrap();
    // The record of the file that fills the volume.
    let fill = u64::from(u32::from_le_bytes(table)) * 1024 + 51 * 256;
    base.write_at(fill, &[0; 256]).unwrap();
    base.write_at(1024 + 1020, &[0x5a]).unwrap();
    let made = plan(&base);
    assert!(made.after.is_clean());
    let recorder = RecordingDevice::new(base.snapshot());
    made.write(&recorder, None, None).unwrap();
    record_in_log::expect_record_in_log(&base, &recorder.log());
}

#[test]
fn a_cut_with_the_record_in_the_log_leaves_the_old_the_new_or_what_nothing_mounts() {
    let Some(base) = record_in_log::full_volume("metadata_csum,64bit") else {
        return;
    };
    // The bitmap of inodes, and the records of files in three blocks of the table.
    let mut desc = [0; 12];
    base.read_at(2048, &mut desc).unwrap();
    let [_, inode_bitmap, table] = [0, 4, 8]
        .map(|at| u64::from(u32::from_le_bytes(desc[at..at + 4].try_into().unwrap())) * 1024);
    let links = [12, 25, 45].map(|nth| table + nth * 256 + 26);
    // The checksum of the superblock is damaged, too.
    for at in links.into_iter().chain([inode_bitmap, 1024 + 1020]) {
        base.write_at(at, &[0x5a]).unwrap();
    }
    let made = plan(&base);
    assert!(made.after.is_clean());
    let change = Change {
        write: &|device| made.write(device, None, None).unwrap(),
        open: &|image| {
            let image = Arc::new(image.snapshot());
            record_in_log::reverted(&image);
            plan(&image).apply(&*image).unwrap();
            // The volume has new transactions in the log, where the record was.
            let volume = common::open(&image);
            volume.remove_file("/fill").unwrap();
            volume.write("/later", b"more").unwrap();
            volume.sync().unwrap();
            record_in_log::expect_clean(&image.snapshot());
            volume.close().unwrap();
            record_in_log::expect_clean(&image);
        },
    };
    record_in_log::cut_everywhere(&base, &change, 5);
}

/// Returns whether an image is clean for e2fsck.
fn judge(device: &MemDevice) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, device.to_bytes().unwrap()).unwrap();
    let out = Command::new("e2fsck").arg("-fn").arg(&path).output();
    out.unwrap().status.success()
}
