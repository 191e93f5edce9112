//! The index from inode number to in-core inode, in runs of numbers: no global hash.
//!
//! A run's table is made when its first inode is loaded. The table is an array of small chunks with a lock each, so
//! look-ups of different inodes share nothing. A run is far smaller than a group, because a volume of many groups has a
//! directory here and a file there, and a whole group's table would take 70 kB.

use crate::base::address::within;
use crate::base::chunked::Chunked;
use crate::base::locks::{self, ReadMostly};
use crate::base::planted::{self, Fault};
use crate::incore::inode::Inode;
use ext4_format::InodeNr;
use std::sync::{Arc, OnceLock};

const CHUNK: usize = 16;
/// Chunks of a run.
const CHUNKS: usize = 16;

struct Chunk {
    slots: [Option<Arc<Inode>>; CHUNK],
    /// Numbers freed since the volume was opened and not used again, a bit each. Their records on the device may still
    /// show the inode that was freed.
    freed: u16,
}

const _: () = assert!(CHUNK == u16::BITS as usize);

impl Default for Chunk {
    fn default() -> Self {
        Self {
            slots: [const { None }; CHUNK],
            freed: 0,
        }
    }
}

impl Chunk {
    /// Returns whether this very object is in the slot.
    fn holds(&self, slot: usize, inode: &Arc<Inode>) -> bool {
        self.slots[slot]
            .as_ref()
            .is_some_and(|there| Arc::ptr_eq(there, inode))
    }
}

/// The chunks of one run.
type Table = Box<[ReadMostly<Chunk, locks::InodeIndex>; CHUNKS]>;

/// All in-core inodes of a volume by number.
pub struct InodeIndex {
    runs: Chunked<OnceLock<Table>>,
}

impl InodeIndex {
    /// Makes an index for this many groups of this many inodes.
    pub fn new(groups: u32, per_group: u32) -> Self {
        let inodes = groups.saturating_mul(per_group);
        Self {
            runs: Chunked::new(inodes.div_ceil((CHUNK * CHUNKS) as u32)),
        }
    }

    /// Makes room for this many inodes.
    pub fn grow(&self, inodes: u32) {
        let runs = inodes.div_ceil((CHUNK * CHUNKS) as u32);
        self.runs.grow(runs - self.runs.len().min(runs));
    }

    #[inline(always)]
    fn chunk(&self, ino: InodeNr) -> Option<(&ReadMostly<Chunk, locks::InodeIndex>, usize)> {
        let zero_based = ino.0.checked_sub(1)? as usize;
        let run = (zero_based / (CHUNK * CHUNKS)) as u32;
        let table = match self.runs.get(run).and_then(OnceLock::get) {
            Some(table) => table,
            None => self.make(run)?,
        };
        Some((&table[zero_based / CHUNK % CHUNKS], zero_based % CHUNK))
    }

    /// Makes the table of a run that does not have one yet.
    #[cold]
    fn make(&self, run: u32) -> Option<&Table> {
        let place = self.runs.get_or_default(run)?;
        Some(place.get_or_init(Box::default))
    }

