//! The table: calls on a file and on a directory, with the caller and the flag.

use extant::unstable::OpenFlags;
use extant::{Fallocate, RenameMode, SetTime, Timestamp};

pub type Answer<T = ()> = Result<T, i32>;

/// A file system as one user sees it. Paths are relative to its root.
pub trait Side {
    type Handle;
    fn open(&self, who: u32, path: &str, flags: OpenFlags) -> Answer<Self::Handle>;
    fn write(&self, who: u32, handle: &Self::Handle, offset: u64) -> Answer;
    fn read(&self, handle: &Self::Handle) -> Answer;
    fn cut(&self, who: u32, handle: &Self::Handle, size: u64) -> Answer;
    fn allocate(&self, who: u32, handle: &Self::Handle, how: Fallocate) -> Answer;
    fn truncate(&self, who: u32, path: &str, size: u64) -> Answer;
    fn chmod(&self, who: u32, path: &str, mode: u16) -> Answer;
    fn chown(&self, who: u32, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer;
    fn times(&self, who: u32, path: &str, atime: Option<SetTime>, mtime: Option<SetTime>)
    -> Answer;
    fn set_xattr(&self, who: u32, path: &str, name: &str, value: &[u8]) -> Answer;
    fn get_xattr(&self, who: u32, path: &str, name: &str) -> Answer;
    fn remove_xattr(&self, who: u32, path: &str, name: &str) -> Answer;
    fn link(&self, who: u32, old: &str, new: &str) -> Answer;
    fn unlink(&self, who: u32, path: &str) -> Answer;
    fn mkdir(&self, who: u32, path: &str) -> Answer;
    fn rmdir(&self, who: u32, path: &str) -> Answer;
    fn symlink(&self, who: u32, path: &str) -> Answer;
    fn fifo(&self, who: u32, path: &str) -> Answer;
    fn device(&self, who: u32, path: &str) -> Answer;
    fn unnamed(&self, who: u32, dir: &str) -> Answer;
    fn rename(&self, who: u32, old: &str, new: &str, mode: RenameMode) -> Answer;
    fn list(&self, who: u32, path: &str) -> Answer;
    fn stat(&self, who: u32, path: &str) -> Answer;
    fn set_flags(&self, who: u32, path: &str, flags: u32) -> Answer;
}

pub const ROOT: u32 = 0;
pub const ALICE: u32 = 1000;
pub const BOB: u32 = 1001;

const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const EXTENTS: u32 = 0x8_0000;

const CALLS: &[&str] = &[
    "open read",
    "open write",
    "open append",
    "open append cut",
    "open cut",
    "open read cut",
    "create existing",
    "create exclusive existing",
    "write by old handle",
    "write nothing by old handle",
    "read by old handle",
    "cut by old handle",
    "grow by old handle",
    "allocate",
    "allocate keep",
    "punch",
    "zero",
    "truncate",
    "chmod",
    "chown same",
    "chown other",
    "chgrp own",
    "chgrp foreign",
    "touch",
    "touch atime",
    "set times",
    "set xattr",
    "get xattr",
    "get none",
    "remove xattr",
    "remove none",
    "set trusted",
    "get trusted",
    "set security",
    "set acl",
    "set default acl",
    "remove acl",
    "set no name",
    "set unknown",
    "set long name",
    "set large",
    "link",
    "link over",
    "unlink",
    "rmdir",
    "rename",
    "rename over",
    "rename into",
    "rename onto",
    "rename noreplace",
    "exchange",
    "whiteout",
    "set no flag",
    "set nodump",
    "set same",
    "set immutable",
    "set append",
    "set dirsync",
    "set topdir",
    "list",
    "stat",
    "create in",
    "create in existing",
    "mkdir in",
    "mkdir in existing",
    "symlink in",
    "fifo in",
    "device in",
    "unnamed in",
    "link into",
    "unlink in",
    "unlink in nothing",
    "unlink in directory",
    "rmdir in",
    "rmdir in full",
    "rename in",
    "rename in over",
    "rename out",
    "exchange out",
    "whiteout in",
    "write in",
    "stat in",
];

/// A row of the table.
pub struct Case {
    number: usize,
    call: &'static str,
    target: &'static str,
    mode: u16,
    flag: u32,
    who: u32,
}

pub fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    // Modes with and without permissions for others, and sticky directories.
    for (target, mode) in [
        ("file", 0o666),
        ("file", 0o600),
        ("dir", 0o777),
        ("dir", 0o700),
        ("dir", 0o1777),
    ] {
        for flag in [0, IMMUTABLE, APPEND] {
            if flag != 0 && !matches!(mode, 0o666 | 0o777) {
                continue;
            }
            for who in [ROOT, ALICE, BOB] {
                for call in CALLS {
                    // The kernel's answer depends on a system setting (protected_hardlinks).
                    if *call == "link" && who == BOB && mode == 0o600 {
                        continue;
                    }
                    all.push(Case {
                        number: all.len(),
                        call,
                        target,
                        mode,
                        flag,
                        who,
                    });
                }
            }
        }
    }
    all
}

