//! The damaged images among the tests of e2fsprogs. EXTANT_IMAGES names a directory of them: `make torture-features` fetches them.

use super::{Outcome, judge};
use crate::it::common::{load_image, on_all_cores};
use std::path::PathBuf;

/// Images that e2fsck does not accept after a repair. In this one a link inside its inode has a block of attributes, which Linux
/// counts and e2fsck does not.
const LEFT: [&str; 1] = ["f_inlinedata_repair"];

/// Images whose files differ from those that e2fsck keeps, by name and content: the other one of two equal names is moved, the name of
/// an attribute's value is removed as by e2fsck since version 1.47.1, and two damaged files keep more blocks or their size.
const FEWER: [&str; 4] = [
    "f_dup_de_crypt",
    "f_ea_inode_dir_ref",
    "f_itable_collision",
    "f_messy_inode",
];

#[test]
fn damaged_images_of_e2fsprogs_are_mended() {
    needs::tools!("e2fsck", "debugfs");
    let Some(dir) = std::env::var_os("EXTANT_IMAGES") else {
        needs::told("EXTANT_IMAGES names no directory of images");
        return;
    };
    let images = std::fs::read_dir(dir).unwrap();
    let mut images: Vec<PathBuf> = images.map(|image| image.unwrap().path()).collect();
    images.sort();
    assert!(images.len() > 200, "{} images", images.len());
    let outcomes = on_all_cores(super::THREADS, 0..images.len() as u64, |n| {
        let path = &images[n as usize];
        let name: &'static str = path.file_name()?.to_str()?.to_owned().leak();
        judge((name, None), &load_image(path), n, &"its damage")
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    println!(
        "{} of {} images are mended by e2fsck",
        outcomes.len(),
        images.len()
    );
    for outcome in &outcomes {
        let allowed = LEFT.contains(&outcome.base);
        assert!(outcome.left.is_none() || allowed, "{outcome:#?}");
        let allowed = FEWER.contains(&outcome.base);
        assert!(outcome.fewer.is_empty() || allowed, "{outcome:#?}");
    }
}
