//! Modes, owners, times, extended attributes, ACLs.

use super::{ACCESS, AclEntry, Answer, DEFAULT, Id, Model, NodeKind, err};
use crate::common::acl_bytes;
use extant::SetXattr;
use rustix::io::Errno;

pub(super) fn decode_acl(bytes: &[u8]) -> Vec<AclEntry> {
    bytes[4..]
        .chunks_exact(8)
        .map(|c| {
            let short = |i| u16::from_le_bytes([c[i], c[i + 1]]);
            (
                short(0),
                short(2),
                u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            )
        })
        .collect()
}

const USER_OBJ: u16 = 1;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

pub(super) fn perm(acl: &[AclEntry], tag: u16) -> Option<u16> {
    acl.iter().find(|e| e.0 == tag).map(|e| e.1)
}

/// The class that the group bits of the mode stand for: the mask if there is one.
pub(super) fn group_class(acl: &[AclEntry]) -> u16 {
    if perm(acl, MASK).is_some() {
        MASK
    } else {
        GROUP_OBJ
    }
}

pub(super) fn acl_mode(acl: &[AclEntry]) -> u16 {
    let bits = |tag| perm(acl, tag).unwrap_or(0);
    bits(USER_OBJ) << 6 | bits(group_class(acl)) << 3 | bits(OTHER)
}

pub(super) fn is_minimal(acl: &[AclEntry]) -> bool {
    acl.iter()
        .all(|e| [USER_OBJ, GROUP_OBJ, OTHER].contains(&e.0))
}

/// chmod (`and` false) or creation (`and` true) applied to an ACL.
pub(super) fn apply_mode(acl: &mut [AclEntry], mode: u16, and: bool) {
    let class = group_class(acl);
    for e in acl {
        let bits = match e.0 {
            USER_OBJ => mode >> 6,
            OTHER => mode,
            tag if tag == class => mode >> 3,
            _ => continue,
        } & 7;
        e.1 = if and { e.1 & bits } else { bits };
    }
}

impl Model {
    pub fn chmod(&mut self, id: Id, mode: u16) {
        let node = self.node(id);
        node.mode = mode;
        if let Some(bytes) = node.xattrs.get_mut(ACCESS) {
            let mut acl = decode_acl(bytes);
            apply_mode(&mut acl, mode, false);
            *bytes = acl_bytes(&acl);
        }
    }

    pub fn chown(&mut self, id: Id, uid: u32, gid: u32) {
        let node = self.node(id);
        (node.uid, node.gid) = (uid, gid);
        if !matches!(node.kind, NodeKind::Dir { .. }) {
            // By root, as all that the model does: a member of every group.
            node.mode &= if node.mode & 0o010 != 0 {
                !0o6000
            } else {
                !0o4000
            };
        }
    }

    pub fn set_times(&mut self, id: Id, atime: (i64, u32), mtime: (i64, u32)) {
        let stored = |(secs, nanos): (i64, u32)| {
            if self.short_times {
                (secs, 0)
            } else {
                (secs, nanos)
            }
        };
        let (atime, mtime) = (Some(stored(atime)), Some(stored(mtime)));
        let node = self.node(id);
        (node.atime, node.mtime) = (atime, mtime);
    }

    /// Returns whether users may have attributes on the node, which only files and directories allow.
    fn may_have(&self, id: Id, name: &str) -> bool {
        !name.starts_with("user.")
            || matches!(
                self.nodes[id].kind,
                NodeKind::Dir { .. } | NodeKind::File(_)
            )
    }

    pub fn set_xattr(&mut self, id: Id, name: &str, value: &[u8], how: SetXattr) -> Answer<()> {
        if !self.may_have(id, name) {
            return err(Errno::PERM);
        }
        let node = self.node(id);
        match (how, node.xattrs.contains_key(name)) {
            (SetXattr::Create, true) => return err(Errno::EXIST),
            (SetXattr::Replace, false) => return err(Errno::NODATA),
            _ => {}
        }
        node.xattrs.insert(name.to_string(), value.to_vec());
        Ok(())
    }

    pub fn remove_xattr(&mut self, id: Id, name: &str) -> Answer<()> {
        if !self.may_have(id, name) {
            return err(Errno::PERM);
        }
        match self.node(id).xattrs.remove(name) {
            Some(_) => Ok(()),
            None => err(Errno::NODATA),
        }
    }

    pub fn set_acl(&mut self, id: Id, default: bool, acl: &[AclEntry]) -> Answer<()> {
        let node = self.node(id);
        match &node.kind {
            NodeKind::Symlink(_) => return err(Errno::OPNOTSUPP),
            NodeKind::Dir { .. } => {}
            _ if default => return err(Errno::ACCESS),
            _ => {}
        }
        if default {
            node.xattrs.insert(DEFAULT.into(), acl_bytes(acl));
            return Ok(());
        }
        node.mode = node.mode & !0o777 | acl_mode(acl);
        if is_minimal(acl) {
            node.xattrs.remove(ACCESS);
        } else {
            node.xattrs.insert(ACCESS.into(), acl_bytes(acl));
        }
        Ok(())
    }

    /// Bytes that the attributes take at least.
    pub fn xattr_bytes(&self, id: Id) -> usize {
        self.nodes[id]
            .xattrs
            .iter()
            .map(|(n, v)| n.len() + v.len().next_multiple_of(4) + 20)
            .sum()
    }
}
