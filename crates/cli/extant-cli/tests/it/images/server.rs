//! The entry points of the mount's server, called as a kernel would call them, and also in invalid ways.

use crate::common::Rng;
use extant::{FileType, Volume};
use extant_fuse::{Filesystem, MountOptions};
use fuse_server::{Answer, Handler, Operation, Request, SetAttr};

struct Client<'a> {
    fs: Filesystem,
    buffer: Vec<u8>,
    rng: &'a mut Rng,
    /// Nodes that were looked up, with the directory and the name they were found by.
    known: Vec<(u64, u64, Vec<u8>)>,
}

/// Looks up existing files, then sends every kind of request.
pub fn serve(volume: &Volume, rng: &mut Rng) {
    let Ok(fs) = Filesystem::new(volume.clone(), "image", &MountOptions::default()) else {
        return;
    };
    let mut client = Client {
        fs,
        buffer: vec![0; 128 << 10],
        rng,
        known: Vec::new(),
    };
    client.explore(volume);
    for _ in 0..120 {
        client.anything();
    }
    client.ask(1, Operation::SyncFs);
    for (node, _, _) in std::mem::take(&mut client.known) {
        client.ask(node, Operation::Forget { lookups: 1 });
    }
    client.fs.destroy();
}

impl Client<'_> {
    /// Sends a request; returns the start of the answer: the node, if the answer has one.
    fn ask(&mut self, node: u64, operation: Operation<'_>) -> Option<u64> {
        let request = Request {
            unique: 1,
            node,
            uid: 0,
            gid: 0,
            pid: 1,
            operation,
        };
        let mut answer = Answer::new(&mut self.buffer);
        self.fs.handle(&request, &mut answer).ok()?;
        let first = answer.payload().first_chunk()?;
        Some(u64::from_le_bytes(*first))
    }

    fn explore(&mut self, volume: &Volume) {
        let mut todo = vec![(1, String::from("/"))];
        while let Some((node, path)) = todo.pop() {
            self.ask(node, Operation::OpenDir { flags: 0 });
            for plus in [false, true] {
                let (handle, offset, size) = (0, 0, 64 << 10);
                let list = if plus {
                    Operation::ReadDirPlus {
                        handle,
                        offset,
                        size,
                    }
                } else {
                    Operation::ReadDir {
                        handle,
                        offset,
                        size,
                    }
                };
                self.ask(node, list);
            }
            for entry in crate::common::list(volume, &path).unwrap_or_default() {
                if self.known.len() > 150 {
                    return;
                }
                if entry.name == b"lost+found" {
                    continue;
                }
                let Some(child) = self.ask(node, Operation::Lookup { name: &entry.name }) else {
                    continue;
                };
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                if entry.file_type == FileType::Directory && path.len() < 200 {
                    todo.push((child, format!("{path}{name}/")));
                }
                self.known.push((child, node, entry.name));
            }
        }
    }

    fn anything(&mut self) {
        let some = |client: &mut Self| {
            let n = client.rng.below(client.known.len() as u64 + 1) as usize;
            let other = || (client.known.len() as u64, 1, b"none".to_vec());
            client.known.get(n).cloned().unwrap_or_else(other)
        };
        let ((node, parent, name), (other, dir, _)) = (some(self), some(self));
        let (offset, length) = (self.rng.below(60) << 12, (1 + self.rng.below(9)) << 12);
        let (mode, umask, flags, handle) = (0o100_600, 0o22, 2, 0);
        let fresh = format!("new{}", self.rng.below(20));
        let new = fresh.as_bytes();
        let data = [8; 9000];
        let size = 4096;
        let kill_suidgid = true;
        match self.rng.below(30) {
            0 => self.reads(node, offset),
            1 => self.attributes(node, offset),
            2 => drop(self.ask(node, Operation::Unlink { name: &name })),
            3 => drop(self.ask(parent, Operation::Unlink { name: &name })),
            4 => drop(self.ask(parent, Operation::Rmdir { name: &name })),
            5..8 => {
                let kind = [0, 1, 2, 4][self.rng.below(4) as usize];
                let rename = Operation::Rename {
                    name: &name,
                    new_parent: dir,
                    new_name: new,
                    flags: kind,
                };
                self.ask(parent, rename);
            }
            8 => drop(self.ask(
                dir,
                Operation::Link {
                    target: node,
                    name: new,
                },
            )),
            9 => drop(self.ask(
                dir,
                Operation::Mkdir {
                    name: new,
                    mode,
                    umask,
                },
            )),
            10 => {
                let (mode, rdev) = (0o20_600, 0x103);
                self.ask(
                    dir,
                    Operation::Mknod {
                        name: new,
                        mode,
                        rdev,
                        umask,
                    },
                );
            }
            11 => {
                let target = &[b't'; 90];
                self.ask(dir, Operation::Symlink { name: new, target });
            }
            12..15 => {
                let made = self.ask(
                    dir,
                    Operation::Create {
                        name: new,
                        mode,
                        umask,
                        flags,
                        kill_suidgid,
                    },
                );
                self.known
                    .extend(made.map(|node| (node, dir, new.to_vec())));
            }
            15 => drop(self.ask(
                dir,
                Operation::Tmpfile {
                    name: new,
                    mode,
                    umask,
                    flags,
                },
            )),
            16..20 => {
                let cached = self.rng.below(2) == 0;
                let write = Operation::Write {
                    handle,
                    offset,
                    data: &data,
                    cached,
                    kill_suidgid,
                    flags,
                };
                self.ask(node, write);
            }
            20 => drop(self.ask(
                node,
                Operation::Fsync {
                    handle,
                    datasync: false,
                },
            )),
            21 => drop(self.ask(
                node,
                Operation::FsyncDir {
                    handle,
                    datasync: true,
                },
            )),
            22 => {
                let mode = [0, 1, 2, 3, 8, 0x10, 0x11, 0x20][self.rng.below(8) as usize];
                self.ask(
                    node,
                    Operation::Fallocate {
                        handle,
                        offset,
                        length,
                        mode,
                    },
                );
            }
            23 => {
                let copy = Operation::CopyFileRange {
                    handle,
                    offset,
                    to_node: other,
                    to_handle: 0,
                    to_offset: 0,
                    length,
                    flags: 0,
                };
                self.ask(node, copy);
            }
            24 => {
                let set = Operation::SetXattr {
                    name: b"user.new",
                    value: &data[..300],
                    flags: 0,
                    acl_kill_sgid: false,
                };
                self.ask(node, set);
            }
            25 => drop(self.ask(
                node,
                Operation::RemoveXattr {
                    name: b"user.large",
                },
            )),
            26 => {
                let lookups = 1;
                self.known.retain(|k| k.0 != node);
                self.ask(node, Operation::Forget { lookups });
            }
            27 => {
                let commands = [0x8008_6601, 0x4008_6602, 0xc020_660b, 0xc018_5879];
                let command = commands[self.rng.below(4) as usize];
                let input = [0; 64];
                let ioctl = Operation::Ioctl {
                    handle,
                    flags: 0,
                    command,
                    argument: 1,
                    input: &input,
                    output: size,
                };
                self.ask(node, ioctl);
            }
            28 => drop(self.ask(1, Operation::SyncFs)),
            _ => drop(self.ask(1, Operation::StatFs)),
        }
    }

    fn reads(&mut self, node: u64, offset: u64) {
        let (handle, flags, size) = (0, 0, 60_000);
        let kill_suidgid = false;
        self.ask(
            node,
            Operation::Open {
                flags,
                kill_suidgid,
            },
        );
        self.ask(
            node,
            Operation::Read {
                handle,
                offset,
                size,
                flags,
            },
        );
        self.ask(node, Operation::ReadLink);
        for whence in [3, 4] {
            self.ask(
                node,
                Operation::Seek {
                    handle,
                    offset,
                    whence,
                },
            );
        }
        for size in [0, size] {
            self.ask(node, Operation::ListXattr { size });
            let name = b"user.large";
            self.ask(node, Operation::GetXattr { name, size });
        }
        let (block, block_size) = (offset >> 12, 4096);
        self.ask(node, Operation::Bmap { block, block_size });
        let release = Operation::Release {
            handle,
            flags,
            lock_owner: 0,
            flush: true,
            unlock: false,
        };
        self.ask(node, release);
    }

    fn attributes(&mut self, node: u64, size: u64) {
        let handle = None;
        self.ask(node, Operation::GetAttr { handle });
        let (flags, mask) = (0, 0xfff);
        self.ask(
            node,
            Operation::Statx {
                handle,
                flags,
                mask,
            },
        );
        let set = SetAttr {
            size: Some(size),
            mode: Some(0o100_640),
            uid: Some(7),
            ..Default::default()
        };
        self.ask(node, Operation::SetAttr(set));
    }
}
