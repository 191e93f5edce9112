//! The ioctls of ext4: inode flags in both spellings, label, generation, trimming, shutdown.

use super::Filesystem;
use crate::nodes::{HeldNode, node_of};
use ext4_format::inode::flags as inode_flags;
use extant::{Credentials, SetAttributes, Shutdown, Volume};
use fuse_server::{Answer, Errno};

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETFLAGS_32: u32 = 0x8004_6601;
const SETFLAGS_32: u32 = 0x4004_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
const SHUTDOWN: u32 = 0x8004_587d;

/// `FUSE_IOCTL_COMPAT`: the caller is a 32-bit program on a 64-bit kernel.
const COMPAT: u32 = 1;

/// Bytes of `struct fsxattr`: flags, extent size, extents, project, CoW extent size, padding.
const FSXATTR_LEN: usize = 28;
/// Bytes that a label's ioctl carries.
const LABEL_LEN: usize = 256;

/// Flags in the spelling of `struct fsxattr` that ext4 has.
const XFLAGS: [(u32, u32); 7] = [
    (0x0008, inode_flags::IMMUTABLE),
    (0x0010, inode_flags::APPEND),
    (0x0020, inode_flags::SYNC),
    (0x0040, inode_flags::NOATIME),
    (0x0080, inode_flags::NODUMP),
    (0x0200, inode_flags::PROJINHERIT),
    (0x8000, inode_flags::DAX),
];

fn word(input: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = input.get(at..at + 4).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(
        bytes.try_into().map_err(|_| Errno::INVAL)?,
    ))
}

fn long(input: &[u8], at: usize) -> Result<u64, Errno> {
    let bytes = input.get(at..at + 8).ok_or(Errno::INVAL)?;
    Ok(u64::from_ne_bytes(
        bytes.try_into().map_err(|_| Errno::INVAL)?,
    ))
}

/// A call.
pub(super) struct Call<'a> {
    pub command: u32,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    pub input: &'a [u8],
    /// Largest number of bytes in the answer.
    pub output: u32,
}

