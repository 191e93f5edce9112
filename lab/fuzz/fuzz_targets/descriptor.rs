//! Group descriptors: accepted places are inside the volume, and a descriptor is written as it was read.
#![no_main]

use ext4_format::GroupNr;
use ext4_format::group_desc::GroupDesc;
use extant_fuzz::geometry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let geometry = geometry();
    let Ok(desc) = GroupDesc::decode(data, geometry, GroupNr(0)) else { return };
    let end = desc.inode_table.0 + u64::from(geometry.itable_blocks());
    assert!(end <= geometry.blocks_count);
    let mut bytes = data.to_vec();
    desc.encode(&mut bytes, geometry, GroupNr(0)).expect("it was accepted");
    assert_eq!(GroupDesc::decode(&bytes, geometry, GroupNr(0)).expect("again"), desc);
});
