//! A journal: its superblock and its replay. The first bytes are the superblock, the others fill blocks of the log.
#![no_main]

use ext4_format::FormatError;
use ext4_format::jbd2::{MAGIC, Superblock, Tid, plan};
use libfuzzer_sys::fuzz_target;

const SIZE: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let _ = Superblock::parse(data);
    let Some((&[features, kinds], log)) = data.split_first_chunk() else { return };
    let features = Superblock::default_features(features & 1 != 0, features & 2 != 0);
    let mut sb = Superblock::new(SIZE as u32, 1024, features, [0; 16]);
    (sb.start, sb.sequence) = (1, Tid(7));
    let blocks = 1 << 16;
    let plan = plan(&sb, blocks, |at| {
        let mut block = vec![0; SIZE];
        let from = (at as usize - 1) * 64;
        for (to, byte) in block[12..].iter_mut().zip(log.iter().skip(from).take(64)) {
            *to = *byte;
        }
        // A part that the fuzzer would hardly find: the head of a block of this log.
        if kinds >> (at % 8) & 1 != 0 {
            let kind = 1 + (at + u32::from(kinds)) % 5;
            block[..4].copy_from_slice(&MAGIC.to_be_bytes());
            block[4..8].copy_from_slice(&kind.to_be_bytes());
            block[8..12].copy_from_slice(&(7 + at / 4).to_be_bytes());
        }
        Ok::<_, FormatError>(block)
    });
    if let Ok(plan) = plan {
        assert!(plan.replay.iter().all(|r| r.home.0 < blocks && r.log_block < 1024));
    }
});
