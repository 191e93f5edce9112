//! Quota files with wrong use, or damaged, are mended as by e2fsck.

use crate::it::common;
use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use extant_repair::{Mend, Plan};
use extant_testing::common::load_image;
use extant_testing::quota::{self, KINDS};
use verdict::judge;

fn image(args: &[&str], count: bool) -> MemDevice {
    quota::image(args, |i| (i * 70_001, i), count)
}

fn repaired(device: &MemDevice, decide: &mut dyn FnMut(&Mend) -> bool) -> Plan {
    let plan = extant_repair::plan(device, 1_700_000_000, decide).unwrap();
    plan.apply(device).unwrap();
    plan
}

#[test]
fn a_file_grows_inside_its_last_block() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::mke2fs(&path, "16M", &["-t", "ext4", "-O", "quota"]);
    let image = load_image(path);
    for (uid, blocks) in [(0x33_0000, None), (5, None), (0x33_0000, Some(0x8002))] {
        let device = quota::changed(&image, &format!("set_inode_field <2> uid {uid}"));
        let device = match blocks {
            // The only extent, of two blocks, becomes unwritten.
            Some(len) => quota::changed(&device, &format!("set_inode_field <3> block[4] {len}")),
            None => device,
        };
        assert!(!judge(&device).0);
        let plan = repaired(&device, &mut |_| true);
        let (clean, text) = judge(&device);
        assert!(clean, "{uid}, {blocks:?}: {text}\n{:#?}", plan.mends);
        assert!(plan.after.findings.is_empty(), "{:?}", plan.after.findings);
    }
}

/// Blocks far behind the content would give the new file a size that e2fsck takes for damage.
#[test]
fn a_file_that_is_made_again_has_the_size_of_its_content() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for kind in [&["-O", "quota,extent", "-b", "1024"][..], KINDS[4]] {
        let device = image(kind, true);
        // The logical block of the first extent.
        let device = quota::changed(&device, "set_inode_field <3> block[3] 0x100000");
        let plan = repaired(&device, &mut |_| true);
        let (clean, text) = judge(&device);
        assert!(clean, "{kind:?}: {text}\n{:#?}", plan.mends);
        assert!(plan.after.findings.is_empty(), "{:?}", plan.after.findings);
    }
}

#[test]
fn use_is_counted_anew_without_loss() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for kind in KINDS {
        let device = image(kind, false);
        let (clean, _) = judge(&device);
        assert!(!clean, "{kind:?}");
        let plan = repaired(&device, &mut |mend| mend.is_safe());
        let (clean, text) = judge(&device);
        assert!(clean, "{kind:?}: {text}\n{:#?}", plan.mends);
        assert!(plan.after.findings.is_empty(), "{:?}", plan.after.findings);
        assert!(repaired(&device, &mut |_| true).is_empty(), "{kind:?}");
    }
}

/// Returns the place of a number's record.
fn record(bytes: &[u8], id: u32) -> usize {
    let mut start = id.to_le_bytes().to_vec();
    start.extend([0; 20]); // no limits of inodes yet
    start.extend(1u64.to_le_bytes());
    bytes.windows(32).position(|w| w == start).unwrap()
}

#[test]
fn limits_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = image(KINDS[0], true);
    let at = record(&device.to_bytes().unwrap(), 5 * 70_001) as u64;
    device.write_at(at + 8, &1000u64.to_le_bytes()).unwrap(); // most inodes
    device.write_at(at + 24, &99u64.to_le_bytes()).unwrap(); // inodes, counted wrongly
    assert!(!judge(&device).0);
    repaired(&device, &mut |mend| mend.is_safe());
    let (clean, text) = judge(&device);
    assert!(clean, "{text}");
    let bytes = device.to_bytes().unwrap();
    let kept = bytes.windows(32).any(|w| {
        w[..4] == (5u32 * 70_001).to_le_bytes()
            && w[8..16] == 1000u64.to_le_bytes()
            && w[24..32] == 1u64.to_le_bytes()
    });
    assert!(kept);
}

#[test]
fn a_file_that_is_gone_is_made() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for request in [
        "clri <4>",
        "set_inode_field <3> mode 040755",
        "set_inode_field <3> size 0",
    ] {
        let device = quota::changed(&image(KINDS[0], true), request);
        assert!(!judge(&device).0, "{request}");
        let plan = repaired(&device, &mut |_| true);
        let (clean, text) = judge(&device);
        assert!(clean, "{request}: {text}\n{:#?}", plan.mends);
    }
}

#[test]
fn hostile_trees_are_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = image(KINDS[0], true);
    let first = quota::first_block(&device);
    let mut broken = 0;
    for seed in 0..40 {
        let device = quota::damaged(&device, first, seed);
        broken += u32::from(!judge(&device).0);
        let plan = repaired(&device, &mut |_| true);
        let (clean, text) = judge(&device);
        assert!(clean, "seed {seed}: {text}\n{:#?}", plan.mends);
    }
    assert!(broken > 5, "{broken}");
}
