//! An inode's record.
#![no_main]

use ext4_format::{InodeNr, inode};
use extant_fuzz::geometry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let geometry = geometry();
    let mut raw = vec![0; geometry.inode_size.into()];
    for (to, from) in raw.iter_mut().zip(data) {
        *to = *from;
    }
    let Ok(core) = inode::decode_core(&raw, geometry, InodeNr(12)) else { return };
    let _ = (inode::sectors(&raw, geometry), inode::file_acl(&raw, geometry));
    if let Some(area) = inode::xattr_area(&raw, geometry) {
        assert!(area.end <= raw.len());
    }
    inode::encode_core(&core, &mut raw, geometry);
    let again = inode::decode_core(&raw, geometry, InodeNr(12)).expect("what was written is read");
    assert_eq!((again.mode, again.size), (core.mode, core.size));
    // A directory with too many links to count has the stored count 1.
    assert!(again.links == core.links || again.links == 1);
});
