//! The root and the nodes of a directory's index.
#![no_main]

use ext4_format::htree::{parse_node, parse_root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for has_csum in [false, true] {
        if let Ok(index) = parse_node(data, has_csum, 100) {
            for entry in index.iter() {
                assert!(entry.block < 100);
            }
            for hash in [0, 1 << 20, u32::MAX] {
                let i = index.search(hash);
                assert!(index.get(i).is_some());
                let _ = index.continues(i, hash);
            }
        }
        let _ = parse_root(data, has_csum, false, 100);
    }
});
