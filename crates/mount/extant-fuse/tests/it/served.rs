//! Crash states of the mount's handler, called like a transport calls it: files are created, opened, written (by
//! callers and by the kernel's write-back), truncated, allocated, copied, renamed, removed while open, and synced.

use crate::it::common;
use crate::it::judge;
use extant::{Fallocate, Volume};
use extant_fuse::{Filesystem, MountOptions};
use fuse_server::{Answer, Errno, Handler, Operation, Request, SetAttr};
use judge::campaign::{CampaignKind, run};
use judge::model::Task;
use judge::program::{self, Mark, Plan, Run};
use judge::target::Target;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const FALLOC_KEEP_SIZE: u32 = 1;
const FALLOC_PUNCH_HOLE: u32 = 2;
const FALLOC_ZERO_RANGE: u32 = 16;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
const O_RDWR: u32 = 2;

/// The handler, with requests made here.
struct Served {
    fs: Arc<Filesystem>,
    writes: AtomicU32,
}

/// A node with one lookup; dropping it forgets the lookup.
struct KnownNode {
    fs: Arc<Filesystem>,
    node: u64,
    open: bool,
}

impl Drop for KnownNode {
    fn drop(&mut self) {
        if self.open {
            let release = Operation::Release {
                handle: 0,
                flags: O_RDWR,
                lock_owner: 0,
                flush: false,
                unlock: false,
            };
            let _ = ask(&self.fs, self.node, release);
        }
        let _ = ask(&self.fs, self.node, Operation::Forget { lookups: 1 });
    }
}

fn ask(fs: &Filesystem, node: u64, operation: Operation<'_>) -> Result<Vec<u8>, Errno> {
    let room = match operation {
        Operation::Read { size, .. } => size as usize,
        _ => 512,
    };
    let mut buffer = vec![0; room];
    let mut answer = Answer::new(&mut buffer);
    let request = Request {
        unique: 1,
        node,
        uid: 0,
        gid: 0,
        pid: 1,
        operation,
    };
    fs.handle(&request, &mut answer)?;
    Ok(answer.payload().to_vec())
}

/// Returns the number that an answer has at a place.
fn number(answer: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(answer[at..at + 8].try_into().unwrap())
}

impl Served {
    fn new(volume: &Volume) -> Self {
        let fs = Filesystem::new(volume.clone(), "judged", &MountOptions::default());
        Self {
            fs: Arc::new(fs.unwrap()),
            writes: AtomicU32::new(0),
        }
    }

    fn ask(&self, node: u64, operation: Operation<'_>) -> Vec<u8> {
        let told = format!("{operation:?}");
        ask(&self.fs, node, operation).unwrap_or_else(|e| panic!("{e}: {:.200}", told))
    }

    fn known(&self, node: u64, open: bool) -> KnownNode {
        let fs = Arc::clone(&self.fs);
        KnownNode { fs, node, open }
    }

    fn look_up(&self, parent: u64, name: &str) -> KnownNode {
        let name = name.as_bytes();
        let entry = self.ask(parent, Operation::Lookup { name });
        self.known(number(&entry, 0), false)
    }

    /// Returns the directory of a path, and the last name.
    fn split<'a>(&self, path: &'a str) -> (KnownNode, &'a str) {
        let (dir, name) = path.trim_start_matches('/').split_once('/').unwrap();
        (self.look_up(1, dir), name)
    }
}

impl Target for Served {
    type Handle = KnownNode;

    fn create(&self, path: &str, mode: u16) -> KnownNode {
        let (dir, name) = self.split(path);
        let operation = Operation::Create {
            name: name.as_bytes(),
            mode: 0o100000 | u32::from(mode),
            umask: 0,
            flags: O_RDWR,
            kill_suidgid: false,
        };
        let created = self.ask(dir.node, operation);
        self.known(number(&created, 0), true)
    }

    fn open(&self, path: &str) -> KnownNode {
        let (dir, name) = self.split(path);
        let mut file = self.look_up(dir.node, name);
        let open = Operation::Open {
            flags: O_RDWR,
            kill_suidgid: false,
        };
        // The handler may report that opening needs no request.
        match ask(&self.fs, file.node, open) {
            Ok(_) => file.open = true,
            Err(Errno::NOSYS) => {}
            Err(e) => panic!("{path}: {e}"),
        }
        file
    }

    fn write(&self, file: &KnownNode, offset: u64, data: &[u8]) {
        let cached = self
            .writes
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(2);
        let operation = Operation::Write {
            handle: 0,
            offset,
            data,
            cached,
            kill_suidgid: false,
            flags: O_RDWR,
        };
        let written = self.ask(file.node, operation);
        let n = u32::from_le_bytes(written[..4].try_into().unwrap());
        assert_eq!(n as usize, data.len());
    }