impl Case {
    pub fn name(&self) -> String {
        let flag = match self.flag {
            IMMUTABLE => "immutable ",
            APPEND => "append-only ",
            _ => "",
        };
        let who = match self.who {
            ROOT => "root",
            ALICE => "the owner",
            _ => "another",
        };
        let Self {
            call, target, mode, ..
        } = self;
        format!("{call}: {flag}{target} {mode:o} by {who}")
    }

    /// Prepares the files, makes the call, and cleans up. Returns the errno, or 0.
    pub fn run<S: Side>(&self, s: &S) -> i32 {
        let base = format!("c{}", self.number);
        let at = |name: &str| format!("{base}/{name}");
        let t = at("t");
        let rw = OpenFlags::READ | OpenFlags::WRITE;
        let fresh = rw | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let own = |path: &str, mode| {
            s.chown(ROOT, path, Some(ALICE), Some(ALICE)).unwrap();
            s.chmod(ROOT, path, mode).unwrap();
        };
        s.mkdir(ROOT, &base).unwrap();
        own(&base, 0o777);
        let file = |name: &str, mode: u16| {
            let path = at(name);
            let handle = s.open(ROOT, &path, fresh).unwrap();
            s.write(ROOT, &handle, 0).unwrap();
            own(&path, mode);
            handle
        };
        drop(file("other", 0o666));
        let handle = if self.target == "file" {
            Some(file("t", self.mode))
        } else {
            s.mkdir(ROOT, &t).unwrap();
            drop(file("t/inner", 0o666));
            drop(file("t/inner2", 0o666));
            for dir in ["t/empty", "t/full", "t/full/x"] {
                s.mkdir(ROOT, &at(dir)).unwrap();
                own(&at(dir), 0o777);
            }
            own(&t, self.mode);
            None
        };
        s.mkdir(ROOT, &at("empty")).unwrap();
        own(&at("empty"), 0o777);
        s.set_xattr(ROOT, &t, "user.there", b"1").unwrap();
        s.set_xattr(ROOT, &t, "trusted.there", b"1").unwrap();
        let extents = EXTENTS;
        if self.flag != 0 {
            s.set_flags(ROOT, &t, self.flag | extents).unwrap();
        }
        let done = self.call(s, &at, &t, handle.as_ref());
        s.set_flags(ROOT, &t, extents)
            .or_else(|_| s.set_flags(ROOT, &at("moved"), extents))
            .or_else(|_| s.set_flags(ROOT, &at("other"), extents))
            .ok();
        done.err().unwrap_or(0)
    }

