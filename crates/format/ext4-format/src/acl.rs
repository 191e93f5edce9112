//! POSIX ACLs: the on-disk form (version 1, short and long entries) the form of the extended attributes in the
//! system-call interface (version 2), and the permission check.

use crate::error::{FormatError, Result, Where};
use std::fmt;

const DISK_VERSION: u32 = 1;
const XATTR_VERSION: u32 = 2;
/// The stored id of entries that name no user or group.
const NO_ID: u32 = u32::MAX;

/// Permission bit: read.
pub const READ: u8 = 4;
/// Permission bit: write.
pub const WRITE: u8 = 2;
/// Permission bit: execute or search.
pub const EXECUTE: u8 = 1;

/// The subject of an entry. The order is that of entries in an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// The owner.
    UserObj,
    /// A user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group.
    Group(u32),
    /// The most that users, groups and the owning group get.
    Mask,
    /// Everyone else.
    Other,
}

impl Tag {
    const fn encode(self) -> (u16, Option<u32>) {
        match self {
            Self::UserObj => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::GroupObj => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Other => (0x20, None),
        }
    }

    const fn decode(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    const fn has_id(tag: u16) -> bool {
        tag & (0x02 | 0x08) != 0
    }
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The class, user or group that it is for.
    pub tag: Tag,
    /// `READ | WRITE | EXECUTE`.
    pub perm: u8,
}

/// A valid ACL: owner, owning group and others are there, in order, and a mask if anyone is named.
///
/// ```
/// use ext4_format::acl::{Acl, AclEntry, READ, Tag, WRITE};
/// let mut acl = Acl::from_mode(0o640);
/// assert_eq!(acl.equivalent_mode(), Some(0o640));
/// acl.set(Tag::User(7), READ | WRITE);
/// acl.set(Tag::Mask, READ);
/// assert!(acl.permits(1, 1, 7, |_| false, READ));
/// assert!(!acl.permits(1, 1, 7, |_| false, WRITE)); // masked
/// assert_eq!(Acl::from_disk(&acl.to_disk()).unwrap(), acl);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

/// The short text form of acl(5), with numbers for users and groups, as archives hold it.
///
/// ```
/// let acl = ext4_format::acl::Acl::from_mode(0o751);
/// assert_eq!(acl.to_string(), "user::rwx,group::r-x,other::--x");
/// ```
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, entry) in self.entries.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { "," })?;
            match entry.tag {
                Tag::UserObj => f.write_str("user::")?,
                Tag::User(id) => write!(f, "user:{id}:")?,
                Tag::GroupObj => f.write_str("group::")?,
                Tag::Group(id) => write!(f, "group:{id}:")?,
                Tag::Mask => f.write_str("mask::")?,
                Tag::Other => f.write_str("other::")?,
            }
            for (bit, letter) in [(READ, "r"), (WRITE, "w"), (EXECUTE, "x")] {
                f.write_str(if entry.perm & bit == 0 { "-" } else { letter })?;
            }
        }
        Ok(())
    }
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

fn version(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|v| u32::from_le_bytes(*v))
}

/// Returns the tag, the permissions and the optional id at the start of an entry.
fn raw_entry(bytes: &[u8]) -> Option<(u16, u16, Option<u32>)> {
    let head = bytes.first_chunk::<4>()?;
    let [t0, t1, p0, p1] = *head;
    let id = bytes
        .get(4..)
        .and_then(<[u8]>::first_chunk)
        .map(|id| u32::from_le_bytes(*id));
    Some((
        u16::from_le_bytes([t0, t1]),
        u16::from_le_bytes([p0, p1]),
        id,
    ))
}

