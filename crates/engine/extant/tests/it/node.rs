//! Nodes: inodes that servers hold by number, whatever happens to their names.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::unstable::{MakeNode, Node, OpenFlags};
use extant::{
    Credentials, Error, FileType, OpenOptions, RenameMode, SetAttributes, SetXattr, StatFs,
    Timestamp, Volume, VolumeOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ARGS: &[&str] = &["-t", "ext4", "-J", "size=4"];

fn root() -> Credentials {
    Credentials::root()
}

fn names(dir: &Node) -> Vec<String> {
    let list = dir.list(0, usize::MAX).unwrap();
    let mut names: Vec<_> = list
        .into_iter()
        .map(|e| String::from_utf8(e.name).unwrap())
        .collect();
    names.sort();
    names
}

/// Checks that the free space is as before, and that the volume is clean.
#[track_caller]
fn assert_nothing_held(v: Volume, device: &Arc<MemDevice>, before: &StatFs, what: &str) {
    let after = v.statfs().unwrap();
    assert_eq!(after.free_inodes, before.free_inodes, "{what}");
    assert_eq!(after.free_blocks, before.free_blocks, "{what}");
    v.close().unwrap();
    assert_clean(device, what);
}

#[test]
fn files_removed_while_they_are_held_share_their_place_in_the_log() {
    needs::tools!("mke2fs");
    for orphan_file in ["orphan_file", "^orphan_file"] {
        let device = mem_image("32M", &["-t", "ext4", "-J", "size=4", "-O", orphan_file]);
        let options = VolumeOptions::new().background(false);
        let v = options.open_device(device.clone()).unwrap();
        let top = Node::root(&v).unwrap();
        let held: Vec<_> = (0..2000)
            .map(|n| {
                let name = format!("file{n}");
                top.create(&root(), name.as_bytes(), 0o600, true).unwrap().0
            })
            .collect();
        v.sync().unwrap();
        let before = v.statistics().pushes;
        for n in 0..2000 {
            top.unlink(&root(), format!("file{n}").as_bytes()).unwrap();
        }
        drop(held);
        v.sync().unwrap();
        // The log holds a thousand blocks, half of them in one push. If each file took separate blocks, sixteen pushes
        // would be needed.
        let pushes = v.statistics().pushes - before;
        assert!(pushes <= 6, "{orphan_file}: {pushes}");
        drop(top);
        v.close().unwrap();
        assert_clean(&device, orphan_file);
    }
}

#[test]
fn every_operation_of_a_node() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let who = root();
    let top = Node::root(&v).unwrap();
    assert_eq!(top.parent().unwrap(), top.ino());
    let dir = top.make(&who, b"dir", MakeNode::Directory, 0o755).unwrap();
    let (file, made) = dir.create(&who, b"file", 0o640, true).unwrap();
    assert!(made);
    assert_eq!(file.write_at(&who, b"abc", 3).unwrap(), 3);
    assert_eq!(file.append(&who, b"d").unwrap(), 6..7);
    assert_eq!(file.write_cached(b"e", 7).unwrap(), 1);
    let mut data = [9; 16];
    assert_eq!(file.read_at(&mut data, 0).unwrap(), 8);
    assert_eq!(&data[..8], b"\0\0\0abcde");
    file.truncate(&who, 5).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    assert_eq!(file.metadata().unwrap().mode(), 0o100_640);
    let mode = SetAttributes {
        mode: Some(0o600),
        ..Default::default()
    };
    file.set_attributes(&who, &mode).unwrap();
    file.set_xattr(&who, b"user.a", b"1", SetXattr::Any)
        .unwrap();
    assert_eq!(file.get_xattr(&who, b"user.a").unwrap(), b"1");
    assert_eq!(file.list_xattrs(&who).unwrap(), [b"user.a"]);
    file.remove_xattr(&who, b"user.a").unwrap();
    file.fsync(true).unwrap();

    let again = dir.lookup(&who, b"file").unwrap();
    assert_eq!(
        (again.ino(), again.generation()),
        (file.ino(), file.generation())
    );
    let (found, made) = dir.create(&who, b"file", 0, false).unwrap();
    assert!(!made && found.ino() == file.ino());
    assert!(matches!(
        dir.create(&who, b"file", 0, true),
        Err(Error::Exists)
    ));
    file.link(&who, &top, b"other").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 2);
    dir.rename(&who, b"file", &top, b"moved", RenameMode::Replace)
        .unwrap();
    assert_eq!(names(&top), ["dir", "lost+found", "moved", "other"]);
    assert_eq!(names(&dir), [""; 0]);
    let link = top
        .make(&who, b"link", MakeNode::Symlink(b"dir/x"), 0o777)
        .unwrap();
    assert_eq!(&*link.read_link().unwrap(), b"dir/x");
    let fifo = top
        .make(&who, b"fifo", MakeNode::Special(FileType::Fifo, 0), 0o600)
        .unwrap();
    assert_eq!(fifo.file_type(), FileType::Fifo);
    assert_eq!(dir.lookup(&who, b"..").unwrap().ino(), top.ino());
    assert_eq!(dir.lookup(&who, b".").unwrap().ino(), dir.ino());
    assert_eq!(dir.parent().unwrap(), top.ino());
    top.remove_dir(&who, b"dir").unwrap();
    assert!(matches!(top.lookup(&who, b"dir"), Err(Error::NotFound)));
    assert!(matches!(top.lookup(&who, b""), Err(Error::NotFound)));
    assert!(matches!(file.lookup(&who, b"x"), Err(Error::NotDirectory)));
    assert!(matches!(top.read_at(&mut data, 0), Err(Error::IsDirectory)));
    assert_eq!(
        Node::of_number(&v, file.ino()).unwrap().generation(),
        file.generation()
    );
    drop((top, dir, file, again, found, link, fifo));
    v.close().unwrap();
    assert_clean(&device, "after every operation");
}

