//! A leaf of a directory: read, and changed.
#![no_main]

use ext4_format::{FileType, InodeNr, dir_entry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut block = vec![0; 1024];
    for (to, from) in block.iter_mut().zip(data) {
        *to = *from;
    }
    for has_csum in [false, true] {
        let _ = dir_entry::space(&block, has_csum);
    }
    let whole = dir_entry::entries(&block).all(|e| e.is_ok());
    let _ = dir_entry::find(&block, b"name");
    let done = dir_entry::insert(&mut block, false, b"name", InodeNr(12), Some(FileType::Regular));
    if whole && matches!(done, Ok(true)) {
        assert!(dir_entry::entries(&block).all(|e| e.is_ok()), "a name broke the block");
        assert!(dir_entry::remove(&mut block, b"name").expect("whole").is_some());
    }
});
