//! The verdict on an image is e2fsck's: on images of every shape that mke2fs and the engine make, and on the same images
//! broken on purpose by a mutator that knows the format.

use crate::it::bases;
use crate::it::common;
use crate::it::image;
use crate::it::mutant;
use crate::it::verdict;
use bases::{Base, KINDS};
use blockdev::MemDevice;
use common::Rng;
use verdict::{check, judge};

/// Undamaged images have no findings, and those with a pending journal have no findings after the replay.
#[test]
fn sound_images_are_clean() {
    needs::tools!("mke2fs", "e2fsck");
    for kind in KINDS {
        let device = image::populate_sized(kind.size(), kind.args(), kind.dirty, 350);
        let report = check(&device, true);
        let faults: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        // A file that was open when the program stopped is an orphan, which waits for the next mount.
        if !kind.dirty {
            assert!(report.findings.is_empty(), "{}: {faults:#?}", kind.name);
        }
        let (clean, text) = judge(&device);
        if !kind.dirty {
            assert!(clean, "{}: {text}", kind.name);
        }
    }
}

/// Shapes that mke2fs makes, without any file.
#[test]
fn new_images_are_clean() {
    needs::tools!("mke2fs");
    for (size, args) in [
        ("4M", &["-t", "ext4", "-b", "1024"][..]),
        ("64M", &["-t", "ext4", "-O", "bigalloc", "-C", "16384"]),
        ("64M", &["-t", "ext4", "-O", "inline_data,metadata_csum"]),
        ("64M", &["-t", "ext4", "-O", "quota,project"]),
        ("64M", &["-t", "ext4", "-O", "mmp"]),
        (
            "64M",
            &[
                "-t",
                "ext4",
                "-O",
                "ea_inode,large_dir,casefold,encrypt,verity",
            ],
        ),
        ("64M", &["-t", "ext4", "-I", "128", "-O", "^metadata_csum"]),
        ("64M", &["-t", "ext4", "-O", "^flex_bg,^resize_inode"]),
        ("64M", &["-t", "ext3", "-b", "2048"]),
        ("64M", &["-t", "ext2", "-O", "^sparse_super,^resize_inode"]),
        (
            "300M",
            &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
        ),
        ("300M", &["-t", "ext4", "-b", "1024", "-E", "resize=8g"]),
        ("300M", &["-t", "ext4", "-O", "sparse_super2,^resize_inode"]),
        (
            "2G",
            &["-t", "ext4", "-O", "64bit,uninit_bg,^metadata_csum"],
        ),
    ] {
        let device = common::mem_image(size, args);
        let report = check(&device, true);
        let faults: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "{args:?}: {faults:#?}");
    }
}

/// Images broken on purpose have faults exactly where e2fsck finds some.
#[test]
fn mutants_are_judged_as_by_e2fsck() {
    needs::tools!("mke2fs", "e2fsck");
    let bases = bases::without_pending_journals();
    let seeds = common::seeds(0, 80, 20_000);
    let judged = common::on_all_cores(1, seeds.clone(), |seed| Some((seed, mutant(&bases, seed)?)));
    let mut unlike: Vec<_> = judged.into_iter().flatten().collect();
    unlike.sort();
    for (seed, told) in &unlike {
        println!("seed {seed}: {told}");
    }
    assert!(
        unlike.is_empty(),
        "{} of {seeds:?} are judged otherwise",
        unlike.len()
    );
}

/// Damages a base; returns the difference of the verdicts.
fn mutant(bases: &[Base], seed: u64) -> Option<String> {
    let mut rng = Rng::new(seed);
    let (base, device, touched) = mutant::mutant(bases, &mut rng);
    let report = check(&device, false);
    let (clean, text) = judge(&device);
    if report.is_clean() == clean || verdict::is_explained(&report, clean, &text) {
        return None;
    }
    let what: Vec<_> = touched
        .iter()
        .map(|nr| format!("{nr} {:?}", base.map.blocks.get(nr)))
        .collect();
    let what: Vec<_> = what.into_iter().chain(changes(base, &device)).collect();
    let found: Vec<_> = report
        .findings
        .iter()
        .map(ToString::to_string)
        .take(5)
        .collect();
    Some(format!(
        "{}: touched {what:?}\n  ours: {found:#?}\n  e2fsck: {text}",
        base.kind.name
    ))
}

/// Returns the bytes that were changed: block, offset, before and after.
fn changes(base: &Base, device: &MemDevice) -> Vec<String> {
    let (was, is) = (base.device.to_bytes().unwrap(), device.to_bytes().unwrap());
    let pairs = was.iter().zip(&is).enumerate();
    let changed = pairs.filter(|(_, (was, is))| was != is).take(40);
    changed
        .map(|(at, (was, is))| {
            format!(
                "{}+{:#x}: {was:02x}>{is:02x}",
                at / base.block,
                at % base.block
            )
        })
        .collect()
}
