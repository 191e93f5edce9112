//! Access control lists.

use crate::callers::*;
use crate::common::*;
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