    /// Seeks holes first: ranges without data read as zeros.
    fn read(&self, file: &KnownNode, offset: u64, len: usize) -> Vec<u8> {
        let read = |offset: u64, size: usize| {
            let operation = Operation::Read {
                handle: 0,
                offset,
                size: size as u32,
                flags: 0,
            };
            self.ask(file.node, operation)
        };
        let bytes = read(offset, len);
        let seek = |offset, whence| {
            let handle = 0;
            let operation = Operation::Seek {
                handle,
                offset,
                whence,
            };
            ask(&self.fs, file.node, operation).map(|found| number(&found, 0))
        };
        let mut at = offset;
        while let Ok(hole) = seek(at, SEEK_HOLE) {
            let end = seek(hole, SEEK_DATA).unwrap_or(u64::MAX);
            let inside = |at: u64| (at.saturating_sub(offset) as usize).min(bytes.len());
            let zeros = &bytes[inside(hole)..inside(end)];
            assert!(zeros.iter().all(|b| *b == 0), "a hole at {hole} has data");
            at = end;
        }
        bytes
    }

    fn size(&self, file: &KnownNode) -> u64 {
        // The size of `fuse_attr` in `fuse_attr_out`.
        number(
            &self.ask(file.node, Operation::GetAttr { handle: None }),
            24,
        )
    }

    fn truncate(&self, file: &KnownNode, size: u64) {
        let set = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.ask(file.node, Operation::SetAttr(set));
    }

    fn fallocate(&self, file: &KnownNode, how: Fallocate, offset: u64, length: u64) {
        let keep = |keep: bool| if keep { FALLOC_KEEP_SIZE } else { 0 };
        let mode = match how {
            Fallocate::Allocate { keep_size } => keep(keep_size),
            Fallocate::ZeroRange { keep_size } => FALLOC_ZERO_RANGE | keep(keep_size),
            Fallocate::PunchHole => FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE,
            other => panic!("{other:?} is in no program"),
        };
        let operation = Operation::Fallocate {
            handle: 0,
            offset,
            length,
            mode,
        };
        self.ask(file.node, operation);
    }

    fn copy(&self, (from, at): (&KnownNode, u64), (to, place): (&KnownNode, u64), len: u64) {
        let mut done = 0;
        while done < len {
            let operation = Operation::CopyFileRange {
                handle: 0,
                offset: at + done,
                to_node: to.node,
                to_handle: 0,
                to_offset: place + done,
                length: len - done,
                flags: 0,
            };
            let copied = self.ask(from.node, operation);
            let n = u32::from_le_bytes(copied[..4].try_into().unwrap());
            assert!(n > 0);
            done += u64::from(n);
        }
    }

    fn fsync(&self, file: &KnownNode, datasync: bool) {
        let handle = 0;
        self.ask(file.node, Operation::Fsync { handle, datasync });
    }

    fn sync(&self) {
        self.ask(1, Operation::SyncFs);
    }

    fn rename(&self, from: &str, to: &str) {
        let ((dir, name), (new, new_name)) = (self.split(from), self.split(to));
        let operation = Operation::Rename {
            name: name.as_bytes(),
            new_parent: new.node,
            new_name: new_name.as_bytes(),
            flags: 0,
        };
        self.ask(dir.node, operation);
    }

    fn link(&self, old: &str, new: &str) {
        let ((from, old), (dir, name)) = (self.split(old), self.split(new));
        let file = self.look_up(from.node, old);
        let operation = Operation::Link {
            target: file.node,
            name: name.as_bytes(),
        };
        let entry = self.ask(dir.node, operation);
        drop(self.known(number(&entry, 0), false));
    }

    fn unlink(&self, path: &str) {
        let (dir, name) = self.split(path);
        let name = name.as_bytes();
        self.ask(dir.node, Operation::Unlink { name });
    }

    fn make_dir(&self, _: &str) {
        panic!("directories are there from the start");
    }
}

fn over_the_handler(
    volume: &Volume,
    plan: &Plan,
    tasks: Vec<Task>,
    writes: &AtomicU32,
    mark: &(dyn Fn(Mark) + Sync),
) -> Run {
    let served = Served::new(volume);
    let run = program::run(&served, plan, tasks, writes, mark);
    served.fs.destroy();
    run
}

const TASKS: CampaignKind = CampaignKind {
    name: "the handler, three tasks",
    size: "16M",
    mke2fs: &["-t", "ext4", "-J", "size=4"],
    block: 4096,
    tasks: 3,
    ops: 28,
    in_parts: None,
    rounds: 3,
    cuts: 12,
    flush: 100,
    over: over_the_handler,
};

const ONE: CampaignKind = CampaignKind {
    name: "the handler, one task, blocks of 1 KiB",
    size: "8M",
    mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    block: 1024,
    tasks: 1,
    ops: 40,
    ..TASKS
};

#[test]
fn what_the_handler_promised_is_there() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    run(&[ONE, TASKS], common::seeds(1, 3, 200));
}
