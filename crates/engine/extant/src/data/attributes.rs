//! Setting attributes. This is not in `inodes`, because the size is an attribute.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::data::Data;
use crate::incore::directory::Directory;
use crate::incore::inode::Inode;
use crate::incore::name_table::BucketGuard;
use crate::inodes::attributes::{SetAttributes, changed_flags};
use crate::log::Cost;
use crate::types::credentials::Credentials;
use ext4_format::fold::Comparison;
use ext4_format::inode::{InodeCore, flags};
use ext4_format::xattr::XattrSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Data {
    /// Changes attributes.
    pub(crate) fn set_attributes(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        set: &SetAttributes,
    ) -> Result<()> {
        let _span = lockmeter::span!("set attributes");
        self.store.check_writable()?;
        self.inodes.permit_attributes(who, inode, set)?;
        if set.is_cached_times() && self.set_times_of_removed(inode, set) {
            return Ok(());
        }
        if let Some(size) = set.size {
            self.truncate(who, inode, size)?;
            if !set.has_more_than_size() {
                return Ok(());
            }
        }
        let acl = self.acl_after(set, inode)?;
        let chown = (set.uid.is_some() || set.gid.is_some()) && inode.directory().is_none();
        if chown {
            self.inodes.drop_capability(who, inode)?;
        }
        let tx = match acl {
            // The value keeps its length, and may be in a block that other inodes share.
            Some(_) => self.commit.begin_freeing(Cost::XATTR)?,
            None => self.commit.begin_core()?,
        };
        let names = inode.directory();
        // The formatter, too, must find that the new value is later than every change of a name noted until then.
        let mut still = names.map(|names| names.table.lock_all());
        let mut state = inode.state.lock();
        if state.freed {
            return Err(Error::NotFound);
        }
        let compared = self.compared_anew(&state.core, set, names.zip(still.as_deref()))?;
        let seen = state.stamp.max(names.map_or(0, |n| n.last_stamp()));
        let time = now();
        self.inodes.fold_overwrites(inode, &mut state);
        tx.commit(seen, |c| {
            let core = &mut state.core;
            if let Some(names) = names {
                self.inodes.fold_times(names, core);
                names.reset_time();
            }
            if let Some(new) = set.mode {
                let mut new = new & 0o7777;
                if !who.is_unbound() && !who.in_group(set.gid.unwrap_or(core.gid)) {
                    new &= !0o2000;
                }
                core.mode = core.mode & 0o170_000 | new;
            }
            if chown && set.mode.is_none() {
                core.mode = who.mode_after_chown(core.mode, core.gid);
            }
            core.uid = set.uid.unwrap_or(core.uid);
            core.gid = set.gid.unwrap_or(core.gid);
            if let Some(new) = set.flags {
                core.flags = changed_flags(core.flags, new);
            }
            core.project = set.project.unwrap_or(core.project);
            core.generation = set.generation.unwrap_or(core.generation);
            self.inodes.set_times(core, set, time);
            inode.mirror(&state.core);
            if let Some(acl) = &acl {
                self.inodes.log_xattrs(inode, &mut state, acl, c);
                self.inodes.log_core(inode, &mut state, c);
            } else {
                self.inodes.log_core_alone(inode, &mut state, seen, c);
            }
        });
        if let (Some(compared), Some(buckets)) = (compared, &mut still) {
            Directory::compare_by(compared, buckets);
        }
        self.watch.tell_attributes(inode);
        Ok(())
    }

    /// Returns the attributes that follow a new mode, if there is an ACL.
    fn acl_after(&self, set: &SetAttributes, inode: &Inode) -> Result<Option<Arc<XattrSet>>> {
        match set.mode {
            Some(mode) if inode.has_acl.load(Ordering::Relaxed) => {
                self.inodes.acl_after_chmod(inode, mode)
            }
            _ => Ok(None),
        }
    }

    /// Returns how a directory is going to compare names, if that changes. The directory must be empty, with all its
    /// buckets locked.
    fn compared_anew(
        &self,
        core: &InodeCore,
        set: &SetAttributes,
        names: Option<(&Directory, &[BucketGuard<'_>])>,
    ) -> Result<Option<Comparison>> {
        let new = set.flags.map(|new| changed_flags(core.flags, new));
        let Some(new) = new.filter(|new| (new ^ core.flags) & flags::CASEFOLD != 0) else {
            return Ok(None);
        };
        if names.is_some_and(|(names, buckets)| names.is_known_empty(buckets)) {
            Ok(Some(self.store.comparison(new)))
        } else {
            Err(Error::NotEmpty)
        }
    }

    /// Sets times of a removed file that will never get a name. Such a file is freed with its last handle, or when a
    /// crash is recovered from, so nothing is logged. A cache above sends such times with every removal. Returns false
    /// if the file is not of this kind.
    pub(super) fn set_times_of_removed(&self, inode: &Inode, set: &SetAttributes) -> bool {
        if inode.directory().is_some() {
            return false;
        }
        let mut state = inode.state.lock();
        if state.freed || state.unnamed || state.core.links > 0 {
            return false;
        }
        self.inodes.fold_overwrites(inode, &mut state);
        self.inodes.set_times(&mut state.core, set, now());
        drop(state);
        self.watch.tell_attributes(inode);
        true
    }
}
