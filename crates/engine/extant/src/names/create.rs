//! New names: create, mkdir, mknod, symlink, link.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::incore::directory::{Change, Directory};
use crate::incore::inode::FAST_SYMLINK_MAX;
use crate::incore::inode::{Birth, Content, Inode, InodeState, StateGuard, Symlink};
use crate::incore::name_table::{BucketGuard, BucketRef};
use crate::inodes::new_inode::NewInode;
use crate::log::transaction::Transaction;
use crate::log::{Commit, Cost};
use crate::names::Names;
use crate::names::index_room::Room;
use crate::space::guards::{NewNumber, PlacedRuns};
use crate::space::orlov::InodePurpose;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use crate::types::dentry::{Dentry, NameHash};
use ext4_format::InodeNr;
use ext4_format::fold::Comparison;
use ext4_format::inode::InodeCore;
use ext4_format::inode::flags;
use ext4_format::xattr::XattrSet;
use extant_formatter::extent_map::Run;
use extant_formatter::item::{InodeEvent, MiscEvent, NameEvent};
use extant_formatter::name::NameRef;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Options for creating a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreateOptions {
    /// Permission bits.
    pub mode: u16,
    /// If true, return [`Error::Exists`] if the name exists. Otherwise the existing inode is found.
    pub exclusive: bool,
    /// Count one more handle of the inode before another thread can remove its name.
    pub open: bool,
}

/// The place of a name in its directory.
struct NamePlace<'a> {
    parent: &'a Arc<Inode>,
    names: &'a Directory,
    name: NameRef<'a>,
    hash: NameHash,
    /// The hash's bucket when the hash was made.
    near: BucketRef<'a>,
    /// Comparison of names in the directory at that time.
    compared: Comparison,
}

/// Checks a name for a new file.
#[inline]
pub(crate) fn new_name(name: &[u8]) -> Result<NameRef<'_>> {
    NameRef::new(name).map_err(|e| match name {
        b"." | b".." => Error::Exists,
        _ => e.into(),
    })
}

/// The parts of an inode about to be made that its kind does not determine.
struct Newborn<'a> {
    mode: u16,
    /// The ACLs that it takes over.
    xattrs: Option<Arc<XattrSet>>,
    /// The block of a long link target, written already.
    target: Option<PlacedRuns<'a>>,
}

impl Newborn<'_> {
    fn target(&self) -> &[Run] {
        self.target.as_ref().map_or(&[], |placed| &placed.runs)
    }

    #[inline(always)]
    fn cost(&self, what: &NewInode<'_>) -> Cost {
        let cost = match what {
            NewInode::Directory => Cost::DIRECTORY,
            _ => Cost::NAME,
        };
        match self.xattrs {
            Some(_) => cost.and(Cost::XATTR),
            None => cost,
        }
    }

    #[inline(always)]
    fn content(
        &self,
        what: &NewInode<'_>,
        parent: InodeNr,
        block_size: u32,
        compared: Comparison,
    ) -> Content {
        match what {
            NewInode::File => Content::File(OnceLock::new()),
            NewInode::Directory => {
                let dir = Directory::new(parent, None, compared);
                dir.size.store(u64::from(block_size), Ordering::Relaxed);
                Content::Directory(Box::new(dir))
            }
            NewInode::Symlink(target) => Content::Symlink(Box::new(Symlink {
                target: OnceLock::from(Box::from(*target)),
                block: self.target().first().copied(),
            })),
            NewInode::Special(..) => Content::Special,
        }
    }

    /// Logs the birth of the inode with everything it is born with.
    #[inline(always)]
    fn log(
        &self,
        what: &NewInode<'_>,
        ino: InodeNr,
        parent: InodeNr,
        core: InodeCore,
        c: &mut Commit<'_>,
    ) {
        c.inode(ino, InodeEvent::Init, core);
        match what {
            NewInode::Directory => c.misc(ino, MiscEvent::DirInit { parent }),
            NewInode::Symlink(target) if self.target().is_empty() => {
                c.misc(ino, MiscEvent::SymlinkTarget(Box::from(*target)));
            }
            NewInode::Symlink(_) => {
                for run in self.target() {
                    c.map_run(ino, *run, true);
                }
            }
            _ => {}
        }
        if let Some(set) = &self.xattrs {
            c.misc(ino, MiscEvent::Xattrs(Arc::clone(set)));
        }
    }
}

