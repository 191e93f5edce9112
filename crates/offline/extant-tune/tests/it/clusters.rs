//! Volumes whose bitmaps count clusters (`bigalloc`): blocks are taken and freed by whole clusters.

use crate::changes::{change_and_judge, of_features};
use crate::cuts::files;
use blockdev::MemDevice;
use extant_testing::image::fragmented;
use extant_testing::verdict;

/// Size of the images: small files take whole clusters.
const SIZE: &str = "41M";

/// Arguments of mke2fs. The last groups are partial.
const BASES: [&[&str]; 2] = [
    &[
        "-t",
        "ext4",
        "-O",
        "bigalloc,^resize_inode,^sparse_super",
        "-C",
        "16384",
        "-g",
        "1024",
    ],
    &[
        "-t",
        "ext4",
        "-O",
        "bigalloc,^has_journal,^metadata_csum",
        "-b",
        "4096",
        "-C",
        "65536",
        "-g",
        "256",
        "-N",
        "512",
    ],
];

/// Changes, one after the other.
const CHANGES: [&str; 15] = [
    "^resize_inode",
    "^has_journal",
    "has_journal,orphan_file",
    "quota",
    "mmp",
    "^metadata_csum",
    "metadata_csum,metadata_csum_seed",
    "^dir_index",
    "dir_index",
    "^orphan_file",
    "^mmp",
    "sparse_super",
    "project",
    "^quota",
    "^has_journal",
];

#[test]
fn features_change_on_volumes_with_clusters() {
    if !needs::have(&["e2fsck"]) {
        return;
    }
    for args in BASES {
        let Some(before) = fragmented(SIZE, args) else {
            return;
        };
        let wanted = files(&before);
        assert!(wanted.iter().all(|bytes| !bytes.is_empty()), "{args:?}");
        let device = MemDevice::from_bytes(&before);
        let (clean, text) = verdict::judge(&device);
        assert!(clean, "{args:?}: {text}");
        let mut made = 0;
        for features in CHANGES {
            made += usize::from(change_and_judge(&device, &of_features(features)));
        }
        assert!(files(&device.to_bytes().unwrap()) == wanted, "{args:?}");
        assert!(made >= CHANGES.len() - 4, "{made} changes");
    }
}

#[test]
fn what_moves_clusters_is_refused_by_name() {
    let Some(before) = fragmented(SIZE, BASES[0]) else {
        return;
    };
    let device = MemDevice::from_bytes(&before);
    let moved = extant_tune::defragment(&device, None, 1_700_000_000, &mut |_| Ok(()));
    let error = moved.unwrap_err().to_string();
    assert!(error.contains("bigalloc"), "{error}");
    assert!(device.to_bytes().unwrap() == before, "nothing is written");
}
