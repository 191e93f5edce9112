//! Volumes over an image that is only read.

use crate::common;
use common::*;
use extant::scratch::{self, Changes};
use extant::{Error, VolumeOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn image(dir: &Path) -> Option<PathBuf> {
    if !needs::have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let path = dir.join("image");
    mke2fs(&path, "32M", &["-t", "ext4", "-J", "size=4"]);
    let v = VolumeOptions::new().open(&path).unwrap();
    for n in 0..20usize {
        v.write(format!("/f{n}"), vec![n as u8; n * 3000]).unwrap();
    }
    v.close().unwrap();
    Some(path)
}

#[track_caller]
fn refused<T>(result: extant::Result<T>, kind: ErrorKind) {
    match result {
        Err(Error::Open { source, .. }) => assert_eq!(source.kind(), kind, "{source}"),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let Some(image) = image(dir.path()) else {
        return;
    };
    let before = std::fs::read(&image).unwrap();
    let files = || std::fs::read_dir(dir.path()).unwrap().count();
    let names = files();
    let options = VolumeOptions::new();
    let v = scratch::open(&image, Changes::ThrownAway, &options).unwrap();
    let other = scratch::open(&image, Changes::ThrownAway, &options).unwrap();
    for n in 0..200 {
        v.write(format!("/new{n}"), [7; 20_000]).unwrap();
    }
    v.remove_file("/f3").unwrap();
    v.sync().unwrap();
    v.drop_caches();
    assert_eq!(v.read("/new7").unwrap(), [7; 20_000]);
    assert_eq!(v.read("/f4").unwrap(), [4; 12_000]);
    // Each volume has its own changes. Other processes may read the image, but not write it.
    assert_eq!(other.read("/f3").unwrap(), [3; 9_000]);
    refused(VolumeOptions::new().open(&image), ErrorKind::ResourceBusy);
    VolumeOptions::new().read_only(true).open(&image).unwrap();
    assert_eq!(files(), names, "a temporary file with a name");
    v.close().unwrap();
    other.close().unwrap();
    assert!(std::fs::read(&image).unwrap() == before);
    let writer = VolumeOptions::new().open(&image).unwrap();
    let refusal = scratch::open(&image, Changes::ThrownAway, &options);
    refused(refusal, ErrorKind::ResourceBusy);
    writer.close().unwrap();
}

#[test]
fn kept_and_merged() {
    let dir = tempfile::tempdir().unwrap();
    let Some(image) = image(dir.path()) else {
        return;
    };
    let overlay = dir.path().join("changes");
    let before = std::fs::read(&image).unwrap();
    let options = VolumeOptions::new();
    let open = || scratch::open(&image, Changes::KeptIn(&overlay), &options);
    let v = open().unwrap();
    v.write("/kept", [5; 100_000]).unwrap();
    v.remove_file("/f3").unwrap();
    refused(open(), ErrorKind::ResourceBusy);
    v.close().unwrap();
    // Opened without a close: the synced data exist.
    let v = open().unwrap();
    assert_eq!(v.read("/kept").unwrap(), [5; 100_000]);
    v.write("/synced", b"durable").unwrap();
    v.sync().unwrap();
    v.write("/lost", b"lost").unwrap();
    v.invalidate();
    drop(v);
    let v = open().unwrap();
    assert!(v.recovery().transactions > 0);
    assert_eq!(v.read("/synced").unwrap(), b"durable");
    assert!(matches!(v.metadata("/lost"), Err(Error::NotFound)));
    refused(scratch::apply(&image, &overlay), ErrorKind::ResourceBusy);
    v.close().unwrap();
    assert!(std::fs::read(&image).unwrap() == before);
    assert!(scratch::apply(&image, &overlay).unwrap() > 100_000);
    assert_clean_file(&image, "merged");
    let v = VolumeOptions::new().read_only(true).open(&image).unwrap();
    assert_eq!(v.read("/kept").unwrap(), [5; 100_000]);
    assert!(matches!(v.metadata("/f3"), Err(Error::NotFound)));
    drop(v);
    assert_eq!(scratch::apply(&image, &overlay).unwrap(), 0);
    refused(open(), ErrorKind::InvalidData);
}

#[test]
fn an_overlay_belongs_to_its_image() {
    let dir = tempfile::tempdir().unwrap();
    let Some(image) = image(dir.path()) else {
        return;
    };
    let overlay = dir.path().join("changes");
    let open = || scratch::open(&image, Changes::KeptIn(&overlay), &VolumeOptions::new());
    // An empty file counts as missing. Any other file that is not an overlay is left alone.
    std::fs::write(&overlay, b"").unwrap();
    open().unwrap().close().unwrap();
    std::fs::write(&overlay, [1; 10_000]).unwrap();
    refused(open(), ErrorKind::InvalidData);
    assert_eq!(std::fs::read(&overlay).unwrap(), [1; 10_000]);
    std::fs::remove_file(&overlay).unwrap();
    let v = open().unwrap();
    v.write("/a", b"a").unwrap();
    v.close().unwrap();
    let v = VolumeOptions::new().open(&image).unwrap();
    v.write("/b", b"b").unwrap();
    v.close().unwrap();
    refused(open(), ErrorKind::InvalidData);
    refused(scratch::apply(&image, &overlay), ErrorKind::InvalidData);
    assert_clean_file(&image, "as it was");
}
