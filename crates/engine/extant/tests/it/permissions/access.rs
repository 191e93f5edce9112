//! Mode bits of each class, of files and directories; the sticky bit.

use crate::common::list;
use crate::permissions::callers::*;
use extant::{Credentials, FileType, OpenOptions, RenameMode, SetAttributes, SetXattr};

/// The bits of the caller's class decide, and no others.
#[test]
fn files_by_class() {
    let Some(v) = volume() else { return };
    v.write("/f", b"content").unwrap();
    for bits in 0..8u16 {
        for class in 0..3 {
            // All other classes have the bits that this one lacks.
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
                let open = |options: OpenOptions| as_user.open_file_with("/f", &options);
                says(
                    open(OpenOptions::new().read(true)),
                    yes_if(mine & 4 != 0),
                    &format!("{what}: read"),
                );
                says(
                    open(OpenOptions::new().write(true)),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: write"),
                );
                says(
                    open(OpenOptions::new().append(true)),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: append"),
                );
                says(
                    open(OpenOptions::new().read(true).write(true)),
                    yes_if(mine & 6 == 6),
                    &format!("{what}: both"),
                );
                says(
                    open(OpenOptions::new().read(true).truncate(true)),
                    yes_if(mine & 6 == 6),
                    &format!("{what}: cut"),
                );
                says(
                    as_user.set_len("/f", 3),
                    yes_if(mine & 2 != 0),
                    &format!("{what}: truncate"),
                );
                says(as_user.metadata("/f"), Says::Yes, &what);
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
                v.open_file_with("/f", &OpenOptions::new().read(true).write(true)),
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
    v.create_dir_with_mode("/d", 0o777).unwrap();
    for bits in 0..8u16 {
        own(&v, "/d", bits);
        let (read, change, search) = (bits & 4 != 0, bits & 3 == 3, bits & 1 != 0);
        for name in ["/d/file", "/d/gone", "/d/old", "/d/target"] {
            v.write(name, b"").unwrap();
            v.set_attributes(
                name,
                &SetAttributes {
                    mode: Some(0o666),
                    ..Default::default()
                },
            )
            .unwrap();
        }
        v.create_dir_with_mode("/d/sub", 0o777).unwrap();
        let u = v.as_user(Credentials::new(1003, 7, &[]));
        let what = format!("directory with bits {bits:o}");
        says(list(&u, "/d"), yes_if(read), &format!("{what}: list"));
        says(
            u.metadata("/d/file"),
            yes_if(search),
            &format!("{what}: stat"),
        );
        says(
            u.open_file("/d/file"),
            yes_if(search),
            &format!("{what}: open"),
        );
        let create = OpenOptions::new().write(true).create(true);
        says(
            u.open_file_with("/d/file", &create.mode(0o600)),
            yes_if(search),
            &format!("{what}: open with create what exists"),
        );
        says(
            u.open_file_with(
                "/d/new",
                &OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600),
            ),
            yes_if(change),
            &format!("{what}: create"),
        );
        says(
            u.create_dir_with_mode("/d/newdir", 0o700),
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
            u.hard_link("/d/file", "/d/newname"),
            yes_if(change),
            &format!("{what}: link"),
        );
        says(
            u.remove_file("/d/gone"),
            yes_if(change),
            &format!("{what}: unlink"),
        );
        says(
            u.remove_dir("/d/sub"),
            yes_if(change),
            &format!("{what}: rmdir"),
        );
        says(
            u.rename("/d/old", "/d/renamed"),
            yes_if(change),
            &format!("{what}: rename"),
        );
        for entry in list(&v, "/d").unwrap() {
            let path = format!("/d/{}", String::from_utf8(entry.name).unwrap());
            if entry.file_type == FileType::Directory {
                v.remove_dir(path)
            } else {
                v.remove_file(path)
            }
            .unwrap();
        }
    }
}

/// In a sticky directory only root and the owner of the name or of the directory may remove the name.
#[test]
fn sticky() {
    let Some(v) = volume() else { return };
    v.create_dir_with_mode("/tmp", 0o777).unwrap();
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
        maker.write("/tmp/a", b"").unwrap();
        maker.write("/tmp/b", b"").unwrap();
        maker.create_dir_with_mode("/tmp/dir", 0o777).unwrap();
        let u = v.as_user(credentials);
        u.write("/tmp/mine", b"").unwrap();
        let expected = if may { Says::Yes } else { Says::NotPermitted };
        says(
            u.rename("/tmp/a", "/tmp/a2"),
            expected,
            &format!("{who}: rename"),
        );
        if may {
            u.rename("/tmp/a2", "/tmp/a").unwrap();
        }
        says(
            u.rename_with("/tmp/mine", "/tmp/b", RenameMode::Exchange),
            expected,
            &format!("{who}: exchange"),
        );
        says(
            u.rename("/tmp/mine", "/tmp/b"),
            expected,
            &format!("{who}: rename over"),
        );
        says(u.remove_file("/tmp/a"), expected, &format!("{who}: unlink"));
        says(u.remove_dir("/tmp/dir"), expected, &format!("{who}: rmdir"));
        for name in ["/tmp/a", "/tmp/b", "/tmp/mine"] {
            let _ = v.remove_file(name);
        }
        let _ = v.remove_dir("/tmp/dir");
    }
}

/// Moving a directory to another parent changes its entry "..", so the directory itself must be writable.
#[test]
fn moving_directories() {
    let Some(v) = volume() else { return };
    for dir in ["/from", "/to", "/from/locked", "/from/open"] {
        v.create_dir_with_mode(dir, 0o777).unwrap();
    }
    own(&v, "/from/locked", 0o555);
    let u = v.as_user(Credentials::new(3000, 7, &[]));
    says(
        u.rename("/from/locked", "/to/locked"),
        Says::Denied,
        "a directory that is not writable",
    );
    says(
        u.rename("/from/locked", "/from/still"),
        Says::Yes,
        "within its parent",
    );
    says(
        u.rename("/from/open", "/to/open"),
        Says::Yes,
        "one that is writable",
    );
    says(
        u.rename_with("/to/open", "/from/still", RenameMode::Exchange),
        Says::Denied,
        "the other of an exchange",
    );
    says(v.rename("/from/still", "/to/still"), Says::Yes, "root");
}
