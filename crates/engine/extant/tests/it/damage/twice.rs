//! Inodes with more names than links: an inode that is removed by one name, and still open, is found by the other.

use crate::common::*;
use crate::damage::image::*;
use blockdev::MemDevice;
use extant::unstable::Node;
use extant::{Credentials, Error, RenameMode, Volume};
use std::process::Command;
use std::sync::Arc;

/// An image in which `/dir/keep` is `/file`, too, and the empty directory `/sub` is `/below`, too, with links for one
/// name each.
fn twice() -> Volume {
    let device = base("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let volume = open(&device);
    volume.create_dir("/sub").unwrap();
    volume.close().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    write_image(&device, file.path());
    for link in ["ln /dir/keep /file", "ln /sub /below"] {
        let status = Command::new("debugfs")
            .args(["-w", "-R", link])
            .arg(file.path())
            .output()
            .unwrap()
            .status;
        assert!(status.success(), "{link}");
    }
    let bytes = std::fs::read(file.path()).unwrap();
    open(&Arc::new(MemDevice::from_bytes(&bytes)))
}

fn is_damage(error: &Error) -> bool {
    error.to_string().contains("links")
}

fn rename(root: &Node, from: &str, to: &str, mode: RenameMode) -> Error {
    let who = Credentials::root();
    let done = root.rename(&who, from.as_bytes(), root, to.as_bytes(), mode);
    done.expect_err("what is gone has no other name")
}

#[test]
fn a_removed_file_with_another_name_is_not_renamed() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let volume = twice();
    let open = volume.open_file("/dir/keep").unwrap();
    volume.remove_file("/dir/keep").unwrap();
    let root = Node::root(&volume).unwrap();
    for mode in [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
    ] {
        let e = rename(&root, "file", "dir", mode);
        assert!(is_damage(&e) || matches!(e, Error::Exists), "{mode:?}: {e}");
        let e = rename(&root, "dir", "file", mode);
        assert!(is_damage(&e) || matches!(e, Error::Exists), "{mode:?}: {e}");
    }
    let e = rename(&root, "file", "other", RenameMode::Replace);
    assert!(is_damage(&e), "{e}");
    drop(open);
}

#[test]
fn a_removed_directory_with_another_name_is_not_removed_again() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let volume = twice();
    let who = Credentials::root();
    let root = Node::root(&volume).unwrap();
    let open = root.lookup(&who, b"sub").unwrap();
    root.remove_dir(&who, b"sub").unwrap();
    let e = root.remove_dir(&who, b"below").unwrap_err();
    assert!(is_damage(&e), "{e}");
    let e = rename(&root, "below", "other", RenameMode::Replace);
    assert!(is_damage(&e), "{e}");
    drop(open);
}
