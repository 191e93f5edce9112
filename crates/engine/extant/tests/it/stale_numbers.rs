//! Numbers of removed inodes: no call finds an inode by one, and a new file gets it.

use crate::medium::Medium;
use crate::promise::{format, made, made_with, open};
use blockdev::{BlockDevice, MemDevice};
use extant::unstable::Node;
use extant::{Credentials, Error, OpenOptions, Volume, VolumeOptions};
use std::sync::Arc;

/// Checks that no call that takes numbers finds an inode by this number.
#[track_caller]
fn is_stale(volume: &Volume, ino: u32, what: &str) {
    let found = [
        Node::of_number(volume, ino).map(drop),
        volume
            .open_ino(ino, &OpenOptions::new().read(true))
            .map(drop),
        volume.open_dir_ino(ino).map(drop),
    ];
    for found in found {
        let Err(error) = found else {
            panic!("{what}: inode {ino} is found");
        };
        assert!(
            matches!(error, Error::StaleInode(n) if n == ino),
            "{what}: {error:?}"
        );
        let stale = std::io::Error::from_raw_os_error(error.errno());
        assert_eq!(stale.kind(), std::io::ErrorKind::StaleNetworkFileHandle);
    }
}

/// The record of a removed inode on the device stays as it was until the next push. The number must not lead to it.
#[test]
fn a_removed_inode_does_not_come_back_by_its_number() {
    let (medium, volume) = made(16 << 20, 4096);
    let root = Node::root(&volume).unwrap();
    let who = Credentials::root();
    volume.write("/file", vec![1; 600_000]).unwrap();
    volume.create_dir("/dir").unwrap();
    volume.symlink("target", "/link").unwrap();
    volume.write("/replaced", vec![2; 60_000]).unwrap();
    volume.write("/open", vec![3; 60_000]).unwrap();
    let names: [&[u8]; 5] = [b"file", b"dir", b"link", b"replaced", b"open"];
    let numbers = names.map(|name| root.lookup(&who, name).unwrap().ino());
    volume.sync().unwrap();
    volume.remove_file("/file").unwrap();
    volume.remove_dir("/dir").unwrap();
    volume.remove_file("/link").unwrap();
    volume.write("/new", [4]).unwrap();
    volume.rename("/new", "/replaced").unwrap();
    let held = root.lookup(&who, b"open").unwrap();
    volume.remove_file("/open").unwrap();
    let stale = |volume: &Volume, what: &str| {
        numbers.iter().for_each(|&ino| is_stale(volume, ino, what));
    };
    stale(&volume, "removed");
    drop(held);
    stale(&volume, "closed");
    volume.drop_caches();
    stale(&volume, "before a push");
    volume.sync().unwrap();
    stale(&volume, "after a push");
    volume.drop_caches();
    stale(&volume, "out of memory");
    drop(root);
    volume.close().unwrap();
    let volume = open(medium.after_cut());
    stale(&volume, "opened anew");
    volume.close().unwrap();
}

/// A server writes to a removed file by its number, while another file gets the blocks and the number.
#[test]
fn a_number_that_is_used_again_leads_to_the_new_file() {
    let (medium, volume) = made_with(4 << 20, 1024, 16);
    let who = Credentials::root();
    volume.write("/victim", vec![b'V'; 64 << 10]).unwrap();
    volume.sync().unwrap();
    let root = Node::root(&volume).unwrap();
    let victim = root.lookup(&who, b"victim").unwrap();
    let (ino, generation) = (victim.ino(), victim.generation());
    drop(victim);
    volume.remove_file("/victim").unwrap();
    // Here the file is removed, but the device still has its old record.
    let early = Node::of_number(&volume, ino);
    volume.sync().unwrap();
    let mut made = Vec::new();
    let again = loop {
        let name = format!("file{}", made.len());
        let (file, _) = root.create(&who, name.as_bytes(), 0o600, true).unwrap();
        volume.write(format!("/{name}"), [b'O'; 2000]).unwrap();
        if file.ino() == ino {
            break file;
        }
        made.push(file);
    };
    assert_ne!(again.generation(), generation);
    let found = Node::of_number(&volume, ino).unwrap();
    assert!(found.is(&again));
    if let Ok(early) = &early {
        let _ = early.write_at(&who, &[b'Z'; 64 << 10], 0);
        let _ = early.fsync(false);
    }
    volume.sync().unwrap();
    let after = open(medium.after_cut());
    for n in 0..=made.len() {
        assert_eq!(after.read(format!("/file{n}")).unwrap(), [b'O'; 2000]);
    }
    assert!(matches!(early, Err(Error::StaleInode(_))));
}

