//! Setting the attributes of a file of the host.

use crate::copy_steps::is_refused;
use crate::meta::Meta;
use crate::meta::Xattr;
use crate::side::Keep;
use ext4_format::FileType;
use ext4_format::timestamp::Timestamp;
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid};

fn times(meta: &Meta) -> Timestamps {
    let spec = |t: Timestamp| Timespec {
        tv_sec: t.secs(),
        tv_nsec: t.nanos().into(),
    };
    Timestamps {
        last_access: spec(meta.atime),
        last_modification: spec(meta.mtime),
    }
}

pub(crate) fn mode(bits: u16) -> Mode {
    Mode::from_raw_mode(bits.into())
}

/// Sets the owner, the extended attributes, the permissions and the times by one call each. This order matters, because a
/// change of owner removes capabilities, and permissions may deny a change of extended attributes.
pub(crate) fn keep_in_order(
    keep: &mut Keep<'_>,
    own: impl FnOnce(Uid, Gid) -> rustix::io::Result<()>,
    set_xattr: impl Fn(&Xattr) -> rustix::io::Result<()>,
    permit: impl FnOnce(Mode) -> rustix::io::Result<()>,
    date: impl FnOnce(&Timestamps) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let Keep { meta, rules, .. } = *keep;
    let mut owned = rules.keep_owner;
    if rules.keep_owner {
        match own(Uid::from_raw(meta.uid), Gid::from_raw(meta.gid)) {
            Err(errno) if rules.owner_may_be_refused && is_refused(errno) => {
                owned = false;
                (keep.refused)(b"owner");
            }
            other => other?,
        }
    }
    for xattr in keep.xattrs {
        match set_xattr(xattr) {
            Err(errno) if is_refused(errno) => (keep.refused)(&xattr.0),
            other => other?,
        }
    }
    if rules.keep_mode && meta.kind != FileType::Symlink {
        // If the owner was refused, drop set-id bits, because they would grant the rights of another user.
        let is_dir = meta.kind == FileType::Directory;
        let all = owned || is_dir || rustix::process::geteuid().is_root();
        let allowed = if all { 0o7777 } else { 0o1777 };
        permit(mode(meta.mode & allowed))?;
    }
    if rules.keep_times {
        date(&times(meta))?;
    }
    Ok(())
}