#[test]
fn what_a_node_holds_outlives_its_names_but_not_the_node() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let who = root();
    let top = Node::root(&v).unwrap();
    let before = v.statfs().unwrap();
    let (file, _) = top.create(&who, b"file", 0o600, true).unwrap();
    file.write_at(&who, &[7; 100_000], 0).unwrap();
    file.fsync(false).unwrap();
    let second = file.clone();
    top.unlink(&who, b"file").unwrap();
    let dir = top.make(&who, b"dir", MakeNode::Directory, 0o755).unwrap();
    top.remove_dir(&who, b"dir").unwrap();
    // Replaced by a rename.
    let (old, _) = top.create(&who, b"old", 0o600, true).unwrap();
    top.create(&who, b"new", 0o600, true).unwrap();
    top.rename(&who, b"new", &top, b"old", RenameMode::Replace)
        .unwrap();
    let empty = top.make(&who, b"e", MakeNode::Directory, 0o755).unwrap();
    top.make(&who, b"d", MakeNode::Directory, 0o755).unwrap();
    top.rename(&who, b"d", &top, b"e", RenameMode::Replace)
        .unwrap();
    drop(file);
    v.sync().unwrap();

    // In use, and without a name.
    assert_eq!(second.metadata().unwrap().nlink(), 0);
    let mut byte = [0];
    assert_eq!(second.read_at(&mut byte, 99_999).unwrap(), 1);
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    for gone in [&dir, &empty] {
        assert_eq!(gone.metadata().unwrap().nlink(), 0);
        assert_eq!(names(gone), [""; 0]);
        assert_eq!(gone.lookup(&who, b".").unwrap().ino(), gone.ino());
        assert!(matches!(
            gone.create(&who, b"x", 0o600, false),
            Err(Error::NotFound)
        ));
        assert!(matches!(gone.lookup(&who, b"x"), Err(Error::NotFound)));
    }
    assert!(matches!(
        Node::of_number(&v, second.ino()),
        Err(Error::StaleInode(n)) if n == second.ino()
    ));

    drop((second, dir, old, empty));
    top.unlink(&who, b"old").unwrap();
    top.remove_dir(&who, b"e").unwrap();
    drop(top);
    v.sync().unwrap();
    assert_nothing_held(v, &device, &before, "all nodes gone");
}

