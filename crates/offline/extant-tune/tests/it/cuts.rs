//! Writes that end at any moment leave the old image or the new one.

use crate::changes::of_features;
use crate::record_in_log::{self, Change};
use blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
use extant_check::CheckOptions;
use extant_testing::image::fragmented;
use extant_tune::{Error, TuneOptions, Undo};
use std::process::Command;

/// Returns an image of mke2fs with files in it, in memory.
fn image(args: &[&str]) -> Option<Vec<u8>> {
    fragmented("8M", args)
}

fn is_clean(device: &dyn BlockDevice) -> bool {
    extant_check::check(device, &CheckOptions::default())
        .unwrap()
        .is_clean()
}

/// Returns the bytes of all files, by a foreign program.
pub(crate) fn files(bytes: &[u8]) -> Vec<Vec<u8>> {
    let dir = needs::memory_dir();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, bytes).unwrap();
    let names = [
        "first",
        "second",
        "small03",
        "small19",
        "large/a\\ name\\ of\\ some\\ length\\ 77",
    ];
    let read = |name: &str| {
        let request = format!("cat \"{}\"", name.replace('\\', ""));
        let out = Command::new("debugfs")
            .args(["-R", &request])
            .arg(&path)
            .output();
        out.unwrap().stdout
    };
    names.iter().map(|name| read(name)).collect()
}

/// Returns the preallocated extents of a file, and the lengths of all extents.
fn set_aside(bytes: &[u8]) -> (usize, u64) {
    let dir = needs::memory_dir();
    let path = dir.path().join("disk.img");
    std::fs::write(&path, bytes).unwrap();
    let out = Command::new("debugfs")
        .args(["-R", "dump_extents -l second"])
        .arg(&path)
        .output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("Uninit"))
        .collect();
    let len = |line: &&str| {
        let before = line.split("Uninit").next().unwrap_or_default();
        before
            .split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    (lines.len(), lines.iter().map(len).sum())
}

#[test]
fn a_cut_with_the_record_in_the_log_leaves_the_old_or_the_new() {
    let Some(device) = record_in_log::full_volume("^metadata_csum,64bit") else {
        return;
    };
    let plan = extant_tune::plan(&device, &of_features("metadata_csum")).unwrap();
    let change = Change {
        write: &|device| plan.writes.write(device, None, None).unwrap(),
        open: &|image| {
            let image = image.snapshot();
            record_in_log::reverted(&image);
            record_in_log::expect_clean(&image);
        },
    };
    record_in_log::cut_everywhere(&device, &change, 10);
}

#[test]
fn a_change_cut_at_any_write_is_taken_back() {
    let bigalloc = ["-t", "ext4", "-O", "bigalloc,^resize_inode", "-C", "16384"];
    for args in [&["-t", "ext4"][..], &bigalloc] {
        is_taken_back(args);
    }
}

fn is_taken_back(args: &[&str]) {
    let Some(before) = image(args) else {
        return;
    };
    let device = MemDevice::from_bytes(&before);
    let options = TuneOptions {
        uuid: Some([7; 16]),
        ..of_features("^dir_index,^has_journal")
    };
    let plan = extant_tune::plan(&device, &options).unwrap();
    assert!(device.to_bytes().unwrap() == before, "a plan only reads");
    let undo: Undo = plan.writes.undo(&device).unwrap();
    let mut cuts = 0;
    for cut in 0.. {
        let device = FaultDevice::new(MemDevice::from_bytes(&before));
        device.fail_after(Op::Write, cut);
        if plan.writes.apply(&device).is_ok() {
            assert!(is_clean(device.inner()));
            assert!(files(&device.inner().to_bytes().unwrap()) == files(&before));
            break;
        }
        device.heal();
        undo.take_back(&device).unwrap();
        assert!(device.inner().to_bytes().unwrap() == before, "cut {cut}");
        cuts += 1;
    }
    assert!(cuts >= 10, "{cuts}");
}

#[test]
fn files_are_whole_wherever_a_move_is_cut() {
    let Some(before) = image(&["-t", "ext4", "-O", "^has_journal"]) else {
        return;
    };
    let wanted = files(&before);
    assert!(wanted.iter().all(|bytes| !bytes.is_empty()));
    let mut cuts = 0;
    for cut in (0..).step_by(3) {
        let device = FaultDevice::new(MemDevice::from_bytes(&before));
        device.fail_after(Op::Write, cut);
        let mut undo = None;
        let done = extant_tune::defragment(&device, None, 1_700_000_000, &mut |changes| {
            undo = Some(changes.undo(&device)?);
            changes.apply(&device)?;
            undo = None;
            Ok(())
        });
        device.heal();
        if let Some(undo) = undo {
            undo.take_back(&device).unwrap();
        }
        assert!(is_clean(device.inner()), "cut {cut}");
        assert!(
            files(&device.inner().to_bytes().unwrap()) == wanted,
            "cut {cut}"
        );
        match done {
            Ok(moved) => {
                assert!(moved >= 1);
                let after = extant_tune::fragments(device.inner()).unwrap();
                assert!(after.fragmented.is_empty(), "{after:?}");
                let after = device.inner().to_bytes().unwrap();
                assert_eq!(set_aside(&after), (1, 16), "what was set aside stays so");
                break;
            }
            Err(Error::Io(_)) => cuts += 1,
            Err(error) => panic!("cut {cut}: {error}"),
        }
    }
    assert!(cuts > 3, "{cuts}");
}
