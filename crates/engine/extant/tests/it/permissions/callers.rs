//! The caller, the call, and the expected answer.

use crate::common::*;
use extant::{Credentials, Error, SetAttributes, Volume};

pub const ALICE: u32 = 1000;
pub const STAFF: u32 = 100;

/// Owner, member of the owning group, member by a supplementary group, and a user in none of these classes.
pub fn callers() -> [(&'static str, Credentials); 4] {
    [
        ("owner", Credentials::new(ALICE, 7, &[])),
        ("group", Credentials::new(1001, STAFF, &[])),
        ("supplementary", Credentials::new(1002, 7, &[55, STAFF])),
        ("other", Credentials::new(1003, 7, &[55])),
    ]
}

pub fn volume() -> Option<Volume> {
    needs::have(&["mke2fs"]).then(|| open(&mem_image("16M", &["-t", "ext4", "-J", "size=4"])))
}

pub fn own(v: &Volume, path: &str, mode: u16) {
    let set = SetAttributes {
        uid: Some(ALICE),
        gid: Some(STAFF),
        ..Default::default()
    };
    v.set_symlink_attributes(path, &set).unwrap();
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
pub enum Says {
    Yes,
    /// EACCES: a permission bit is missing.
    Denied,
    /// EPERM: not the owner, or not root.
    NotPermitted,
}

#[track_caller]
pub fn says<T>(result: extant::Result<T>, expected: Says, what: &str) {
    let found = match result {
        Ok(_) => Says::Yes,
        Err(Error::PermissionDenied) => Says::Denied,
        Err(Error::NotPermitted) => Says::NotPermitted,
        Err(e) => panic!("{what}: {e:?}"),
    };
    assert_eq!(found, expected, "{what}");
}

pub fn yes_if(allowed: bool) -> Says {
    if allowed { Says::Yes } else { Says::Denied }
}

pub const NONE: u32 = u32::MAX;
