//! Features that the sizes of files need, and the revision that features need.

use crate::changes::{change_and_judge, of_features};
use blockdev::MemDevice;
use extant_testing::folded::debugfs;
use extant_testing::image::fragmented;
use extant_tune::Error;

/// Linux limits files to 2^32 sectors without `huge_file`, and does not open larger ones, even if they are holes.
#[test]
fn huge_file_stays_if_a_file_of_holes_is_larger_than_two_tebibytes() {
    needs::tools!("mke2fs", "debugfs");
    let cleared = |size: u64, args: &[&str]| {
        let bytes = fragmented("8M", args).unwrap();
        let dir = needs::memory_dir();
        let path = dir.path().join("disk.img");
        std::fs::write(&path, bytes).unwrap();
        let request = format!("sif small03 size {size}\n");
        debugfs(&path, request.as_bytes());
        let device = MemDevice::from_bytes(&std::fs::read(&path).unwrap());
        extant_tune::plan(&device, &of_features("^huge_file")).map(|plan| plan.after)
    };
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-O", "huge_file", "-b", "4096"],
    ] {
        let size = 1 << 40;
        assert!(cleared(size, args).is_ok(), "{args:?}");
        let refused = cleared(5 << 39, args);
        assert!(
            matches!(&refused, Err(Error::Refused(text)) if text.contains("uses huge_file")),
            "{args:?}: {refused:?}"
        );
    }
}

/// The inode of reserved descriptors is larger than 2 GiB where blocks have 4 KiB, and e2fsck asks for the feature.
#[test]
fn large_file_goes_together_with_the_reserved_descriptors() {
    needs::tools!("mke2fs");
    let bytes = fragmented("16M", &["-t", "ext4", "-b", "4096"]).unwrap();
    let device = MemDevice::from_bytes(&bytes);
    let cleared =
        |features: &str| extant_tune::plan(&device, &of_features(features)).map(|plan| plan.after);
    let refused = cleared("^large_file");
    assert!(
        matches!(&refused, Err(Error::Refused(text)) if text.contains("inode 7 uses large_file")),
        "{refused:?}"
    );
    let after = cleared("^large_file,^resize_inode").unwrap();
    assert!(!after.has_large_file() && !after.has_resize_inode());
}

#[test]
fn a_feature_makes_the_revision_dynamic() {
    needs::tools!("mke2fs", "e2fsck");
    let device = MemDevice::from_bytes(&fragmented("8M", &["-r", "0"]).unwrap());
    for features in ["dir_index,has_journal", "extent,metadata_csum"] {
        change_and_judge(&device, &of_features(features));
    }
}