/// The result of locking the place of a new name.
enum Locked<'a> {
    /// The name was there.
    Taken(Arc<Inode>),
    /// The directory compares names so, otherwise than before: the place is another.
    Changed(Comparison),
    /// The place is free: the bucket is locked, and all that the name needs is taken.
    Free(BucketGuard<'a>, Room<'a>, NewNumber<'a>),
}

/// The right to add a subdirectory.
#[derive(Default)]
struct LinkRight<'a> {
    /// Near the limit, or beyond it, operations that add go one at a time.
    state: Option<StateGuard<'a>>,
    /// The new subdirectory exceeds the link count.
    beyond: bool,
}

impl LinkRight<'_> {
    /// Returns the stamp that a commit by this right must exceed.
    #[inline]
    fn stamp(&self, names: &Directory) -> u64 {
        let state = self.state.as_ref();
        state.map_or(0, |state| state.stamp.max(names.last_stamp()))
    }
}

#[cold]
#[inline(never)]
fn permit_folded(compared: Comparison, name: &[u8]) -> Result<()> {
    if compared.allows(name) {
        Ok(())
    } else {
        Err(Error::Invalid(
            "a name that is not UTF-8, which this directory asks for",
        ))
    }
}

impl Names {
    /// Makes an inode under a free name, or finds the inode that the name leads to. The flag is true if the inode was
    /// made.
    pub(crate) fn create(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: NameRef<'_>,
        what: &NewInode<'_>,
        how: CreateOptions,
    ) -> Result<(Arc<Inode>, bool)> {
        match (what, self.store.comparison(parent.flags())) {
            // A separate copy of the code, without the parts that a new file does not need in a directory that does not
            // fold case.
            (NewInode::File, Comparison::Exact) => {
                self.create_this(who, parent, name, &NewInode::File, how, Comparison::Exact)
            }
            (_, compared) => self.create_other(who, parent, name, what, how, compared),
        }
    }

    #[inline(never)]
    fn create_other(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: NameRef<'_>,
        what: &NewInode<'_>,
        how: CreateOptions,
        compared: Comparison,
    ) -> Result<(Arc<Inode>, bool)> {
        if let NewInode::Symlink(target) = what {
            check_target(target)?;
        }
        self.create_this(who, parent, name, what, how, compared)
    }

    #[inline(always)]
    fn create_this(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: NameRef<'_>,
        what: &NewInode<'_>,
        how: CreateOptions,
        compared: Comparison,
    ) -> Result<(Arc<Inode>, bool)> {
        let _span = lockmeter::span!("create");
        let place = self.place_of(parent, name, compared)?;
        if let Err(denied) = self.inodes.permit(who, parent, WRITE | EXECUTE) {
            return self.find_only(who, &place, how, denied);
        }
        let (newborn, tx) = match self.begin_creating(who, &place, what, how) {
            Ok(begun) => begun,
            Err(refused) => return self.find_only(who, &place, how, refused),
        };
        match self.lock_free(who, &place, what, how)? {
            Locked::Taken(inode) => Ok((inode, false)),
            Locked::Changed(compared) => {
                drop((newborn, tx));
                self.create_other(who, parent, name, what, how, compared)
            }
            Locked::Free(bucket, room, number) => {
                let taken = (tx, bucket, room, number);
                let new = self.commit_new(who, &place, what, newborn, how, taken)?;
                Ok((new, true))
            }
        }
    }

