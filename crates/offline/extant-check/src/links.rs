//! Where names lead: to inodes in use, of the type that the name says. They are followed when all inodes are known.

use crate::dir::Directory;
use crate::directories::Directories;
use crate::inode_table::{InodeKind, is_directory};
use crate::link::{Link, Role, shown};
use crate::names::name_at;
use crate::report::{FindingPlace, Rule};
use crate::state::Check;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, FileType, InodeNr, dir_entry};
use std::sync::atomic::Ordering;

/// A block with names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block<'b> {
    directory: &'b Directory,
    place: FindingPlace,
    /// Its content, if it is in memory.
    bytes: Option<&'b [u8]>,
}

impl<'b> Block<'b> {
    pub(crate) fn of(directory: &'b Directory, logical: u32, at: BlockNr) -> Self {
        let place = FindingPlace::inode(directory.ino);
        Self {
            directory,
            place: place.logical(logical.into()).block(at),
            bytes: None,
        }
    }

    /// Creates a block for the names inside the inode.
    pub(crate) fn inline(directory: &'b Directory, bytes: &'b [u8]) -> Self {
        Self {
            directory,
            place: FindingPlace::inode(directory.ino),
            bytes: Some(bytes),
        }
    }

    pub(crate) const fn holding(self, bytes: &'b [u8]) -> Self {
        Self {
            bytes: Some(bytes),
            ..self
        }
    }

    fn place_of(&self, link: Link) -> FindingPlace {
        self.place.offset(link.offset())
    }

    /// Formats a name for messages; reads the block again if it is not in memory.
    fn name(&self, check: &Check<'_>, link: Link) -> String {
        if let Some(bytes) = self.bytes {
            return shown(name_at(bytes, link.offset()));
        }
        // The block could be read before.
        let read = self.place.block.map(|at| check.volume.read(at));
        match read {
            Some(Ok(bytes)) => shown(name_at(&bytes, link.offset())),
            _ => shown(b""),
        }
    }
}

/// Follows names to their inodes.
#[derive(Clone, Copy)]
pub(crate) struct Follower<'c> {
    pub(crate) check: &'c Check<'c>,
    pub(crate) directories: &'c Directories,
}

impl Follower<'_> {
    /// Follows the names of a block.
    pub(crate) fn follow(&self, block: &Block<'_>, links: &[Link]) {
        for &link in links {
            match link.role {
                Role::Name => self.follow_name(block, link),
                Role::Own | Role::Parent => self.follow_dot(block, link),
            }
        }
    }

    /// Follows "." or "..".
    fn follow_dot(&self, block: &Block<'_>, link: Link) {
        let Self { check, directories } = self;
        let place = block.place_of(link);
        let tell = |what: String| check.findings.add(Rule::DirectoryDots, place, || what);
        self.check_type(block, link, FileType::Directory);
        if link.role == Role::Own {
            check.inodes.count_name(link.ino);
            if link.ino != block.directory.ino {
                tell(format!("\".\" leads to inode {}", link.ino));
            }
            return;
        }
        let dotdot = &block.directory.dotdot;
        dotdot.store(link.ino.0, Ordering::Relaxed);
        if directories.position(link.ino).is_none() {
            tell(format!("\"..\" leads to inode {}", link.ino));
            return;
        }
        check.inodes.count_name(link.ino);
    }

    /// Follows the parent of a directory with names in its inode, where neither "." nor ".." is stored.
    pub(crate) fn follow_inline_parent(&self, directory: &Directory, parent: InodeNr) {
        let Self { check, directories } = self;
        directory.dotdot.store(parent.0, Ordering::Relaxed);
        check.inodes.count_name(directory.ino);
        if directories.position(parent).is_some() {
            check.inodes.count_name(parent);
        } else {
            let place = FindingPlace::inode(directory.ino);
            check.findings.add(Rule::DirectoryDots, place, || {
                format!("its parent is inode {parent}")
            });
        }
    }

    fn follow_name(&self, block: &Block<'_>, link: Link) {
        let Self { check, directories } = self;
        let (findings, place) = (&check.findings, block.place_of(link));
        let leads = |what: &str| {
            findings.add(Rule::EntryInode, place, || {
                format!("{}: inode {} {what}", block.name(check, link), link.ino)
            });
        };
        let Some(known) = check.inodes.count_name(link.ino) else {
            return leads("is not in use");
        };
        match known.kind {
            InodeKind::Reserved => leads("is reserved"),
            _ if link.ino == InodeNr::ROOT => leads("is the root"),
            InodeKind::Value => leads("holds the value of an attribute"),
            InodeKind::Broken => leads("is damaged"),
            InodeKind::File(file_type) => {
                self.check_type(block, link, file_type);
                if !self.is_of_policy(block.directory, link.ino, file_type) {
                    leads("is not encrypted as its directory is");
                }
            }
        }
        if is_directory(known.kind)
            && let Some(child) = directories.get(link.ino)
        {
            let own = block.directory.ino.0;
            let set = child
                .parent
                .compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
            if let Err(other) = set {
                findings.add(Rule::DirectoryTwice, place, || {
                    let name = block.name(check, link);
                    format!("{name}: inode {} has a name in directory {other}", link.ino)
                });
            }
        }
    }

    /// Returns whether a file may be in a directory: in an encrypted directory it must have the same policy.
    fn is_of_policy(&self, directory: &Directory, ino: InodeNr, file_type: FileType) -> bool {
        let mapped = matches!(
            file_type,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        if !mapped || !directory.has(flags::ENCRYPT) {
            return true;
        }
        let policies = self.check.policies.lock();
        let policy = policies.get(&directory.ino);
        policy.is_none() || policies.get(&ino) == policy
    }

    fn check_type(&self, block: &Block<'_>, link: Link, is: FileType) {
        let has = self.check.volume.geo.features.has_filetype();
        if link.type_byte != dir_entry::type_byte(has.then_some(is)) {
            let rule = match link.type_byte {
                0 => Rule::EntryTypeless,
                _ => Rule::EntryType,
            };
            let findings = &self.check.findings;
            findings.add(rule, block.place_of(link), || {
                let (stored, is) = (FileType::from_dir_byte(link.type_byte), Some(is));
                format!(
                    "{}: {stored:?}, and it is {is:?}",
                    block.name(self.check, link)
                )
            });
        }
    }
}
