//! Calls by several threads: made at random, run on a volume, and recorded with their times and answers.

use crate::common::Rng;
use crate::reference::{Answer, Id};
use extant::unstable::OpenFlags;
use extant::{
    Dir, File, FileType, OpenOptions, RenameMode, SetAttributes, SetXattr, Timestamp, Volume,
};
use std::time::Instant;

/// A path below the root or below an open directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFrom {
    /// Number of the open directory.
    pub base: Option<usize>,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Create {
        at: PathFrom,
        exclusive: bool,
        mode: u16,
    },
    Mkdir {
        at: PathFrom,
        mode: u16,
    },
    Symlink {
        at: PathFrom,
    },
    Mkfifo {
        at: PathFrom,
        mode: u16,
    },
    Unlink {
        at: PathFrom,
    },
    Rmdir {
        at: PathFrom,
    },
    Rename {
        old: PathFrom,
        new: PathFrom,
        mode: RenameMode,
    },
    Link {
        old: PathFrom,
        new: PathFrom,
    },
    Stat {
        at: PathFrom,
    },
    /// Opens a file and does something with the handle, or does it by the path, if possible.
    Open {
        at: PathFrom,
        then: OnFile,
        by_path: bool,
    },
    /// Does something with a handle that all threads share.
    Held {
        file: usize,
        then: OnFile,
    },
    SetXattr {
        at: PathFrom,
        name: &'static str,
        value: Vec<u8>,
        how: SetXattr,
    },
    RemoveXattr {
        at: PathFrom,
        name: &'static str,
    },
    GetXattr {
        at: PathFrom,
        name: &'static str,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnFile {
    Write { at: u64, len: usize, fill: u8 },
    Append { len: usize, fill: u8 },
    Truncate { size: u64 },
    Read { at: u64, len: usize },
    Stat,
    Chmod { mode: u16 },
    Chown { uid: u32, gid: u32 },
    Touch { mtime: (i64, u32) },
}

/// The answer of a successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Ino(u32),
    At(u64),
    Data(Vec<u8>),
    Stat(Seen),
}

/// Attributes as seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub ino: u32,
    pub file_type: FileType,
    pub mode: u16,
    pub owner: (u32, u32),
    pub links: u32,
    /// The size of a regular file.
    pub size: u64,
}

impl Seen {
    pub fn of(a: &extant::Metadata) -> Self {
        Self {
            ino: a.ino(),
            file_type: a.file_type(),
            mode: a.mode() as u16 & 0o7777,
            owner: (a.uid(), a.gid()),
            links: a.nlink(),
            size: if a.file_type() == FileType::Regular {
                a.len()
            } else {
                0
            },
        }
    }
}

#[derive(Clone, Debug)]
pub struct Event {
    pub call: Call,
    pub begin: Instant,
    pub end: Instant,
    pub answer: Answer<Reply>,
}

/// The open files while the threads run: all threads use clones of these handles.
pub struct Handles {
    pub dirs: Vec<(Dir, Id)>,
    pub files: Vec<(File, Id)>,
}

pub const XATTRS: [&str; 2] = ["user.a", "user.other"];
/// The target of every symbolic link: no call makes it.
pub const NOWHERE: &str = "/nowhere/at/all";

/// The shape of the tree the calls work on.
#[derive(Clone, Copy)]
pub struct Field {
    /// Directories that are never moved or removed: shared ones, then one for each thread.
    pub shared: u64,
    /// Names in a directory.
    pub names: u64,
    /// The percentage of paths through a directory that other threads may move or remove.
    pub deep: u64,
}

pub struct Maker {
    rng: Rng,
    field: Field,
    thread: usize,
    handles: (usize, usize),
}

