//! Room in the index of a large directory: a name that will have no place when it is formatted must be refused now.
//!
//! A directory far from the limit needs no account. Nearer to it every new name takes *tokens*, as many as its record
//! has bytes. There are as many tokens as bytes of names may be added to the formatted directory, whatever their
//! hashes, without the index becoming full ([`DirReader::allowance`]), less those of names that are logged and not
//! formatted; per slot, as free blocks are counted [L4]. After each context that is formatted the directory is measured
//! again, and tokens used in that context return.
//!
//! When there are too few tokens even after a push, and no other operation has any, the name is tried on the directory
//! as it stands; then one operation goes at a time.

use crate::base::error::{Error, Result};
use crate::base::locks::{self, Mutex, MutexGuard};
use crate::commit::formatter::directory::{Allowance, DirReader};
use crate::incore::directory::Directory;
use crate::incore::index_room::BATCH;
use crate::incore::index_room::IndexRoom;
use crate::incore::inode::Inode;
use crate::incore::name_table::BucketGuard;
use crate::log::Cost;
use crate::log::kick::Kick;
use crate::log::transaction::Transaction;
use crate::names::Names;
use crate::types::credentials::Credentials;
use crate::types::dentry::NameHash;
use crate::types::extent_map::Found;
use ext4_format::inode::{self, flags};
use ext4_format::{FormatError, InodeNr, Where, checksum};
use std::sync::atomic::Ordering;

/// The right to add one name.
pub(crate) struct Room<'a> {
    /// `None` if the directory is far from full, or the name exists.
    account: Option<&'a IndexRoom>,
    /// Tokens, which are returned if they are not used.
    tokens: u64,
    /// The name has a place, and no other operation adds a name: these are all the tokens.
    _alone: Option<MutexGuard<'a, (), locks::IndexFull>>,
}

impl<'a> Room<'a> {
    /// No right is needed.
    pub const PLENTY: Self = Self {
        account: None,
        tokens: 0,
        _alone: None,
    };

    /// An account has been opened since this right was given; asked with the name's bucket locked.
    pub fn is_missing(&self, names: &Directory) -> bool {
        self.account.is_none() && names.room.get().is_some()
    }

    fn paid(account: &'a IndexRoom, tokens: u64) -> Self {
        Self {
            account: Some(account),
            tokens,
            _alone: None,
        }
    }

    /// The name is being logged, in this context. Asks for a push in time, so that tokens are back before
    /// the last is used.
    pub fn use_up(&mut self, context: u64, kick: &Kick) {
        let Some(room) = self.account else {
            return;
        };
        let tokens = std::mem::take(&mut self.tokens);
        let used = room.used[(context & 1) as usize].local();
        let before = used.fetch_add(tokens, Ordering::Relaxed);
        if before / BATCH != (before + tokens) / BATCH
            && room.tokens.pooled() < room.there.load(Ordering::Relaxed) / 2
            && room.asked.swap(context, Ordering::Relaxed) != context
        {
            kick.wake();
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(room) = self.account {
            room.give(self.tokens);
        }
    }
}

/// Directories that have an account.
#[derive(Default)]
pub(crate) struct IndexRooms {
    dirs: Mutex<Vec<InodeNr>, locks::IndexRooms>,
}

impl Names {
    /// Opens a transaction that adds a name and needs no other block. It works on a full volume, too, if the
    /// directory has a place for the name in an existing block: the worst-case blocks are then taken of the withheld
    /// ones, and return with the next push. If another operation takes that place first, it has paid for the block
    /// that makes a new one.
    pub(super) fn begin_adding(
        &self,
        who: &Credentials,
        dir: &Inode,
        (name, hash): (&[u8], NameHash),
        cost: Cost,
    ) -> Result<Transaction<'_>> {
        match self.commit.begin(who, cost) {
            Err(Error::NoSpace(why)) => {
                if !self.has_place_as_it_is(dir, name, hash)? {
                    return Err(Error::NoSpace(why));
                }
                self.commit.begin_freeing(cost)
            }
            begun => begun,
        }
    }

    /// Whether a directory takes a name as it is on disk when everything committed so far is there.
    #[cold]
    fn has_place_as_it_is(&self, dir: &Inode, name: &[u8], hash: NameHash) -> Result<bool> {
        let names = dir.directory().ok_or(Error::NotDirectory)?;
        self.commit.push_all()?;
        // As long as it is held, no push formats the directory.
        let _formatter = self.commit.formatter.lock();
        let place = self.with_index(dir, |index| {
            index.has_place_as_it_is(name, (hash.major, hash.minor))
        });
        match names.is_dead() {
            // Its blocks may be anybody's.
            true => Err(Error::NotFound),
            false => place,
        }
    }

    /// Locks the bucket of a name that is about to be added, with the right to add it. Call it with no
    /// bucket locked. `NoSpace` if the index has no place for the name.
    pub(super) fn lock_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<(BucketGuard<'a>, Room<'a>)> {
        loop {
            let room = self.room_to_add(dir, names, hash, name)?;
            let bucket = names.table.lock(hash);
            let exists = || bucket.find(hash, name).is_some();
            if !room.is_missing(names) || exists() {
                return Ok((bucket, room));
            }
        }
    }

