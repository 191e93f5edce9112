//! stat, chmod, chown and utimes.

use crate::base::error::{Error, Result};
use crate::base::locks::{self, ReadGuard};
use crate::base::now;
use crate::incore::inode::{Inode, InodeState};
use crate::inodes::Inodes;
use crate::types::credentials::{Credentials, WRITE};
use crate::types::no_key;
use ext4_format::FileType;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::timestamp::Timestamp;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

/// Attributes of an inode as stat shows them, with the names of `std::fs::Metadata` and its Unix extension.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let root = volume.metadata("/")?;
/// assert!(root.is_dir() && root.ino() == 2);
/// assert_eq!(root.mode() & 0o170000, 0o040000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    pub(crate) ino: u32,
    pub(crate) file_type: FileType,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) sectors: u64,
    pub(crate) atime: Timestamp,
    pub(crate) mtime: Timestamp,
    pub(crate) ctime: Timestamp,
    pub(crate) crtime: Timestamp,
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    pub(crate) project: u32,
}

macro_rules! shown {
    ($($name:ident, $field:ident: $type:ty, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[inline]
        pub fn $name(&self) -> $type {
            self.$field
        }
    )*};
}

// A length of zero has no meaning for most kinds of inodes.
#[allow(clippy::len_without_is_empty)]
impl Metadata {
    shown! {
        ino, ino: u32, "Inode number.";
        file_type, file_type: FileType, "Type.";
        mode, mode: u32, "Type and permission bits, as in `st_mode`.";
        nlink, links: u32, "Number of links.";
        uid, uid: u32, "Owner.";
        gid, gid: u32, "Group.";
        rdev, rdev: u32, "Device number of a device file, as [`makedev`](ext4_format::inode::makedev) makes it.";
        len, size: u64, "Size in bytes.";
        blocks, sectors: u64, "Space held, in sectors of 512 bytes.";
        atime, atime: Timestamp, "Time of the last access.";
        mtime, mtime: Timestamp, "Time of the last change of the data.";
        ctime, ctime: Timestamp, "Time of the last change of the inode.";
        crtime, crtime: Timestamp, "Time of creation; zero where the format does not keep it.";
        generation, generation: u32, "Generation of the inode number.";
        flags, flags: u32, "Inode flags as `lsattr` shows them.";
        project, project: u32, "Project; 0 on volumes without the feature `project`.";
    }

