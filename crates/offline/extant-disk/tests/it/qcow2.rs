//! Damaged qcow2 images: no panic escapes, and memory use is bounded.

use crate::it::random;
use extant_disk::blockdev::Access;
use std::process::Command;

#[test]
fn damaged_images_are_errors_or_data() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.qcow2");
    let raw = dir.path().join("raw");
    std::fs::write(&raw, vec![3; 300_000]).unwrap();
    let made = Command::new("qemu-img")
        .args(["convert", "-O", "qcow2"])
        .args([&raw, &path])
        .status();
    assert!(made.unwrap().success());
    let good = std::fs::read(&path).unwrap();
    let mut next = random::numbers();
    let mut opened = 0;
    for _ in 0..400 {
        let mut bytes = good.clone();
        for _ in 0..=next(4) {
            // The header, or any table: each starts at a cluster.
            let at = match next(2) {
                0 => 4 + next(108),
                _ => next(good.len() >> 16) * (1 << 16) + next(64),
            };
            if let Some(byte) = bytes.get_mut(at) {
                *byte = next(256) as u8;
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        let Ok(disk) = extant_disk::open(&path, Access::ReadOnly) else {
            continue;
        };
        opened += 1;
        let mut buf = vec![0; 4096];
        for n in 0..64 {
            let _ = disk.read_at((disk.len() / 64).saturating_mul(n), &mut buf);
        }
    }
    assert!(opened > 20, "{opened}");
}
