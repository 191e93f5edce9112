//! Paths to inodes.

use crate::base::error::{Error, Result};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::incore::directory::Directory;
use crate::incore::inode::{Content, Inode};
use crate::inodes::attributes::Metadata;
use crate::inodes::load::Origin;
use crate::inodes::path_cache::names_of;
use crate::inodes::walk_cache::At;
use crate::names::Names;
use crate::types::credentials::{Credentials, EXECUTE};
use crate::types::dentry::{Dentry, NameHash};
use ext4_format::inode::flags;
use ext4_format::{FileType, InodeNr};
use extant_formatter::name::NAME_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest path, in bytes.
pub(crate) const PATH_MAX: usize = 4096;
/// Directories of more blocks are looked up on disk until something is created or listed in them, or they have been
/// asked too often.
const COLD_LOOKUP_FROM: u64 = 16;
/// This many lookups on disk cost as much as loading the names of one of the directory's blocks.
const COLD_LOOKUPS_OF_A_BLOCK: u64 = 24;
/// Larger directories are not loaded for lookups alone, however many, because the last lookup would wait for long.
const COLD_LOOKUP_ALWAYS: u64 = 1024;
/// Directories whose names are not looked up byte by byte, or not in blocks, are not looked up on disk.
const LOOKED_UP_IN_MEMORY: u32 = flags::ENCRYPT | flags::CASEFOLD | flags::INLINE_DATA;
/// Symbolic links followed on one path.
pub(crate) const MAX_LINKS: u32 = 40;

/// The target of a symbolic link.
type Target = Box<[u8]>;

impl Names {
    /// Returns the root directory.
    pub(crate) fn root(&self) -> Result<Arc<Inode>> {
        self.inodes.inode(InodeNr::ROOT, Origin::Name)
    }

    /// Looks a name up in a directory, and returns its inode. The bucket stays locked until the inode is in core, so
    /// the number cannot be freed in between.
    pub(crate) fn lookup(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        let _span = lockmeter::span!("lookup");
        match name {
            b"." | b"" => return Ok(Arc::clone(dir)),
            b".." => return self.parent_inode(dir),
            _ if name.len() > NAME_MAX => return Err(Error::NameTooLong),
            _ => {}
        }
        let hash = self.hash_in(dir, name);
        if let Some(found) = self.lookup_cold(dir, name, hash) {
            return found.and_then(|inode| not_itself(dir, inode));
        }
        let names = self.names(dir)?;
        let bucket = names.table.read(hash);
        let entry = bucket.find(hash, name).ok_or(Error::NotFound)?;
        self.inodes
            .named_inode(entry.ino)
            .and_then(|inode| not_itself(dir, inode))
    }

    /// Returns the metadata of the inode that a name leads to, if everything needed is in memory. No use of the inode
    /// is counted: the inode stays because its bucket and its place in the index are held, shared. If the result is
    /// `None`, for example because the inode is busy, look the name up. The name is neither `.` nor `..`.
    pub(crate) fn attributes_of_name(
        &self,
        dir: &Inode,
        name: &[u8],
        follow: bool,
    ) -> Result<Option<Metadata>> {
        let names = match dir.directory() {
            Some(names) if names.is_complete() => names,
            _ => return Ok(None),
        };
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let hash = self.hash_in(dir, name);
        let bucket = names.table.read(hash);
        let entry = bucket.find(hash, name).ok_or(Error::NotFound)?;
        let found = self.inodes.index.at(entry.ino, |inode| {
            let leads_on = follow && inode.ftype == FileType::Symlink;
            let itself = inode.ino == dir.ino;
            if leads_on || itself {
                None
            } else {
                self.inodes.attributes_at_once(inode)
            }
        });
        // If the link count is zero, the caller retries on the slow path.
        Ok(found.flatten().filter(|attributes| attributes.links != 0))
    }