    /// Names the field at an address, for [`Engine::what_is_at`](crate::volume::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        let inside = |table: &Table| within(&**table, address).is_some();
        let places = || self.runs.in_memory();
        if places().filter_map(OnceLock::get).any(inside) {
            return Some("inode index: a chunk and its lock".into());
        }
        let place = |run: &OnceLock<Table>| within(run, address).is_some();
        places()
            .any(place)
            .then(|| "inode index: table of a run".into())
    }

    /// Returns the inode, if it is in core.
    #[inline]
    pub fn get(&self, ino: InodeNr) -> Option<Arc<Inode>> {
        let (chunk, i) = self.chunk(ino)?;
        let chunk = chunk.read();
        let inode = chunk.slots[i].as_ref()?;
        // Prefetch, because the count of uses is on another line, and the caller is going to read this one next.
        percpu::prefetch(&raw const inode.state);
        Some(Arc::clone(inode))
    }

    /// Calls `f` on the inode if it is in core, without counting a use. The inode stays in core because its chunk is
    /// locked, shared. `f` must not wait for a lock of the inode, because a holder of such a lock may wait for the
    /// chunk.
    pub fn at<R>(&self, ino: InodeNr, f: impl FnOnce(&Inode) -> R) -> Option<R> {
        let (chunk, i) = self.chunk(ino)?;
        chunk.read().slots[i].as_deref().map(f)
    }

    /// Returns the inode, loaded by `load` if it is not in core. Two callers that miss at the same time load once, with
    /// the chunk's lock held meanwhile. The flag is true if `load` ran. A number that was freed and not used again is
    /// an error, because its record on the device may be older than the free.
    pub fn get_or_load<E>(
        &self,
        ino: InodeNr,
        load: impl FnOnce() -> Result<Arc<Inode>, E>,
        absent: impl FnOnce(Absent) -> E,
    ) -> Result<(Arc<Inode>, bool), E> {
        let Some((chunk, i)) = self.chunk(ino) else {
            return Err(absent(Absent::OutOfRange));
        };
        if let Some(inode) = &chunk.read().slots[i] {
            return Ok((Arc::clone(inode), false));
        }
        let mut chunk = chunk.lock();
        if let Some(inode) = &chunk.slots[i] {
            return Ok((Arc::clone(inode), false));
        }
        if chunk.freed & 1 << i != 0 && !planted::is(Fault::FreedNumberReadAgain) {
            return Err(absent(Absent::Freed));
        }
        let inode = load()?;
        chunk.slots[i] = Some(Arc::clone(&inode));
        Ok((inode, true))
    }

    /// Puts a newborn inode in its place. An object that was freed may still be there, and is dropped. Call it in the
    /// commit that makes the inode: no push formats the inode before that ends, so no reader finds a record without its
    /// inode.
    #[inline(always)]
    pub fn insert(&self, inode: Arc<Inode>) {
        if let Some((chunk, i)) = self.chunk(inode.ino) {
            let mut chunk = chunk.lock();
            chunk.freed &= !(1 << i);
            let old = chunk.slots[i].replace(inode);
            drop(chunk);
            drop(old);
        }
    }

    /// Takes this very object out of the index, because its inode was freed.
    #[inline]
    pub fn retire(&self, inode: &Arc<Inode>) {
        if let Some((chunk, i)) = self.chunk(inode.ino) {
            let mut chunk = chunk.lock();
            if chunk.holds(i, inode) {
                chunk.slots[i] = None;
                chunk.freed |= 1 << i;
            }
        }
    }

    /// Takes this very object out of the index, because the volume ends.
    pub fn remove(&self, inode: &Arc<Inode>) {
        if let Some((chunk, i)) = self.chunk(inode.ino) {
            let mut chunk = chunk.lock();
            if chunk.holds(i, inode) {
                chunk.slots[i] = None;
            }
        }
    }

    /// Removes the object if only the index and the caller hold it and `clean` agrees. `others` is the number of
    /// references that the caller knows of.
    pub fn evict(
        &self,
        inode: &Arc<Inode>,
        others: usize,
        clean: impl FnOnce(&Inode) -> bool,
    ) -> bool {
        let Some((chunk, i)) = self.chunk(inode.ino) else {
            return false;
        };
        let mut chunk = chunk.lock();
        // References are only made from the index under this lock, or from one that is already counted.
        if chunk.holds(i, inode) && Arc::strong_count(inode) <= 1 + others && clean(inode) {
            chunk.slots[i] = None;
            return true;
        }
        false
    }
}

/// Reason why no inode can have a number, or none that a look-up may read from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The volume has no such number.
    OutOfRange,
    /// The number was freed and not used again.
    Freed,
}