impl Maker {
    pub fn new(seed: u64, field: Field, thread: usize, handles: &Handles) -> Self {
        Self {
            rng: Rng::new(seed),
            field,
            thread,
            handles: (handles.dirs.len(), handles.files.len()),
        }
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(self.field.names))
    }

    fn place(&mut self) -> PathFrom {
        if self.handles.0 > 0 && self.below(6) == 0 {
            let base = Some(self.below(self.handles.0 as u64) as usize);
            let path = self.name();
            return PathFrom { base, path };
        }
        let top = match self.below(self.field.shared + 1) {
            n if n < self.field.shared => format!("s{n}"),
            _ => format!("own{}", self.thread),
        };
        let mut path = format!("{top}/{}", self.name());
        if self.below(100) < self.field.deep {
            path = format!("{path}/{}", self.name());
        }
        PathFrom { base: None, path }
    }

    fn on_file(&mut self) -> OnFile {
        let fill = self.rng.next() as u8 | 1;
        let (at, len) = (self.below(3000), self.below(2500) as usize);
        match self.below(12) {
            0..=2 => OnFile::Write { at, len, fill },
            3..=4 => OnFile::Append { len: len / 2, fill },
            5 => OnFile::Truncate { size: at },
            // Within one block of the smallest: a read of several is not of one moment, as in Linux.
            6..=8 => OnFile::Read {
                at,
                len: len.min(1024 - (at % 1024) as usize),
            },
            9 => OnFile::Stat,
            10 => match self.below(2) {
                0 => OnFile::Chmod {
                    mode: self.below(0o1000) as u16,
                },
                _ => OnFile::Chown {
                    uid: self.below(3) as u32,
                    gid: self.below(3) as u32,
                },
            },
            _ => OnFile::Touch {
                mtime: (self.below(2_000_000_000) as i64, 0),
            },
        }
    }

    pub fn call(&mut self) -> Call {
        let at = self.place();
        let mode = self.below(0o1000) as u16;
        match self.below(40) {
            0..=6 => Call::Create {
                at,
                exclusive: self.below(2) == 0,
                mode,
            },
            7..=9 => Call::Mkdir { at, mode },
            10 => Call::Symlink { at },
            11 => Call::Mkfifo { at, mode },
            12..=15 => Call::Unlink { at },
            16..=17 => Call::Rmdir { at },
            18..=23 => {
                let mode = [
                    RenameMode::Replace,
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                ][self.below(4) as usize];
                Call::Rename {
                    old: PathFrom {
                        base: None,
                        ..self.place()
                    }
                    .or_top(self),
                    new: at.or_top(self),
                    mode,
                }
            }
            24..=26 => Call::Link {
                old: self.place().or_top(self),
                new: at.or_top(self),
            },
            27..=28 => Call::Stat { at },
            29..=32 => Call::Open {
                at,
                then: self.on_file(),
                by_path: self.below(2) == 0,
            },
            33..=36 if self.handles.1 > 0 => Call::Held {
                file: self.below(self.handles.1 as u64) as usize,
                then: self.on_file(),
            },
            33..=36 => Call::Stat { at },
            37 => Call::SetXattr {
                at,
                name: XATTRS[self.below(2) as usize],
                value: vec![self.rng.next() as u8; self.below(30) as usize],
                how: [SetXattr::Any, SetXattr::Create, SetXattr::Replace][self.below(3) as usize],
            },
            38 => Call::RemoveXattr {
                at,
                name: XATTRS[self.below(2) as usize],
            },
            _ => Call::GetXattr {
                at,
                name: XATTRS[self.below(2) as usize],
            },
        }
    }
}

impl PathFrom {
    /// Both paths of a call start at one handle: here at the root.
    fn or_top(self, maker: &mut Maker) -> Self {
        if self.base.is_some() || !self.path.contains('/') {
            return Self {
                base: None,
                path: format!("s{}/{}", maker.below(maker.field.shared), self.path),
            };
        }
        self
    }
}

fn dir<'a>(volume: &'a Volume, handles: &'a Handles, place: &PathFrom) -> &'a Dir {
    match place.base {
        Some(n) => &handles.dirs[n].0,
        None => volume,
    }
}

fn attributes(then: &OnFile) -> Option<SetAttributes> {
    let none = SetAttributes::default();
    Some(match then {
        OnFile::Chmod { mode } => SetAttributes {
            mode: Some(*mode),
            ..none
        },
        OnFile::Chown { uid, gid } => SetAttributes {
            uid: Some(*uid),
            gid: Some(*gid),
            ..none
        },
        OnFile::Touch { mtime } => SetAttributes {
            mtime: Some(Timestamp::new(mtime.0, mtime.1).into()),
            ..none
        },
        _ => return None,
    })
}

