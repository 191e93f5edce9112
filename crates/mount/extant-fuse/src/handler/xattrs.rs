//! Extended attributes.

use super::Filesystem;
use crate::nodes::HeldNode;
use extant::{Credentials, SetXattr};
use fuse_server::{Answer, Errno};
use rustix::fs::XattrFlags;

impl Filesystem {
    pub(super) fn get_xattr(
        &self,
        held: &HeldNode,
        who: &Credentials,
        (name, size): (&[u8], u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let value = self.tried(held.node.get_xattr(who, name))?;
        give(&value, size, answer)
    }

    pub(super) fn list_xattrs(
        &self,
        held: &HeldNode,
        who: &Credentials,
        size: u32,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let names = self.tried(held.node.list_xattrs(who))?;
        let mut list = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum());
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        give(&list, size, answer)
    }

    pub(super) fn set_xattr(
        &self,
        held: &HeldNode,
        who: &Credentials,
        (name, value, flags, clear_set_gid): (&[u8], &[u8], u32, bool),
    ) -> Result<(), Errno> {
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let how = match (
            flags.contains(XattrFlags::CREATE),
            flags.contains(XattrFlags::REPLACE),
        ) {
            (false, false) => SetXattr::Any,
            (true, false) => SetXattr::Create,
            (false, true) => SetXattr::Replace,
            // No attribute both exists and is missing.
            (true, true) => {
                self.tried(held.node.get_xattr(who, name))?;
                return Err(Errno::EXIST);
            }
        };
        self.tried(held.node.set_xattr(who, name, value, how))?;
        if clear_set_gid {
            self.tried(held.node.clear_set_group_id())?;
        }
        Ok(())
    }

    pub(super) fn remove_xattr(
        &self,
        held: &HeldNode,
        who: &Credentials,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.tried(held.node.remove_xattr(who, name))
    }
}

/// Answers with a value, or only with its size if the caller asks for that.
fn give(value: &[u8], size: u32, answer: &mut Answer<'_>) -> Result<(), Errno> {
    let len = u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    if size == 0 {
        answer.xattr_size(len);
    } else if size < len {
        return Err(Errno::RANGE);
    } else {
        answer.bytes(value);
    }
    Ok(())
}