impl Filesystem {
    /// Answers an ioctl of `who`, whose rights are unchecked: Linux passes the call on unchanged, except for
    /// `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR` since 5.13.
    pub(super) fn ioctl(
        &self,
        held: &HeldNode,
        who: &Credentials,
        call: &Call<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let input = call.input;
        // Linux sends these numbers only for 32-bit programs. From other programs they would bypass the kernel's
        // checks of flag changes, such as the check for a read-only mount.
        let narrow = matches!(call.command, GETFLAGS_32 | SETFLAGS_32);
        if narrow && call.flags & COMPAT == 0 && cfg!(target_pointer_width = "64") {
            return Err(Errno::NOTTY);
        }
        match call.command {
            GETFLAGS | GETFLAGS_32 => {
                let flags = self.flags_of(held)? & inode_flags::USER_VISIBLE;
                give(call, &flags.to_ne_bytes(), answer)
            }
            SETFLAGS | SETFLAGS_32 => {
                self.set_flags(held, who, word(input, 0)?, None)?;
                give(call, &[], answer)
            }
            GETVERSION => give(call, &held.node.generation().to_ne_bytes(), answer),
            FSGETXATTR => {
                let found = self.tried(held.node.metadata())?;
                let set = XFLAGS.iter().filter(|(_, flag)| found.flags() & flag != 0);
                let xflags = set.fold(0u32, |all, (xflag, _)| all | xflag);
                let mut out = [0; FSXATTR_LEN];
                out[..4].copy_from_slice(&xflags.to_ne_bytes());
                out[12..16].copy_from_slice(&found.project().to_ne_bytes());
                give(call, &out, answer)
            }
            FSSETXATTR => {
                let (xflags, project) = (word(input, 0)?, word(input, 12)?);
                // Flags of other file systems are ignored, as in ext4.
                let mut flags = self.flags_of(held)? & inode_flags::USER_VISIBLE;
                for (xflag, flag) in XFLAGS {
                    flags = flags & !flag | if xflags & xflag != 0 { flag } else { 0 };
                }
                self.set_flags(held, who, flags, Some(project))?;
                give(call, &[], answer)
            }
            FITRIM => {
                privileged(who)?;
                let (start, len, least) = (long(input, 0)?, long(input, 8)?, long(input, 16)?);
                let trimmed = self.changed(|volume| volume.trim(start, len, least))?;
                let words = [start, trimmed, least];
                let out: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
                give(call, &out, answer)
            }
            GETFSLABEL => {
                let label = self.tried(self.shared.volume.label())?;
                let mut out = [0; LABEL_LEN];
                let len = label.len().min(LABEL_LEN - 1);
                out[..len].copy_from_slice(&label.as_bytes()[..len]);
                give(call, &out, answer)
            }
            SETFSLABEL => {
                privileged(who)?;
                let end = input.iter().position(|&b| b == 0).unwrap_or(input.len());
                self.changed(|volume| volume.set_label(&input[..end]))?;
                give(call, &[], answer)
            }
            SHUTDOWN => {
                privileged(who)?;
                // The call's number specifies no argument, so Linux passes no argument to the server. Without one, use
                // the mode that loses least.
                let how = match word(input, 0).unwrap_or(0) {
                    0 => Shutdown::Sync,
                    1 => Shutdown::LogFlush,
                    2 => Shutdown::NoLogFlush,
                    _ => return Err(Errno::INVAL),
                };
                self.tried(self.shared.volume.shutdown(how))?;
                give(call, &[], answer)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// Changes the volume, unless the mount was remounted read-only.
    fn changed<R>(&self, change: impl FnOnce(&Volume) -> extant::Result<R>) -> Result<R, Errno> {
        self.tried(self.shared.while_writable(change))
    }

    fn flags_of(&self, held: &HeldNode) -> Result<u32, Errno> {
        Ok(self.tried(held.node.metadata())?.flags())
    }

    fn set_flags(
        &self,
        held: &HeldNode,
        who: &Credentials,
        flags: u32,
        project: Option<u32>,
    ) -> Result<(), Errno> {
        // Flags that lsattr never shows are an error; flags that it shows but chattr cannot change are accepted and
        // keep their values.
        if flags & !inode_flags::USER_VISIBLE != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let journaled = inode_flags::JOURNAL_DATA;
        if (self.flags_of(held)? ^ flags) & journaled != 0 {
            privileged(who)?;
        }
        let set = SetAttributes {
            flags: Some(flags),
            project,
            ..Default::default()
        };
        self.tried(held.node.set_attributes(who, &set))?;
        // The kernel does not know the new change time.
        self.have_it_ask(node_of(held.node.ino()));
        Ok(())
    }
}

fn privileged(who: &Credentials) -> Result<(), Errno> {
    if who.is_privileged() {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

fn give(call: &Call<'_>, out: &[u8], answer: &mut Answer<'_>) -> Result<(), Errno> {
    // A caller with less room gets less, as with a 32-bit flags word in a 64-bit call.
    let len = out.len().min(call.output as usize);
    answer.ioctl(0, &out[..len]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountOptions;
    use extant::{Volume, unstable::Node};
    use fuse_server::{Handler, Operation, Request};

    /// Answers a flags ioctl of a caller on the root directory's file `f`.
    fn ask(volume: &Volume, uid: u32, command: u32, flags: u32, input: &[u8]) -> Result<(), Errno> {
        let fs = Filesystem::new(volume.clone(), "a test", &MountOptions::default()).unwrap();
        let mut buffer = vec![0; 512];
        let request = |node, uid, operation| Request {
            unique: 1,
            node,
            uid,
            gid: uid,
            pid: 1,
            operation,
        };
        let lookup = request(1, 0, Operation::Lookup { name: b"f" });
        fs.handle(&lookup, &mut Answer::new(&mut buffer))?;
        let ino = Node::root(volume)
            .unwrap()
            .lookup(&Credentials::root(), b"f");
        let ioctl = Operation::Ioctl {
            handle: 0,
            flags,
            command,
            argument: 0,
            input,
            output: 0,
        };
        let node = node_of(ino.unwrap().ino());
        fs.handle(&request(node, uid, ioctl), &mut Answer::new(&mut buffer))
    }

    fn flags_of(volume: &Volume) -> u32 {
        volume.metadata("/f").unwrap().flags()
            & inode_flags::USER_MODIFIABLE
            & !inode_flags::EXTENTS
    }

    /// Returns the argument of an ioctl that sets a flag of a file which is mapped by extents.
    fn with_extents(flag: u32) -> [u8; 8] {
        u64::from(flag | inode_flags::EXTENTS).to_ne_bytes()
    }

    #[test]
    fn a_stranger_changes_no_flags_in_any_spelling() {
        let volume = extant::doc_volume();
        volume.create_new_file("/f").unwrap();
        for flag in [
            inode_flags::IMMUTABLE,
            inode_flags::APPEND,
            inode_flags::NODUMP,
        ] {
            for command in [SETFLAGS, SETFLAGS_32] {
                let done = ask(&volume, 1000, command, COMPAT, &with_extents(flag));
                assert_eq!(done, Err(Errno::PERM), "{command:x} {flag:x}");
            }
            let mut xattr = [0; FSXATTR_LEN];
            let (xflag, _) = XFLAGS.iter().find(|(_, f)| *f == flag).unwrap();
            xattr[..4].copy_from_slice(&xflag.to_ne_bytes());
            assert_eq!(ask(&volume, 1000, FSSETXATTR, 0, &xattr), Err(Errno::PERM));
        }
        assert_eq!(flags_of(&volume), 0);
    }

    #[test]
    fn the_owner_changes_flags_that_need_no_privilege() {
        let volume = extant::doc_volume();
        volume.create_new_file("/f").unwrap();
        let owner = extant::SetAttributes {
            uid: Some(1000),
            ..Default::default()
        };
        let file = Node::root(&volume)
            .unwrap()
            .lookup(&Credentials::root(), b"f")
            .unwrap();
        file.set_attributes(&Credentials::root(), &owner).unwrap();
        let set = |uid, flag: u32| ask(&volume, uid, SETFLAGS, 0, &with_extents(flag));
        assert_eq!(set(1000, inode_flags::NODUMP), Ok(()));
        assert_eq!(flags_of(&volume), inode_flags::NODUMP);
        assert_eq!(set(1000, inode_flags::IMMUTABLE), Err(Errno::PERM));
        assert_eq!(set(0, inode_flags::IMMUTABLE), Ok(()));
        assert_eq!(
            set(1000, 0),
            Err(Errno::PERM),
            "the owner clears what root has set"
        );
        assert_eq!(flags_of(&volume), inode_flags::IMMUTABLE);
        let mapped_anew = (inode_flags::IMMUTABLE).to_ne_bytes();
        let done = ask(&volume, 0, SETFLAGS, 0, &mapped_anew);
        assert_eq!(done, Err(Errno::OPNOTSUPP), "the mapping stays");
    }

    /// Linux refuses the other changes of such a mount itself.
    #[test]
    fn a_mount_that_became_read_only_refuses_what_the_kernel_passes_on() {
        let volume = extant::doc_volume();
        let fs = Filesystem::new(volume, "a test", &MountOptions::default()).unwrap();
        let ask = |command, input: &[u8]| {
            let request = Request {
                unique: 1,
                node: crate::nodes::ROOT,
                uid: 0,
                gid: 0,
                pid: 1,
                operation: Operation::Ioctl {
                    handle: 0,
                    flags: 0,
                    command,
                    argument: 0,
                    input,
                    output: 24,
                },
            };
            fs.handle(&request, &mut Answer::new(&mut [0; 512]))
        };
        let everything: Vec<u8> = [0, u64::MAX, 0].map(u64::to_ne_bytes).concat();
        let calls = [(SETFSLABEL, b"label\0".as_slice()), (FITRIM, &everything)];
        fs.shared.begin_read_only().unwrap();
        for (command, input) in calls {
            assert_eq!(ask(command, input), Err(Errno::ROFS), "{command:x}");
        }
        fs.shared.end_read_only();
        assert_eq!(ask(SETFSLABEL, calls[0].1), Ok(()));
    }

    /// Only a 32-bit program reaches the server with these numbers after the kernel's checks.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn numbers_of_32_bit_programs_are_unknown_to_others() {
        let volume = extant::doc_volume();
        volume.create_new_file("/f").unwrap();
        let flag = inode_flags::IMMUTABLE.to_ne_bytes();
        assert_eq!(ask(&volume, 0, SETFLAGS_32, 0, &flag), Err(Errno::NOTTY));
        assert_eq!(ask(&volume, 0, GETFLAGS_32, 0, &[]), Err(Errno::NOTTY));
        assert_eq!(flags_of(&volume), 0);
    }
}
