//! Whiteouts: character devices of number 0:0 that a rename leaves at the old name. To an overlay file system a
//! whiteout means that the name does not exist in the lower layer.

use crate::base::error::Result;
use crate::incore::inode::{Birth, Content, Inode};
use crate::inodes::new_inode::NewInode;
use crate::log::Commit;
use crate::names::Names;
use crate::space::guards::NewNumber;
use crate::space::orlov::InodePurpose;
use crate::types::credentials::Credentials;
use crate::types::dentry::Dentry;
use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::XattrSet;
use extant_formatter::item::{InodeEvent, MiscEvent};
use std::sync::Arc;

/// A whiteout about to be made. Its number is returned if nothing is made.
pub(crate) struct Whiteout<'a> {
    names: &'a Names,
    number: NewNumber<'a>,
    mode: u16,
    xattrs: Option<Arc<XattrSet>>,
}

impl Names {
    /// Takes a number for a whiteout in `dir`.
    pub(super) fn prepare_whiteout(&self, who: &Credentials, dir: &Inode) -> Result<Whiteout<'_>> {
        let (mode, xattrs) = self
            .inodes
            .inherited_acls(who, dir, FileType::CharDevice, 0)?;
        Ok(Whiteout {
            names: self,
            number: self.commit.take_number(dir.ino, InodePurpose::File)?,
            mode,
            xattrs,
        })
    }
}

impl Whiteout<'_> {
    /// Returns the stamp of the items logged for the whiteout's number.
    pub fn after(&self) -> u64 {
        self.number.after()
    }

    /// Returns true if the whiteout needs room for attributes.
    pub fn has_xattrs(&self) -> bool {
        self.xattrs.is_some()
    }

    /// Logs it; the entry `at`, now that of the file that is renamed, leads to it from now on.
    pub fn log(
        self,
        who: &Credentials,
        dir: &Inode,
        at: Dentry,
        time: Timestamp,
        c: &mut Commit<'_>,
    ) -> (Arc<Inode>, Dentry) {
        let ino = self.number.ino();
        let what = NewInode::Special(FileType::CharDevice, 0);
        let core = self.names.inodes.new_core(who, dir, &what, self.mode, time);
        let mut inode = Inode::new(ino, FileType::CharDevice, core, Content::Special);
        inode.set_newborn(0, self.xattrs.clone());
        inode.set_birth(Birth::of(c));
        c.inode(ino, InodeEvent::Init, core);
        if let Some(set) = &self.xattrs {
            c.misc(ino, MiscEvent::Xattrs(Arc::clone(set)));
        }
        let inode = Arc::new(inode);
        self.names.inodes.insert(&inode);
        let entry = Dentry {
            ino,
            ftype: FileType::CharDevice,
            ..at
        };
        self.number.keep();
        (inode, entry)
    }
}
