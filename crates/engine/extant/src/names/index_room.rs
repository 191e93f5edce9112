//! Room in the index of a large directory: a name for which the formatter would find no place must be refused at
//! once.
//!
//! A directory far from the limit needs no account. Nearer to the limit every new name takes *tokens*, one for each
//! byte of its record. A *measurement* makes one token for each byte of names that may be added to the directory,
//! whatever their hashes, before the index can become full ([`DirReader::allowance`]). Slots take tokens in batches, as
//! they take free blocks [L4].
//!
//! When there are too few tokens, the directory is measured again, with all its buckets locked and all its names
//! formatted. Tokens of earlier measurements are void then; an operation that holds some finds that out when it has
//! locked the bucket of its name. If the new measurement makes too few, the name is tried on the directory as it is on
//! disk, no tokens are made, and one operation adds names at a time.

use crate::base::error::{Error, Result};
use crate::base::locks::{self, MutexGuard};
use crate::incore::directory::Directory;
use crate::incore::index_room::IndexRoom;
use crate::incore::inode::Inode;
use crate::incore::name_table::{BucketGuard, BucketRef};
use crate::log::Cost;
use crate::log::transaction::Transaction;
use crate::names::Names;
use crate::types::credentials::Credentials;
use crate::types::dentry::NameHash;
use ext4_format::inode::{self, flags};
use ext4_format::{FormatError, Where, checksum};
use extant_formatter::extent_map::Found;
use extant_formatter::{Allowance, DirReader};
use std::sync::atomic::Ordering;

/// The right to add one name; held until that is logged.
pub(crate) struct Room<'a> {
    /// Number of the measurement whose tokens were taken; 0 if the directory had no account, or the name exists.
    measured: u64,
    /// The name has a place, and no other operation adds a name.
    _alone: Option<MutexGuard<'a, (), locks::IndexFull>>,
}

impl Room<'_> {
    /// A right without tokens, for directories that need none.
    pub const PLENTY: Self = Self {
        measured: 0,
        _alone: None,
    };

    /// Returns true if the directory has been measured since this right was given. Called with the name's bucket
    /// locked.
    pub fn is_missing(&self, names: &Directory) -> bool {
        let room = names.room.get();
        room.is_some_and(|room| room.measured.load(Ordering::Acquire) != self.measured)
    }
}

impl Names {
    /// Opens a transaction that adds a name and needs no other block. It works on a full volume, too, if the directory
    /// has a place for the name in an existing block. The worst-case blocks are then taken from the withheld ones, and
    /// returned by the next push. If another operation takes that place first, it has paid for the block that makes a
    /// new one.
    #[inline(always)]
    pub(super) fn begin_adding(
        &self,
        who: &Credentials,
        dir: &Inode,
        name: (&[u8], NameHash),
        cost: Cost,
    ) -> Result<Transaction<'_>> {
        match self.commit.begin(who, cost) {
            Err(Error::NoSpace(why)) => self.begin_in_place(dir, name, cost, why),
            begun => begun,
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_in_place(
        &self,
        dir: &Inode,
        (name, hash): (&[u8], NameHash),
        cost: Cost,
        why: &'static str,
    ) -> Result<Transaction<'_>> {
        if !self.has_place_as_it_is(dir, name, hash)? {
            return Err(Error::NoSpace(why));
        }
        self.commit.begin_freeing(cost)
    }

    /// Returns true if a directory, as it is on disk after everything committed until now, has room for a name.
    #[cold]
    fn has_place_as_it_is(&self, dir: &Inode, name: &[u8], hash: NameHash) -> Result<bool> {
        let names = dir.directory().ok_or(Error::NotDirectory)?;
        self.commit.push_all()?;
        // While the formatter is held, no push formats the directory.
        let _formatter = self.commit.formatter.lock();
        let place = self.with_index(dir, |index| {
            index.has_place_as_it_is(name, (hash.major, hash.minor))
        });
        if names.is_dead() {
            // The directory's blocks may belong to another file by now.
            Err(Error::NotFound)
        } else {
            place
        }
    }