    /// Returns the parts of a new inode, and the transaction that makes it.
    #[inline(always)]
    fn begin_creating<'a>(
        &'a self,
        who: &Credentials,
        place: &NamePlace<'_>,
        what: &NewInode<'_>,
        how: CreateOptions,
    ) -> Result<(Newborn<'a>, Transaction<'a>)> {
        let parent = place.parent;
        let (mode, xattrs) = self
            .inodes
            .inherited_acls(who, parent, what.ftype(), how.mode)?;
        let newborn = Newborn {
            mode,
            xattrs,
            target: self.place_target(who, parent, what)?,
        };
        let cost = newborn.cost(what);
        let tx = if matches!(what, NewInode::Directory) || newborn.xattrs.is_some() {
            self.commit.begin(who, cost)?
        } else {
            let name = (place.name.as_bytes(), place.hash);
            self.begin_adding(who, parent, name, cost)?
        };
        Ok((newborn, tx))
    }

    /// Looks an existing name up where nothing can be made: for lack of a permission, of space, or because the target
    /// is too long.
    #[cold]
    #[inline(never)]
    fn find_only(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        how: CreateOptions,
        refused: Error,
    ) -> Result<(Arc<Inode>, bool)> {
        self.inodes.permit(who, place.parent, EXECUTE)?;
        let bucket = place.names.table.lock(place.hash);
        match bucket.find(place.hash, place.name.as_bytes()) {
            Some(entry) => Ok((self.found(entry.ino, how)?, false)),
            None => Err(refused),
        }
    }

    /// Computes the place of a new name in a directory with this comparison of names.
    #[inline(always)]
    fn place_of<'a>(
        &self,
        parent: &'a Arc<Inode>,
        name: NameRef<'a>,
        compared: Comparison,
    ) -> Result<NamePlace<'a>> {
        let names = self.names(parent)?;
        self.permit_name(compared, name.as_bytes())?;
        let hash = self.store.hash_by(compared, name.as_bytes());
        Ok(NamePlace {
            parent,
            names,
            name,
            hash,
            near: names.table.prefetch(hash),
            compared,
        })
    }

    /// Refuses a name that its directory must not have.
    #[inline(always)]
    pub(super) fn permit_name(&self, compared: Comparison, name: &[u8]) -> Result<()> {
        match compared {
            Comparison::Exact => Ok(()),
            _ => permit_folded(compared, name),
        }
    }

    /// Locks the bucket of a new name and takes what the name needs, or finds that the name is taken.
    #[inline(always)]
    fn lock_free<'a>(
        &'a self,
        who: &Credentials,
        place: &NamePlace<'a>,
        what: &NewInode<'_>,
        how: CreateOptions,
    ) -> Result<Locked<'a>> {
        let (names, name) = (place.names, place.name.as_bytes());
        let mut number = None;
        loop {
            let (bucket, room) = self.lock_to_add(place.parent, names, &place.near, name)?;
            bucket.prefetch_end();
            if names.is_dead() {
                return Err(Error::NotFound);
            }
            if bucket.compared != place.compared {
                return Ok(Locked::Changed(bucket.compared));
            }
            if !bucket.is_free(place.hash)
                && let Some(entry) = bucket.find(place.hash, name)
            {
                return Ok(Locked::Taken(self.found(entry.ino, how)?));
            }
            if what.is_device() && !who.is_unbound() {
                return Err(Error::NotPermitted);
            }
            let wanted = match what {
                NewInode::Directory => {
                    InodePurpose::directory_below(place.parent.flags.load(Ordering::Relaxed))
                }
                _ => InodePurpose::File,
            };
            let taken = match number.take() {
                Some(number) => Ok(number),
                None => self.space.take_number(place.parent.ino, wanted),
            };
            match taken {
                Ok(number) => return Ok(Locked::Free(bucket, room, number)),
                // Numbers freed by operations that are not durable yet are free again after a push. Wait for the push
                // with the bucket unlocked, because no push runs while the volume is frozen, and the bucket's names
                // must be found meanwhile.
                Err(Error::NoSpace(_)) => {
                    let held = planted::is(Fault::WaitsLocked).then_some((bucket, room));
                    schedule::reached(Point::NoInode);
                    number = Some(self.commit.take_number(place.parent.ino, wanted)?);
                    drop(held);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Logs a new inode and its name, and shows both.
    #[inline(always)]
    fn commit_new(
        &self,
        who: &Credentials,
        place: &NamePlace<'_>,
        what: &NewInode<'_>,
        newborn: Newborn<'_>,
        how: CreateOptions,
        (tx, mut bucket, _room, number): (
            Transaction<'_>,
            BucketGuard<'_>,
            Room<'_>,
            NewNumber<'_>,
        ),
    ) -> Result<Arc<Inode>> {
        let (parent, names, ino) = (place.parent, place.names, number.ino());
        let time = now();
        let core = self.inodes.new_core(who, parent, what, newborn.mode, time);
        // A directory that folds case passes the flag on to directories made in it.
        let block_size = self.store.geometry.first().block_size;
        let content = newborn.content(what, parent.ino, block_size, place.compared);
        let ftype = what.ftype();
        let is_dir = matches!(what, NewInode::Directory);
        let opens = u32::from(how.open);
        let entry = Dentry {
            hash: place.hash,
            ino,
            ftype,
            name: place.name.to_name(),
        };
        let mut right = if is_dir {
            self.room_for_subdirectory(parent, names)?
        } else {
            LinkRight::default()
        };
        let seen = bucket
            .stamp
            .max(names.core_stamp.load(Ordering::Relaxed))
            .max(number.after())
            .max(right.stamp(names));
        // Built here, because the slot's list is locked during the commit.
        let mut inode = Inode::new(ino, ftype, core, content);
        inode.set_newborn(opens, newborn.xattrs.clone());
        let mut inode = Arc::new(inode);
        tx.commit(
            seen,
            #[inline(always)]
            |c| {
                newborn.log(what, ino, parent.ino, core, c);
                let links = i8::from(is_dir);
                c.log_name(
                    parent.ino,
                    &mut bucket.stamp,
                    entry.clone(),
                    (NameEvent::Added, links),
                    time,
                );
                names.note(Change { names: 1, links }, time, c.stamp);
                parent.logged_in(c.context);
                self.stop_counting_links(parent, &mut right, c);
                let born = Birth::of(c);
                // No other reference exists yet.
                if let Some(inode) = Arc::get_mut(&mut inode) {
                    inode.set_birth(born);
                }
                if is_dir && let Some(dir) = inode.directory() {
                    dir.core_stamp.store(born.stamp, Ordering::Relaxed);
                }
                self.inodes.insert(&inode);
            },
        );
        drop(right);
        number.keep();
        if let Some(target) = newborn.target {
            self.data.count_added(&inode, &target.keep());
        }
        self.show_name(parent, names, bucket, entry);
        Ok(inode)
    }

    /// Puts a logged name into its bucket, and notifies watchers.
    #[inline(always)]
    fn show_name(
        &self,
        parent: &Inode,
        names: &Directory,
        mut bucket: BucketGuard<'_>,
        entry: Dentry,
    ) {
        self.watch
            .tell_created(parent, entry.name.as_bytes(), entry.ino);
        bucket.add(entry);
        let long = names.table.is_long(&bucket);
        drop(bucket);
        if long {
            names.grow();
        }
    }

    /// Returns the inode of a name whose bucket is locked, so that the inode cannot leave before it is opened.
    #[inline(never)]
    fn found(&self, ino: InodeNr, how: CreateOptions) -> Result<Arc<Inode>> {
        if how.exclusive {
            return Err(Error::Exists);
        }
        let inode = self.inodes.named_inode(ino)?;
        if how.open {
            self.lifecycle.opened(&inode)?;
        }
        Ok(inode)
    }

    /// Makes another name for an inode.
    pub(crate) fn link(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        parent: &Arc<Inode>,
        name: &[u8],
    ) -> Result<()> {
        let _span = lockmeter::span!("link");
        let name = new_name(name)?;
        let place = self.place_of(parent, name, self.store.comparison(parent.flags()))?;
        let NamePlace { names, hash, .. } = place;
        let (owned, name) = (name.to_name(), name.as_bytes());
        let tx = self.begin_adding(who, parent, (name, hash), Cost::NAME)?;
        let (mut bucket, room) = self.lock_to_add(parent, names, &place.near, name)?;
        if names.is_dead() {
            return Err(Error::NotFound);
        }
        if bucket.compared != place.compared {
            drop((tx, bucket, room));
            return self.link(who, inode, parent, name);
        }
        if bucket.find(hash, name).is_some() {
            return Err(Error::Exists);
        }
        self.inodes.permit(who, parent, WRITE | EXECUTE)?;
        if inode.directory().is_some() {
            return Err(Error::NotPermitted);
        }
        // A file without a name may be cut in steps, which rely on it being an orphan.
        let unnamed = inode.state.lock().unnamed;
        let file = inode.touched_file().filter(|_| unnamed);
        let _no_steps = file.map(|f| f.map.write());
        let mut state = inode.state.lock();
        if state.core.flags & (flags::IMMUTABLE | flags::APPEND) != 0 {
            return Err(Error::NotPermitted);
        }
        if state.freed || state.core.links == 0 && !state.unnamed {
            return Err(Error::NotFound);
        }
        if state.core.links >= ext4_format::inode::LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        if inode.is_of_other_project(parent) {
            return Err(Error::CrossDevice);
        }
        let time = now();
        let entry = Dentry {
            hash,
            ino: inode.ino,
            ftype: inode.ftype,
            name: owned,
        };
        let seen = bucket
            .stamp
            .max(names.core_stamp.load(Ordering::Relaxed))
            .max(state.stamp);
        tx.commit(seen, |c| {
            state.core.links += 1;
            if std::mem::take(&mut state.unnamed) {
                state.orphan = false;
                c.misc(inode.ino, MiscEvent::OrphanRemove);
            }
            state.core.ctime = time;
            state.stamp = c.stamp;
            c.inode(inode.ino, InodeEvent::Update, state.disk_core());
            c.log_name(
                parent.ino,
                &mut bucket.stamp,
                entry.clone(),
                (NameEvent::Added, 0),
                time,
            );
            names.note(Change { names: 1, links: 0 }, time, c.stamp);
            inode.logged_in(c.context);
            parent.logged_in(c.context);
        });
        drop(state);
        self.show_name(parent, names, bucket, entry);
        Ok(())
    }

    /// Writes a long link target to the device, before the transaction that names its block.
    #[inline(always)]
    fn place_target(
        &self,
        who: &Credentials,
        parent: &Inode,
        what: &NewInode<'_>,
    ) -> Result<Option<PlacedRuns<'_>>> {
        match what {
            NewInode::Symlink(target) => self.place_target_of(who, parent, target).map(Some),
            _ => Ok(None),
        }
    }

    #[inline(never)]
    fn place_target_of(
        &self,
        who: &Credentials,
        parent: &Inode,
        target: &[u8],
    ) -> Result<PlacedRuns<'_>> {
        let mut placing = self.space.placing();
        let block_size = self.store.geometry.block_size;
        if target.len() >= block_size as usize {
            return Err(Error::NameTooLong);
        }
        if target.len() <= FAST_SYMLINK_MAX {
            return Ok(placing);
        }
        let _pass = self.store.gate.enter();
        self.store.check_writable()?;
        if !self.commit.take_space(who, 1)? {
            return Err(self.store.no_space("no block left for a symbolic link"));
        }
        let reserved = self.space.reserved(1);
        let block = self.space.allocate_block(self.space.goal_of(parent.ino))?;
        reserved.hand_over();
        placing.runs.push(Run {
            logical: 0,
            len: 1,
            physical: block,
            unwritten: false,
        });
        let mut bytes = vec![0; block_size as usize];
        bytes[..target.len()].copy_from_slice(target);
        self.store
            .device
            .write_at(block.offset(block_size), &bytes)
            .map_err(|e| Error::block_io("write", block, e))?;
        Ok(placing)
    }

    /// Takes the right to add one subdirectory, with the name's bucket locked. Far from the limit of links no lock is
    /// taken.
    #[inline(never)]
    fn room_for_subdirectory<'a>(
        &self,
        dir: &'a Inode,
        names: &Directory,
    ) -> Result<LinkRight<'a>> {
        if names.has_room_for_directories() {
            return Ok(LinkRight::default());
        }
        let state = dir.state.lock();
        let beyond = self.is_beyond_links(names, &state)?;
        Ok(LinkRight {
            state: Some(state),
            beyond,
        })
    }

    /// Returns true if one more subdirectory exceeds the link count of a directory whose core is locked. With
    /// `dir_nlink` the directory then stops counting subdirectories; without it that is an error.
    pub(super) fn is_beyond_links(&self, names: &Directory, state: &InodeState) -> Result<bool> {
        match names.is_full_of_directories(state.core.links) {
            true if !self.store.geometry.features.has_dir_nlink() => Err(Error::TooManyLinks),
            beyond => Ok(beyond),
        }
    }

    #[inline]
    fn stop_counting_links(&self, dir: &Inode, right: &mut LinkRight<'_>, c: &mut Commit<'_>) {
        if let (Some(state), true) = (&mut right.state, right.beyond) {
            self.log_uncounted(dir, state, c);
        }
    }

    /// Logs that a directory's subdirectories are not counted any more.
    pub(super) fn log_uncounted(&self, dir: &Inode, state: &mut InodeState, c: &mut Commit<'_>) {
        if let Some(names) = dir.directory() {
            names.stop_counting();
        }
        state.core.links = 1;
        self.inodes.log_core(dir, state, c);
    }
}

/// Checks a link target as a path of any system call: not empty, shorter than `PATH_MAX`, and without a NUL.
fn check_target(target: &[u8]) -> Result<()> {
    const PATH_MAX: usize = 4096;
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.len() >= PATH_MAX {
        return Err(Error::NameTooLong);
    }
    if target.contains(&0) {
        Err(Error::Invalid("a symbolic link's target holds a NUL byte"))
    } else {
        Ok(())
    }
}