impl Acl {
    /// Creates an ACL from entries in order.
    ///
    /// # Errors
    /// `Unrepresentable` if the order or the set of entries is not valid.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self> {
        if Self::is_valid(&entries) {
            Ok(Self { entries })
        } else {
            Err(FormatError::Unrepresentable("invalid ACL"))
        }
    }

    /// Classes must not decrease; named entries of a class may have any order.
    fn is_valid(entries: &[AclEntry]) -> bool {
        let class = |tag: Tag| tag.encode().0;
        let count = |c: u16| entries.iter().filter(|e| class(e.tag) == c).count();
        entries
            .windows(2)
            .all(|w| matches!(w, [a, b] if class(a.tag) <= class(b.tag)))
            && entries.iter().all(|e| e.perm <= 7)
            && [0x01, 0x04, 0x20].iter().all(|c| count(*c) == 1)
            && count(0x10) <= 1
            && (count(0x10) == 1 || count(0x02) + count(0x08) == 0)
    }

    /// Returns the three entries for a mode.
    pub fn from_mode(mode: u16) -> Self {
        let bits = |shift: u16| (mode >> shift & 7) as u8;
        let entry = |tag, perm| AclEntry { tag, perm };
        let entries = vec![
            entry(Tag::UserObj, bits(6)),
            entry(Tag::GroupObj, bits(3)),
            entry(Tag::Other, bits(0)),
        ];
        Self { entries }
    }

    /// Reads the value stored on disk.
    ///
    /// # Errors
    /// `Corrupt` if the value is not a valid ACL.
    pub fn from_disk(bytes: &[u8]) -> Result<Self> {
        if version(bytes) != Some(DISK_VERSION) {
            return Err(corrupt("ACL version", 0));
        }
        let (mut entries, mut at) = (Vec::new(), 4);
        while at < bytes.len() {
            let short = corrupt("ACL entry length", at);
            let (tag, perm, id) = bytes.get(at..).and_then(raw_entry).ok_or(short.clone())?;
            let id = if Tag::has_id(tag) {
                Some(id.ok_or(short)?)
            } else {
                None
            };
            entries.push(Self::entry(tag, perm, id.unwrap_or(NO_ID), at)?);
            at += if id.is_some() { 8 } else { 4 };
        }
        if Self::is_valid(&entries) {
            Ok(Self { entries })
        } else {
            Err(corrupt("ACL entries", 4))
        }
    }

    fn entry(tag: u16, perm: u16, id: u32, at: usize) -> Result<AclEntry> {
        match (Tag::decode(tag, id), u8::try_from(perm)) {
            (Some(tag), Ok(perm)) if perm <= 7 => Ok(AclEntry { tag, perm }),
            _ => Err(corrupt("ACL entry", at)),
        }
    }

    /// Returns the value to store on disk.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            let (tag, id) = e.tag.encode();
            out.extend(tag.to_le_bytes());
            out.extend(u16::from(e.perm).to_le_bytes());
            out.extend(id.into_iter().flat_map(u32::to_le_bytes));
        }
        out
    }

    /// Reads the value of a `system.posix_acl_*` attribute as a program sets it.
    ///
    /// # Errors
    /// `Corrupt` if the value is not a valid ACL: the caller's EINVAL.
    pub fn from_xattr(bytes: &[u8]) -> Result<Self> {
        if version(bytes) != Some(XATTR_VERSION) || bytes.len() % 8 != 4 {
            return Err(corrupt("ACL attribute version or length", 0));
        }
        let list = bytes.get(4..).unwrap_or(&[]).chunks_exact(8).enumerate();
        let entries = list
            .map(|(i, chunk)| match raw_entry(chunk) {
                Some((tag, perm, id)) => Self::entry(tag, perm, id.unwrap_or(NO_ID), 4 + i * 8),
                None => Err(corrupt("ACL entry length", 4 + i * 8)),
            })
            .collect::<Result<Vec<_>>>()?;
        if Self::is_valid(&entries) {
            Ok(Self { entries })
        } else {
            Err(corrupt("ACL entries", 4))
        }
    }

    /// Returns the value of a `system.posix_acl_*` attribute as a program reads it.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = XATTR_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            let (tag, id) = e.tag.encode();
            out.extend(tag.to_le_bytes());
            out.extend(u16::from(e.perm).to_le_bytes());
            out.extend(id.unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// Returns the entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    fn perm(&self, tag: Tag) -> Option<u8> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    /// Sets or adds an entry. Naming a user or group in an ACL without a mask also adds a mask that
    /// allows all.
    pub fn set(&mut self, tag: Tag, perm: u8) {
        let perm = perm & 7;
        if let Some(e) = self.entries.iter_mut().find(|e| e.tag == tag) {
            e.perm = perm;
            return;
        }
        let class = tag.encode().0;
        let at = self.entries.iter().position(|e| e.tag.encode().0 > class);
        self.entries
            .insert(at.unwrap_or(self.entries.len()), AclEntry { tag, perm });
        if Tag::has_id(class) && self.perm(Tag::Mask).is_none() {
            self.set(Tag::Mask, 7);
        }
    }

    /// Returns the mode whose bits express this whole ACL; `None` if the ACL has more entries.
    pub fn equivalent_mode(&self) -> Option<u16> {
        (self.entries.len() == 3).then(|| self.mode())
    }

    /// Returns the permission bits for `stat`, with the mask instead of the group's bits if the ACL has a mask.
    pub fn mode(&self) -> u16 {
        let perm = |tag| u16::from(self.perm(tag).unwrap_or(0));
        let group = self
            .perm(Tag::Mask)
            .map_or_else(|| perm(Tag::GroupObj), u16::from);
        perm(Tag::UserObj) << 6 | group << 3 | perm(Tag::Other)
    }

    /// Takes over a chmod: the group's bits go to the mask, if there is one.
    pub fn chmod(&mut self, mode: u16) {
        let masked = self.perm(Tag::Mask).is_some();
        for e in &mut self.entries {
            let shift = match e.tag {
                Tag::UserObj => 6,
                Tag::Mask => 3,
                Tag::GroupObj if !masked => 3,
                Tag::Other => 0,
                _ => continue,
            };
            e.perm = (mode >> shift & 7) as u8;
        }
    }

    /// Returns the access ACL of a new file under this default ACL, created with `mode` (the umask does not apply):
    /// it permits nothing beyond the mode. The file's mode is then [`Self::mode`].
    #[must_use]
    pub fn inherit(&self, mode: u16) -> Self {
        let mut acl = self.clone();
        acl.chmod(mode & self.mode());
        acl
    }

    /// Returns whether user `uid`, in the groups `in_group` knows, may do all of `want` to a file of `owner` and
    /// `group`. Privileges are the caller's matter.
    pub fn permits(
        &self,
        owner: u32,
        group: u32,
        uid: u32,
        in_group: impl Fn(u32) -> bool,
        want: u8,
    ) -> bool {
        let allows = |perm: u8| perm & want == want;
        let mask = self.perm(Tag::Mask).unwrap_or(7);
        if uid == owner {
            return self.perm(Tag::UserObj).is_some_and(allows);
        }
        if let Some(perm) = self.perm(Tag::User(uid)) {
            return allows(perm & mask);
        }
        let mut member = false;
        for e in &self.entries {
            let gid = match e.tag {
                Tag::GroupObj => group,
                Tag::Group(gid) => gid,
                _ => continue,
            };
            if in_group(gid) {
                // A single group that allows everything is enough.
                if allows(e.perm & mask) {
                    return true;
                }
                member = true;
            }
        }
        !member && self.perm(Tag::Other).is_some_and(allows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_may_what() {
        let mut acl = Acl::from_mode(0o604);
        acl.set(Tag::User(7), 7);
        acl.set(Tag::Group(20), READ);
        acl.set(Tag::Group(21), WRITE);
        acl.set(Tag::Mask, READ | WRITE);
        let may =
            |uid, groups: &[u32], want| acl.permits(1, 10, uid, |g| groups.contains(&g), want);
        assert!(may(1, &[], READ | WRITE) && !may(1, &[], EXECUTE));
        assert!(may(7, &[], READ | WRITE) && !may(7, &[], EXECUTE));
        assert!(may(9, &[20], READ) && !may(9, &[20], WRITE));
        // No one group gives both, and being in a group shuts out "other".
        assert!(!may(9, &[20, 21], READ | WRITE));
        assert!(!may(9, &[10], READ) && may(9, &[], READ) && !may(9, &[], WRITE));
        assert_eq!((acl.mode(), acl.equivalent_mode()), (0o664, None));
    }

    #[test]
    fn chmod_and_inherit() {
        let mut acl = Acl::from_mode(0o775);
        acl.set(Tag::User(7), 7);
        let child = acl.inherit(0o640);
        assert_eq!(child.mode(), 0o640);
        assert!(
            !child.permits(1, 1, 7, |_| false, WRITE) && child.permits(1, 1, 7, |_| false, READ)
        );
        acl.chmod(0o700);
        assert_eq!(acl.mode(), 0o700);
        assert_eq!(acl.perm(Tag::GroupObj), Some(7));
    }

    #[test]
    fn invalid_lists() {
        let entry = |tag, perm| AclEntry { tag, perm };
        let base = [
            entry(Tag::UserObj, 7),
            entry(Tag::GroupObj, 7),
            entry(Tag::Other, 7),
        ];
        Acl::new(base.to_vec()).unwrap();
        let with = |at: usize, e| {
            let mut list = base.to_vec();
            list.insert(at, e);
            Acl::new(list)
        };
        assert!(with(1, entry(Tag::User(1), 7)).is_err()); // no mask
        assert!(with(0, entry(Tag::Mask, 7)).is_err());
        assert!(with(1, entry(Tag::UserObj, 7)).is_err());
        assert!(with(2, entry(Tag::Mask, 8)).is_err());
        assert!(Acl::new(base[..2].to_vec()).is_err());
        assert!(Acl::from_disk(&[]).is_err() && Acl::from_xattr(&[2, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 4..60), version in 1..3_u8) {
            bytes[..4].copy_from_slice(&[version, 0, 0, 0]);
            let _ = (Acl::from_disk(&bytes), Acl::from_xattr(&bytes));
        }

        #[test]
        fn round_trips(mode in 0..0o1000_u16, named in proptest::collection::vec((any::<bool>(), 0..5_u32, 0..8_u8), 0..9)) {
            let mut acl = Acl::from_mode(mode);
            for (user, id, perm) in named {
                acl.set(if user { Tag::User(id) } else { Tag::Group(id) }, perm);
            }
            prop_assert!(Acl::is_valid(acl.entries()));
            prop_assert_eq!(&Acl::from_disk(&acl.to_disk()).unwrap(), &acl);
            prop_assert_eq!(&Acl::from_xattr(&acl.to_xattr()).unwrap(), &acl);
        }
    }
}
