//! A file that cannot be written back.

use crate::medium::Medium;
use crate::promise::{made, open};
use blockdev::BlockDevice;
use extant::{Error, Volume, VolumeOptions};
use std::sync::Arc;

/// A volume with one file that cannot be written back, because the bitmap of the only group is damaged, and fifty that
/// are removed.
fn with_one_bad_file() -> (Arc<Medium>, Volume) {
    let (medium, volume) = made(16 << 20, 4096);
    for n in 0..50 {
        volume.create_new_file(format!("/{n}")).unwrap();
    }
    let bitmap = volume.groups().next().unwrap().unwrap().block_bitmap;
    let place = bitmap.offset(volume.geometry().block_size);
    volume.close().unwrap();
    let device = medium.after_cut();
    let mut bytes = [0; 64];
    device.read_at(place, &mut bytes).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    device.write_at(place, &bytes).unwrap();
    let medium = Medium::new(device);
    let volume = VolumeOptions::new()
        .background(false)
        .errors(extant::ErrorPolicy::Continue)
        .open_device(Arc::clone(&medium) as Arc<dyn BlockDevice>)
        .unwrap();
    volume.write("/bad", [1; 10_000]).unwrap();
    for n in 0..50 {
        volume.remove_file(format!("/{n}")).unwrap();
    }
    (medium, volume)
}

/// Returns how many of the fifty files exist after a cut.
fn left_of_fifty(medium: &Medium) -> usize {
    let volume = open(medium.after_cut());
    (0..50)
        .filter(|n| volume.metadata(format!("/{n}")).is_ok())
        .count()
}

/// A file that cannot be written back does not keep other changes from becoming durable.
#[test]
fn one_file_that_cannot_be_written_back_stops_no_other() {
    let (medium, volume) = with_one_bad_file();
    assert_eq!(left_of_fifty(&medium), 50);
    let synced = volume.sync();
    assert!(matches!(synced, Err(Error::Format(_))), "{synced:?}");
    assert_eq!(left_of_fifty(&medium), 0, "sync");

    let (medium, volume) = with_one_bad_file();
    let frozen = volume.freeze().map(drop);
    assert!(matches!(frozen, Err(Error::Format(_))), "{frozen:?}");
    assert_eq!(left_of_fifty(&medium), 0, "freeze");

    let (medium, volume) = with_one_bad_file();
    let closed = volume.close();
    assert!(matches!(closed, Err(Error::Format(_))), "{closed:?}");
    assert_eq!(left_of_fifty(&medium), 0, "close");
}

/// A failed write-back by sync is returned by the next fsync of the file, and by no call on another file.
#[test]
fn a_failed_write_back_is_told_to_the_file_it_concerns() {
    let (_, volume) = with_one_bad_file();
    let good = volume.create_new_file("/good").unwrap();
    good.sync_all().unwrap();
    volume.sync().unwrap_err();
    good.sync_all().unwrap();
    let bad = volume.open_file("/bad").unwrap();
    bad.sync_all().unwrap_err();
}