fn on_file(file: &File, then: &OnFile) -> extant::Result<Reply> {
    match then {
        OnFile::Write { at, len, fill } => file
            .write_at(&vec![*fill; *len], *at)
            .map(|n| Reply::At(n as u64)),
        OnFile::Append { len, fill } => file
            .append(&vec![*fill; *len])
            .map(|at| Reply::At(at.start)),
        OnFile::Truncate { size } => file.set_len(*size).map(|()| Reply::Done),
        OnFile::Read { at, len } => {
            let mut bytes = vec![0xEE; *len];
            let n = file.read_at(&mut bytes, *at)?;
            bytes.truncate(n);
            Ok(Reply::Data(bytes))
        }
        OnFile::Stat => file.metadata().map(|a| Reply::Stat(Seen::of(&a))),
        OnFile::Chmod { .. } | OnFile::Chown { .. } | OnFile::Touch { .. } => file
            .set_attributes(&attributes(then).unwrap_or_default())
            .map(|()| Reply::Done),
    }
}

/// The flags for the use of a handle.
pub fn flags(then: &OnFile) -> OpenFlags {
    match then {
        OnFile::Append { .. } => OpenFlags::APPEND,
        OnFile::Write { .. } | OnFile::Truncate { .. } => OpenFlags::WRITE,
        _ => OpenFlags::READ,
    }
}

/// Runs a call.
pub fn run(volume: &Volume, handles: &Handles, call: &Call) -> extant::Result<Reply> {
    let done = |()| Reply::Done;
    match call {
        Call::Create {
            at,
            exclusive,
            mode,
        } => {
            let mut flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
            flags.set(OpenFlags::EXCLUSIVE, *exclusive);
            let file = dir(volume, handles, at)
                .open_file_with(&at.path, &OpenOptions::from(flags).mode((*mode).into()))?;
            Ok(Reply::Ino(file.ino()))
        }
        Call::Mkdir { at, mode } => dir(volume, handles, at)
            .create_dir_with_mode(&at.path, (*mode).into())
            .map(|d| Reply::Ino(d.ino())),
        Call::Symlink { at } => dir(volume, handles, at)
            .symlink(NOWHERE, &at.path)
            .map(done),
        Call::Mkfifo { at, mode } => dir(volume, handles, at)
            .mknod(&at.path, FileType::Fifo, (*mode).into(), 0)
            .map(done),
        Call::Unlink { at } => dir(volume, handles, at).remove_file(&at.path).map(done),
        Call::Rmdir { at } => dir(volume, handles, at).remove_dir(&at.path).map(done),
        Call::Rename { old, new, mode } => {
            volume.rename_with(&old.path, &new.path, *mode).map(done)
        }
        Call::Link { old, new } => volume.hard_link(&old.path, &new.path).map(done),
        Call::Stat { at } => dir(volume, handles, at)
            .symlink_metadata(&at.path)
            .map(|a| Reply::Stat(Seen::of(&a))),
        Call::Open { at, then, by_path } => {
            let dir = dir(volume, handles, at);
            match (by_path, then, attributes(then)) {
                (true, OnFile::Truncate { size }, _) => dir.set_len(&at.path, *size).map(done),
                (true, OnFile::Stat, _) => {
                    dir.metadata(&at.path).map(|a| Reply::Stat(Seen::of(&a)))
                }
                (true, _, Some(set)) => dir.set_attributes(&at.path, &set).map(done),
                _ => on_file(
                    &dir.open_file_with(&at.path, &OpenOptions::from(flags(then)))?,
                    then,
                ),
            }
        }
        Call::Held { file, then } => on_file(&handles.files[*file].0, then),
        Call::SetXattr {
            at,
            name,
            value,
            how,
        } => dir(volume, handles, at)
            .set_xattr(&at.path, name, value, *how)
            .map(done),
        Call::RemoveXattr { at, name } => dir(volume, handles, at)
            .remove_xattr(&at.path, name)
            .map(done),
        Call::GetXattr { at, name } => dir(volume, handles, at)
            .get_xattr(&at.path, name)
            .map(Reply::Data),
    }
}
