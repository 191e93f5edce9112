//! Files made without a name (`O_TMPFILE`). They are on the orphan list from their birth until they get a name, so that
//! a crash frees them.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::incore::inode::{Birth, Content, Inode};
use crate::inodes::new_inode::NewInode;
use crate::log::Cost;
use crate::names::Names;
use crate::space::orlov::InodePurpose;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use extant_formatter::item::{InodeEvent, MiscEvent};
use std::sync::{Arc, OnceLock};

impl Names {
    /// Makes a regular file without a name, as it would be made in `parent`; it counts one handle, and is freed with
    /// its last one unless [`Names::link`] has named it.
    pub(crate) fn create_unnamed(
        &self,
        who: &Credentials,
        parent: &Inode,
        mode: u16,
    ) -> Result<Arc<Inode>> {
        let _span = lockmeter::span!("create");
        let names = parent.directory().ok_or(Error::NotDirectory)?;
        self.inodes.permit(who, parent, WRITE | EXECUTE)?;
        if names.is_dead() {
            return Err(Error::NotFound);
        }
        let what = NewInode::File;
        let (mode, xattrs) = self
            .inodes
            .inherited_acls(who, parent, what.ftype(), mode)?;
        let cost = match xattrs {
            Some(_) => Cost::XATTR,
            None => Cost { meta_blocks: 0 },
        };
        let tx = self.commit.begin(who, cost)?;
        let number = self.commit.take_number(parent.ino, InodePurpose::File)?;
        let ino = number.ino();
        let mut core = self.inodes.new_core(who, parent, &what, mode, now());
        core.links = 0;
        let content = Content::File(OnceLock::new());

        let inode = tx.commit(number.after(), |c| {
            c.inode(ino, InodeEvent::Init, core);
            c.misc(ino, MiscEvent::OrphanAdd);
            if let Some(set) = &xattrs {
                c.misc(ino, MiscEvent::Xattrs(Arc::clone(set)));
            }
            let mut inode = Inode::new(ino, what.ftype(), core, content);
            inode.set_newborn(1, xattrs);
            inode.set_birth(Birth::of(c));
            let state = inode.state.get_mut();
            state.orphan = true;
            state.unnamed = true;
            let inode = Arc::new(inode);
            self.inodes.insert(&inode);
            inode
        });
        number.keep();
        Ok(inode)
    }
}
