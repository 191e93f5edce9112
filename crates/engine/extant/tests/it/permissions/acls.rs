//! Access control lists.

use crate::common::*;
use crate::permissions::callers::*;
use extant::acl::{Acl, READ, Tag, WRITE};
use extant::{Credentials, OpenOptions, SetAttributes, SetXattr};

/// Named users and groups under the mask; the owner and others by their own entries.
#[test]
fn access_control_lists() {
    let Some(v) = volume() else { return };
    v.write("/f", b"").unwrap();
    own(&v, "/f", 0o600);
    let list = acl_bytes(&[
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
        v.metadata("/f").unwrap().mode() & 0o777,
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
                u.open_file("/f"),
                yes_if(bits & 4 != 0),
                &format!("{stage}, {who}: read"),
            );
            says(
                u.open_file_with("/f", &OpenOptions::new().write(true)),
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
            .open_file_with("/f", &OpenOptions::new().write(true)),
        Says::Denied,
        "the list is gone",
    );
}

/// The lists as values: through a link, by the owner alone, and back to mode bits.
#[test]
fn lists_are_values() {
    let Some(v) = volume() else { return };
    v.write("/f", b"").unwrap();
    own(&v, "/f", 0o640);
    v.symlink("f", "/link").unwrap();
    let minimal = Acl::from_mode(0o640);
    assert_eq!(v.acl("/link").unwrap(), minimal);

    let mut wanted = minimal.clone();
    wanted.set(Tag::User(2000), READ | WRITE);
    wanted.set(Tag::Mask, READ);
    let stranger = v.as_user(Credentials::new(5, 7, &[]));
    says(
        stranger.set_acl("/f", &wanted),
        Says::NotPermitted,
        "another's",
    );
    let owner = v.as_user(Credentials::new(ALICE, STAFF, &[]));
    owner.set_acl("/link", &wanted).unwrap();
    v.sync().unwrap();
    v.drop_caches();
    assert_eq!(stranger.acl("/f").unwrap(), wanted);
    assert_eq!(v.open_file("/f").unwrap().acl().unwrap(), wanted);
    let named = v.as_user(Credentials::new(2000, 7, &[]));
    named.open_file("/f").unwrap();
    let writing = OpenOptions::new().write(true);
    says(
        named.open_file_with("/f", &writing),
        Says::Denied,
        "the mask",
    );

    // An ACL that mode bits can express is not kept as a list.
    owner.set_acl("/f", &minimal).unwrap();
    assert!(v.list_xattrs("/f").unwrap().is_empty());
    assert_eq!(v.acl("/f").unwrap(), minimal);
}

/// A default list belongs to a directory, and new files in it begin with the list.
#[test]
fn default_lists_are_values() {
    let Some(v) = volume() else { return };
    v.create_dir("/dir").unwrap();
    v.write("/f", b"").unwrap();
    assert_eq!(v.default_acl("/f").unwrap(), None);
    let mut list = Acl::from_mode(0o750);
    list.set(Tag::Group(300), READ);
    says(
        v.set_default_acl("/f", Some(&list)),
        Says::Denied,
        "no directory",
    );
    v.set_default_acl("/dir", Some(&list)).unwrap();
    v.create_dir("/dir/below").unwrap();
    assert_eq!(v.default_acl("/dir/below").unwrap().as_ref(), Some(&list));
    v.create_new_file("/dir/file").unwrap();
    let entries = v.acl("/dir/file").unwrap();
    assert!(entries.entries().iter().any(|e| e.tag == Tag::Group(300)));
    v.set_default_acl("/dir", None).unwrap();
    v.set_default_acl("/dir", None).unwrap();
    assert_eq!(v.default_acl("/dir").unwrap(), None);
    assert!(v.default_acl("/dir/below").unwrap().is_some());
}
