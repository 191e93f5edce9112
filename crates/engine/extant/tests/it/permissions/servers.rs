//! Requests of servers for others: callers that the kernel has checked, umasks, sizes and times set with other
//! attributes, and removed privileges.

use crate::common::*;
use crate::permissions::callers::*;
use ext4_format::inode::flags;
use extant::unstable::{MakeNode, Node};
use extant::{Credentials, Error, SetAttributes, SetTime, SetXattr, Timestamp, Volume};

fn mode(node: &Node) -> u32 {
    node.metadata().unwrap().mode() & 0o7777
}

fn changes() -> SetAttributes {
    SetAttributes::default()
}

/// A directory that only root may enter, and a file in it.
fn closed(v: &Volume) -> (Node, Node) {
    let root = Credentials::root();
    let top = Node::root(v).unwrap();
    let dir = top
        .make(&root, b"closed", MakeNode::Directory, 0o1700)
        .unwrap();
    let (file, _) = dir.create(&root, b"file", 0o600, true).unwrap();
    (dir, file)
}

#[test]
fn what_the_kernel_has_checked_is_not_checked_again() {
    let Some(v) = volume() else { return };
    let (dir, file) = closed(&v);
    let alice = Credentials::new(ALICE, 7, &[]);
    for who in [alice.clone(), alice.already_checked()] {
        let checked = who != Credentials::new(ALICE, 7, &[]);
        let ok = |what: &str, done: extant::Result<()>| {
            assert_eq!(done.is_ok(), checked, "{what}: {done:?}");
        };
        let renamed = |old, new| dir.rename(&who, old, &dir, new, extant::RenameMode::Replace);
        ok("lookup", dir.lookup(&who, b"file").map(drop));
        ok("access", file.check_access(&who, 6));
        ok("create", dir.create(&who, b"mine", 0o600, true).map(drop));
        ok("rename", renamed(b"file", b"f2"));
        ok("back", renamed(b"f2", b"file"));
        ok(
            "chmod",
            file.set_attributes(
                &who,
                &SetAttributes {
                    mode: Some(0o2711),
                    ..changes()
                },
            ),
        );
        ok(
            "chown",
            file.set_attributes(
                &who,
                &SetAttributes {
                    uid: Some(5),
                    ..changes()
                },
            ),
        );
        ok(
            "size",
            file.set_attributes(
                &who,
                &SetAttributes {
                    size: Some(9),
                    ..changes()
                },
            ),
        );
        ok("user", file.set_xattr(&who, b"user.a", b"1", SetXattr::Any));
        ok(
            "trusted",
            file.set_xattr(&who, b"trusted.a", b"1", SetXattr::Any),
        );
        ok(
            "security",
            file.set_xattr(&who, b"security.a", b"1", SetXattr::Any),
        );
        let device = MakeNode::Special(extant::FileType::CharDevice, 259);
        ok("device", dir.make(&who, b"null", device, 0o666).map(drop));
        ok("unlink", dir.unlink(&who, b"file"));
        if checked {
            let mine = dir.lookup(&who, b"mine").unwrap().metadata().unwrap();
            assert_eq!((mine.uid(), mine.gid()), (ALICE, 7), "made in its name");
        }
    }
    // Rules that only the volume knows hold for every caller.
    let who = Credentials::new(ALICE, 7, &[]).already_checked();
    let immutable = SetAttributes {
        flags: Some(0x8_0010),
        ..changes()
    };
    dir.set_attributes(&who, &immutable).unwrap();
    for done in [
        dir.create(&who, b"x", 0o600, true).map(drop),
        dir.unlink(&who, b"mine"),
        dir.set_attributes(
            &who,
            &SetAttributes {
                mode: Some(0o777),
                ..changes()
            },
        ),
    ] {
        assert!(matches!(done, Err(Error::NotPermitted)), "{done:?}");
    }
    dir.set_attributes(
        &who,
        &SetAttributes {
            flags: Some(0x8_0000),
            ..changes()
        },
    )
    .unwrap();
}