    fn call<S: Side>(
        &self,
        s: &S,
        at: &dyn Fn(&str) -> String,
        t: &str,
        handle: Option<&S::Handle>,
    ) -> Answer {
        let who = self.who;
        let (read, write, append) = (OpenFlags::READ, OpenFlags::WRITE, OpenFlags::APPEND);
        let (cut, create) = (OpenFlags::TRUNCATE, OpenFlags::CREATE);
        let open = |path: &str, flags| s.open(who, path, flags).map(drop);
        let by_handle = |f: &dyn Fn(&S::Handle) -> Answer| handle.map_or(Ok(()), f);
        let rename = |old: &str, new: &str, mode| s.rename(who, old, new, mode);
        let replace = RenameMode::Replace;
        let (now, then) = (Some(SetTime::Now), Some(SetTime::At(Timestamp::new(9, 0))));
        let user = |mask: u32| super::acl_bytes(&[(1, 6, mask), (4, 4, mask), (32, 4, mask)]);
        let acl = user(u32::MAX);
        let inner = at("t/inner");
        match self.call {
            "open read" => open(t, read),
            "open write" => open(t, write),
            "open append" => open(t, write | append),
            "open append cut" => open(t, write | append | cut),
            "open cut" => open(t, write | cut),
            "open read cut" => open(t, read | cut),
            "create existing" => open(t, read | create),
            "create exclusive existing" => open(t, read | create | OpenFlags::EXCLUSIVE),
            "write by old handle" => by_handle(&|h| s.write(who, h, 1)),
            "write nothing by old handle" => by_handle(&|h| s.cut(ROOT, h, 4)),
            "read by old handle" => by_handle(&|h| s.read(h)),
            "cut by old handle" => by_handle(&|h| s.cut(who, h, 1)),
            "grow by old handle" => by_handle(&|h| s.cut(who, h, 9000)),
            "allocate" => {
                by_handle(&|h| s.allocate(who, h, Fallocate::Allocate { keep_size: false }))
            }
            "allocate keep" => {
                by_handle(&|h| s.allocate(who, h, Fallocate::Allocate { keep_size: true }))
            }
            "punch" => by_handle(&|h| s.allocate(who, h, Fallocate::PunchHole)),
            "zero" => by_handle(&|h| s.allocate(who, h, Fallocate::ZeroRange { keep_size: true })),
            "truncate" => s.truncate(who, t, 2),
            "chmod" => s.chmod(who, t, 0o640),
            "chown same" => s.chown(who, t, Some(ALICE), None),
            "chown other" => s.chown(who, t, Some(BOB), None),
            "chgrp own" => s.chown(who, t, None, Some(who)),
            "chgrp foreign" => s.chown(who, t, None, Some(77)),
            "touch" => s.times(who, t, now, now),
            "touch atime" => s.times(who, t, now, None),
            "set times" => s.times(who, t, then, then),
            "set xattr" => s.set_xattr(who, t, "user.new", b"1"),
            "get xattr" => s.get_xattr(who, t, "user.there"),
            "get none" => s.get_xattr(who, t, "user.none"),
            "remove xattr" => s.remove_xattr(who, t, "user.there"),
            "remove none" => s.remove_xattr(who, t, "user.none"),
            "set trusted" => s.set_xattr(who, t, "trusted.new", b"1"),
            "get trusted" => s.get_xattr(who, t, "trusted.there"),
            "set security" => s.set_xattr(who, t, "security.new", b"1"),
            "set acl" => s.set_xattr(who, t, "system.posix_acl_access", &acl),
            "set default acl" => s.set_xattr(who, t, "system.posix_acl_default", &acl),
            "remove acl" => s.remove_xattr(who, t, "system.posix_acl_access"),
            "set no name" => s.set_xattr(who, t, "user.", b"1"),
            "set unknown" => s.set_xattr(who, t, "unknown.a", b"1"),
            "set long name" => s.set_xattr(who, t, &format!("user.{}", "n".repeat(251)), b"1"),
            "set large" => s.set_xattr(who, t, "user.large", &[1; 60_000]),
            "link" => s.link(who, t, &at("linked")),
            "link over" => s.link(who, t, &at("other")),
            "unlink" => s.unlink(who, t),
            "rmdir" => s.rmdir(who, t),
            "rename" => rename(t, &at("moved"), replace),
            "rename over" => rename(&at("other"), t, replace),
            "rename into" => rename(t, &at("empty/moved"), replace).map(|()| rename_back(s, at)),
            "rename onto" => rename(t, &at("other"), replace),
            "rename noreplace" => rename(t, &at("other"), RenameMode::NoReplace),
            "exchange" => rename(t, &at("other"), RenameMode::Exchange),
            "whiteout" => rename(t, &at("moved"), RenameMode::Whiteout),
            "set no flag" => s.set_flags(who, t, EXTENTS),
            "set nodump" => s.set_flags(who, t, self.flag | EXTENTS | 0x40),
            "set same" => s.set_flags(who, t, self.flag | EXTENTS),
            "set immutable" => s.set_flags(who, t, IMMUTABLE | EXTENTS),
            "set append" => s.set_flags(who, t, APPEND | EXTENTS),
            "set dirsync" => s.set_flags(who, t, self.flag | EXTENTS | 0x1_0000),
            "set topdir" => s.set_flags(who, t, self.flag | EXTENTS | 0x2_0000),
            "list" => s.list(who, t),
            "stat" => s.stat(who, t),
            "create in" => open(&at("t/new"), write | create),
            "create in existing" => open(&inner, read | create),
            "mkdir in" => s.mkdir(who, &at("t/new")),
            "mkdir in existing" => s.mkdir(who, &inner),
            "symlink in" => s.symlink(who, &at("t/new")),
            "fifo in" => s.fifo(who, &at("t/new")),
            "device in" => s.device(who, &at("t/new")),
            "unnamed in" => s.unnamed(who, t),
            "link into" => s.link(who, &at("other"), &at("t/new")),
            "unlink in" => s.unlink(who, &inner),
            "unlink in nothing" => s.unlink(who, &at("t/nothing")),
            "unlink in directory" => s.unlink(who, &at("t/empty")),
            "rmdir in" => s.rmdir(who, &at("t/empty")),
            "rmdir in full" => s.rmdir(who, &at("t/full")),
            "rename in" => rename(&inner, &at("t/new"), replace),
            "rename in over" => rename(&inner, &at("t/inner2"), replace),
            "rename out" => rename(&inner, &at("new"), replace),
            "exchange out" => rename(&inner, &at("other"), RenameMode::Exchange),
            "whiteout in" => rename(&inner, &at("t/new"), RenameMode::Whiteout),
            "write in" => open(&inner, write | cut),
            "stat in" => s.stat(who, &inner),
            other => panic!("no such call: {other}"),
        }
    }
}

/// Restores the name that the clean-up expects.
fn rename_back<S: Side>(s: &S, at: &dyn Fn(&str) -> String) {
    s.rename(ROOT, &at("empty/moved"), &at("moved"), RenameMode::Replace)
        .ok();
}