    /// Looks a name up for a caller that needs search permission for the directory, and counts one more handle of the
    /// inode. If the inode is removed before the handle is counted, the name may lead to another inode by then.
    pub(crate) fn lookup_to_hold(
        &self,
        who: &Credentials,
        dir: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Arc<Inode>> {
        let mut before: Option<Arc<Inode>> = None;
        loop {
            if dir.directory().is_none() {
                return Err(Error::NotDirectory);
            }
            self.inodes.permit(who, dir, EXECUTE)?;
            let inode = self.lookup(dir, name)?;
            if inode.ino == dir.ino {
                // "." of a directory that the caller holds, even if it was removed.
                inode.handles.add(1);
                return Ok(inode);
            }
            match self.lifecycle.opened(&inode) {
                Ok(()) => return Ok(inode),
                // An inode that is found again has a link count of zero on the disk.
                Err(e) if before.is_some_and(|before| Arc::ptr_eq(&before, &inode)) => {
                    return Err(e);
                }
                Err(_) => before = Some(inode),
            }
        }
    }

    /// Returns the hash of a name in a directory.
    #[inline]
    pub(super) fn hash_in(&self, dir: &Inode, name: &[u8]) -> NameHash {
        self.store.hash_by(self.store.comparison(dir.flags()), name)
    }

    /// Looks a name up in the on-disk index of a large directory, instead of loading the directory. Returns `None` if
    /// the directory is in memory, or small, or was loaded meanwhile.
    fn lookup_cold(&self, dir: &Inode, name: &[u8], hash: NameHash) -> Option<Result<Arc<Inode>>> {
        let Some(names) = dir.directory() else {
            return Some(Err(Error::NotDirectory));
        };
        let blocks = names.size.load(Ordering::Relaxed) / u64::from(self.store.geometry.block_size);
        if names.is_complete() || blocks <= COLD_LOOKUP_FROM || dir.has_flag(LOOKED_UP_IN_MEMORY) {
            return None;
        }
        if blocks <= COLD_LOOKUP_ALWAYS {
            // Lookups on disk cost at most twice the best choice, whether more lookups follow or not.
            let asked = names.cold_lookups.fetch_add(1, Ordering::Relaxed);
            if u64::from(asked) >= blocks * COLD_LOOKUPS_OF_A_BLOCK {
                return None;
            }
        }
        let found = self.lookup_on_disk(dir, name, hash).and_then(|ino| {
            let ino = ino.ok_or(Error::NotFound)?;
            schedule::reached(Point::NameFound);
            self.inodes.inode(ino, Origin::Name)
        });
        if names.is_complete() {
            // Names change only in a directory that is in memory. The blocks just read may be of two different moments,
            // and the number may be free by now.
            return None;
        }
        if let Err(e) = &found {
            self.store.note_damage(e, "lookup_cold", Some(dir.ino));
        }
        Some(found)
    }

    /// Returns the directory of an inode, with all its names in core.
    #[inline]
    pub(super) fn names<'a>(&self, dir: &'a Inode) -> Result<&'a Directory> {
        match dir.directory() {
            Some(names) if names.is_complete() => Ok(names),
            _ => self.names_brought_in(dir),
        }
    }

    #[cold]
    #[inline(never)]
    fn names_brought_in<'a>(&self, dir: &'a Inode) -> Result<&'a Directory> {
        let names = dir.directory().ok_or(Error::NotDirectory)?;
        names.complete_with(|| self.read_names(dir))?;
        Ok(names)
    }

    /// Returns the number of the directory above this one.
    pub(crate) fn parent_of(&self, dir: &Inode) -> Result<InodeNr> {
        let names = dir.directory().ok_or(Error::NotDirectory)?;
        let known = || match names.parent.load(Ordering::Acquire) {
            0 => None,
            known => Some(InodeNr(known)),
        };
        if let Some(parent) = known() {
            return Ok(parent);
        }
        match self.read_parent(dir) {
            Ok(parent) => {
                // A rename, or the removal of the directory, may have set the parent meanwhile. That one is newer.
                let _ =
                    names
                        .parent
                        .compare_exchange(0, parent.0, Ordering::AcqRel, Ordering::Acquire);
                Ok(known().unwrap_or(parent))
            }
            Err(e) => known().ok_or(e),
        }
    }

    /// Returns the directory above this one. A removed directory keeps its last parent, as long as that exists.
    pub(super) fn parent_inode(&self, dir: &Arc<Inode>) -> Result<Arc<Inode>> {
        loop {
            let parent = self.parent_of(dir)?;
            schedule::reached(Point::NameFound);
            let found = self.inodes.inode(parent, Origin::Name);
            let names = dir.directory().ok_or(Error::NotDirectory)?;
            if names.is_dead() && !planted::is(Fault::DeadParentIsDamage) {
                // The parent may be removed, too, and another inode have its number.
                let same = |above: &Arc<Inode>| {
                    let state = above.state.read();
                    above.directory().is_some()
                        && !state.freed
                        && state.core.generation == names.parent_generation()
                };
                return found.ok().filter(same).ok_or(Error::NotFound);
            }
            if self.parent_of(dir)? == parent {
                return found
                    .inspect_err(|e| self.store.note_damage(e, "parent_inode", Some(dir.ino)));
            }
        }
    }

    /// Walks a path from `start`. A last component that is a symbolic link is followed if `follow`.
    pub(crate) fn walk<'a>(
        &self,
        who: &Credentials,
        start: &'a Arc<Inode>,
        path: &[u8],
        follow: bool,
    ) -> Result<At<'a>> {
        let mut links = 0;
        self.walk_counted(who, start, path, follow, &mut links)
    }

    fn walk_counted<'a>(
        &self,
        who: &Credentials,
        start: &'a Arc<Inode>,
        path: &[u8],
        follow: bool,
        links: &mut u32,
    ) -> Result<At<'a>> {
        if path.len() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        let is_absolute = path.first() == Some(&b'/');
        let must_be_dir = path.last() == Some(&b'/');
        let from = (!is_absolute).then_some(start);
        // A caller that permissions do not bind passes directories that the slot remembers at once.
        let unbound = who.is_unbound();
        if unbound
            && must_be_dir
            && let Some(own) = self.inodes.walks.passed(from, path)
        {
            return Ok(At::Remembered(own));
        }
        let mut parts = names_of(path).peekable();
        let ahead = if unbound {
            self.inodes.walks.ahead(from, &mut parts, must_be_dir)
        } else {
            None
        };
        if must_be_dir && path.len() > 1 && ahead.is_some() && parts.peek().is_none() {
            self.inodes.walks.note_path(from, path);
        }
        let mut at = match ahead {
            Some(own) => At::Remembered(own),
            None if is_absolute => self.walk_root()?,
            None => At::Start(start),
        };
        while let Some(part) = parts.next() {
            if at.directory().is_none() {
                return Err(Error::NotDirectory);
            }
            self.inodes.permit(who, &at, EXECUTE)?;
            let last = parts.peek().is_none();
            if part == b"." {
                continue;
            }
            if (!last || must_be_dir)
                && part != b".."
                && part.len() <= NAME_MAX
                && let Some(next) = self.step_into(&at, part)?
            {
                at = next;
                continue;
            }
            let (next, target) = self.lookup_link(&at, part, !last || follow || must_be_dir)?;
            at = match target {
                Some(target) => {
                    *links += 1;
                    if *links > MAX_LINKS {
                        return Err(Error::SymlinkLoop);
                    }
                    let found = self.walk_counted(who, &at, &target, true, links)?;
                    At::Found(found.into_arc())
                }
                None => At::Found(next),
            };
        }
        if must_be_dir && at.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(at)
    }

    /// Walks to the directory that holds the last component; returns it and that component. With `follow`, a last
    /// component that is a symbolic link leads on to its target, whether or not that exists (open with create).
    pub(crate) fn walk_to_parent<'a>(
        &self,
        who: &Credentials,
        start: &'a Arc<Inode>,
        path: &[u8],
        follow: bool,
    ) -> Result<(At<'a>, Vec<u8>)> {
        let mut at = At::Start(start);
        let mut path = path.to_vec();
        for _ in 0..=MAX_LINKS {
            let trimmed = path.len() - path.iter().rev().take_while(|&&b| b == b'/').count();
            let (head, last) = match path[..trimmed].iter().rposition(|&b| b == b'/') {
                Some(slash) => (&path[..=slash], &path[slash + 1..trimmed]),
                None => (&path[..0], &path[..trimmed]),
            };
            if last.is_empty() {
                // The path leads to the root itself, or is empty.
                return if path.is_empty() {
                    Err(Error::NotFound)
                } else {
                    Err(Error::Exists)
                };
            }
            let dir = match head {
                b"" => at,
                _ => match at {
                    At::Start(start) => self.walk(who, start, head, true)?,
                    link => match self.walk(who, &link, head, true)? {
                        At::Remembered(dir) => At::Remembered(dir),
                        found => At::Found(found.into_arc()),
                    },
                },
            };
            if dir.directory().is_none() {
                return Err(Error::NotDirectory);
            }
            self.inodes.permit(who, &dir, EXECUTE)?;
            if follow && last != b"." && last != b".." {
                match self.lookup_link(&dir, last, true) {
                    Ok((_, Some(target))) => {
                        path = target.into_vec();
                        at = dir;
                        continue;
                    }
                    Ok(_) | Err(Error::NotFound) => {}
                    Err(e) => return Err(e),
                }
            }
            return Ok((dir, last.to_vec()));
        }
        Err(Error::SymlinkLoop)
    }

    /// Returns the inode that a name leads to, and its target if it is a symbolic link to be followed.
    fn lookup_link(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        follow: bool,
    ) -> Result<(Arc<Inode>, Option<Target>)> {
        let mut before: Option<Arc<Inode>> = None;
        loop {
            let inode = self.lookup(dir, name)?;
            if inode.ftype != FileType::Symlink || !follow {
                return Ok((inode, None));
            }
            let target = self.symlink_target(&inode);
            // If the inode was removed meanwhile, its place on disk may hold another inode, and the name may lead
            // elsewhere. An inode that is found again has a link count of zero on the disk.
            let again = before.is_some_and(|before| Arc::ptr_eq(&before, &inode));
            if again || !inode.is_gone() {
                return Ok((inode, Some(target?)));
            }
            before = Some(inode);
        }
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn symlink_target(&self, inode: &Inode) -> Result<Box<[u8]>> {
        let Content::Symlink(link) = &inode.content else {
            return Err(Error::Invalid("not a symbolic link"));
        };
        if let Some(target) = link.target.get() {
            return Ok(target.clone());
        }
        let target = self.inodes.read_symlink(inode)?;
        Ok(link.target.get_or_init(|| target).clone())
    }

    /// Returns names of a directory after a cookie, as [`Directory::list`] does.
    pub(crate) fn list(&self, dir: &Inode, cookie: u64, at_least: usize) -> Result<Vec<Dentry>> {
        let _span = lockmeter::span!("list");
        Ok(self.names(dir)?.table.list(cookie, at_least))
    }
}

