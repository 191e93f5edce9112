//! Directories with two names, loops of directories, and files without a name.

use crate::it::debugfs::{Image, WITHOUT_CHECKSUMS};
use extant_repair::Mend;
use std::path::Path;

#[test]
fn a_directory_with_two_names_stays_where_its_parent_is() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["^inline_data", "inline_data"] {
        for parent in ["first", "second"] {
            let image = Image::new("16M", 1024, &["-O", features]);
            let inside = format!("{parent}/moved");
            image.change(&["mkdir first", "mkdir second", &format!("mkdir {inside}")]);
            image.write(&format!("{inside}/file"), b"content");
            image.assert_clean(features);
            let before = image.files();
            image.change(&[
                &format!("ln {inside} first/other"),
                &format!("ln {inside} second/other"),
                &format!("unlink {parent}/other"),
            ]);
            image.mend("a second name");
            let path = Path::new(&inside).join("file");
            assert_eq!(
                image.files().get(&path),
                before.get(&path),
                "{features}, {parent}"
            );
        }
    }
}

/// A later round of the repair meets the name in the loop before the one in lost+found.
#[test]
fn a_directory_below_itself_is_connected_to_a_new_lost_and_found() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &[]);
    image.change(&["mkdir top", "rmdir lost+found"]);
    // The directory takes the number of lost+found.
    image.write("filler", b"filler");
    image.change(&["mkdir top/below"]);
    image.write("top/below/file", b"content");
    image.change(&["ln top top/below/back", "unlink top"]);
    image.mend("a loop");
    let files = image.files();
    assert!(
        files.values().any(|content| content == b"content"),
        "{:?}",
        files.keys()
    );
}

#[test]
fn a_full_volume_without_lost_and_found_is_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let features = format!("^has_journal,{WITHOUT_CHECKSUMS}");
    let image = Image::new("8M", 1024, &["-O", &features]);
    image.change(&["rmdir lost+found"]);
    image.write("file", b"content");
    let free = || {
        let stats = image.ask("stats");
        let (_, count) = stats.split_once("Free blocks:").unwrap();
        count.split_whitespace().next().unwrap().parse().unwrap()
    };
    let most: usize = free();
    image.write("large", &vec![b'l'; (most - 20) * 1024]);
    for n in 0..free() {
        image.write(&format!("{n}"), b"small");
    }
    assert_eq!(free(), 0);
    image.change(&["unlink file"]);
    let plan = image.mend("a file without a name");
    let made = |mend: &Mend| mend.text.contains("is made");
    assert!(!plan.mends.iter().any(made), "{:#?}", plan.mends);
    let files = image.files();
    assert!(files.values().any(|content| content == b"content"));
}
