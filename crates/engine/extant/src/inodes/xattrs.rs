//! Extended attributes, and the ACLs kept in them.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::incore::inode::{Inode, InodeState};
use crate::inodes::Inodes;
use crate::log::{Commit, Cost};
use crate::types::credentials::Credentials;
use ext4_format::FileType;
use ext4_format::acl::Acl;
use ext4_format::inode::flags;
use ext4_format::xattr::XattrSet;
use extant_formatter::item::MiscEvent;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The ACL that governs access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The ACL that new files and directories in a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The capabilities of a program file.
const CAPABILITY: &[u8] = b"security.capability";

/// Longest name, with its name space.
const NAME_MAX: usize = 255;
/// Longest value that a system call takes.
const VALUE_MAX: usize = 65_536;

/// Bytes of an ACL's value before its entries.
const ACL_HEADER: usize = 4;

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Returns the length of all names and values in bytes.
fn length(set: &XattrSet) -> usize {
    set.iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// Whether an attribute may exist already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Make or replace it.
    #[default]
    Any,
    /// Fail with [`Error::Exists`] if it exists.
    Create,
    /// Fail with [`Error::NoAttribute`] if it does not.
    Replace,
}

impl Inodes {
    /// Reads all attributes of an inode. Metadata in memory are not counted as used.
    fn at_xattrs<R>(&self, inode: &Inode, f: impl FnOnce(&XattrSet) -> R) -> Result<R> {
        {
            let state = inode.state.read();
            if let Some(set) = &state.xattrs {
                return Ok(f(set));
            }
        }
        Ok(f(&*self.xattrs(inode)?))
    }

    /// Returns all attributes of an inode, read once.
    pub(super) fn xattrs(&self, inode: &Inode) -> Result<Arc<XattrSet>> {
        {
            let mut state = inode.state.lock();
            if state.without_xattrs || state.xattrs.is_some() {
                return Ok(Arc::clone(state.xattrs.get_or_insert_default()));
            }
        }
        let read = Arc::new(self.read_xattrs(inode)?);
        let mut state = inode.state.lock();
        let set = Arc::clone(state.xattrs.get_or_insert(read));
        let capability = set.contains(CAPABILITY);
        inode.has_capability.store(capability, Ordering::Relaxed);
        Ok(set)
    }

    /// Runs `f` on the value of one attribute, if the inode has the attribute.
    fn at_value<R>(
        &self,
        inode: &Inode,
        name: &[u8],
        f: impl Fn(&[u8]) -> Result<R>,
    ) -> Result<Option<R>> {
        let (found, outside) =
            self.at_xattrs(inode, |set| (set.get(name).map(&f), set.value_inode(name)))?;
        match outside {
            Some(value) => f(&self.value_in_inode(inode, name, &value)?).map(Some),
            None => found.transpose(),
        }
    }

    /// Returns the value of one attribute, unchecked. An ACL is in the form that callers know.
    fn xattr_value(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.at_value(inode, name, |value| {
            Ok(if is_acl(name) {
                Acl::from_disk(value)?.to_xattr()
            } else {
                value.to_vec()
            })
        })
    }

    /// Returns the access or default ACL, if the inode has one.
    pub(super) fn acl(&self, inode: &Inode, name: &[u8]) -> Result<Option<Acl>> {
        if !inode.has_acl.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.at_value(inode, name, |value| Ok(Acl::from_disk(value)?))
    }

    /// Returns the access ACL. Without one, the mode is returned as an ACL.
    pub(crate) fn access_acl(&self, who: &Credentials, inode: &Inode) -> Result<Acl> {
        self.permit_xattr(who, inode, ACCESS, crate::types::credentials::READ, false)?;
        loop {
            let set = self.xattrs(inode)?;
            if let Some(value) = set.value_inode(ACCESS) {
                let value = self.value_in_inode(inode, ACCESS, &value)?;
                return Ok(Acl::from_disk(&value)?);
            }
            let state = inode.state.read();
            // The mode and the attributes, as of one moment.
            let current = state.xattrs.as_ref();
            if current.is_some_and(|current| Arc::ptr_eq(current, &set)) {
                return Ok(match set.get(ACCESS) {
                    Some(value) => Acl::from_disk(value)?,
                    None => Acl::from_mode(state.core.mode),
                });
            }
        }
    }