/// Fails if a directory is found in itself, because a thread that locks both would wait for itself.
fn not_itself(dir: &Inode, found: Arc<Inode>) -> Result<Arc<Inode>> {
    if found.ino == dir.ino {
        return Err(Error::corrupt_inode("directory that holds itself", dir.ino));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::COLD_LOOKUPS_OF_A_BLOCK;
    use crate::Error;

    /// A large directory is loaded when many of its names were looked up on disk, and answers as before.
    #[test]
    fn a_directory_that_is_often_asked_comes_into_memory() -> crate::Result<()> {
        let volume = crate::doc_volume();
        volume.create_dir("/large")?;
        let path = |n: u64| format!("/large/{n:0200}");
        (0..600).try_for_each(|n| volume.create_new_file(path(n)).map(drop))?;
        volume.sync()?;
        volume.drop_caches();
        let engine = volume.guard_engine();
        let large = engine.names.lookup(&engine.names.root()?, b"large")?;
        let names = large.directory().ok_or(Error::NotDirectory)?;
        let blocks = volume.metadata("/large")?.len() / u64::from(volume.geometry().block_size);
        assert!(blocks > super::COLD_LOOKUP_FROM);
        let ask = |n: u64| match volume.metadata(path(n % 700)) {
            Ok(_) => assert!(n % 700 < 600),
            Err(e) => assert!(matches!(e, Error::NotFound) && n % 700 >= 600, "{n}: {e}"),
        };
        (0..blocks * COLD_LOOKUPS_OF_A_BLOCK).for_each(ask);
        assert!(!names.is_complete());
        (0..700).for_each(ask);
        assert!(names.is_complete());
        Ok(())
    }
}
