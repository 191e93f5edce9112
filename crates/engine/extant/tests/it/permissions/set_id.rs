//! Set-id bits and capabilities: which callers may set them, and which calls remove them.

use crate::permissions::callers::*;
use extant::{Credentials, Fallocate, FileType, OpenOptions, SetAttributes, SetXattr, Volume};

/// The set-id bits and capabilities left after a change of a file, by caller and kind of change. Linux 6.18 gives
/// these answers for ext4.
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
    let rw = OpenOptions::new().read(true).write(true);
    type Change = fn(&Volume, OpenOptions) -> extant::Result<()>;
    let fallocate = |how| {
        move |u: &Volume, rw: OpenOptions| u.open_file_with("/f", &rw)?.fallocate(how, 0, 4096)
    };
    let changes: [(&str, Change); 8] = [
        ("write", |u, rw| {
            u.open_file_with("/f", &rw)?.write_at(b"x", 1).map(drop)
        }),
        ("append", |u, rw| {
            u.open_file_with("/f", &rw)?.append(b"x").map(drop)
        }),
        ("new block", |u, rw| {
            u.open_file_with("/f", &rw)?
                .write_at(b"x", 1 << 20)
                .map(drop)
        }),
        ("shrink", |u, _| u.set_len("/f", 5)),
        ("same size", |u, _| u.set_len("/f", 10_000)),
        ("grow", |u, rw| u.open_file_with("/f", &rw)?.set_len(20_000)),
        ("open and cut", |u, rw| {
            u.open_file_with("/f", &rw.truncate(true)).map(drop)
        }),
        ("write nothing", |u, rw| {
            u.open_file_with("/f", &rw)?.write_at(b"", 1).map(drop)
        }),
    ];
    let fallocates = [
        Fallocate::Allocate { keep_size: false },
        Fallocate::Allocate { keep_size: true },
        Fallocate::PunchHole,
        Fallocate::ZeroRange { keep_size: false },
        Fallocate::ZeroRange { keep_size: true },
    ];
    // The part of each mode that the five callers leave. Without execution by the group set-group-id means something
    // else, and members of the group keep it.
    for (mode, left) in [
        (0o6777, [0o6777, 0o777, 0o777, 0o777, 0o777]),
        (0o6767, [0o6767, 0o2767, 0o767, 0o2767, 0o767]),
        (0o4666, [0o4666, 0o666, 0o666, 0o666, 0o666]),
        (0o2777, [0o2777, 0o777, 0o777, 0o777, 0o777]),
        (0o777, [0o777; 5]),
    ] {
        let check = |what: &str, change: &dyn Fn(&Volume, OpenOptions) -> extant::Result<()>| {
            for ((who, credentials), left) in users.iter().zip(left) {
                let what = format!("{what} by {who}, mode {mode:o}");
                v.write("/f", [1; 10_000]).unwrap();
                own(&v, "/f", mode);
                v.set_xattr("/f", CAPABILITY, b"all of them", SetXattr::Any)
                    .unwrap();
                v.set_xattr("/f", "user.kept", b"1", SetXattr::Any).unwrap();
                // Checked once as it is in memory, and once as loaded from the device.
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
                    let found = v.metadata("/f").unwrap().mode() & 0o7777;
                    assert_eq!(found, u32::from(expected), "{what}, cold {cold}: {found:o}");
                    let mut names = v.list_xattrs("/f").unwrap();
                    names.retain(|n| n == CAPABILITY || n == "user.kept");
                    assert_eq!(names.len(), 1 + usize::from(nothing), "{what}, cold {cold}");
                }
                v.remove_file("/f").unwrap();
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

/// chown removes the bits even if root calls it, from all files but directories.
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
                        "/f" => v.write(path, b"x").unwrap(),
                        "/fifo" => v.mknod(path, FileType::Fifo, 0o600, 0).unwrap(),
                        _ => drop(v.create_dir_with_mode(path, 0o700).unwrap()),
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
                    let found = v.metadata(path).unwrap().mode() & 0o7777;
                    assert_eq!(found, u32::from(expected), "{what}: {found:o}");
                    let names = v.list_xattrs(path).unwrap();
                    assert!(!names.iter().any(|n| n == CAPABILITY), "{what}");
                    match path {
                        "/d" => v.remove_dir(path).unwrap(),
                        _ => v.remove_file(path).unwrap(),
                    }
                }
            }
        }
    }
}

const CAPABILITY: &str = "security.capability";

/// Other calls that change set-id bits.
#[test]
fn set_id_bits() {
    let Some(v) = volume() else { return };
    let mode = |path: &str| v.metadata(path).unwrap().mode() & 0o7777;
    let member = v.as_user(Credentials::new(ALICE, STAFF, &[]));
    let stranger = v.as_user(Credentials::new(ALICE, 7, &[]));
    v.write("/f", b"1").unwrap();
    // chmod by an owner outside the group cannot set set-group-id.
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
    // A directory with set-group-id passes its group to new inodes, and the bit itself to new directories.
    v.create_dir_with_mode("/team", 0o777).unwrap();
    own(&v, "/team", 0o2777);
    stranger.create_new_file("/team/file").unwrap();
    stranger.create_dir("/team/dir").unwrap();
    stranger.symlink("t", "/team/link").unwrap();
    let group = |path: &str| v.symlink_metadata(path).unwrap().gid();
    assert_eq!(
        (group("/team/file"), group("/team/dir"), group("/team/link")),
        (STAFF, STAFF, STAFF)
    );
    assert_eq!((mode("/team/file"), mode("/team/dir")), (0o644, 0o2755));
    // But no user can make a program that runs as a group that the user is not a member of.
    stranger
        .open_file_with(
            "/team/program",
            &OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o2755),
        )
        .unwrap();
    assert_eq!(
        mode("/team/program"),
        0o755,
        "set-group-id of a foreign group"
    );
    member
        .open_file_with(
            "/team/ours",
            &OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o2755),
        )
        .unwrap();
    assert_eq!(mode("/team/ours"), 0o2755);
    says(
        stranger.open_file_with(
            "/f2",
            &OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600),
        ),
        Says::Denied,
        "the root directory is root's",
    );
}
