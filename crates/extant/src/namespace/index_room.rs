//! Room in the index of a large directory: a name for which there will be no place when it is formatted
//! must be refused now.
//!
//! A directory far from the limit needs no account. Nearer to it every new name takes a *token*. There are
//! as many tokens as names may be added to what is formatted, whatever their hashes, without the index
//! becoming full ([`DirReader::allowance`]), less those of names that are logged and not formatted; per
//! slot, as free blocks are counted [L4]. With each context that is formatted the directory is measured
//! again, and the tokens used in that context come back.
//!
//! When there is no token left even after a push, and no name is on its way, the name is tried on the
//! directory as it stands; then one operation goes at a time.

use super::directory::{BucketGuard, Directory, NameHash};
use super::extent_map::Found;
use super::inode::Inode;
use crate::engine::{Engine, Kick};
use crate::error::{Error, Result};
use crate::formatter::directory::{DirReader, always_room};
use crate::locks::{self, Mutex, MutexGuard};
use ext4_format::inode::{self, flags};
use ext4_format::{FormatError, InodeNr, Where, checksum};
use percpu::{BoundedCounter, PerSlot};
use std::sync::atomic::{AtomicU64, Ordering};

/// Tokens that a slot takes at hand.
const BATCH: u64 = 64;

/// The account of one directory.
pub struct IndexRoom {
    tokens: BoundedCounter,
    /// What the directory, as it was formatted last, has room for.
    allowance: AtomicU64,
    /// Tokens used in a context, by its parity.
    used: [PerSlot<AtomicU64>; 2],
    /// Context in which a push was asked for because tokens became few.
    asked: AtomicU64,
    /// Held by an operation for which there was no token.
    alone: Mutex<(), locks::IndexFull>,
}

impl IndexRoom {
    fn new(allowance: u64) -> Self {
        Self {
            tokens: BoundedCounter::new(allowance, BATCH),
            allowance: AtomicU64::new(allowance),
            used: Default::default(),
            asked: AtomicU64::new(0),
            alone: Mutex::new(()),
        }
    }
}

/// The right to add one name.
pub(crate) enum Room<'a> {
    /// The directory is far from full, or the name exists.
    Plenty,
    /// A token, given back if it is not used.
    Token(&'a IndexRoom),
    /// There is a place, and nobody else adds a name that has no token.
    Alone {
        _guard: MutexGuard<'a, (), locks::IndexFull>,
    },
}

impl Room<'_> {
    /// The name is being logged, in this context. Asks for a push in time, so that tokens are back before
    /// the last is used.
    pub fn use_up(&mut self, context: u64, kick: &Kick) {
        if let Self::Token(room) = self {
            let room = *room;
            // Not dropped: it would go back.
            std::mem::forget(std::mem::replace(self, Self::Plenty));
            let used = room.used[(context & 1) as usize].local();
            if used.fetch_add(1, Ordering::Relaxed) % BATCH == BATCH - 1
                && room.tokens.pooled() < room.allowance.load(Ordering::Relaxed) / 2
                && room.asked.swap(context, Ordering::Relaxed) != context
            {
                kick.wake();
            }
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Self::Token(room) = self {
            room.tokens.give(1);
        }
    }
}

/// Directories that have an account.
#[derive(Default)]
pub(crate) struct IndexRooms {
    dirs: Mutex<Vec<InodeNr>, locks::IndexRooms>,
}

impl Engine {
    /// Locks the bucket of a name that is about to be added, with the right to add it. Call it with no
    /// bucket locked. `NoSpace` if the index has no place for the name.
    pub(crate) fn lock_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<(BucketGuard<'a>, Room<'a>)> {
        loop {
            let room = self.room_to_add(dir, names, hash, name)?;
            let bucket = names.lock(hash);
            let exists = || bucket.find(hash, name).is_some();
            if !self.lacks_room(names, &room) || exists() {
                return Ok((bucket, room));
            }
        }
    }

    /// Nothing is known of the room for a name, but must be; asked with the name's bucket locked.
    pub(crate) fn lacks_room(&self, names: &Directory, room: &Room<'_>) -> bool {
        matches!(room, Room::Plenty) && (names.room.get().is_some() || self.is_large(names))
    }