/// A crash, or the end of the volume, frees what only nodes held.
#[test]
fn what_only_nodes_hold_is_freed_by_recovery_and_by_closing() {
    needs::tools!("mke2fs");
    let features: [&[&str]; 2] = [ARGS, &["-t", "ext4", "-J", "size=4", "-O", "orphan_file"]];
    for (args, cut) in features.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let device = mem_image("32M", args);
        let v = open(&device);
        let who = root();
        let before = v.statfs().unwrap();
        let top = Node::root(&v).unwrap();
        let held: Vec<Node> = (0..40)
            .map(|n| {
                let name = format!("n{n}").into_bytes();
                if n % 2 == 0 {
                    let dir = top.make(&who, &name, MakeNode::Directory, 0o755).unwrap();
                    top.remove_dir(&who, &name).unwrap();
                    dir
                } else {
                    let (file, _) = top.create(&who, &name, 0o600, true).unwrap();
                    file.write_at(&who, &[1; 9_000], 0).unwrap();
                    top.unlink(&who, &name).unwrap();
                    file
                }
            })
            .collect();
        v.sync().unwrap();
        if cut {
            v.invalidate();
        } else {
            v.close().unwrap();
        }
        assert!(matches!(held[0].metadata(), Err(Error::Stale)));
        assert!(matches!(top.lookup(&who, b"n0"), Err(Error::Stale)));
        drop((held, top));
        let v = open(&device);
        let what = format!("{args:?} {cut}, after recovery");
        assert_nothing_held(v, &device, &before, &what);
    }
}

/// A lookup of a name that other threads remove finds it or not, and a found file can be used.
#[test]
fn lookups_race_with_removals() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let done = AtomicBool::new(false);
    let use_it = |node: Node| {
        assert!(node.metadata().unwrap().nlink() <= 2);
        match node.file_type() {
            FileType::Directory => assert!(node.list(0, 1).unwrap().is_empty()),
            _ => assert_eq!(node.read_at(&mut [0; 8], 0).unwrap(), 4),
        }
    };
    let changes = |volume: &Volume| {
        let (who, top) = (root(), Node::root(volume).unwrap());
        for round in 0..3_000 {
            let (file, made) = top.create(&who, b"file.new", 0o600, true).unwrap();
            assert!(made);
            file.write_at(&who, b"data", 0).unwrap();
            top.rename(&who, b"file.new", &top, b"file", RenameMode::Replace)
                .unwrap();
            let dir = top.make(&who, b"dir", MakeNode::Directory, 0o755).unwrap();
            if round % 2 == 0 {
                drop(dir);
                top.remove_dir(&who, b"dir").unwrap();
                top.unlink(&who, b"file").unwrap();
            } else {
                top.remove_dir(&who, b"dir").unwrap();
            }
        }
    };
    std::thread::scope(|s| {
        for name in [b"file".as_slice(), b"dir"] {
            let (v, done) = (&v, &done);
            s.spawn(move || {
                let (who, top) = (root(), Node::root(v).unwrap());
                while !done.load(Ordering::Relaxed) {
                    match top.lookup(&who, name) {
                        Ok(node) => use_it(node),
                        Err(e) => assert!(matches!(e, Error::NotFound), "{e}"),
                    }
                }
            });
        }
        let _done = Ends(&done);
        changes(&v);
    });
    v.close().unwrap();
    assert_clean(&device, "after the race");
}