    /// Returns true for a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Returns true for a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type == FileType::Regular
    }

    /// Returns true for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type == FileType::Symlink
    }

    /// Returns the time of the last access, for comparison with the system's.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.atime)
    }

    /// Returns the time of the last change of the data, for comparison with the system's.
    pub fn modified(&self) -> SystemTime {
        system_time(self.mtime)
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.secs().unsigned_abs());
    let second = if time.secs() < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    // An inode's times are from 1901 to 2446, which the system's type holds.
    second
        .and_then(|second| second.checked_add(Duration::from_nanos(time.nanos().into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time to set.
///
/// ```
/// use extant::{SetTime, Timestamp};
/// assert_eq!(SetTime::from(Timestamp::new(1, 0)), SetTime::At(Timestamp::new(1, 0)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call. A caller with write permission may set both times to it.
    Now,
    /// The given time.
    At(Timestamp),
}

impl From<Timestamp> for SetTime {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}

/// The attributes to change; `None` leaves one as it is.
///
/// ```
/// let to_read_only = extant::SetAttributes { mode: Some(0o444), ..Default::default() };
/// assert!(to_read_only.uid.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a regular file, set before the rest; the caller must be allowed to write.
    pub size: Option<u64>,
    /// The caller has the file open for writing: no permission bit is asked for [`size`](Self::size).
    pub by_handle: bool,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, else the present time. A cache above the volume uses it to write back the times of
    /// changes made in the cache. Only root, and callers whose rights were checked elsewhere, may set it. Times set
    /// together with it are not refused because of the inode's present flags.
    pub ctime: Option<Timestamp>,
    /// The inode's flags, changed. Flags that no program may change are ignored, except that the way in which a file is mapped
    /// (`EXTENTS`) must be that of [`Metadata::flags`].
    pub flags: Option<u32>,
    /// Project, on volumes with the feature `project` whose inodes have room for it; elsewhere there is only 0.
    pub project: Option<u32>,
    /// Generation of the inode number; not on volumes with checksums of metadata, which go by it.
    pub generation: Option<u32>,
}

impl SetAttributes {
    /// Returns true if anything besides the size is set.
    pub(crate) fn has_more_than_size(&self) -> bool {
        let only = Self {
            size: self.size,
            by_handle: self.by_handle,
            ..Self::default()
        };
        *self != only || self.size.is_none()
    }

    /// Returns true if only times that a cache has kept are set.
    pub(crate) fn is_cached_times(&self) -> bool {
        let others = self.mode.is_some()
            || self.uid.is_some()
            || self.gid.is_some()
            || self.size.is_some()
            || self.flags.is_some()
            || self.project.is_some()
            || self.generation.is_some();
        self.ctime.is_some() && !others
    }
}

impl Inodes {
    /// Returns the metadata of an inode. Only memory is read [L9].
    pub(crate) fn attributes(&self, inode: &Inode) -> Metadata {
        let _span = lockmeter::span!("stat");
        crate::base::jitter::point();
        let (core, links) = self.core_and_links(inode, inode.state.read());
        let links = match (links, inode.directory()) {
            (None, Some(names)) => {
                let _still = names.table.lock_all();
                let core = inode.state.lock().core.links;
                names.links(core).unwrap_or(core)
            }
            (links, _) => links.unwrap_or(core.links),
        };
        self.attributes_of(inode, &core, links)
    }

    /// Returns the attributes for callers that must not wait. For example, the caller may hold the inode's place in the
    /// index, which other threads take while they hold the inode's state. Returns `None` if the state is held or the
    /// links are changing.
    pub(crate) fn attributes_at_once(&self, inode: &Inode) -> Option<Metadata> {
        let _span = lockmeter::span!("stat");
        let (core, links) = self.core_and_links(inode, inode.state.try_read()?);
        Some(self.attributes_of(inode, &core, links?))
    }

    /// Returns the stored core of an inode and its number of links, as of one moment, because a rename that moves a
    /// directory changes the counts of two. Links that are changing can only be counted with the names locked.
    fn core_and_links(
        &self,
        inode: &Inode,
        state: ReadGuard<'_, InodeState, locks::InodeState>,
    ) -> (InodeCore, Option<u32>) {
        let mut core = state.core;
        self.add_overwrites(inode, &mut core);
        let links = match inode.directory() {
            Some(names) => names.links(core.links),
            None => Some(core.links),
        };
        (core, links)
    }

    fn attributes_of(&self, inode: &Inode, core: &InodeCore, links: u32) -> Metadata {
        // A page with a reserved block counts as if it had the block, as in Linux.
        let mut sectors = inode.sectors.load(Ordering::Relaxed).max(0) as u64;
        if let Some(file) = inode.touched_file() {
            let promised = u64::from(file.promised_pages.load(Ordering::Relaxed));
            let to_come = promised + file.tree.to_come();
            sectors += to_come * u64::from(self.store.geometry.block_size / 512);
        }
        let mut attributes = Metadata {
            ino: inode.ino.0,
            file_type: inode.ftype,
            mode: u32::from(core.mode),
            links,
            uid: core.uid,
            gid: core.gid,
            rdev: core.rdev,
            size: core.size,
            sectors,
            atime: core.atime,
            mtime: core.mtime,
            ctime: core.ctime,
            crtime: core.crtime,
            generation: core.generation,
            flags: core.flags,
            project: core.project,
        };
        if let Some(names) = inode.directory() {
            attributes.size = names.size.load(Ordering::Relaxed);
            // A new inode gets its blocks when it is formatted.
            if core.flags & flags::INLINE_DATA == 0 {
                attributes.sectors = attributes.sectors.max(attributes.size / 512);
            }
            if let Some(newest) = names.last_change() {
                attributes.mtime = newest;
                attributes.ctime = attributes.ctime.max(newest);
            }
        }
        if inode.ftype == FileType::Symlink && core.flags & flags::ENCRYPT != 0 {
            attributes.size = no_key::target_len(core.size);
        }
        if self.has_short_times() {
            let times = [
                &mut attributes.atime,
                &mut attributes.mtime,
                &mut attributes.ctime,
            ];
            times.into_iter().for_each(|t| *t = self.storable(*t));
            attributes.crtime = Timestamp::default();
        }
        attributes
    }

    /// Checks that the caller may change these attributes, in the order in which Linux checks.
    pub(crate) fn permit_attributes(
        &self,
        who: &Credentials,
        inode: &Inode,
        set: &SetAttributes,
    ) -> Result<()> {
        let (uid, gid, _) = inode.owner_and_mode();
        if set.ctime.is_some() && !who.is_unbound() {
            return Err(Error::NotPermitted);
        }
        if set.is_cached_times() {
            return Ok(());
        }
        let touches = (set.atime, set.mtime) == (Some(SetTime::Now), Some(SetTime::Now));
        let times = !touches && (set.atime.is_some() || set.mtime.is_some());
        let owned = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || times;
        let others = owned || touches || set.size.is_some();
        let kept = owned || set.size.is_some();
        match inode.ftype {
            FileType::Directory if set.size.is_some() => return Err(Error::IsDirectory),
            FileType::Regular => {}
            _ if set.size.is_some() => return Err(Error::Invalid("not a regular file")),
            _ => {}
        }
        if others && inode.has_flag(flags::IMMUTABLE) || kept && inode.has_flag(flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if set.size.is_some() && !set.by_handle {
            self.permit(who, inode, WRITE)?;
        }
        let owns = self.permit_owner(who, inode);
        if touches && !owned && owns.is_err() {
            self.permit(who, inode, WRITE)?;
        }
        let numbers = set.project.is_some() || set.generation.is_some();
        if owned || numbers || set.flags.is_some() {
            owns?;
        }
        if !who.is_unbound() {
            let gives_away = set.uid.is_some_and(|u| u != uid);
            let foreign_group = set.gid.is_some_and(|g| g != gid && !who.in_group(g));
            if gives_away || foreign_group {
                return Err(Error::NotPermitted);
            }
        }
        if let Some(new) = set.flags {
            self.permit_flags(who, inode, new)?;
        }
        if let Some(new) = set.project {
            self.permit_project(inode, set, new)?;
        }
        if set.generation.is_some() && self.store.geometry.features.has_metadata_csum() {
            return Err(Error::Unsupported(
                "another generation on a volume with metadata_csum, whose checksums go by it",
            ));
        }
        Ok(())
    }

    /// Checks that the inode can have this project.
    fn permit_project(&self, inode: &Inode, set: &SetAttributes, new: u32) -> Result<()> {
        let geometry = &self.store.geometry;
        if new == inode.project() {
            return Ok(());
        }
        if !geometry.features.has_project() {
            return Err(Error::Unsupported(
                "a project on a volume without the feature project",
            ));
        }
        let stays = |flags: u32| flags & flags::IMMUTABLE != 0;
        if inode.has_flag(flags::IMMUTABLE) && set.flags.is_none_or(stays) {
            return Err(Error::NotPermitted);
        }
        let has_room = match inode.state.read().born {
            0 => inode::has_project_room(&self.raw_inode(inode.ino)?, geometry),
            _ => inode::has_project_room(&[], geometry),
        };
        if has_room {
            Ok(())
        } else {
            Err(Error::Unsupported(
                "a project in an inode without room for one",
            ))
        }
    }

    /// Puts the times that are set into a core; that of the change is `time` unless it is among them.
    pub(crate) fn set_times(&self, core: &mut InodeCore, set: &SetAttributes, time: Timestamp) {
        let at = |set: Option<SetTime>, old| match set {
            None => old,
            Some(SetTime::Now) => time,
            Some(SetTime::At(t)) => self.storable(t),
        };
        core.atime = at(set.atime, core.atime);
        core.mtime = at(set.mtime, core.mtime);
        core.ctime = set.ctime.map_or(time, |t| self.storable(t));
    }

    /// Removes the privileges of a program file whose contents a caller without privilege changes: set-user-id,
    /// set-group-id where it means execution or the caller's group is another, capabilities. True if the mode has
    /// changed.
    pub(crate) fn strip_privileges(&self, who: &Credentials, inode: &Arc<Inode>) -> Result<bool> {
        self.store.check_writable()?;
        if inode.directory().is_some() {
            return Ok(false);
        }
        let foreign = !who.is_privileged() && inode.owner_and_mode().1 != who.gid;
        let executes = |mode: u16| mode & 0o010 != 0;
        let set_gid = |mode| if foreign || executes(mode) { 0o2000 } else { 0 };
        let bits = |mode| 0o4000 | set_gid(mode);
        // As in Linux, a write fails if it would remove privileges of an immutable or append-only file.
        let mode = inode.owner_and_mode().2;
        let keeps_mode = inode.has_flag(flags::APPEND) && mode & bits(mode) != 0;
        if keeps_mode || inode.has_flag(flags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        self.drop_capability(who, inode)?;
        self.clear_mode(inode, bits)
    }

    /// Takes bits out of the mode; whether it had them.
    pub(crate) fn clear_mode(&self, inode: &Arc<Inode>, bits: impl Fn(u16) -> u16) -> Result<bool> {
        let mode = inode.owner_and_mode().2;
        if mode & bits(mode) == 0 {
            return Ok(false);
        }
        let tx = self.commit.begin_core()?;
        let mut state = inode.state.lock();
        if state.freed {
            return Err(Error::NotFound);
        }
        let names = inode.directory();
        let seen = state.stamp.max(names.map_or(0, |n| n.last_stamp()));
        self.fold_overwrites(inode, &mut state);
        tx.commit(seen, |c| {
            let core = &mut state.core;
            if let Some(names) = names {
                self.fold_times(names, core);
            }
            core.mode &= !bits(core.mode);
            core.ctime = now();
            let core = state.core;
            inode.mirror(&core);
            self.log_core_alone(inode, &mut state, seen, c);
        });
        drop(state);
        self.watch.tell_attributes(inode);
        Ok(true)
    }

    /// Checks that the caller, the owner of the inode, may set these flags.
    fn permit_flags(&self, who: &Credentials, inode: &Inode, new: u32) -> Result<()> {
        let old = inode.flags.load(Ordering::Relaxed);
        let wanted = changed_flags(old, new);
        let settable = flags::USER_MODIFIABLE & !flags::EXTENTS;
        if flags::of_type(inode.ftype, new & settable) != new & settable {
            return Err(Error::Unsupported(
                "a flag that this type of inode cannot have",
            ));
        }
        // Not even root changes other flags of an inode that stays immutable.
        let rest = (old ^ wanted) & !flags::IMMUTABLE;
        if old & wanted & flags::IMMUTABLE != 0 && rest != 0 {
            return Err(Error::NotPermitted);
        }
        let bound = flags::IMMUTABLE | flags::APPEND | flags::JOURNAL_DATA;
        if !who.is_unbound() && (old ^ wanted) & bound != 0 {
            return Err(Error::NotPermitted);
        }
        if (old ^ wanted) & flags::CASEFOLD != 0 && !self.store.geometry.features.has_casefold() {
            return Err(Error::Unsupported("case folded without the feature"));
        }
        // As on any device without persistent memory the flag is kept, and has no effect. It excludes features that
        // prevent direct access.
        if wanted & !old & flags::DAX != 0
            && wanted & (flags::VERITY | flags::ENCRYPT | flags::JOURNAL_DATA) != 0
        {
            return Err(Error::Unsupported("this flag with the others"));
        }
        // Linux changes the mapping of the whole file.
        if (old ^ new) & flags::EXTENTS != 0 {
            return Err(Error::Unsupported(
                "cannot change 'e': the mapping of a file stays",
            ));
        }
        Ok(())
    }

    /// Returns true if inodes have no room for nanoseconds.
    fn has_short_times(&self) -> bool {
        usize::from(self.store.geometry.inode_size) == ext4_format::inode::GOOD_OLD_SIZE
    }

    /// Rounds a time to one that this volume's inodes can hold, so that stat shows the same before and after a
    /// reopening.
    pub(super) fn storable(&self, time: Timestamp) -> Timestamp {
        if self.has_short_times() {
            return Timestamp::decode(time.encode_short(), None);
        }
        match time.secs() {
            // As in Linux, the first and the last second have no fractions.
            secs @ (Timestamp::MIN_SECS | Timestamp::MAX_SECS) => Timestamp::new(secs, 0),
            _ => time,
        }
    }
}

/// Returns the flags after chattr. Flags that no program may change stay.
pub(crate) fn changed_flags(old: u32, new: u32) -> u32 {
    let settable = flags::USER_MODIFIABLE & !flags::EXTENTS;
    old & !settable | new & settable
}

#[cfg(test)]
mod tests {
    /// Programs that recognize sparse files by their blocks would lose data if pages without blocks on the device
    /// counted as holes.
    #[test]
    fn data_that_is_only_in_memory_has_blocks() -> crate::Result<()> {
        let volume = crate::doc_volume();
        let block = u64::from(volume.geometry().block_size);
        let file = volume.create_new_file("/file")?;
        file.write_all_at(&vec![1; 5 * block as usize], 0)?;
        let before = file.metadata()?.blocks();
        assert_eq!(before, 5 * block / 512);
        file.set_len(2 * block)?;
        assert_eq!(file.metadata()?.blocks(), 2 * block / 512);
        file.sync_all()?;
        assert_eq!(file.metadata()?.blocks(), 2 * block / 512);
        file.write_at(b"again", 0)?;
        assert_eq!(file.metadata()?.blocks(), 2 * block / 512);
        assert_eq!(
            volume.create_dir("/dir")?.ino(),
            volume.metadata("/dir")?.ino()
        );
        assert_eq!(volume.metadata("/dir")?.blocks(), block / 512);
        volume.sync()?;
        assert_eq!(volume.metadata("/dir")?.blocks(), block / 512);
        Ok(())
    }

    /// Other threads take an inode's place in the index with its state held: a holder of the place must not wait for
    /// the state.
    #[test]
    fn attributes_of_a_name_wait_for_no_inode() -> crate::Result<()> {
        let volume = crate::doc_volume();
        volume.create_new_file("/file")?;
        let engine = volume.guard_engine();
        let root = &engine.names.root()?;
        let file = engine.names.lookup(root, b"file")?;
        let busy = file.state.lock();
        let found = engine.names.attributes_of_name(root, b"file", false)?;
        assert!(found.is_none());
        drop(busy);
        let found = engine.names.attributes_of_name(root, b"file", false)?;
        assert_eq!(found.map(|a| a.ino), Some(file.ino.0));
        Ok(())
    }
}
