//! Changes that every source makes to attributes before they enter the tree: owners and permissions are translated,
//! times are clamped, extended attributes get the form that the volume stores.

use super::error::{MkfsError, Result};
use super::options::MkfsOptions;
use super::progress::Monitor;
use super::tree::{Inode, XattrPool};
use ext4_format::acl::{Acl, AclEntry, Tag};
use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::{ACL_ACCESS, ACL_DEFAULT, XattrSet};
use extant_sources::parts::{RawXattrs, is_kept_xattr, show};

/// The rules of one run.
pub(super) struct AttributeRules<'a> {
    pub options: &'a MkfsOptions,
    pub pool: &'a XattrPool,
    pub monitor: &'a Monitor,
}

impl AttributeRules<'_> {
    /// Applies the options to an inode. `path` is for messages.
    pub fn apply(&self, inode: &mut Inode, xattrs: &RawXattrs, path: &[u8]) -> Result<()> {
        let o = self.options;
        inode.uid = o.uid.unwrap_or_else(|| o.uid_map.map(inode.uid));
        inode.gid = o.gid.unwrap_or_else(|| o.gid_map.map(inode.gid));
        let mode = o.mode_map.map(inode.mode);
        let changed = mode != inode.mode;
        inode.mode = mode;
        for time in [&mut inode.atime, &mut inode.mtime, &mut inode.ctime] {
            *time = self.clamp(*time);
        }
        if o.xattrs && !xattrs.is_empty() {
            let set = self.xattr_set(xattrs, changed.then_some(mode), path)?;
            inode.xattrs = self.pool.intern(set);
        }
        Ok(())
    }

    pub(super) fn clamp(&self, time: Timestamp) -> Timestamp {
        match self.options.source_date_epoch {
            Some(epoch) if time.secs() >= epoch => Timestamp::new(epoch, 0),
            _ => time,
        }
    }

    /// Returns the set in stored form. `mode` is given if it was changed: an ACL must agree with it.
    fn xattr_set(&self, raw: &RawXattrs, mode: Option<u16>, path: &[u8]) -> Result<XattrSet> {
        let mut set = XattrSet::default();
        for (name, value) in raw {
            if !is_kept_xattr(name) {
                let (path, name) = (show(path), show(name));
                self.monitor
                    .warn(format!("{path}: attribute {name} is not kept"));
                continue;
            }
            let bad = |e| MkfsError::source(show(path), format!("attribute {}: {e}", show(name)));
            let is_acl = name == ACL_ACCESS || name == ACL_DEFAULT;
            if !is_acl {
                set.set(name, value).map_err(bad)?;
                continue;
            }
            let mut acl = self
                .map_acl(&Acl::from_xattr(value).map_err(bad)?)
                .map_err(bad)?;
            if name == ACL_ACCESS {
                if let Some(mode) = mode {
                    acl.chmod(mode);
                }
                if acl.equivalent_mode().is_some() {
                    continue; // the mode is equivalent
                }
            }
            set.set(name, &acl.to_disk()).map_err(bad)?;
        }
        Ok(set)
    }

    /// Translates the ids in an ACL.
    fn map_acl(&self, acl: &Acl) -> ext4_format::Result<Acl> {
        let entries = acl.entries().iter().map(|e| AclEntry {
            tag: match e.tag {
                Tag::User(id) => Tag::User(self.options.uid_map.map(id)),
                Tag::Group(id) => Tag::Group(self.options.gid_map.map(id)),
                other => other,
            },
            ..*e
        });
        Acl::new(entries.collect())
    }
}