    /// The right to add a name.
    pub(crate) fn room_to_add<'a>(
        &self,
        dir: &Inode,
        names: &'a Directory,
        hash: NameHash,
        name: &[u8],
    ) -> Result<Room<'a>> {
        let room = match names.room.get() {
            Some(room) => room,
            None if !self.is_large(names) => return Ok(Room::Plenty),
            None => self.open_account(dir, names)?,
        };
        loop {
            if room.tokens.try_take(1) {
                return Ok(Room::Token(room));
            }
            if names.lock(hash).find(hash, name).is_some() {
                return Ok(Room::Plenty);
            }
            let guard = room.alone.lock();
            self.push_all()?;
            if room.tokens.try_take(1) {
                return Ok(Room::Token(room));
            }
            // No token is there, and none can be out if there were none to begin with.
            if room.allowance.load(Ordering::Acquire) == 0 {
                let place =
                    self.with_index(dir, |index| index.has_place(name, (hash.major, hash.minor)))?;
                return if place {
                    Ok(Room::Alone { _guard: guard })
                } else {
                    Err(Error::NoSpace("the directory's index is full"))
                };
            }
            // Those that hold the tokens are about to use them.
            drop(guard);
            std::thread::yield_now();
        }
    }

    /// Leaves that a directory of this volume may have without an account.
    pub(crate) fn index_limit(geometry: &ext4_format::geometry::Geometry) -> u64 {
        if geometry.features.has_dir_index() {
            // Half of what is safe for an index whose nodes are half full; one packed by e2fsck -D is
            // worse, but not twice.
            always_room(geometry) / 2
        } else {
            u64::MAX
        }
    }

    /// The leaves of a directory, with all its names that are not yet formatted, may come near the limit. A
    /// leaf that overflows and the bytes that come into it make leaves at least a third full, and one
    /// that is cut short: so at most four for each that there is, and one for 380 bytes of names per KiB
    /// of block.
    fn is_large(&self, names: &Directory) -> bool {
        let block = self.geometry.block_size.trailing_zeros();
        let leaves = names.size.load(Ordering::Relaxed) >> block;
        // A record takes 264 bytes at most.
        let new = names.at_most().saturating_mul(264 * 1024 / 380) >> block;
        leaves * 4 + new >= self.index_limit
    }

    /// From now on every name takes a token.
    fn open_account<'a>(&self, dir: &Inode, names: &'a Directory) -> Result<&'a IndexRoom> {
        // With all buckets locked nobody adds a name, and what was added is formatted by the push.
        let buckets = names.lock_all();
        if names.room.get().is_none() {
            self.push_all()?;
            let allowance = self.with_index(dir, |index| index.allowance())?;
            let mut dirs = self.index_rooms.dirs.lock();
            if !dirs.contains(&dir.ino) {
                dirs.push(dir.ino);
            }
            drop(dirs);
            let _ = names.room.set(Box::new(IndexRoom::new(allowance)));
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
    pub(crate) fn measure_index_rooms(&self, context: u64) -> Result<()> {
        let dirs = self.index_rooms.dirs.lock().clone();
        for ino in dirs {
            let inode = self.index.get(ino);
            let room = inode.as_ref().and_then(|i| i.directory()?.room.get());
            let (Some(inode), Some(room)) = (&inode, room) else {
                // It has left memory.
                self.index_rooms.dirs.lock().retain(|i| *i != ino);
                continue;
            };
            // Nothing is added to this sum before the next push.
            let used: u64 = room.used[(context & 1) as usize]
                .iter()
                .map(|used| used.swap(0, Ordering::Relaxed))
                .sum();
            if used > 0 {
                let now = self.with_index(inode, |index| index.allowance())?;
                let before = room.allowance.swap(now, Ordering::AcqRel);
                // Never less than nothing: each name made the allowance less by one at most.
                room.tokens.give((now + used).saturating_sub(before));
            }
        }
        Ok(())
    }

    /// Runs `f` on the directory as it is on disk, with every batch formatted so far.
    pub(crate) fn with_index<R>(
        &self,
        dir: &Inode,
        f: impl FnOnce(&DirReader<'_>) -> Result<R>,
    ) -> Result<R> {
        let raw = self.raw_inode(dir.ino)?;
        let core = inode::decode_core(&raw, &self.geometry, dir.ino)?;
        let map = self
            .mapping_reader(dir)
            .read(core.flags, inode::i_block(&raw)?)?;
        let blocks = u32::try_from(core.size / u64::from(self.geometry.block_size))
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
            geometry: &self.geometry,
            images: &self.buffers,
            locate: &locate,
            ino: dir.ino,
            seed: checksum::inode_seed(self.geometry.csum_seed, dir.ino, core.generation),
            blocks,
            indexed: core.flags & flags::INDEX != 0,
            hasher: &self.hasher,
        })
    }
}
