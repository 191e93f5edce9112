//! Extended attributes in an inode and in a block.
#![no_main]

use ext4_format::xattr::{XattrSet, has_inode_area};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (area, block) = data.split_at(data.len().min(96));
    let _ = has_inode_area(area);
    for (area, block) in [(Some(area), None), (None, Some(block)), (Some(area), Some(block))] {
        if let Ok(set) = XattrSet::parse(area, block) {
            for (name, value) in set.iter() {
                assert!(name.len() <= 300 && value.len() <= data.len());
            }
            let _ = set.get(b"user.name");
        }
    }
});
