//! Directories that fold case are rebuilt as by e2fsck -fD.

use crate::changes::{changed, of_features};
use crate::folded;
use blockdev::MemDevice;
use extant_check::CheckOptions;
use extant_tune::TuneOptions;
use folded::{LENIENT, STRICT};
use std::process::Command;

/// Returns the names of the directory `d`, and e2fsck's verdict on the image.
fn judged(device: &MemDevice) -> (Vec<String>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, device.to_bytes().unwrap()).unwrap();
    let out = Command::new("e2fsck").arg("-fn").arg(&path).output();
    let text = folded::debugfs(&path, b"ls -p d\n");
    let names = text.lines().filter_map(|line| line.split('/').nth(5));
    // Room for a checksum has no name.
    let names = names.filter(|name| !name.is_empty());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    (names, out.unwrap().status.success())
}

/// Returns debugfs' output for the directory.
fn shown(device: &MemDevice) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, device.to_bytes().unwrap()).unwrap();
    folded::debugfs(&path, b"stat d\n")
}

#[test]
fn folded_directories_get_an_index_and_keep_their_names() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..800).map(folded::name).collect();
    for (encoding, indexed, features, seed) in [
        (LENIENT, true, "", None),
        (STRICT, false, "^metadata_csum", None),
        (LENIENT, false, "^metadata_csum", Some([9; 16])),
        (STRICT, true, "", Some([5; 16])),
    ] {
        let device = folded::image(&[], encoding, &names, indexed);
        let before = judged(&device);
        assert!(before.1 && before.0.len() == 802);
        let options = TuneOptions {
            compact_directories: features.is_empty() && seed.is_none(),
            hash_seed: seed,
            ..of_features(features)
        };
        changed(&device, &options).unwrap();
        let report = extant_check::check(&device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert!(judged(&device) == before);
        let shown = shown(&device);
        // The directory folds case, has an index, and is mapped by extents.
        assert!(shown.contains("Flags: 0x40081000"), "{shown}");
    }
}

#[test]
fn names_that_are_the_same_when_folded_are_refused() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = ["STRASSE", "Straße"].map(|n| n.as_bytes().to_vec());
    let device = folded::image(&[], LENIENT, &names, false);
    let before = device.to_bytes().unwrap();
    let options = TuneOptions {
        compact_directories: true,
        ..of_features("")
    };
    assert!(changed(&device, &options).is_err());
    assert!(device.to_bytes().unwrap() == before);
}
