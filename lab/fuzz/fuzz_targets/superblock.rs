//! A superblock, and the shape that it implies.
#![no_main]

use ext4_format::geometry::Geometry;
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, GroupNr, InodeNr};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut bytes = [0; 1024];
    for (to, from) in bytes.iter_mut().zip(data) {
        *to = *from;
    }
    bytes[0x38..0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
    let Ok(sb) = RawSuperblock::parse(&bytes) else { return };
    let Ok(geometry) = Geometry::new(&sb) else { return };
    let last = GroupNr(geometry.groups - 1);
    for group in [GroupNr(0), last] {
        let _ = (geometry.desc_location(group), geometry.group_base_meta_blocks(group));
        assert!(geometry.blocks_in_group(group) > 0);
    }
    let _ = geometry.group_of_block(BlockNr(geometry.blocks_count - 1)).expect("inside");
    let _ = geometry.group_of_inode(InodeNr(geometry.inodes_count)).expect("inside");
    let _ = geometry.is_valid_data_range(BlockNr(5), 1000);
});
