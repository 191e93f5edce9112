//! Who may do what, in tables: mode bits of each class, directories, the sticky bit, set-id bits, ACLs,
//! attributes that only owners or root may change. As Linux has it.

mod common;

use common::*;
use extant::{
    Credentials, Error, Fallocate, FileType, OpenFlags, RenameMode, SetAttributes, SetXattr,
    Timestamp, Volume,
};

const ALICE: u32 = 1000;
const STAFF: u32 = 100;

/// Owner, member of the owning group, member by a supplementary group, and nobody special.
fn callers() -> [(&'static str, Credentials); 4] {
    [
        ("owner", Credentials::new(ALICE, 7, &[])),
        ("group", Credentials::new(1001, STAFF, &[])),
        ("supplementary", Credentials::new(1002, 7, &[55, STAFF])),
        ("other", Credentials::new(1003, 7, &[55])),
    ]
}

fn volume() -> Option<Volume> {
    have("mke2fs").then(|| open(&mem_image("16M", &["-t", "ext4", "-J", "size=4"])))
}

fn own(v: &Volume, path: &str, mode: u16) {
    let set = SetAttributes {
        uid: Some(ALICE),
        gid: Some(STAFF),
        ..Default::default()
    };
    v.lset_attributes(path, &set).unwrap();
    v.set_attributes(
        path,
        &SetAttributes {
            mode: Some(mode),
            ..Default::default()
        },
    )
    .unwrap();
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    Yes,
    /// EACCES: a permission bit is missing.
    Denied,
    /// EPERM: not the owner, or not root.
    NotPermitted,
}

#[track_caller]
fn says<T>(result: extant::Result<T>, expected: Says, what: &str) {
    let found = match result {
        Ok(_) => Says::Yes,
        Err(Error::PermissionDenied) => Says::Denied,
        Err(Error::NotPermitted) => Says::NotPermitted,
        Err(e) => panic!("{what}: {e:?}"),
    };
    assert_eq!(found, expected, "{what}");
}

fn yes_if(allowed: bool) -> Says {
    if allowed { Says::Yes } else { Says::Denied }
}

/// The bits of the caller's class decide, and no others.
#[test]
fn files_by_class() {
    let Some(v) = volume() else { return };
    v.write_file("/f", b"content").unwrap();
    for bits in 0..8u16 {
        for class in 0..3 {
            // All other classes have what this one lacks.
            let shift = [6, 3, 0][class];
            let mode = (0o777 & !(7 << shift)) & !(bits * 0o111) | bits << shift;
            own(&v, "/f", mode);
            for (who, credentials) in callers() {
                let mine = match who {
                    "owner" => mode >> 6,
                    "other" => mode,
                    _ => mode >> 3,
                } & 7;
                let as_user = v.as_user(credentials);
                let what = format!("{who}, mode {mode:o}");
                let open = |flags| as_user.open("/f", flags, 0);
                says(
                    open(OpenFlags::READ),
                    yes_if(mine & 4 != 0),
                    &format!("{what}: read"),
                );
                says(
                    open(OpenFlags::WRITE),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: write"),
                );
                says(
                    open(OpenFlags::APPEND),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: append"),
                );
                says(
                    open(OpenFlags::READ | OpenFlags::WRITE),
                    yes_if(mine & 6 == 6),
                    &format!("{what}: both"),
                );
                says(
                    open(OpenFlags::READ | OpenFlags::TRUNCATE),
                    yes_if(mine & 6 == 6),
                    &format!("{what}: cut"),
                );
                says(
                    as_user.truncate("/f", 3),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: truncate"),
                );
                says(as_user.stat("/f"), Says::Yes, &what);
                let set = as_user.set_xattr("/f", "user.x", b"1", SetXattr::Any);
                says(set, yes_if(mine & 2 != 0), &format!("{what}: set xattr"));
                v.set_xattr("/f", "user.x", b"1", SetXattr::Any).unwrap();
                says(
                    as_user.get_xattr("/f", "user.x"),
                    yes_if(mine & 4 != 0),
                    &format!("{what}: get xattr"),
                );
            }
            says(
                v.open("/f", OpenFlags::READ | OpenFlags::WRITE, 0),
                Says::Yes,
                "root",
            );
        }
    }
}

/// Search to pass through, read to list, write and search to change the names.
#[test]
fn directories_by_bits() {
    let Some(v) = volume() else { return };
    v.create_dir("/d", 0o777).unwrap();
    for bits in 0..8u16 {
        own(&v, "/d", bits);
        let (read, change, search) = (bits & 4 != 0, bits & 3 == 3, bits & 1 != 0);
        for name in ["/d/file", "/d/gone", "/d/old", "/d/target"] {
            v.write_file(name, b"").unwrap();
            v.set_attributes(
                name,
                &SetAttributes {
                    mode: Some(0o666),
                    ..Default::default()
                },
            )
            .unwrap();
        }
        v.create_dir("/d/sub", 0o777).unwrap();
        let u = v.as_user(Credentials::new(1003, 7, &[]));
        let what = format!("directory with bits {bits:o}");
        says(u.read_dir("/d"), yes_if(read), &format!("{what}: list"));
        says(u.stat("/d/file"), yes_if(search), &format!("{what}: stat"));
        says(
            u.open("/d/file", OpenFlags::READ, 0),
            yes_if(search),
            &format!("{what}: open"),
        );
        let create = OpenFlags::WRITE | OpenFlags::CREATE;
        says(
            u.open("/d/file", create, 0o600),
            yes_if(search),
            &format!("{what}: open with create what exists"),
        );
        says(
            u.create("/d/new", 0o600),
            yes_if(change),
            &format!("{what}: create"),
        );
        says(
            u.create_dir("/d/newdir", 0o700),
            yes_if(change),
            &format!("{what}: mkdir"),
        );
        says(
            u.symlink("t", "/d/newlink"),
            yes_if(change),
            &format!("{what}: symlink"),
        );
        says(
            u.mknod("/d/newfifo", FileType::Fifo, 0o600, 0),
            yes_if(change),
            &format!("{what}: mkfifo"),
        );
        says(
            u.link("/d/file", "/d/newname"),
            yes_if(change),
            &format!("{what}: link"),
        );
        says(
            u.unlink("/d/gone"),
            yes_if(change),
            &format!("{what}: unlink"),
        );
        says(
            u.remove_dir("/d/sub"),
            yes_if(change),
            &format!("{what}: rmdir"),
        );
        says(
            u.rename("/d/old", "/d/renamed", RenameMode::Replace),
            yes_if(change),
            &format!("{what}: rename"),
        );
        for entry in v.read_dir("/d").unwrap() {
            let path = format!("/d/{}", String::from_utf8(entry.name).unwrap());
            if entry.file_type == FileType::Directory {
                v.remove_dir(path)
            } else {
                v.unlink(path)
            }
            .unwrap();
        }
    }
}

/// In a sticky directory only the owner of the name, of the directory, or root takes it away.
#[test]
fn sticky() {
    let Some(v) = volume() else { return };
    v.create_dir("/tmp", 0o777).unwrap();
    own(&v, "/tmp", 0o1777);
    for (who, credentials, may) in [
        ("root", Credentials::root(), true),
        (
            "owner of the directory",
            Credentials::new(ALICE, 7, &[]),
            true,
        ),
        ("owner of the file", Credentials::new(2000, 7, &[]), true),
        ("another", Credentials::new(3000, 7, &[STAFF]), false),
    ] {
        let maker = v.as_user(Credentials::new(2000, 7, &[]));
        maker.write_file("/tmp/a", b"").unwrap();
        maker.write_file("/tmp/b", b"").unwrap();
        maker.create_dir("/tmp/dir", 0o777).unwrap();
        let u = v.as_user(credentials);
        u.write_file("/tmp/mine", b"").unwrap();
        let expected = if may { Says::Yes } else { Says::NotPermitted };
        says(
            u.rename("/tmp/a", "/tmp/a2", RenameMode::Replace),
            expected,
            &format!("{who}: rename"),
        );
        if may {
            u.rename("/tmp/a2", "/tmp/a", RenameMode::Replace).unwrap();
        }
        says(
            u.rename("/tmp/mine", "/tmp/b", RenameMode::Exchange),
            expected,
            &format!("{who}: exchange"),
        );
        says(
            u.rename("/tmp/mine", "/tmp/b", RenameMode::Replace),
            expected,
            &format!("{who}: rename over"),
        );
        says(u.unlink("/tmp/a"), expected, &format!("{who}: unlink"));
        says(u.remove_dir("/tmp/dir"), expected, &format!("{who}: rmdir"));
        for name in ["/tmp/a", "/tmp/b", "/tmp/mine"] {
            let _ = v.unlink(name);
        }
        let _ = v.remove_dir("/tmp/dir");
    }
}

/// What only the owner, or only root, may set.
#[test]
fn attributes() {
    let Some(v) = volume() else { return };
    let set = SetAttributes::default();
    let time = Some(Timestamp { secs: 1, nanos: 0 });
    use Says::{NotPermitted as No, Yes};
    for (what, change, owner, other) in [
        (
            "chmod",
            SetAttributes {
                mode: Some(0o640),
                ..set
            },
            Yes,
            No,
        ),
        (
            "chown to another",
            SetAttributes {
                uid: Some(5),
                ..set
            },
            No,
            No,
        ),
        (
            "chown to the same",
            SetAttributes {
                uid: Some(ALICE),
                ..set
            },
            Yes,
            No,
        ),
        (
            "chgrp to an own group",
            SetAttributes {
                gid: Some(55),
                ..set
            },
            Yes,
            No,
        ),
        (
            "chgrp to a foreign group",
            SetAttributes {
                gid: Some(9),
                ..set
            },
            No,
            No,
        ),
        (
            "times",
            SetAttributes {
                atime: time,
                mtime: time,
                ..set
            },
            Yes,
            No,
        ),
        (
            "immutable",
            SetAttributes {
                flags: Some(ext4_format::inode::flags::IMMUTABLE),
                ..set
            },
            No,
            No,
        ),
    ] {
        v.write_file("/f", b"").unwrap();
        own(&v, "/f", 0o666);
        says(
            v.as_user(Credentials::new(3000, 7, &[55]))
                .set_attributes("/f", &change),
            other,
            &format!("other: {what}"),
        );
        says(
            v.as_user(Credentials::new(ALICE, 7, &[55]))
                .set_attributes("/f", &change),
            owner,
            &format!("owner: {what}"),
        );
        says(
            v.set_attributes("/f", &change),
            Yes,
            &format!("root: {what}"),
        );
        v.set_attributes(
            "/f",
            &SetAttributes {
                flags: Some(0),
                ..set
            },
        )
        .unwrap();
        v.unlink("/f").unwrap();
    }
    v.write_file("/f", b"").unwrap();
    own(&v, "/f", 0o666);
    let (owner, other) = (
        v.as_user(Credentials::new(ALICE, 7, &[])),
        v.as_user(Credentials::new(3000, 7, &[])),
    );
    for (name, by_owner, by_other) in [
        ("user.a", Yes, Yes),
        ("trusted.a", No, No),
        ("security.a", No, No),
        ("system.posix_acl_access", Yes, No),
    ] {
        let value = if name.contains("acl") {
            acl(&[(1, 6, NONE), (4, 6, NONE), (32, 6, NONE)])
        } else {
            b"v".to_vec()
        };
        says(
            other.set_xattr("/f", name, &value, SetXattr::Any),
            by_other,
            &format!("other: {name}"),
        );
        says(
            owner.set_xattr("/f", name, &value, SetXattr::Any),
            by_owner,
            &format!("owner: {name}"),
        );
        says(
            v.set_xattr("/f", name, &value, SetXattr::Any),
            Yes,
            &format!("root: {name}"),
        );
    }
    let listed = owner.list_xattrs("/f").unwrap();
    assert!(listed.contains(&b"user.a".to_vec()) && !listed.contains(&b"trusted.a".to_vec()));
    says(
        owner.mknod("/dev", FileType::CharDevice, 0o600, 1),
        Says::NotPermitted,
        "a device by a user",
    );
}

/// What changing a file leaves of its set-id bits and capabilities, by who changes it and how. Linux 6.18
/// gives these answers for ext4.
#[test]
fn changing_a_file_strips_privileges() {
    let Some(v) = volume() else { return };
    let users = [
        ("root", Credentials::root()),
        ("owner in the group", Credentials::new(ALICE, STAFF, &[])),
        ("owner, not in it", Credentials::new(ALICE, 7, &[])),
        ("other in the group", Credentials::new(1001, 7, &[STAFF])),
        ("other, not in it", Credentials::new(1001, 7, &[])),
    ];
    let rw = OpenFlags::READ | OpenFlags::WRITE;
    type Change = fn(&Volume, OpenFlags) -> extant::Result<()>;
    let fallocate =
        |how| move |u: &Volume, rw: OpenFlags| u.open("/f", rw, 0)?.fallocate(how, 0, 4096);
    let changes: [(&str, Change); 8] = [
        ("write", |u, rw| {
            u.open("/f", rw, 0)?.write_at(1, b"x").map(drop)
        }),
        ("append", |u, rw| {
            u.open("/f", rw, 0)?.append(b"x").map(drop)
        }),
        ("new block", |u, rw| {
            u.open("/f", rw, 0)?.write_at(1 << 20, b"x").map(drop)
        }),
        ("shrink", |u, _| u.truncate("/f", 5)),
        ("same size", |u, _| u.truncate("/f", 10_000)),
        ("grow", |u, rw| u.open("/f", rw, 0)?.truncate(20_000)),
        ("open and cut", |u, rw| {
            u.open("/f", rw | OpenFlags::TRUNCATE, 0).map(drop)
        }),
        ("write nothing", |u, rw| {
            u.open("/f", rw, 0)?.write_at(1, b"").map(drop)
        }),
    ];
    let fallocates = [
        Fallocate::Allocate { keep_size: false },
        Fallocate::Allocate { keep_size: true },
        Fallocate::PunchHole,
        Fallocate::ZeroRange { keep_size: false },
        Fallocate::ZeroRange { keep_size: true },
    ];
    // Of each mode what the five leave. Without execution by the group set-group-id means something else, and
    // members of the group keep it.
    for (mode, left) in [
        (0o6777, [0o6777, 0o777, 0o777, 0o777, 0o777]),
        (0o6767, [0o6767, 0o2767, 0o767, 0o2767, 0o767]),
        (0o4666, [0o4666, 0o666, 0o666, 0o666, 0o666]),
        (0o2777, [0o2777, 0o777, 0o777, 0o777, 0o777]),
        (0o777, [0o777; 5]),
    ] {
        let check = |what: &str, change: &dyn Fn(&Volume, OpenFlags) -> extant::Result<()>| {
            for ((who, credentials), left) in users.iter().zip(left) {
                let what = format!("{what} by {who}, mode {mode:o}");
                v.write_file("/f", &[1; 10_000]).unwrap();
                own(&v, "/f", mode);
                v.set_xattr("/f", CAPABILITY, b"all of them", SetXattr::Any)
                    .unwrap();
                v.set_xattr("/f", "user.kept", b"1", SetXattr::Any).unwrap();
                // Once as it is in memory, once as it comes from the device.
                for cold in [false, true] {
                    if cold {
                        own(&v, "/f", mode);
                        v.set_xattr("/f", CAPABILITY, b"all of them", SetXattr::Any)
                            .unwrap();
                        v.sync().unwrap();
                        v.drop_caches();
                    }
                    change(&v.as_user(credentials.clone()), rw)
                        .unwrap_or_else(|e| panic!("{what}: {e}"));
                    let nothing = what.starts_with("write nothing");
                    let expected = if nothing { mode } else { left };
                    let found = v.stat("/f").unwrap().mode & 0o7777;
                    assert_eq!(found, u32::from(expected), "{what}, cold {cold}: {found:o}");
                    let mut names = v.list_xattrs("/f").unwrap();
                    names.retain(|n| n == CAPABILITY.as_bytes() || n == b"user.kept");
                    assert_eq!(names.len(), 1 + usize::from(nothing), "{what}, cold {cold}");
                }
                v.unlink("/f").unwrap();
            }
        };
        for (what, change) in changes {
            check(what, &change);
        }
        for how in fallocates {
            check(&format!("{how:?}"), &fallocate(how));
        }
    }
}

/// The same of chown: it takes them even from root's hand, from all but directories.
#[test]
fn chown_strips_privileges() {
    let Some(v) = volume() else { return };
    let root = Credentials::root();
    let member = Credentials::new(ALICE, STAFF, &[55]);
    let stranger = Credentials::new(ALICE, 7, &[55]);
    let to = |uid, gid| SetAttributes {
        uid,
        gid,
        ..Default::default()
    };
    for (mode, by_members, by_strangers) in [
        (0o6777, 0o777, 0o777),
        (0o6767, 0o2767, 0o767),
        (0o6666, 0o2666, 0o666),
        (0o2767, 0o2767, 0o767),
        (0o4777, 0o777, 0o777),
    ] {
        for (who, credentials, left) in [
            ("root", &root, by_members),
            ("member", &member, by_members),
            ("stranger", &stranger, by_strangers),
        ] {
            for change in [
                to(Some(ALICE), None),
                to(None, Some(STAFF)),
                to(None, Some(55)),
            ] {
                for path in ["/f", "/fifo", "/d"] {
                    match path {
                        "/f" => v.write_file(path, b"x").unwrap(),
                        "/fifo" => v.mknod(path, FileType::Fifo, 0o600, 0).unwrap(),
                        _ => drop(v.create_dir(path, 0o700).unwrap()),
                    }
                    own(&v, path, mode);
                    if path == "/f" {
                        v.set_xattr(path, CAPABILITY, b"c", SetXattr::Any).unwrap();
                    }
                    let what = format!("{path}, {who}: {change:?}, mode {mode:o}");
                    v.as_user(credentials.clone())
                        .set_attributes(path, &change)
                        .unwrap_or_else(|e| panic!("{what}: {e}"));
                    let expected = if path == "/d" { mode } else { left };
                    let found = v.stat(path).unwrap().mode & 0o7777;
                    assert_eq!(found, u32::from(expected), "{what}: {found:o}");
                    let names = v.list_xattrs(path).unwrap();
                    assert!(!names.contains(&CAPABILITY.as_bytes().to_vec()), "{what}");
                    match path {
                        "/d" => v.remove_dir(path).unwrap(),
                        _ => v.unlink(path).unwrap(),
                    }
                }
            }
        }
    }
}

const CAPABILITY: &str = "security.capability";

/// What else changes set-id bits.
#[test]
fn set_id_bits() {
    let Some(v) = volume() else { return };
    let mode = |path: &str| v.stat(path).unwrap().mode & 0o7777;
    let member = v.as_user(Credentials::new(ALICE, STAFF, &[]));
    let stranger = v.as_user(Credentials::new(ALICE, 7, &[]));
    v.write_file("/f", b"1").unwrap();
    // chmod by the owner who is no member of the group cannot set set-group-id.
    for (u, expected) in [(&member, 0o2755), (&stranger, 0o755)] {
        own(&v, "/f", 0o755);
        u.set_attributes(
            "/f",
            &SetAttributes {
                mode: Some(0o2755),
                ..Default::default()
            },
        )
        .unwrap();
        assert_eq!(mode("/f"), expected, "chmod g+s");
    }
    // A directory with it hands its group down, and itself to directories.
    v.create_dir("/team", 0o777).unwrap();
    own(&v, "/team", 0o2777);
    stranger.create("/team/file", 0o644).unwrap();
    stranger.create_dir("/team/dir", 0o755).unwrap();
    stranger.symlink("t", "/team/link").unwrap();
    let group = |path: &str| v.lstat(path).unwrap().gid;
    assert_eq!(
        (group("/team/file"), group("/team/dir"), group("/team/link")),
        (STAFF, STAFF, STAFF)
    );
    assert_eq!((mode("/team/file"), mode("/team/dir")), (0o644, 0o2755));
    // But nobody makes a program that runs as a group he is no member of.
    stranger.create("/team/program", 0o2755).unwrap();
    assert_eq!(
        mode("/team/program"),
        0o755,
        "set-group-id of a foreign group"
    );
    member.create("/team/ours", 0o2755).unwrap();
    assert_eq!(mode("/team/ours"), 0o2755);
    says(
        stranger.create("/f2", 0o600),
        Says::Denied,
        "the root directory is root's",
    );
}

const NONE: u32 = u32::MAX;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Named users and groups under the mask; the owner and others by their own entries.
#[test]
fn access_control_lists() {
    let Some(v) = volume() else { return };
    v.write_file("/f", b"").unwrap();
    own(&v, "/f", 0o600);
    let list = acl(&[
        (1, 6, NONE),
        (2, 7, 2000),
        (2, 0, 2001),
        (4, 4, NONE),
        (8, 6, 300),
        (8, 2, 301),
        (16, 6, NONE),
        (32, 4, NONE),
    ]);
    v.set_xattr("/f", "system.posix_acl_access", &list, SetXattr::Any)
        .unwrap();
    assert_eq!(
        v.stat("/f").unwrap().mode & 0o777,
        0o664,
        "the group bits show the mask"
    );
    let table = [
        ("owner", Credentials::new(ALICE, 7, &[]), 6),
        ("named user", Credentials::new(2000, 7, &[]), 6),
        (
            "named user without",
            Credentials::new(2001, STAFF, &[300]),
            0,
        ),
        ("owning group", Credentials::new(5, STAFF, &[]), 4),
        ("named group", Credentials::new(5, 300, &[]), 6),
        (
            "named group, supplementary",
            Credentials::new(5, 7, &[301]),
            2,
        ),
        (
            "owning group and named group",
            Credentials::new(5, STAFF, &[301]),
            4 | 2,
        ),
        ("other", Credentials::new(5, 7, &[]), 4),
    ];
    let judge = |mask: u16, stage: &str| {
        for (who, credentials, bits) in &table {
            let u = v.as_user(credentials.clone());
            let bits = if ["owner", "other"].contains(who) {
                *bits
            } else {
                bits & mask
            };
            says(
                u.open("/f", OpenFlags::READ, 0),
                yes_if(bits & 4 != 0),
                &format!("{stage}, {who}: read"),
            );
            says(
                u.open("/f", OpenFlags::WRITE, 0),
                yes_if(bits & 2 != 0),
                &format!("{stage}, {who}: write"),
            );
        }
    };
    judge(6, "at first");
    // chmod of the group bits is chmod of the mask.
    v.set_attributes(
        "/f",
        &SetAttributes {
            mode: Some(0o644),
            ..Default::default()
        },
    )
    .unwrap();
    judge(4, "mask r");
    v.set_attributes(
        "/f",
        &SetAttributes {
            mode: Some(0o664),
            ..Default::default()
        },
    )
    .unwrap();
    v.sync().unwrap();
    v.drop_caches();
    judge(6, "read again");
    v.remove_xattr("/f", "system.posix_acl_access").unwrap();
    says(
        v.as_user(Credentials::new(2000, 7, &[]))
            .open("/f", OpenFlags::WRITE, 0),
        Says::Denied,
        "the list is gone",
    );
}

/// Moving a directory elsewhere changes what is in it (".."), so it must be writable itself.
#[test]
fn moving_directories() {
    let Some(v) = volume() else { return };
    for dir in ["/from", "/to", "/from/locked", "/from/open"] {
        v.create_dir(dir, 0o777).unwrap();
    }
    own(&v, "/from/locked", 0o555);
    let u = v.as_user(Credentials::new(3000, 7, &[]));
    says(
        u.rename("/from/locked", "/to/locked", RenameMode::Replace),
        Says::Denied,
        "a directory that is not writable",
    );
    says(
        u.rename("/from/locked", "/from/still", RenameMode::Replace),
        Says::Yes,
        "within its parent",
    );
    says(
        u.rename("/from/open", "/to/open", RenameMode::Replace),
        Says::Yes,
        "one that is writable",
    );
    says(
        u.rename("/to/open", "/from/still", RenameMode::Exchange),
        Says::Denied,
        "the other of an exchange",
    );
    says(
        v.rename("/from/still", "/to/still", RenameMode::Replace),
        Says::Yes,
        "root",
    );
}