#[test]
fn a_umask_counts_where_no_default_acl_does() {
    let Some(v) = volume() else { return };
    let top = Node::root(&v).unwrap();
    let who = Credentials::root().with_umask(0o7027);
    let dir = top.make(&who, b"d", MakeNode::Directory, 0o3777).unwrap();
    assert_eq!(mode(&dir), 0o3750, "set-id and sticky bits are not its own");
    assert_eq!(mode(&dir.create(&who, b"f", 0o666, true).unwrap().0), 0o640);
    let fifo = MakeNode::Special(extant::FileType::Fifo, 0);
    assert_eq!(mode(&dir.make(&who, b"p", fifo, 0o666).unwrap()), 0o640);
    let link = MakeNode::Symlink(b"f");
    assert_eq!(mode(&dir.make(&who, b"l", link, 0o777).unwrap()), 0o777);
    let default = acl_bytes(&[(1, 7, NONE), (4, 6, NONE), (32, 5, NONE)]);
    let name = b"system.posix_acl_default";
    dir.set_xattr(&who, name, &default, SetXattr::Any).unwrap();
    assert_eq!(mode(&dir.create(&who, b"g", 0o666, true).unwrap().0), 0o664);
    let below = dir.make(&who, b"e", MakeNode::Directory, 0o777).unwrap();
    assert_eq!(mode(&below), 0o2765);
    assert_eq!(below.get_xattr(&who, name).unwrap(), default);
}

#[test]
fn a_size_is_set_with_the_rest() {
    let Some(v) = volume() else { return };
    let (root, alice) = (Credentials::root(), Credentials::new(ALICE, 7, &[]));
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&root, b"f", 0o444, true).unwrap();
    let time = Timestamp::new(7, 0);
    let set = |by_handle| SetAttributes {
        size: Some(5000),
        by_handle,
        ..changes()
    };
    says(
        file.set_attributes(&alice, &set(false)),
        Says::Denied,
        "by the bits",
    );
    says(
        file.set_attributes(&alice, &set(true)),
        Says::Yes,
        "by a handle",
    );
    let all = SetAttributes {
        size: Some(10),
        by_handle: true,
        mode: Some(0o640),
        mtime: Some(time.into()),
        ..changes()
    };
    says(
        file.set_attributes(&alice, &all),
        Says::NotPermitted,
        "not the owner",
    );
    assert_eq!(
        file.metadata().unwrap().len(),
        5000,
        "nothing is done by halves"
    );
    file.set_attributes(&root, &all).unwrap();
    let a = file.metadata().unwrap();
    assert_eq!((a.len(), a.mode() & 0o777, a.mtime()), (10, 0o640, time));
    let dir = top.make(&root, b"d", MakeNode::Directory, 0o755).unwrap();
    assert!(matches!(
        dir.set_attributes(&root, &set(true)),
        Err(Error::IsDirectory)
    ));
    let fifo = MakeNode::Special(extant::FileType::Fifo, 0);
    let fifo = top.make(&root, b"p", fifo, 0o600).unwrap();
    assert!(matches!(
        fifo.set_attributes(&root, &set(true)),
        Err(Error::Invalid(_))
    ));
}

/// A caller with write permission may set both times to now. Every other change of times is reserved to the owner.
#[test]
fn times_are_set_by_owners_or_touched_by_writers() {
    let Some(v) = volume() else { return };
    let root = Credentials::root();
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&root, b"f", 0o666, true).unwrap();
    let (shut, _) = top.create(&root, b"g", 0o644, true).unwrap();
    let alice = Credentials::new(ALICE, 7, &[]);
    let (now, at) = (Some(SetTime::Now), Some(SetTime::At(Timestamp::new(1, 0))));
    use Says::{Denied, NotPermitted, Yes};
    for (atime, mtime, writer, reader) in [
        (now, now, Yes, Denied),
        (now, None, NotPermitted, NotPermitted),
        (None, now, NotPermitted, NotPermitted),
        (at, now, NotPermitted, NotPermitted),
        (at, at, NotPermitted, NotPermitted),
    ] {
        let set = SetAttributes {
            atime,
            mtime,
            ..changes()
        };
        let what = format!("{atime:?} {mtime:?}");
        says(file.set_attributes(&alice, &set), writer, &what);
        says(shut.set_attributes(&alice, &set), reader, &what);
        says(shut.set_attributes(&root, &set), Yes, &what);
    }
    file.set_attributes(
        &root,
        &SetAttributes {
            atime: at,
            mtime: at,
            ..changes()
        },
    )
    .unwrap();
    file.set_attributes(
        &alice,
        &SetAttributes {
            atime: now,
            mtime: now,
            ..changes()
        },
    )
    .unwrap();
    let a = file.metadata().unwrap();
    assert!(a.atime().secs() > 1 && a.atime() == a.mtime() && a.mtime() == a.ctime());
}

