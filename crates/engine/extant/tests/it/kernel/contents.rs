//! Trees with one of everything, made by either side.

use crate::common::*;
use extant::{Dir, Fallocate, FileType, SetAttributes, SetTime, SetXattr, Timestamp};
use std::path::Path;

pub fn pattern(n: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(n + 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// A tree with one of everything.
pub fn make(v: &Dir, many: usize) {
    let extents = v
        .create_new_file("/probe")
        .unwrap()
        .fallocate(Fallocate::default(), 0, 1)
        .is_ok();
    v.remove_file("/probe").unwrap();
    let big = v.create_dir_with_mode("/big", 0o750).unwrap();
    (0..many).for_each(|n| drop(big.create_new_file(format!("name number {n}")).unwrap()));
    // Some names are removed again, so that leaves have gaps.
    (0..many)
        .step_by(7)
        .for_each(|n| big.remove_file(format!("name number {n}")).unwrap());
    let mut deep = String::new();
    for n in 0..150 {
        deep += &format!("/level{n}");
        v.create_dir(&deep).unwrap();
    }
    v.write(format!("{deep}/bottom"), b"down here").unwrap();
    v.create_dir_with_mode("/kinds", 0o1777).unwrap();
    for (n, (file_type, rdev)) in [
        (FileType::CharDevice, ext4_format::inode::makedev(1, 3)),
        (
            FileType::BlockDevice,
            ext4_format::inode::makedev(259, 70_000),
        ),
        (FileType::Fifo, 0),
        (FileType::Socket, 0),
    ]
    .into_iter()
    .enumerate()
    {
        v.mknod(
            format!("/kinds/special{n}"),
            file_type,
            0o600 + n as u32,
            rdev,
        )
        .unwrap();
    }
    v.symlink("short", "/kinds/fast").unwrap();
    v.symlink("x".repeat(59), "/kinds/fast59").unwrap();
    v.symlink("x".repeat(60), "/kinds/slow60").unwrap();
    v.symlink("dir/".repeat(225), "/kinds/slow").unwrap();
    for (n, len) in [0usize, 1, 4095, 4096, 4097, 100_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        v.write(format!("/kinds/file{n}"), pattern(n as u64, len))
            .unwrap();
        v.hard_link(format!("/kinds/file{n}"), format!("/big/link{n}"))
            .unwrap();
    }
    let sparse = v.create_new_file("/kinds/sparse").unwrap();
    for at in [0u64, 40_960, 5_000_000, 70_000_000] {
        sparse.write_at(&pattern(at, 10_000), at).unwrap();
    }
    if extents {
        sparse
            .fallocate(Fallocate::PunchHole, 5_000_000, 4_096)
            .unwrap();
        sparse
            .fallocate(Fallocate::Allocate { keep_size: true }, 20_000_000, 100_000)
            .unwrap();
    }
    sparse.set_len(80_000_001).unwrap();
    let shredded = v.create_new_file("/kinds/shredded").unwrap();
    for n in 0..1500u64 {
        shredded.write_at(&pattern(n, 100), n * 8192).unwrap();
    }
    v.create_dir("/attributes").unwrap();
    for (n, len) in [0usize, 10, 90, 400, 800].into_iter().enumerate() {
        let path = format!("/attributes/x{n}");
        v.write(&path, b"with attributes").unwrap();
        v.set_xattr(&path, "user.some", &pattern(n as u64, len), SetXattr::Any)
            .unwrap();
        v.set_xattr(&path, "trusted.other", b"value", SetXattr::Any)
            .unwrap();
        v.set_xattr(&path, "security.third", &[n as u8; 20], SetXattr::Any)
            .unwrap();
    }
    let none = u32::MAX;
    let access = acl_bytes(&[
        (1, 6, none),
        (2, 4, 1000),
        (4, 4, none),
        (8, 6, 100),
        (16, 6, none),
        (32, 0, none),
    ]);
    v.set_xattr(
        "/attributes/x1",
        "system.posix_acl_access",
        &access,
        SetXattr::Any,
    )
    .unwrap();
    let default = acl_bytes(&[
        (1, 7, none),
        (2, 5, 1000),
        (4, 5, none),
        (16, 5, none),
        (32, 1, none),
    ]);
    v.set_xattr(
        "/attributes",
        "system.posix_acl_default",
        &default,
        SetXattr::Any,
    )
    .unwrap();
    v.create_dir_with_mode("/attributes/inherits", 0o777)
        .unwrap();
    v.write("/attributes/inherits/file", b"mine").unwrap();
    for (path, mode, uid, gid, secs, nanos) in [
        (
            "/kinds/file1",
            0o4755,
            1000,
            100,
            1_600_000_000i64,
            123_456_789u32,
        ),
        ("/kinds/file2", 0o2750, 70_000, 80_000, -1, 1),
        ("/kinds/file3", 0o000, 1, 2, 0, 999_999_999),
        ("/kinds", 0o1777, 5, 6, 2_147_483_647, 5),
    ] {
        let time = Some(SetTime::At(Timestamp::new(secs, nanos)));
        v.set_attributes(
            path,
            &SetAttributes {
                uid: Some(uid),
                gid: Some(gid),
                atime: time,
                mtime: time,
                ..Default::default()
            },
        )
        .unwrap();
        v.set_attributes(
            path,
            &SetAttributes {
                mode: Some(mode),
                atime: time,
                mtime: time,
                ..Default::default()
            },
        )
        .unwrap();
    }
    v.set_attributes(
        "/kinds/file4",
        &SetAttributes {
            mtime: Some(Timestamp::new(4_000_000_000, 7).into()),
            ..Default::default()
        },
    )
    .unwrap();
}

/// Makes the same contents by system calls.
pub fn make_by_kernel(root: &Path, many: usize) {
    let at = |p: &str| root.join(p);
    std::fs::create_dir(at("big")).unwrap();
    for n in 0..many {
        std::fs::write(
            at(&format!("big/kernel's name {n}")),
            if n % 10 == 0 { "x" } else { "" },
        )
        .unwrap();
    }
    for n in (0..many).step_by(5) {
        std::fs::remove_file(at(&format!("big/kernel's name {n}"))).unwrap();
    }
    std::fs::create_dir_all(at(&(0..100)
        .map(|n| format!("deep{n}"))
        .collect::<Vec<_>>()
        .join("/")))
    .unwrap();
    std::fs::create_dir(at("kinds")).unwrap();
    use rustix::fs::{CWD, FileType as Type, Mode, makedev, mknodat};
    let mode = Mode::from_raw_mode(0o640);
    mknodat(
        CWD,
        at("kinds/null"),
        Type::CharacterDevice,
        mode,
        makedev(1, 3),
    )
    .unwrap();
    mknodat(
        CWD,
        at("kinds/disk"),
        Type::BlockDevice,
        mode,
        makedev(259, 70_000),
    )
    .unwrap();
    mknodat(CWD, at("kinds/fifo"), Type::Fifo, mode, 0).unwrap();
    mknodat(CWD, at("kinds/socket"), Type::Socket, mode, 0).unwrap();
    for len in [5, 59, 60, 900] {
        std::os::unix::fs::symlink("y".repeat(len), at(&format!("kinds/link{len}"))).unwrap();
    }
    for (n, len) in [0usize, 1, 4096, 100_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        std::fs::write(at(&format!("kinds/file{n}")), pattern(n as u64, len)).unwrap();
        std::fs::hard_link(at(&format!("kinds/file{n}")), at(&format!("big/hard{n}"))).unwrap();
        let xattr = |name: &str, value: &[u8]| {
            rustix::fs::setxattr(
                at(&format!("kinds/file{n}")),
                name,
                value,
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
        };
        xattr("user.some", &pattern(n as u64, n * 150));
        xattr("trusted.other", b"value");
    }
    use std::os::unix::fs::FileExt;
    let sparse = std::fs::File::create(at("kinds/sparse")).unwrap();
    for n in 0..800u64 {
        sparse.write_at(&pattern(n, 50), n * 9_000).unwrap();
    }
    sparse.write_at(&pattern(1, 10_000), 90_000_000).unwrap();
    sparse.set_len(100_000_000).unwrap();
    // Preallocation where there are extents.
    let _ = rustix::fs::fallocate(
        &sparse,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        50_000_000,
        200_000,
    );
    let none = u32::MAX;
    let flags = rustix::fs::XattrFlags::empty();
    let default = acl_bytes(&[
        (1, 7, none),
        (2, 5, 1000),
        (4, 5, none),
        (16, 5, none),
        (32, 1, none),
    ]);
    rustix::fs::setxattr(at("kinds"), "system.posix_acl_default", &default, flags).unwrap();
    std::fs::write(at("kinds/inherits"), b"an ACL").unwrap();
    std::fs::create_dir(at("kinds/inherits too")).unwrap();
    std::os::unix::fs::chown(at("kinds/file1"), Some(1000), Some(70_000)).unwrap();
    std::fs::set_permissions(
        at("kinds/file1"),
        std::os::unix::fs::PermissionsExt::from_mode(0o4711),
    )
    .unwrap();
}
