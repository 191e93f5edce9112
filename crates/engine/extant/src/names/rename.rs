//! Rename: one transaction over up to three directories and four inodes.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::names::Names;
use crate::names::moving::{HeldBuckets, Move, Outcome, Side, is_dir, lead};
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use ext4_format::InodeNr;
use extant_formatter::name::Name;
use std::sync::Arc;

/// The treatment of an existing new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it, as POSIX requires.
    #[default]
    Replace,
    /// Fail with [`Error::Exists`].
    NoReplace,
    /// Swap the two names.
    Exchange,
    /// Replace it, and leave a whiteout, a character device of number 0:0, at the old name.
    Whiteout,
    /// Leave a whiteout, but fail with [`Error::Exists`] if the new name is taken.
    WhiteoutNoReplace,
}

impl RenameMode {
    pub(super) fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

impl Names {
    /// Renames the inode at `(old_dir, old_name)` to `(new_dir, new_name)`.
    pub(crate) fn rename(
        &self,
        who: &Credentials,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let _span = lockmeter::span!("rename");
        for name in [old_name, new_name] {
            if name == b"." || name == b".." {
                return Err(Error::Busy("\".\" and \"..\" cannot be renamed"));
            }
        }
        let checked = Name::new(new_name)?;
        let mut gone: Option<Arc<Inode>> = None;
        loop {
            let (old, new) = (self.side(old_dir, old_name)?, self.side(new_dir, new_name)?);
            self.permit_name(new.compared, new_name)?;
            // A look-up of the name would find the directory itself.
            if old_name.is_empty() {
                return Err(Error::NotFound);
            }
            let source = self.lookup(old_dir, old_name)?;
            let target = match self.lookup(new_dir, new_name) {
                Ok(inode) => Some(inode),
                Err(Error::NotFound) => None,
                Err(e) => return Err(e),
            };
            let mut found = [Some(&source), target.as_ref()].into_iter().flatten();
            if let Some(removed) = found.find(|inode| inode.is_gone()) {
                refuse_second(&mut gone, removed)?;
            }
            // The order of the directories must hold until the move, or its refusal, is done.
            let crosses = old_dir.ino != new_dir.ino;
            let dirs = is_dir(&source) || target.as_ref().is_some_and(|t| is_dir(t));
            let _one_mover = (crosses && dirs).then(|| self.rename.lock());
            let inodes = (&source, target.as_ref());
            let checked_now = self.check_rename(who, &old, &new, &source, inodes.1, mode);
            // Two names of one file: POSIX requires that nothing is done.
            let same = target.as_ref().is_some_and(|t| t.ino == source.ino);
            if checked_now.is_err() || same {
                // The two names were looked up one after the other, but the answer must hold at one moment.
                if lead(&mut HeldBuckets::lock(&old, &new, None), &old, &new, inodes) {
                    return checked_now;
                }
                continue;
            }
            if mode == RenameMode::Replace && inodes.1.is_some_and(|t| !is_dir(t)) {
                self.data.write_replacement(&source);
            }
            let one = Move {
                who,
                old: &old,
                new: &new,
                source: &source,
                target: target.as_ref(),
                mode,
            };
            match self.rename_once(&one, &checked)? {
                Some(Outcome { fate, victim, long }) => {
                    if long {
                        new.names.grow();
                    }
                    return match victim {
                        Some(victim) => self.after_link_lost(&victim, fate),
                        None => Ok(()),
                    };
                }
                None => continue,
            }
        }
    }

    /// Returns one side of a rename, hashed as its directory compares names now.
    fn side<'a>(&self, dir: &'a Arc<Inode>, name: &'a [u8]) -> Result<Side<'a>> {
        let names = self.names(dir)?;
        let compared = self.store.comparison(dir.flags());
        Ok(Side {
            dir,
            names,
            hash: self.store.hash_by(compared, name),
            name,
            compared,
        })
    }

    fn check_rename(
        &self,
        who: &Credentials,
        old: &Side<'_>,
        new: &Side<'_>,
        source: &Arc<Inode>,
        target: Option<&Arc<Inode>>,
        mode: RenameMode,
    ) -> Result<()> {
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::WhiteoutNoReplace, Some(_)) => {
                return Err(Error::Exists);
            }
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        let invalid = || Error::Invalid("a directory cannot move below itself");
        if source.directory().is_some() {
            self.refuse_loop(source, new.dir, invalid)?;
        }
        if let Some(target) = target.filter(|t| t.directory().is_some()) {
            // A directory that holds the source, however deep, is not empty.
            let above = || {
                if mode == RenameMode::Exchange {
                    invalid()
                } else {
                    Error::NotEmpty
                }
            };
            self.refuse_loop(target, old.dir, above)?;
        }
        if target.is_some_and(|t| t.ino == source.ino) {
            return Ok(());
        }
        self.inodes.permit(who, old.dir, WRITE | EXECUTE)?;
        self.inodes.permit_removal(who, old.dir, source)?;
        self.permit_change(old.dir, source)?;
        self.inodes.permit(who, new.dir, WRITE | EXECUTE)?;
        if old.dir.ino != new.dir.ino {
            // A move changes the directory itself: its "..".
            let swapped = target.filter(|_| mode == RenameMode::Exchange);
            for moved in swapped.into_iter().chain([source]).filter(|i| is_dir(i)) {
                self.inodes.permit(who, moved, WRITE)?;
            }
        }
        if let Some(target) = target {
            self.inodes.permit_removal(who, new.dir, target)?;
            self.permit_change(new.dir, target)?;
            if mode != RenameMode::Exchange {
                match (source.directory().is_some(), target.directory().is_some()) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    _ => {}
                }
            }
        }
        // A directory whose contents have its project accepts no inodes of other projects.
        let comes_back = target.filter(|_| mode == RenameMode::Exchange);
        if source.is_of_other_project(new.dir)
            || comes_back.is_some_and(|t| t.is_of_other_project(old.dir))
        {
            return Err(Error::CrossDevice);
        }
        Ok(())
    }

    /// Fails if `into` is `moved` or lies below it.
    fn refuse_loop(
        &self,
        moved: &Inode,
        into: &Arc<Inode>,
        refusal: impl Fn() -> Error,
    ) -> Result<()> {
        let mut at = Arc::clone(into);
        let mut steps = 0u32;
        while at.ino != InodeNr::ROOT {
            if at.ino == moved.ino {
                return Err(refusal());
            }
            let parent = self.parent_inode(&at)?;
            steps += 1;
            if parent.ino == at.ino || steps > self.store.geometry.inodes_count {
                return Err(Error::corrupt_inode("chain of parent directories", at.ino));
            }
            at = parent;
        }
        if moved.ino == InodeNr::ROOT {
            return Err(Error::Busy("the root directory cannot be renamed"));
        }
        Ok(())
    }
}

/// Fails if the same removed inode is found again. A name may lead to an inode that was removed a moment ago, but leads
/// elsewhere or nowhere at the next look-up. An inode that is found again has more names than links on disk.
pub(super) fn refuse_second(before: &mut Option<Arc<Inode>>, gone: &Arc<Inode>) -> Result<()> {
    match before.replace(Arc::clone(gone)) {
        Some(before) if Arc::ptr_eq(&before, gone) => {
            Err(Error::corrupt_inode("count of links", gone.ino))
        }
        _ => Ok(()),
    }
}
