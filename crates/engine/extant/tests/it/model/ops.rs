//! Operations, and sequences of them made at random but sensible: most paths exist.

use super::common::Rng;
use super::reference::{AclEntry, Model, NodeKind};
use extant::{Fallocate, FileType, RenameMode, SetXattr};

#[derive(Clone, Debug)]
pub enum Op {
    Open {
        path: String,
        create: bool,
        exclusive: bool,
        cut: bool,
        mode: u16,
    },
    Write {
        path: String,
        at: u64,
        len: usize,
        fill: u8,
    },
    Append {
        path: String,
        len: usize,
        fill: u8,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Fallocate {
        path: String,
        how: Fallocate,
        at: u64,
        len: u64,
    },
    Read {
        path: String,
        at: u64,
        len: usize,
    },
    Seek {
        path: String,
        at: u64,
    },
    Link {
        old: String,
        new: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
        mode: u16,
    },
    Rmdir {
        path: String,
    },
    Rename {
        old: String,
        new: String,
        mode: RenameMode,
    },
    Symlink {
        target: String,
        path: String,
    },
    ReadLink {
        path: String,
    },
    Mknod {
        path: String,
        file_type: FileType,
        rdev: u32,
        mode: u16,
    },
    Chmod {
        path: String,
        mode: u16,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    Times {
        path: String,
        atime: (i64, u32),
        mtime: (i64, u32),
    },
    SetXattr {
        path: String,
        name: String,
        len: usize,
        fill: u8,
        how: SetXattr,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    SetAcl {
        path: String,
        default: bool,
        acl: Vec<AclEntry>,
    },
    /// Makes (or removes) many names.
    Bulk {
        dir: String,
        first: u32,
        count: u32,
        remove: bool,
    },
    /// Lists in small steps while other names are added and removed.
    List {
        dir: String,
        step: usize,
    },
    /// Opens a handle that outlives its name.
    Hold {
        slot: usize,
        path: String,
    },
    HeldWrite {
        slot: usize,
        at: u64,
        len: usize,
        fill: u8,
    },
    HeldTruncate {
        slot: usize,
        size: u64,
    },
    HeldRead {
        slot: usize,
    },
    Release {
        slot: usize,
    },
    Fsync {
        path: String,
    },
    Sync,
    DropCaches,
    Reopen,
}

pub const SLOTS: usize = 3;

pub fn bulk_name(n: u32) -> String {
    format!("bulk{n:0>60}")
}

/// Returns bytes that are never zero, so that a hole is seen.
pub fn pattern(len: usize, fill: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (fill ^ (i as u8).wrapping_mul(31) ^ (i >> 8) as u8) | 1)
        .collect()
}

pub struct Generator {
    rng: Rng,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
        }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u64) as usize].clone()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    fn existing(&mut self, model: &Model, wanted: impl Fn(&NodeKind) -> bool) -> Option<String> {
        let all: Vec<_> = model
            .paths()
            .into_iter()
            .filter(|(_, id)| wanted(&model.nodes[*id].kind))
            .map(|(p, _)| p)
            .collect();
        (!all.is_empty()).then(|| self.pick(&all))
    }

    fn dir(&mut self, model: &Model) -> String {
        self.existing(model, |k| matches!(k, NodeKind::Dir { .. }))
            .unwrap_or_default()
    }

    fn name(&mut self) -> String {
        match self.rng.below(12) {
            0 => "L".repeat(255),
            1 => "ein Name mit \u{e4}, \u{4e2d} und Leerzeichen".into(),
            2 => "m".repeat(1 + self.rng.below(200) as usize),
            _ => format!("n{}", self.rng.below(8)),
        }
    }

    /// A path that may or may not exist.
    fn any(&mut self, model: &Model) -> String {
        let dir = if self.chance(8) {
            self.existing(model, |k| matches!(k, NodeKind::Symlink(_)))
                .unwrap_or_default()
        } else if self.chance(4) {
            self.existing(model, |_| true).unwrap_or_default()
        } else {
            self.dir(model)
        };
        let detour = if self.chance(3) { "/.." } else { "" };
        format!("{dir}{detour}/{}", self.name())
    }

    fn path(&mut self, model: &Model) -> String {
        match self.existing(model, |_| true) {
            Some(path) if self.chance(75) && !path.is_empty() => path,
            _ => self.any(model),
        }
    }

    /// Mostly a regular file; never a device.
    fn file(&mut self, model: &Model) -> String {
        let file = self.existing(model, |k| matches!(k, NodeKind::File(_)));
        let path = match file {
            Some(path) if self.chance(92) => path,
            _ => self.path(model),
        };
        let special = model
            .walk(&path, true)
            .is_ok_and(|id| matches!(model.nodes[id].kind, NodeKind::Special(..)));
        if special { "/n0/none".into() } else { path }
    }

    fn offset(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.rng.below(20) * 4096,
            1 => self.rng.below(300) * 1024,
            2 => self.rng.below(9000),
            _ => self.rng.below(400_000),
        }
    }

    fn len(&mut self) -> usize {
        match self.rng.below(4) {
            0 => self.rng.below(64) as usize,
            1 => 4096,
            2 => self.rng.below(9000) as usize,
            _ => self.rng.below(40_000) as usize,
        }
    }

    fn fill(&mut self) -> u8 {
        self.rng.next() as u8
    }

    fn mode(&mut self) -> u16 {
        let special = if self.chance(20) {
            self.rng.below(8) as u16
        } else {
            0
        };
        special << 9 | self.rng.below(0o1000) as u16
    }

    fn time(&mut self) -> (i64, u32) {
        let secs = self.pick(&[
            0,
            -1,
            -2_000_000_000,
            1,
            2_147_483_647,
            1_700_000_000,
            946_684_800,
        ]);
        (secs, self.rng.below(1_000_000_000) as u32)
    }

    fn acl(&mut self) -> Vec<AclEntry> {
        let none = u32::MAX;
        let mut perm = || self.rng.below(8) as u16;
        let mut acl = vec![(1, perm(), none)];
        let (user, group, more) = (perm() > 3, perm() > 3, perm() > 5);
        if user {
            acl.push((2, perm(), 1000));
        }
        if user && more {
            acl.push((2, perm(), 70_000));
        }
        acl.push((4, perm(), none));
        if group {
            acl.push((8, perm(), 100));
        }
        if user || group {
            acl.push((16, perm(), none));
        }
        acl.push((32, perm(), none));
        acl
    }

    fn xattr(&mut self) -> String {
        let space = self.pick(&["user.", "user.", "user.", "trusted.", "security."]);
        let name = self.pick(&["a", "b", "quite.a.long.name.for.an.attribute", "d"]);
        format!("{space}{name}")
    }

    fn how(&mut self) -> SetXattr {
        self.pick(&[
            SetXattr::Any,
            SetXattr::Any,
            SetXattr::Any,
            SetXattr::Create,
            SetXattr::Replace,
        ])
    }

    pub fn next(&mut self, m: &Model) -> Op {
        let fill = self.fill();
        match self.rng.below(100) {
            0..=7 => Op::Open {
                path: if self.chance(60) {
                    self.any(m)
                } else {
                    self.file(m)
                },
                create: self.chance(80),
                exclusive: self.chance(40),
                cut: self.chance(20),
                mode: self.mode(),
            },
            8..=19 => Op::Write {
                path: self.file(m),
                at: self.offset(),
                len: self.len(),
                fill,
            },
            20..=23 => Op::Append {
                path: self.file(m),
                len: self.len(),
                fill,
            },
            24..=29 => Op::Truncate {
                path: self.file(m),
                size: self.offset(),
            },
            30..=37 => {
                let keep_size = self.chance(50);
                let how = self.pick(&[
                    Fallocate::Allocate { keep_size },
                    Fallocate::PunchHole,
                    Fallocate::PunchHole,
                    Fallocate::ZeroRange { keep_size },
                    Fallocate::CollapseRange,
                    Fallocate::InsertRange,
                ]);
                let (mut at, mut len) = (self.offset(), self.len() as u64);
                if matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange) {
                    // Mostly as it must be, and inside.
                    at = self.rng.below(24) * 2048;
                    len = (self.rng.below(8) * 2048).max(1024);
                }
                Op::Fallocate {
                    path: self.file(m),
                    how,
                    at,
                    len,
                }
            }
            38..=41 => Op::Read {
                path: self.file(m),
                at: self.offset(),
                len: self.len(),
            },
            42..=43 => Op::Seek {
                path: self.file(m),
                at: self.offset(),
            },
            44..=47 => Op::Link {
                old: self.path(m),
                new: self.any(m),
            },
            48..=52 => Op::Unlink { path: self.path(m) },
            53..=56 => Op::Mkdir {
                path: self.any(m),
                mode: self.mode() & 0o1777,
            },
            57..=58 => Op::Rmdir { path: self.path(m) },
            59..=66 => {
                let mode = self.pick(&[
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                    RenameMode::WhiteoutNoReplace,
                ]);
                let new = if self.chance(50) {
                    self.path(m)
                } else {
                    self.any(m)
                };
                Op::Rename {
                    old: self.path(m),
                    new,
                    mode,
                }
            }
            67..=69 => {
                let target = match self.rng.below(4) {
                    0 => self.path(m),
                    1 => format!("n{}", self.rng.below(8)),
                    2 => format!("/{}", "t".repeat(self.rng.below(900) as usize)),
                    _ => "s".repeat(55 + self.rng.below(10) as usize),
                };
                let target = if target.is_empty() {
                    "/".into()
                } else {
                    target
                };
                Op::Symlink {
                    target,
                    path: self.any(m),
                }
            }
            70 => Op::ReadLink { path: self.path(m) },
            71 => {
                let file_type = self.pick(&[
                    FileType::CharDevice,
                    FileType::BlockDevice,
                    FileType::Fifo,
                    FileType::Socket,
                ]);
                let rdev = self.pick(&[0, 0x0103, 0xff_ffff, 0x1234_5678, u32::MAX]);
                Op::Mknod {
                    path: self.any(m),
                    file_type,
                    rdev,
                    mode: self.mode(),
                }
            }
            72..=73 => Op::Chmod {
                path: self.path(m),
                mode: self.mode(),
            },
            74 => Op::Chown {
                path: self.path(m),
                uid: self.pick(&[0, 1000, 70_000, u32::MAX - 1]),
                gid: self.pick(&[0, 100, 65_536]),
            },
            75..=76 => Op::Times {
                path: self.path(m),
                atime: self.time(),
                mtime: self.time(),
            },
            77..=80 => Op::SetXattr {
                path: self.path(m),
                name: self.xattr(),
                len: self.pick(&[0, 1, 5, 30, 60, 150, 400, 900]),
                fill,
                how: self.how(),
            },
            81 => Op::RemoveXattr {
                path: self.path(m),
                name: self.xattr(),
            },
            82..=83 => Op::SetAcl {
                path: self.path(m),
                default: self.chance(50),
                acl: self.acl(),
            },
            84..=85 => Op::Bulk {
                dir: self.dir(m),
                first: self.rng.below(4) as u32 * 50,
                count: 1 + self.rng.below(100) as u32,
                remove: self.chance(40),
            },
            86 => Op::List {
                dir: self.dir(m),
                step: 1 + self.rng.below(9) as usize,
            },
            87..=88 => Op::Hold {
                slot: self.rng.below(SLOTS as u64) as usize,
                path: self.file(m),
            },
            89..=90 => {
                let slot = self.rng.below(SLOTS as u64) as usize;
                Op::HeldWrite {
                    slot,
                    at: self.offset(),
                    len: self.len(),
                    fill,
                }
            }
            91 => Op::HeldTruncate {
                slot: self.rng.below(SLOTS as u64) as usize,
                size: self.offset(),
            },
            92 => Op::HeldRead {
                slot: self.rng.below(SLOTS as u64) as usize,
            },
            93 => Op::Release {
                slot: self.rng.below(SLOTS as u64) as usize,
            },
            94 => Op::Fsync { path: self.file(m) },
            95..=96 => Op::Sync,
            97 => Op::DropCaches,
            98 => Op::Reopen,
            _ => Op::Sync,
        }
    }
}