    /// The right to add a name.
    pub(super) fn room_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<Room<'a>> {
        let tokens = Allowance::of(name);
        names.note_width(tokens);
        let room = match names.room.get() {
            Some(room) => room,
            None if !self.is_large(names) => return Ok(Room::PLENTY),
            None => self.open_account(dir, names)?,
        };
        loop {
            if room.tokens.try_take(tokens) {
                return Ok(Room::paid(room, tokens));
            }
            if names.table.lock(hash).find(hash, name).is_some() {
                return Ok(Room::PLENTY);
            }
            let guard = room.alone.lock();
            self.commit.push_all()?;
            if room.tokens.try_take(tokens) {
                return Ok(Room::paid(room, tokens));
            }
            let all = room.tokens.take_up_to(u64::MAX);
            let mut right = Room::paid(room, all);
            if all == room.there.load(Ordering::Acquire) {
                // No other operation has any, and adding needs some.
                let place =
                    self.with_index(dir, |index| index.has_place(name, (hash.major, hash.minor)))?;
                if !place {
                    return Err(Error::NoSpace("the directory's index is full"));
                }
                right._alone = Some(guard);
                return Ok(right);
            }
            // The operations that have the others are about to use them.
            drop((right, guard));
            std::thread::yield_now();
        }
    }

    /// The directory, with all its names that are not yet formatted, may come near the limit; what is in
    /// memory is taken for new, too, so that nothing others write is looked at. Half of what any history
    /// leaves room for is kept, for indexes packed by others.
    fn is_large(&self, names: &Directory) -> bool {
        let leaves =
            names.size.load(Ordering::Relaxed) >> self.store.geometry.block_size.trailing_zeros();
        names.bytes_at_most() >= self.index_allowance.for_leaves(leaves) / 2
    }

    /// Makes every name take tokens from now on.
    fn open_account<'a>(&self, dir: &Inode, names: &'a Directory) -> Result<&'a IndexRoom> {
        let buckets = loop {
            // Most of what there is to do, while others go on.
            self.commit.push_all()?;
            // With all buckets locked no name is added, and the push formats the added ones. If the volume is frozen
            // now, its names must be found: then the attempt is repeated after the thaw.
            let buckets = names.table.lock_all();
            if names.room.get().is_some() || self.commit.push_unless_frozen()? {
                break buckets;
            }
        };
        if names.room.get().is_none() {
            let tokens = self.with_index(dir, |index| index.allowance())?;
            let mut dirs = self.index_rooms.dirs.lock();
            if !dirs.contains(&dir.ino) {
                dirs.push(dir.ino);
            }
            drop(dirs);
            let _ = names.room.set(Box::new(IndexRoom::new(tokens)));
        }
        drop(buckets);
        names
            .room
            .get()
            .map(|room| &**room)
            .ok_or_else(|| Error::Stopped("account of a directory".into()))
    }

    /// A context has been formatted: what was used in it comes back, as far as there is room. The caller
    /// holds the formatter's lock.
    pub(super) fn measure_index_rooms(&self, context: u64) -> Result<()> {
        let dirs = self.index_rooms.dirs.lock().clone();
        for ino in dirs {
            let inode = self.inodes.index.get(ino);
            let room = inode.as_ref().and_then(|i| i.directory()?.room.get());
            let (Some(inode), Some(room)) = (&inode, room) else {
                // The directory has left memory.
                self.index_rooms.dirs.lock().retain(|i| *i != ino);
                continue;
            };
            // No operation adds to this sum before the next push.
            let used: u64 = room.used[(context & 1) as usize]
                .iter()
                .map(|used| used.swap(0, Ordering::Relaxed))
                .sum();
            if used > 0 {
                let now = self.with_index(inode, |index| index.allowance())?;
                // Tokens in use were given for the directory as it was then, which allowed them.
                let out = room.there.load(Ordering::Relaxed).saturating_sub(used);
                let there = now.max(out);
                room.there.store(there, Ordering::Release);
                room.give(there - out);
            }
        }
        Ok(())
    }

    /// Runs `f` on the directory as it is on disk, with every batch formatted so far.
    pub(super) fn with_index<R>(
        &self,
        dir: &Inode,
        f: impl FnOnce(&DirReader<'_>) -> Result<R>,
    ) -> Result<R> {
        let raw = self.inodes.raw_inode(dir.ino)?;
        let core = inode::decode_core(&raw, &self.store.geometry, dir.ino)?;
        let map = self
            .inodes
            .mapping_reader(dir)
            .read(core.flags, inode::i_block(&raw)?)?;
        let blocks = u32::try_from(core.size / u64::from(self.store.geometry.block_size))
            .map_err(|_| Error::corrupt_inode("directory size", dir.ino))?;
        let locate = |logical: u32| match map.at(logical) {
            Found::Mapped(run) if !run.unwritten => Ok(run.physical),
            _ => Err(FormatError::corrupt(
                "hole in a directory",
                Where::InodeBlock(dir.ino, u64::from(logical)),
            )
            .into()),
        };
        f(&DirReader {
            geometry: &self.store.geometry,
            images: &self.store.buffers,
            locate: &locate,
            ino: dir.ino,
            seed: checksum::inode_seed(self.store.geometry.csum_seed, dir.ino, core.generation),
            blocks,
            indexed: core.flags & flags::INDEX != 0,
            hasher: &self.store.hasher,
        })
    }
}