/// The unused part of an inode table may hold anything, here a file of an earlier file system.
#[test]
fn a_number_that_was_never_used_is_stale() {
    let (medium, volume) = made(16 << 20, 4096);
    volume.write("/file", vec![1; 10_000]).unwrap();
    let ino = volume.metadata("/file").unwrap().ino();
    let (size, table) = {
        let geometry = volume.geometry();
        let group = volume.groups().next().unwrap().unwrap();
        let table = group.inode_table.offset(geometry.block_size);
        (u64::from(geometry.inode_size), table)
    };
    volume.close().unwrap();
    let device = medium.after_cut();
    let unused = ino + 500;
    let mut record = vec![0; size as usize];
    let place = |ino: u32| table + u64::from(ino - 1) * size;
    device.read_at(place(ino), &mut record).unwrap();
    device.write_at(place(unused), &record).unwrap();
    let volume = open(device);
    is_stale(&volume, unused, "never used");
    for reserved in [0, 1, 7, 8, volume.geometry().inodes_count + 1, u32::MAX] {
        is_stale(&volume, reserved, "no file's");
    }
    assert_eq!(volume.root().ino(), 2);
    assert!(Node::of_number(&volume, 2).is_ok());
    volume.close().unwrap();
}

/// A caller holds a removed directory. The parent was removed too, and another inode may have its number. The volume is
/// sound.
#[test]
fn the_parent_of_a_removed_directory_may_be_gone() {
    let medium = Medium::new(MemDevice::new(4 << 20));
    format(&*medium, 1024, 64);
    let volume = VolumeOptions::new()
        .background(false)
        .on_damage(|damage| panic!("{damage}"))
        .open_device(Arc::clone(&medium) as Arc<dyn BlockDevice>)
        .unwrap();
    volume.create_dir("/parent").unwrap();
    let child = volume.create_dir("/parent/child").unwrap();
    volume.create_new_file("/parent/x").unwrap();
    let parent = volume.metadata("/parent").unwrap().ino();
    volume.sync().unwrap();
    volume.remove_dir("/parent/child").unwrap();
    // As long as the parent is there, it is the parent.
    assert_eq!(child.metadata("..").unwrap().ino(), parent);
    assert!(child.metadata("../x").is_ok());
    volume.remove_file("/parent/x").unwrap();
    volume.remove_dir("/parent").unwrap();
    let is_gone = |what: &str| {
        for path in ["..", "../x", "../../lost+found", "../new"] {
            let found = child.metadata(path);
            assert!(
                matches!(found, Err(Error::NotFound)),
                "{what}: {path}: {found:?}"
            );
        }
        let moved = volume.rename("/lost+found", "/moved");
        moved.and_then(|()| volume.rename("/moved", "/lost+found"))
    };
    is_gone("removed").unwrap();
    volume.sync().unwrap();
    is_gone("after a push").unwrap();
    volume.drop_caches();
    is_gone("out of memory").unwrap();
    let mut others = 0..;
    let again = others.find_map(|n| {
        let again = volume.create_dir(format!("/other{n}")).unwrap();
        (again.ino() == parent).then_some(again)
    });
    volume.create_dir("/last").unwrap();
    again.unwrap().create_new_file("new").unwrap();
    is_gone("its number used again").unwrap();
    drop(child);
    volume.close().unwrap();
    let volume = open(medium.after_cut());
    assert_eq!(volume.read_only(), None);
    volume.close().unwrap();
}
