//! A node of an extent tree, and block maps.
#![no_main]

use ext4_format::extent::{Node, NodeRules};
use ext4_format::indirect;
use libfuzzer_sys::fuzz_target;

const BLOCKS: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let rules = NodeRules::root(BLOCKS);
    match Node::parse(data, &rules) {
        Ok(Node::Leaf(leaf)) => {
            let mut end = 0;
            for extent in leaf.iter() {
                assert!(extent.len > 0 && u64::from(extent.logical) >= end, "in order");
                assert!(extent.physical.0 + u64::from(extent.len) <= BLOCKS);
                end = u64::from(extent.logical) + u64::from(extent.len);
            }
            let _ = leaf.find(1000);
        }
        Ok(Node::Index(index)) => {
            for i in 0..index.iter().len() {
                let _ = index.child_rules(i, &rules);
            }
            let _ = index.search(1000);
        }
        Err(_) => {}
    }
    for entry in indirect::mapped(data, BLOCKS) {
        assert!(entry.is_err() || entry.is_ok_and(|(_, block)| block.0 < BLOCKS));
    }
});
