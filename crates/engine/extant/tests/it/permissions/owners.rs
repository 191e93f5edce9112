//! Attributes that only owners or root may change.

use crate::common::*;
use crate::permissions::callers::*;
use ext4_format::inode::flags::{EXTENTS, IMMUTABLE};
use extant::{Credentials, FileType, SetAttributes, SetXattr, Timestamp};

/// Attributes that only the owner, or only root, may set.
#[test]
fn attributes() {
    let Some(v) = volume() else { return };
    let set = SetAttributes::default();
    let time = Some(Timestamp::new(1, 0).into());
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
                flags: Some(IMMUTABLE | EXTENTS),
                ..set
            },
            No,
            No,
        ),
    ] {
        v.write("/f", b"").unwrap();
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
                flags: Some(EXTENTS),
                ..set
            },
        )
        .unwrap();
        v.remove_file("/f").unwrap();
    }
    v.write("/f", b"").unwrap();
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
            acl_bytes(&[(1, 6, NONE), (4, 6, NONE), (32, 6, NONE)])
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
    assert!(listed.iter().any(|n| n == "user.a") && !listed.iter().any(|n| n == "trusted.a"));
    says(
        owner.mknod("/dev", FileType::CharDevice, 0o600, 1),
        Says::Denied,
        "a device by a user who may not write there",
    );
    own(&v, "/", 0o755);
    says(
        owner.mknod("/dev", FileType::CharDevice, 0o600, 1),
        Says::NotPermitted,
        "a device by a user",
    );
}
