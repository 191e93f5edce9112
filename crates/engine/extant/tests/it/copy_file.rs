//! Copies of single files inside a volume.

use crate::common::*;
use extant::{Error, Fallocate};

#[test]
fn a_copy_has_the_content_the_holes_and_the_permissions() {
    needs::tools!("mke2fs");
    let volume = open(&mem_image("16M", &["-t", "ext4", "-b", "1024"]));
    let from = volume.create_new_file("/from").unwrap();
    from.write_all_at(&[1; 5000], 0).unwrap();
    from.write_all_at(&[2; 3000], 4 << 20).unwrap();
    volume.set_permissions("/from", 0o4751).unwrap();
    // The old content of the destination is replaced.
    volume.write("/to", vec![3; 6 << 20]).unwrap();
    assert_eq!(volume.copy("/from", "/to").unwrap(), (4 << 20) + 3000);
    assert!(volume.read("/to").unwrap() == volume.read("/from").unwrap());
    let to = volume.metadata("/to").unwrap();
    assert_eq!(to.mode() & 0o7777, 0o4751);
    volume.sync().unwrap();
    let held = |path: &str| volume.metadata(path).unwrap().blocks();
    assert_eq!(held("/to"), held("/from"), "holes stay holes");
    // An empty file, and one of blocks that were set aside.
    volume.write("/empty", b"").unwrap();
    assert_eq!(volume.copy("/empty", "/to").unwrap(), 0);
    assert_eq!(volume.metadata("/to").unwrap().len(), 0);
    from.fallocate(Fallocate::Allocate { keep_size: false }, 0, 8 << 20)
        .unwrap();
    assert_eq!(volume.copy("/from", "/new").unwrap(), 8 << 20);
    assert!(volume.read("/new").unwrap() == volume.read("/from").unwrap());
}

#[test]
fn what_cannot_be_copied_is_left_as_it_is() {
    needs::tools!("mke2fs");
    let volume = open(&mem_image("8M", &["-t", "ext4", "-b", "1024"]));
    volume.write("/file", b"content").unwrap();
    volume.hard_link("/file", "/link").unwrap();
    volume.symlink("file", "/symlink").unwrap();
    for to in ["/file", "/link", "/symlink"] {
        let refused = volume.copy("/file", to).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{to}: {refused}");
    }
    assert!(volume.copy("/lost+found", "/new").is_err());
    assert!(matches!(volume.copy("/none", "/new"), Err(Error::NotFound)));
    assert!(!volume.exists("/new").unwrap());
    assert!(matches!(
        volume.copy("/file", "/lost+found"),
        Err(Error::IsDirectory)
    ));
    assert_eq!(volume.read("/file").unwrap(), b"content");
}