/// The volume takes times that a cache above has kept as they are, if the caller may set times.
#[test]
fn cached_times_are_written_back() {
    let Some(v) = volume() else { return };
    let (dir, file) = closed(&v);
    drop(dir);
    let cached = SetAttributes {
        mtime: Some(Timestamp::new(100, 5).into()),
        ctime: Some(Timestamp::new(200, 6)),
        ..changes()
    };
    let alice = Credentials::new(ALICE, 7, &[]);
    says(
        file.set_attributes(&alice, &cached),
        Says::NotPermitted,
        "a stranger",
    );
    let immutable = SetAttributes {
        flags: Some(0x8_0010),
        ..changes()
    };
    file.set_attributes(&Credentials::root(), &immutable)
        .unwrap();
    file.set_attributes(&alice.already_checked(), &cached)
        .unwrap();
    let a = file.metadata().unwrap();
    assert_eq!(a.mtime(), Timestamp::new(100, 5));
    assert_eq!(a.ctime(), Timestamp::new(200, 6));
    let (ino, device) = (file.ino(), v.sync());
    device.unwrap();
    drop(file);
    v.drop_caches();
    let a = Node::of_number(&v, ino).unwrap().metadata().unwrap();
    assert_eq!(a.ctime(), Timestamp::new(200, 6));
}

#[test]
fn privileges_are_taken_away_when_asked() {
    let Some(v) = volume() else { return };
    let root = Credentials::root();
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&root, b"f", 0o600, true).unwrap();
    for (before, after) in [
        (0o6777, 0o777),
        (0o6767, 0o2767),
        (0o1777, 0o1777),
        (0o2710, 0o710),
    ] {
        file.set_attributes(
            &root,
            &SetAttributes {
                mode: Some(before),
                ..changes()
            },
        )
        .unwrap();
        file.set_xattr(&root, b"security.capability", b"c", SetXattr::Any)
            .unwrap();
        assert_eq!(
            file.strip_privileges(&root).unwrap(),
            u32::from(before) != after
        );
        assert_eq!(mode(&file), after, "{before:o}");
        assert!(file.list_xattrs(&root).unwrap().is_empty());
    }
    file.set_attributes(
        &root,
        &SetAttributes {
            mode: Some(0o2767),
            ..changes()
        },
    )
    .unwrap();
    file.clear_set_group_id().unwrap();
    assert_eq!(mode(&file), 0o767);
    let dir = top.make(&root, b"d", MakeNode::Directory, 0o2777).unwrap();
    dir.strip_privileges(&root).unwrap();
    assert_eq!(mode(&dir), 0o2777, "a directory has none");
}

/// As in Linux, a change fails if it would remove privileges of a file whose mode is bound.
#[test]
fn bound_files_keep_their_privileges() {
    let Some(v) = volume() else { return };
    let (root, user) = (Credentials::root(), Credentials::new(1000, 1000, &[]));
    let top = Node::root(&v).unwrap();
    let name = b"security.capability";
    for (flag, bits) in [
        (flags::IMMUTABLE, 0o4755),
        (flags::IMMUTABLE, 0o2745),
        (flags::APPEND, 0o4755),
        (flags::APPEND, 0o2755),
    ] {
        let (file, _) = top.create(&root, b"f", 0o600, true).unwrap();
        let set = |change: SetAttributes| file.set_attributes(&root, &change).unwrap();
        set(SetAttributes {
            mode: Some(bits),
            ..changes()
        });
        file.set_xattr(&root, name, b"c", SetXattr::Any).unwrap();
        let before = file.metadata().unwrap().flags();
        set(SetAttributes {
            flags: Some(before | flag),
            ..changes()
        });
        let stripped = file.strip_privileges(&user);
        assert!(matches!(stripped, Err(Error::NotPermitted)), "{bits:o}");
        assert_eq!(mode(&file), u32::from(bits));
        assert_eq!(file.list_xattrs(&root).unwrap(), [name.as_slice()]);
        set(SetAttributes {
            flags: Some(before),
            ..changes()
        });
        top.unlink(&root, b"f").unwrap();
    }
}

/// Capabilities set while a cache still has data for the file are kept.
#[test]
fn data_that_comes_late_takes_nothing_away() {
    let Some(v) = volume() else { return };
    let root = Credentials::root();
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&root, b"f", 0o4755, true).unwrap();
    let name = b"security.capability";
    file.set_xattr(&root, name, b"c", SetXattr::Any).unwrap();
    file.write_cached(b"program", 0).unwrap();
    assert_eq!(file.get_xattr(&root, name).unwrap(), b"c");
    assert_eq!(mode(&file), 0o4755);
    file.write_at(&root, b"another", 0).unwrap();
    assert!(file.get_xattr(&root, name).is_err());
}
