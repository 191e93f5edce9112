//! A journal of 4 GiB [I5]: contexts that no smaller journal takes, and, in long runs, a log that wraps.

use crate::common::{assert_clean, open, torture};
use blockdev::MemDevice;
use extant::mkfs;
use std::sync::Arc;

const FILES: u32 = 32_000;
const JOURNAL: u64 = 4 << 30;

/// One inode fills a block of the table, so that a change of each file logs as many blocks.
fn image() -> Arc<MemDevice> {
    let size = 2 * JOURNAL + (1 << 30);
    let device = MemDevice::new(size);
    let options = mkfs::MkfsOptions {
        size: Some(size),
        zeroed_device: true,
        block_size: Some(4096),
        inode_size: 4096,
        inodes: Some(ext4_format::layout::Inodes::Count(FILES / 4 * 5)),
        journal_size: Some(JOURNAL),
        ..Default::default()
    };
    mkfs::format(&device, &options).unwrap();
    Arc::new(device)
}

#[test]
fn large_contexts_go_to_a_large_journal() {
    needs::tools!("e2fsck");
    let device = image();
    let volume = open(&device);
    for file in 0..FILES {
        volume.create_new_file(format!("/{file}")).unwrap();
    }
    volume.sync().unwrap();
    let start = volume.statistics();
    let wanted = if torture() { JOURNAL + JOURNAL / 16 } else { 1 };
    let mut mode = 0;
    let logged = loop {
        mode = mode % 0o777 + 1;
        for file in 0..FILES {
            volume.set_permissions(format!("/{file}"), mode).unwrap();
        }
        volume.sync().unwrap();
        let now = volume.statistics();
        let (logged, pushes) = (now.log_bytes - start.log_bytes, now.pushes - start.pushes);
        assert!(
            logged / pushes.max(1) > 64 << 20,
            "{logged} bytes in {pushes} pushes"
        );
        if logged >= wanted {
            break logged;
        }
    };
    println!("{logged} bytes of log");
    // A cut: the log has all, and the tables may have nothing.
    let cut = Arc::new(device.snapshot());
    drop(volume);
    let volume = open(&cut);
    for file in (0..FILES).step_by(97) {
        let found = volume.metadata(format!("/{file}")).unwrap().mode();
        assert_eq!(found & 0o777, mode, "file {file}");
    }
    volume.close().unwrap();
    assert_clean(&cut, "after recovery from a journal of 4 GiB");
}
