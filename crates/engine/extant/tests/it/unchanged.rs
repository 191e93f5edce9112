//! Opening a volume for writing without a change leaves every byte as it was. Failed operations change nothing.

use crate::common;
use extant::{Error, VolumeOptions};

#[test]
fn what_nobody_changes_keeps_every_byte() {
    needs::tools!("mke2fs");
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "orphan_file"],
        &["-t", "ext3"],
        &["-t", "ext2"],
    ] {
        let device = common::mem_image("32M", args);
        let before = device.to_bytes().unwrap();
        let volume = VolumeOptions::new().open_device(device.clone()).unwrap();
        assert!(matches!(
            volume.remove_file("/missing"),
            Err(Error::NotFound)
        ));
        assert!(matches!(
            volume.create_dir("/lost+found"),
            Err(Error::Exists)
        ));
        assert!(matches!(volume.rename("/a", "/b"), Err(Error::NotFound)));
        assert_eq!(volume.read_dir("/").unwrap().count(), 1);
        volume.sync().unwrap();
        volume.close().unwrap();
        assert!(device.to_bytes().unwrap() == before, "{args:?}");

        // The first change is another matter.
        let volume = VolumeOptions::new().open_device(device.clone()).unwrap();
        volume.create_new_file("/new").unwrap();
        volume.close().unwrap();
        assert!(device.to_bytes().unwrap() != before);
        common::assert_clean(&device, &format!("{args:?}"));
    }
}