    /// Returns the ACL that new files and directories in a directory inherit, if there is one.
    pub(crate) fn default_acl(&self, who: &Credentials, inode: &Inode) -> Result<Option<Acl>> {
        self.permit_xattr(who, inode, DEFAULT, crate::types::credentials::READ, false)?;
        self.acl(inode, DEFAULT)
    }

    /// Returns the value of one attribute, if the caller may read it.
    pub(crate) fn get_xattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        self.permit_xattr(who, inode, name, crate::types::credentials::READ, false)?;
        self.xattr_value(inode, name)?.ok_or(Error::NoAttribute)
    }

    /// Sets an attribute; with no value removes it.
    pub(crate) fn set_xattr(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        name: &[u8],
        value: Option<&[u8]>,
        how: SetXattr,
    ) -> Result<()> {
        let _span = lockmeter::span!("set xattr");
        self.store.check_writable()?;
        self.permit_xattr(
            who,
            inode,
            name,
            crate::types::credentials::WRITE,
            value.is_some(),
        )?;
        if value.is_some_and(|v| v.len() > VALUE_MAX) {
            return Err(Error::TooBig);
        }
        // An ACL without entries counts as missing.
        let value = value.filter(|v| !is_acl(name) || v.len() > ACL_HEADER);
        if value.is_none() && is_acl(name) && self.xattrs(inode)?.get(name).is_none() {
            return Ok(());
        }
        // Setting an equal value changes nothing, not even the time of the change.
        let present = how != SetXattr::Create && !is_acl(name);
        if present && value.is_some() && self.xattrs(inode)?.get(name) == value {
            return Ok(());
        }
        let gid = inode.owner_and_mode().1;
        if name == ACCESS && value.is_some() && !who.is_unbound() && !who.in_group(gid) {
            self.clear_mode(inode, |_| 0o2000)?;
        }
        self.change_xattrs(who, inode, |set| {
            match (set.get(name).is_some(), how, value) {
                (true, SetXattr::Create, Some(_)) => return Err(Error::Exists),
                (false, SetXattr::Replace, Some(_)) | (false, _, None) => {
                    return Err(Error::NoAttribute);
                }
                _ => {}
            }
            let mut mode = None;
            match value {
                Some(value) if is_acl(name) => {
                    let acl =
                        Acl::from_xattr(value).map_err(|_| Error::Invalid("malformed ACL"))?;
                    if name == ACCESS {
                        mode = Some(acl.mode());
                    }
                    if name == ACCESS && acl.equivalent_mode().is_some() {
                        // The mode bits hold the whole ACL.
                        set.remove(name);
                    } else {
                        set.set(name, &acl.to_disk())?;
                    }
                }
                Some(value) => set.set(name, value)?,
                None => {
                    set.remove(name);
                }
            }
            Ok(mode)
        })
    }

    /// Removes a program file's capabilities, because its contents or its owner change.
    pub(crate) fn drop_capability(&self, who: &Credentials, inode: &Inode) -> Result<()> {
        if who.is_late() || !inode.has_capability.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.xattrs(inode)?.get(CAPABILITY).is_none() {
            return Ok(());
        }
        self.change_xattrs(who, inode, |set| {
            set.remove(CAPABILITY);
            Ok(None)
        })
    }

    /// Changes the attributes; `change` may also change the permission bits, and is called again if another thread
    /// was faster.
    fn change_xattrs(
        &self,
        who: &Credentials,
        inode: &Inode,
        mut change: impl FnMut(&mut XattrSet) -> Result<Option<u16>>,
    ) -> Result<()> {
        loop {
            let before = self.xattrs(inode)?;
            let mut set = (*before).clone();
            let mode = change(&mut set)?;
            let needs_block = self.needs_xattr_block(&set)?;
            let set = Arc::new(set);
            // Its attributes may be in a block that other inodes share.
            let grows = needs_block && length(&set) > length(&before);
            let tx = if grows {
                self.commit.begin(who, Cost::XATTR)?
            } else {
                self.commit.begin_freeing(Cost::XATTR)?
            };
            let mut state = inode.state.lock();
            if state.freed {
                return Err(Error::NotFound);
            }
            // Another thread may have set another attribute meanwhile.
            if !state
                .xattrs
                .as_ref()
                .is_some_and(|s| Arc::ptr_eq(s, &before))
            {
                continue;
            }
            let seen = state
                .stamp
                .max(inode.directory().map_or(0, |n| n.last_stamp()));
            tx.commit(seen, |c| {
                state.core.ctime = now();
                if let Some(bits) = mode {
                    state.core.mode = state.core.mode & !0o777 | bits & 0o777;
                    let core = state.core;
                    inode.mirror(&core);
                }
                self.log_xattrs(inode, &mut state, &set, c);
                self.log_core(inode, &mut state, c);
            });
            self.watch.tell_attributes(inode);
            return Ok(());
        }
    }

    /// Returns the names of the attributes the caller may see.
    pub(crate) fn list_xattrs(&self, who: &Credentials, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let set = self.xattrs(inode)?;
        Ok(set
            .names()
            .into_iter()
            .filter(|n| who.is_privileged() || !n.starts_with(b"trusted."))
            .filter(|n| !n.starts_with(b"encryption."))
            .map(<[u8]>::to_vec)
            .collect())
    }

    pub(crate) fn log_xattrs(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        set: &Arc<XattrSet>,
        c: &mut Commit<'_>,
    ) {
        inode.has_acl.store(
            set.get(ACCESS).is_some() || set.get(DEFAULT).is_some(),
            Ordering::Relaxed,
        );
        let capability = set.get(CAPABILITY).is_some();
        inode.has_capability.store(capability, Ordering::Relaxed);
        state.xattrs = Some(Arc::clone(set));
        c.misc(inode.ino, MiscEvent::Xattrs(Arc::clone(set)));
    }

    /// Returns the attributes after chmod: the access ACL follows the mode.
    pub(crate) fn acl_after_chmod(
        &self,
        inode: &Inode,
        mode: u16,
    ) -> Result<Option<Arc<XattrSet>>> {
        let Some(mut acl) = self.acl(inode, ACCESS)? else {
            return Ok(None);
        };
        acl.chmod(mode & 0o777);
        let mut set = (*self.xattrs(inode)?).clone();
        set.set(ACCESS, &acl.to_disk())?;
        Ok(Some(Arc::new(set)))
    }

    /// Returns true if the inode has too little room for the attributes. Fails if they do not fit into a block either.
    fn needs_xattr_block(&self, set: &XattrSet) -> Result<bool> {
        let area = usize::from(self.store.geometry.inode_size)
            .saturating_sub(128 + usize::from(self.store.geometry.want_extra_isize));
        ext4_format::xattr::place(set, area, self.store.geometry.block_size as usize)
            .map(|(_, block)| block.is_some())
            .map_err(|_| Error::NoSpace("extended attributes do not fit the inode and one block"))
    }

    fn permit_xattr(
        &self,
        who: &Credentials,
        inode: &Inode,
        name: &[u8],
        wanted: u16,
        sets: bool,
    ) -> Result<()> {
        use crate::types::credentials::WRITE;
        let (prefix, rest) = name.split_at(name.iter().position(|&b| b == b'.').unwrap_or(0));
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Error::Range);
        }
        let writes = wanted == WRITE;
        if writes && inode.has_flag(flags::IMMUTABLE | flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        let refused = if writes {
            Error::NotPermitted
        } else {
            Error::NoAttribute
        };
        let permitted = match prefix {
            b"user" => {
                if !matches!(inode.ftype, FileType::Regular | FileType::Directory) {
                    return Err(refused);
                }
                let sticky = inode.directory().is_some() && inode.owner_and_mode().2 & 0o1000 != 0;
                if writes && sticky {
                    self.permit_owner(who, inode)?;
                }
                self.permit(who, inode, wanted)
            }
            b"trusted" if !who.is_unbound() => Err(refused),
            b"trusted" => Ok(()),
            b"security" if !writes => Ok(()),
            b"security" if who.is_unbound() => Ok(()),
            b"security" => Err(Error::NotPermitted),
            b"system" if is_acl(name) => {
                if inode.ftype == FileType::Symlink {
                    return Err(Error::Unsupported("ACLs on symbolic links"));
                }
                if writes && sets && name == DEFAULT && inode.directory().is_none() {
                    return Err(Error::PermissionDenied);
                }
                if writes {
                    self.permit_owner(who, inode)?;
                }
                return Ok(());
            }
            b"system" => return Err(Error::Unsupported("attribute name space")),
            _ => {
                self.permit(who, inode, wanted)?;
                return Err(Error::Unsupported("attribute name space"));
            }
        };
        permitted?;
        if rest.len() < 2 {
            return Err(Error::Invalid(
                "an attribute's name ends with its name space",
            ));
        }
        Ok(())
    }
}