/// Lookups in a large directory use the disk until the first change.
#[test]
fn nodes_of_a_large_directory_that_is_not_in_memory() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", ARGS);
    let v = open(&device);
    let who = root();
    let dir = v.create_dir("/large").unwrap();
    for n in 0..4_000 {
        dir.open_file_with(
            format!("a-rather-long-name-of-a-file-{n}"),
            &OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600),
        )
        .unwrap();
    }
    drop(dir);
    v.close().unwrap();
    let v = open(&device);
    let top = Node::root(&v).unwrap();
    let dir = top.lookup(&who, b"large").unwrap();
    std::thread::scope(|s| {
        for task in 0..2 {
            let (dir, who) = (&dir, &who);
            s.spawn(move || {
                for n in 0..4_000 {
                    let name = format!("a-rather-long-name-of-a-file-{n}");
                    let mine = n % 2 == task;
                    match dir.lookup(who, name.as_bytes()) {
                        Ok(node) => assert!(node.metadata().unwrap().ino() > 11),
                        Err(e) => assert!(!mine && matches!(e, Error::NotFound), "{name}: {e}"),
                    }
                    if mine && n > 1_000 {
                        dir.unlink(who, name.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(dir.list(0, usize::MAX).unwrap().len(), 1_001);
    drop((dir, top));
    v.close().unwrap();
    assert_clean(&device, "after removing");
}

#[test]
fn opening_is_checked_by_permissions_and_flags() {
    let v = extant::doc_volume();
    let (who, alice) = (root(), Credentials::new(1000, 1000, &[]));
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&who, b"file", 0o644, true).unwrap();
    let says = |who: &Credentials, flags| file.check_open(who, flags).map_err(|e| e.errno());
    let (read, write) = (OpenFlags::READ, OpenFlags::WRITE);
    assert_eq!(says(&alice, read), Ok(()));
    assert_eq!(says(&alice, write), Err(13));
    assert_eq!(says(&alice, read | OpenFlags::TRUNCATE), Err(13));
    assert_eq!(top.check_open(&who, write).map_err(|e| e.errno()), Err(21));
    assert!(top.check_open(&alice, read).is_ok());
    assert!(matches!(
        file.check_access(&who, 1),
        Err(Error::PermissionDenied)
    ));
    assert!(file.check_access(&alice, 0).is_ok());
    let flags = |flags: u32| SetAttributes {
        flags: Some(0x8_0000 | flags),
        ..Default::default()
    };
    let (immutable, append) = (0x10, 0x20);
    file.set_attributes(&who, &flags(append)).unwrap();
    assert_eq!(says(&who, write), Err(1));
    assert_eq!(says(&who, write | OpenFlags::APPEND), Ok(()));
    let cut = write | OpenFlags::APPEND | OpenFlags::TRUNCATE;
    assert_eq!(says(&who, cut), Err(1));
    assert!(matches!(file.truncate(&who, 0), Err(Error::NotPermitted)));
    assert!(file.append(&who, b"x").is_ok());
    file.set_attributes(&who, &flags(immutable)).unwrap();
    assert_eq!(says(&who, write | OpenFlags::APPEND), Err(1));
    assert_eq!(says(&who, read), Ok(()));
    assert!(matches!(
        file.write_at(&who, b"x", 0),
        Err(Error::NotPermitted)
    ));
    assert!(file.write_cached(b"y", 0).is_ok());
    file.set_attributes(&who, &flags(0)).unwrap();
    let other = Node::root(&extant::doc_volume()).unwrap();
    assert!(matches!(
        file.link(&who, &other, b"x"),
        Err(Error::CrossDevice)
    ));
}

/// Nodes do not keep a volume, or its memory, once it is closed.
#[test]
fn a_closed_volume_is_freed_when_its_nodes_go() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", ARGS);
    let v = open(&device);
    let nodes: Vec<Node> = std::thread::scope(|s| {
        let tasks: Vec<_> = (0..4)
            .map(|_| s.spawn(|| Node::root(&v).unwrap()))
            .collect();
        tasks.into_iter().map(|t| t.join().unwrap()).collect()
    });
    drop(v);
    assert!(Arc::strong_count(&device) > 1);
    let copy = nodes[0].clone();
    drop(nodes);
    assert!(matches!(copy.list(0, 1), Err(Error::Stale)));
    drop(copy);
    assert_eq!(Arc::strong_count(&device), 1);
}

#[test]
fn files_are_made_without_a_name() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let who = root();
    let top = Node::root(&v).unwrap();
    let before = v.statfs().unwrap();
    let default = acl_bytes(&[
        (1, 6, u32::MAX),
        (2, 4, 77),
        (4, 6, u32::MAX),
        (16, 6, u32::MAX),
        (32, 4, u32::MAX),
    ]);
    let dir = top.make(&who, b"dir", MakeNode::Directory, 0o755).unwrap();
    dir.set_xattr(&who, b"system.posix_acl_default", &default, SetXattr::Any)
        .unwrap();
    let file = dir.make_unnamed(&who, 0o666).unwrap();
    assert_eq!(file.metadata().unwrap().mode(), 0o100_664);
    assert!(file.get_xattr(&who, b"system.posix_acl_access").is_ok());
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    // Large enough to be cut in several steps, while it has no name.
    for n in 0..64 {
        file.write_at(&who, &[n as u8; 5_000], n * 200_000).unwrap();
    }
    file.fsync(false).unwrap();
    file.truncate(&who, 3).unwrap();
    file.link(&who, &top, b"named").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    v.sync().unwrap();
    assert_eq!(v.read("/named").unwrap().len(), 3);
    // The first name is the file's only chance: once removed, the file is like any other.
    top.unlink(&who, b"named").unwrap();
    assert!(matches!(
        file.link(&who, &top, b"again"),
        Err(Error::NotFound)
    ));
    // Files that never had a name.
    let others: Vec<_> = (0..30)
        .map(|_| dir.make_unnamed(&who, 0o600).unwrap())
        .collect();
    for other in &others {
        other.write_at(&who, &[1; 10_000], 0).unwrap();
    }
    v.sync().unwrap();
    assert!(matches!(
        dir.make_unnamed(&Credentials::new(7, 7, &[]), 0o600),
        Err(Error::PermissionDenied)
    ));
    assert!(matches!(
        file.make_unnamed(&who, 0o600),
        Err(Error::NotDirectory)
    ));
    drop((file, others));
    drop(dir);
    top.remove_dir(&who, b"dir").unwrap();
    drop(top);
    v.sync().unwrap();
    assert_nothing_held(v, &device, &before, "files without a name");
}

#[test]
fn a_rename_leaves_a_whiteout() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let who = Credentials::new(0, 0, &[]);
    let top = Node::root(&v).unwrap();
    let dir = top.make(&who, b"dir", MakeNode::Directory, 0o777).unwrap();
    let is_whiteout = |dir: &Node, name: &[u8]| {
        let a = dir.lookup(&who, name).unwrap().metadata().unwrap();
        assert_eq!(
            (a.mode(), a.rdev(), a.nlink(), a.uid()),
            (0o020_000, 0, 1, 0),
            "{name:?}"
        );
    };
    let white = RenameMode::Whiteout;
    for n in 0..200 {
        let name = format!("f{n}");
        dir.create(&who, name.as_bytes(), 0o600, true).unwrap();
        dir.rename(
            &who,
            name.as_bytes(),
            &dir,
            format!("g{n}").as_bytes(),
            white,
        )
        .unwrap();
        is_whiteout(&dir, name.as_bytes());
    }
    assert_eq!(dir.list(0, usize::MAX).unwrap().len(), 400);
    // A directory moves to another parent, over an empty one.
    dir.make(&who, b"d", MakeNode::Directory, 0o755).unwrap();
    top.make(&who, b"d", MakeNode::Directory, 0o755).unwrap();
    let links = (
        top.metadata().unwrap().nlink(),
        dir.metadata().unwrap().nlink(),
    );
    dir.rename(&who, b"d", &top, b"d", white).unwrap();
    is_whiteout(&dir, b"d");
    assert_eq!(top.metadata().unwrap().nlink(), links.0);
    assert_eq!(dir.metadata().unwrap().nlink(), links.1 - 1);
    let strict = RenameMode::WhiteoutNoReplace;
    assert!(matches!(
        dir.rename(&who, b"g0", &dir, b"g1", strict),
        Err(Error::Exists)
    ));
    let free = v.statfs().unwrap().free_inodes;
    assert!(dir.rename(&who, b"nothing", &dir, b"x", white).is_err());
    assert_eq!(v.statfs().unwrap().free_inodes, free);
    dir.rename(&who, b"g0", &top, b"g0", strict).unwrap();
    is_whiteout(&dir, b"g0");
    // Any caller may make a whiteout, which is a device of that number, but no other device.
    let alice = Credentials::new(1000, 1000, &[]);
    let (mine, _) = dir.create(&alice, b"mine", 0o600, true).unwrap();
    drop(mine);
    dir.rename(&alice, b"mine", &dir, b"ours", white).unwrap();
    assert_eq!(
        dir.lookup(&alice, b"mine")
            .unwrap()
            .metadata()
            .unwrap()
            .uid(),
        1000
    );
    let device_of = |rdev| MakeNode::Special(FileType::CharDevice, rdev);
    dir.make(&alice, b"white", device_of(0), 0).unwrap();
    assert!(dir.make(&alice, b"null", device_of(259), 0).is_err());
    drop((top, dir));
    v.close().unwrap();
    assert_clean(&device, "whiteouts");
}

/// Nodes made by different threads know the volume by different references.
#[test]
fn nodes_of_two_threads_are_of_one_volume() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let (who, top) = (root(), Node::root(&v).unwrap());
    let make = |name: &[u8]| top.make(&who, name, MakeNode::File, 0o600).unwrap();
    let from = make(b"from");
    from.write_at(&who, b"data", 0).unwrap();
    for round in 0..8 {
        let name = format!("to{round}").into_bytes();
        let to = std::thread::scope(|s| s.spawn(|| make(&name)).join()).unwrap();
        assert_eq!(from.copy_range(&who, 0, &to, 0, 4).unwrap(), 4);
        to.link(&who, &top, &[name, b"-too".to_vec()].concat())
            .unwrap();
    }
    drop((from, top));
    v.close().unwrap();
    assert_clean(&device, "copies between nodes of two threads");
}

#[test]
fn a_volume_gets_a_name() {
    needs::tools!("mke2fs");
    for args in [ARGS, &["-t", "ext4", "-O", "^has_journal"]] {
        let device = mem_image("16M", args);
        let v = open(&device);
        v.create_dir("/d").unwrap();
        v.set_label("sixteen bytes ok").unwrap();
        assert_eq!(v.label().unwrap(), "sixteen bytes ok");
        for bad in ["seventeen bytes !", "a\0b"] {
            assert!(matches!(v.set_label(bad), Err(Error::Invalid(_))));
        }
        let alice = v.as_user(Credentials::new(1000, 1000, &[]));
        assert!(matches!(alice.set_label("hers"), Err(Error::NotPermitted)));
        // Durable at once.
        if args == ARGS {
            v.invalidate();
        } else {
            v.close().unwrap();
        }
        let v = open(&device);
        assert_eq!(v.label().unwrap(), "sixteen bytes ok");
        v.set_label("").unwrap();
        assert_eq!(v.label().unwrap(), "");
        v.close().unwrap();
        assert_clean(&device, "after naming");
    }
}

/// The name is in a batch that is committed in parts.
#[test]
fn a_volume_gets_a_name_among_many_changes() {
    needs::tools!("mke2fs");
    IN_PARTS.set(Some(20));
    let device = mem_image("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let v = open(&device);
    for n in 0..300 {
        v.create_dir(format!("/d{n}")).unwrap();
    }
    v.set_label("among others").unwrap();
    assert_eq!(v.label().unwrap(), "among others");
    v.close().unwrap();
    assert_clean(&device, "named among many changes");
}

/// A cache above sends the time of a removal with every removal. The time is shown, but not logged: no crash leaves a
/// trace of the file.
#[test]
fn times_of_a_removed_file_are_not_logged() {
    let v = extant::doc_volume();
    let who = Credentials::root().already_checked();
    let top = Node::root(&v).unwrap();
    let make = |name: &[u8]| top.make(&who, name, MakeNode::File, 0o600).unwrap();
    let (removed, kept) = (make(b"removed"), make(b"kept"));
    let unnamed = top.make_unnamed(&who, 0o600).unwrap();
    top.unlink(&who, b"removed").unwrap();
    let set = SetAttributes {
        ctime: Some(Timestamp::new(5, 7)),
        ..SetAttributes::default()
    };
    let commits = || {
        v.sync().unwrap();
        v.statistics().commits
    };
    let commits_of = |node: &Node| {
        let before = commits();
        node.set_attributes(&who, &set).unwrap();
        assert_eq!(node.metadata().unwrap().ctime(), Timestamp::new(5, 7));
        commits() - before
    };
    assert_eq!(commits_of(&removed), 0);
    assert_eq!(commits_of(&kept), 1);
    // This file may be given a name.
    assert_eq!(commits_of(&unnamed), 1);
    unnamed.link(&who, &top, b"named").unwrap();
    removed.write_at(&who, b"still here", 0).unwrap();
    drop((removed, kept, unnamed));
    v.sync().unwrap();
}

/// A call with an empty name gets an error, as for a name that does not exist.
#[test]
fn a_name_of_no_bytes_is_not_found() {
    needs::tools!("mke2fs");
    let volume = open(&mem_image("32M", ARGS));
    let (who, root) = (root(), Node::root(&volume).unwrap());
    root.create(&who, b"file", 0o600, true).unwrap();
    let rename = |from: &[u8], to: &[u8], mode| root.rename(&who, from, &root, to, mode);
    for mode in [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
    ] {
        for (from, to) in [(&b""[..], &b"other"[..]), (b"", b"file"), (b"file", b"")] {
            assert!(
                matches!(rename(from, to, mode), Err(Error::NotFound)),
                "{mode:?}"
            );
        }
    }
    assert!(matches!(root.unlink(&who, b""), Err(Error::NotFound)));
    assert!(matches!(root.remove_dir(&who, b""), Err(Error::NotFound)));
}
