//! Messages about attributes, including extended ones.

use super::{Body, Dialect, Malformed, name, only_name, prefix};
use crate::attr::Time;
use crate::request::{Operation, SetAttr, SetTime};
use crate::wire::{self, bits};

#[inline]
pub(super) fn get_attr(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (get, _) = body.fixed::<wire::GetAttrIn>()?;
    Ok(Operation::GetAttr {
        handle: (get.flags & bits::GETATTR_FH != 0).then_some(get.fh),
    })
}

#[inline]
pub(super) fn statx(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (get, _) = body.fixed::<wire::StatxIn>()?;
    let handle = (get.getattr_flags & bits::GETATTR_FH != 0).then_some(get.fh);
    Ok(Operation::Statx {
        handle,
        flags: get.sx_flags,
        mask: get.sx_mask,
    })
}

#[inline]
pub(super) fn get_xattr(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (get, rest) = body.fixed::<wire::GetXattrIn>()?;
    Ok(Operation::GetXattr {
        name: only_name(rest)?,
        size: get.size,
    })
}

#[inline]
pub(super) fn set_attr(set: &wire::SetAttrIn) -> SetAttr {
    let has = |bit: u32| set.valid & bit != 0;
    let time = |wanted: u32, now: u32, seconds: u64, nanoseconds: u32| {
        has(wanted | now).then(|| {
            if has(now) {
                SetTime::Now
            } else {
                SetTime::At(Time {
                    seconds: seconds.cast_signed(),
                    nanoseconds,
                })
            }
        })
    };
    SetAttr {
        handle: has(bits::FATTR_FH).then_some(set.fh),
        size: has(bits::FATTR_SIZE).then_some(set.size),
        mode: has(bits::FATTR_MODE).then_some(set.mode),
        uid: has(bits::FATTR_UID).then_some(set.uid),
        gid: has(bits::FATTR_GID).then_some(set.gid),
        atime: time(
            bits::FATTR_ATIME,
            bits::FATTR_ATIME_NOW,
            set.atime,
            set.atimensec,
        ),
        mtime: time(
            bits::FATTR_MTIME,
            bits::FATTR_MTIME_NOW,
            set.mtime,
            set.mtimensec,
        ),
        ctime: has(bits::FATTR_CTIME).then_some(Time {
            seconds: set.ctime.cast_signed(),
            nanoseconds: set.ctimensec,
        }),
        kill_suidgid: has(bits::FATTR_KILL_SUIDGID),
    }
}

#[inline]
pub(super) fn set_xattr(body: Body<'_>, dialect: Dialect) -> Result<Operation<'_>, Malformed> {
    let (size, flags, extended, rest) = if dialect.setxattr_ext {
        let (set, rest) = body.fixed::<wire::SetXattrIn>()?;
        (set.size, set.flags, set.setxattr_flags, rest)
    } else {
        let (set, rest) = body.fixed::<wire::SetXattrInShort>()?;
        (set.size, set.flags, 0, rest)
    };
    let (name, rest) = name(rest)?;
    let acl_kill_sgid = extended & bits::SETXATTR_ACL_KILL_SGID != 0;
    Ok(Operation::SetXattr {
        name,
        value: prefix(rest, size)?,
        flags,
        acl_kill_sgid,
    })
}