    /// Locks the bucket of a name that is about to be added, with the right to add it. Call it with no
    /// bucket locked. `NoSpace` if the index has no place for the name.
    #[inline(always)]
    pub(super) fn lock_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        near: &BucketRef<'a>,
        name: &[u8],
    ) -> Result<(BucketGuard<'a>, Room<'a>)> {
        let hash = near.hash();
        loop {
            let room = self.room_to_add(dir, names, hash, name)?;
            let bucket = names.table.lock_prefetched(near);
            let exists = || bucket.find(hash, name).is_some();
            if !room.is_missing(names) || exists() {
                return Ok((bucket, room));
            }
        }
    }

    /// Takes the right to add a name.
    #[inline(always)]
    pub(super) fn room_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<Room<'a>> {
        let tokens = Allowance::of(name);
        names.note_width(tokens);
        if names.room.get().is_none() && !self.is_large(names) {
            Ok(Room::PLENTY)
        } else {
            self.room_of_account(dir, names, hash, name)
        }
    }

    /// Takes the right to add a name to a directory that has an account, or needs one.
    #[cold]
    #[inline(never)]
    fn room_of_account<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<Room<'a>> {
        let tokens = Allowance::of(name);
        let room = match names.room.get() {
            Some(room) => room,
            None => self.open_account(dir, names)?,
        };
        if let Some(right) = take(room, tokens) {
            return Ok(right);
        }
        if names.table.lock(hash).find(hash, name).is_some() {
            return Ok(Room::PLENTY);
        }
        let alone = room.alone.lock();
        if let Some(right) = take(room, tokens) {
            return Ok(right);
        }
        let buckets = self.lock_formatted(names)?;
        let allowance = self.with_index(dir, |index| index.allowance())?;
        let enough = allowance >= tokens;
        let place = enough
            || self.with_index(dir, |index| index.has_place(name, (hash.major, hash.minor)))?;
        room.tokens.take_up_to(u64::MAX);
        if enough {
            room.tokens.give(allowance - tokens);
        }
        // Set the number after the tokens, so that an operation that reads the new number finds no token of the
        // previous measurement.
        let measured = room.measured.fetch_add(1, Ordering::AcqRel) + 1;
        drop(buckets);
        if place {
            Ok(Room {
                measured,
                _alone: (!enough).then_some(alone),
            })
        } else {
            Err(Error::NoSpace("the directory's index is full"))
        }
    }

    /// Returns true if the directory, with all its names that are not yet formatted, may be near the limit. All names
    /// in memory count as new, so that nothing other threads write is looked at. Half of the room that any history
    /// leaves is kept for indexes packed by other implementations.
    #[inline]
    fn is_large(&self, names: &Directory) -> bool {
        let leaves = names.size.load(Ordering::Relaxed)
            >> self.store.geometry.first().block_size.trailing_zeros();
        !self.index_allowance.is_twice(names.bytes_at_most(), leaves)
    }

    /// Makes every name take tokens from now on.
    fn open_account<'a>(&self, dir: &Inode, names: &'a Directory) -> Result<&'a IndexRoom> {
        let buckets = self.lock_formatted(names)?;
        if names.room.get().is_none() {
            let tokens = self.with_index(dir, |index| index.allowance())?;
            let _ = names.room.set(Box::new(IndexRoom::new(tokens)));
        }
        drop(buckets);
        names
            .room
            .get()
            .map(|room| &**room)
            .ok_or_else(|| Error::Stopped("account of a directory".into()))
    }

    /// Locks all buckets of a directory, so that no name is added, when every name added before is formatted.
    fn lock_formatted<'a>(&self, names: &'a Directory) -> Result<Vec<BucketGuard<'a>>> {
        loop {
            // Most of the work is done here, while other threads continue.
            self.commit.push_all()?;
            let buckets = names.table.lock_all();
            if names.is_dead() {
                // The directory's blocks may belong to another file.
                return Err(Error::NotFound);
            }
            // If the volume is frozen now, its names must still be found: then the attempt is repeated after the thaw.
            if self.commit.push_unless_frozen()? {
                return Ok(buckets);
            }
        }
    }

    /// Runs `f` on the directory as it is on disk, with every batch formatted until now.
    pub(super) fn with_index<R>(
        &self,
        dir: &Inode,
        f: impl FnOnce(&DirReader<'_>) -> extant_formatter::Result<R>,
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
        let compared = self.store.comparison(core.flags);
        let hasher = self.store.hasher.comparing(compared);
        Ok(f(&DirReader {
            geometry: &self.store.geometry,
            images: &self.store.buffers,
            locate: &locate,
            ino: dir.ino,
            seed: checksum::inode_seed(self.store.geometry.csum_seed, dir.ino, core.generation),
            blocks,
            indexed: core.flags & flags::INDEX != 0,
            hasher: &hasher,
        })?)
    }
}

/// Takes the right to add a name that needs this number of tokens, if enough tokens are left.
fn take<'a>(room: &'a IndexRoom, tokens: u64) -> Option<Room<'a>> {
    // Before the tokens: they are of this measurement, or of a later one, which voids the right.
    let measured = room.measured.load(Ordering::Acquire);
    let right = Room {
        measured,
        _alone: None,
    };
    room.tokens.try_take(tokens).then_some(right)
}
