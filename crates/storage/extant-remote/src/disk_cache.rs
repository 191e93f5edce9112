//! A bounded cache of pieces in a file, which processes share.
//!
//! | bytes | contents |
//! |---|---|
//! | 0..4096 | magic, number of sets (u64), CRC-32C of both |
//! | from 4096 | for each slot: key (16 bytes), length (u32), CRC-32C of these and the slot's number (u32), time of use (u64), SHA-256 (32 bytes) |
//! | behind them | for each slot the bytes of a piece |
//!
//! A key selects a set of `WAYS` slots, and a new piece replaces the one of its set that was used least recently. The file never grows, so
//! that nothing has to count what other processes write.
//!
//! Processes hold no lock while they read or write slots. The SHA-256 covers the key and the bytes: if two processes fill one slot at once,
//! or a crash or the disk damages it, the checksum is wrong and the piece is fetched from its origin again. The cache has only bytes
//! that were read, never writes, so it may be lost at any time. An error of the file is a miss.

use bytes::Bytes;
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a piece.
pub const PIECE: u64 = 128 << 10;
const MAGIC: [u8; 8] = *b"EXTPIEC1";
/// Bytes before the heads of the slots.
const START: u64 = 4096;
/// Slots of a set.
const WAYS: u64 = 8;
/// Bytes of the head of a slot.
const HEAD: u64 = 64;
/// Offset of the time of use in the head of a slot.
const USED: u64 = 24;
/// Smallest size of a cache: 8 MiB.
const LEAST: u64 = 8 << 20;
/// Largest size of a cache: 1 TiB.
const MOST: u64 = 1 << 40;

/// Identity of a piece: the first 16 bytes of the SHA-256 of the image's identity, the object and the number.
type Key = [u8; 16];

/// The cache.
pub struct DiskCache {
    file: File,
    sets: u64,
    /// Digest of the identity of the image.
    image: [u8; 32],
    /// Held while a slot is chosen and filled, so that threads of this process do not choose the same one.
    filling: Mutex<()>,
}

/// Head of a slot.
struct Slot {
    key: Key,
    len: u32,
    used: u64,
    sum: [u8; 32],
}

impl Slot {
    /// Returns the head at a slot, if one is there.
    fn decode(slot: u64, bytes: &[u8]) -> Option<Self> {
        let field = |at: usize| bytes.get(at..at + 4)?.try_into().ok();
        let len = u32::from_le_bytes(field(16)?);
        let sealed = u32::from_le_bytes(field(20)?) == seal(slot, bytes.get(..20)?);
        (sealed && len > 0 && u64::from(len) <= PIECE).then_some(Self {
            key: bytes.get(..16)?.try_into().ok()?,
            len,
            used: u64::from_le_bytes(bytes.get(24..32)?.try_into().ok()?),
            sum: bytes.get(32..64)?.try_into().ok()?,
        })
    }

    fn encode(&self, slot: u64) -> Vec<u8> {
        let mut bytes = self.key.to_vec();
        bytes.extend(self.len.to_le_bytes());
        bytes.extend(seal(slot, &bytes).to_le_bytes());
        bytes.extend(self.used.to_le_bytes());
        bytes.extend(self.sum);
        bytes
    }
}

fn seal(slot: u64, key_and_len: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&slot.to_le_bytes()), key_and_len)
}

fn sum(key: &Key, bytes: &[u8]) -> [u8; 32] {
    Sha256::new_with_prefix(key)
        .chain_update(bytes)
        .finalize()
        .into()
}

/// Returns the time of a use in nanoseconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn superblock(sets: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(sets.to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Reads the number of sets of a cache that exists.
fn sets_of(file: &File) -> Option<u64> {
    let mut bytes = [0; 20];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let sets = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
    (superblock(sets) == bytes && sets > 0 && sets <= MOST / (WAYS * (HEAD + PIECE)))
        .then_some(sets)
}

impl DiskCache {
    /// Opens the cache at a path for the image of this identity, or makes a cache of at most `most` bytes. A file that is not a cache is
    /// refused, a damaged cache is emptied.
    pub fn open(path: &Path, most: u64, identity: &str) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(named)?;
        let there = file.metadata().map_err(named)?;
        let is_own = there.uid() == rustix::process::geteuid().as_raw();
        if !is_own || there.mode() & 0o022 != 0 {
            let why =
                "another user may write to it, and to what is read from it: name another file";
            return Err(named(io::Error::other(why)));
        }
        let sets = Self::prepare(&file, most).map_err(named)?;
        Ok(Self {
            file,
            sets,
            image: Sha256::digest(identity).into(),
            filling: Mutex::default(),
        })
    }

    fn prepare(file: &File, most: u64) -> io::Result<u64> {
        // A process that opens the file meanwhile waits until the superblock is written.
        flock(file, FlockOperation::LockExclusive)?;
        let sets = match sets_of(file) {
            Some(sets) => sets,
            None => {
                let mut first = [0; 8];
                let is_cache = file.read_exact_at(&mut first, 0).is_ok() && first == MAGIC;
                if !is_cache && file.metadata()?.len() > 0 {
                    return Err(io::Error::other("not a cache of extant: name another file"));
                }
                let room = most.clamp(LEAST, MOST) - START;
                let sets = room / (WAYS * (HEAD + PIECE));
                file.set_len(0)?;
                file.write_all_at(&superblock(sets), 0)?;
                sets
            }
        };
        // A truncated cache has holes again, which are empty slots.
        file.set_len(START + sets * WAYS * (HEAD + PIECE))?;
        flock(file, FlockOperation::Unlock)?;
        Ok(sets)
    }

    fn key(&self, object: u64, number: u64) -> Key {
        let digest = Sha256::new_with_prefix(self.image)
            .chain_update(object.to_le_bytes())
            .chain_update(number.to_le_bytes())
            .finalize();
        let mut key = Key::default();
        key.copy_from_slice(&digest[..16]);
        key
    }

    /// Returns the first slot of a key's set.
    fn first_slot(&self, key: &Key) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&key[..8]);
        u64::from_le_bytes(bytes) % self.sets * WAYS
    }

    fn head_at(slot: u64) -> u64 {
        START + slot * HEAD
    }

    fn data_at(&self, slot: u64) -> u64 {
        Self::head_at(self.sets * WAYS) + slot * PIECE
    }

    /// Reads the heads of a set.
    fn set(&self, first: u64) -> io::Result<[Option<Slot>; WAYS as usize]> {
        let mut heads = [0; (WAYS * HEAD) as usize];
        self.file.read_exact_at(&mut heads, Self::head_at(first))?;
        Ok(std::array::from_fn(|way| {
            let head = heads.chunks_exact(HEAD as usize).nth(way)?;
            Slot::decode(first + way as u64, head)
        }))
    }

    fn find(&self, key: &Key) -> Option<(u64, Slot)> {
        let first = self.first_slot(key);
        let slots = (first..).zip(self.set(first).ok()?);
        slots
            .filter_map(|(slot, head)| Some((slot, head?)))
            .find(|(_, head)| head.key == *key)
    }

    /// Returns whether a piece seems to be here. Its bytes may be damaged.
    pub fn has(&self, object: u64, number: u64) -> bool {
        self.find(&self.key(object, number)).is_some()
    }

    /// Returns a piece whose checksum is right. A damaged one is removed.
    pub fn get(&self, object: u64, number: u64) -> Option<Bytes> {
        let key = self.key(object, number);
        let (slot, head) = self.find(&key)?;
        let mut bytes = vec![0; head.len as usize];
        let read = self.file.read_exact_at(&mut bytes, self.data_at(slot));
        // Errors of the file are ignored: a slot that is not updated is checked again at its next use.
        if read.is_err() || sum(&key, &bytes) != head.sum {
            let _ = self
                .file
                .write_all_at(&[0; HEAD as usize], Self::head_at(slot));
            return None;
        }
        let _ = self
            .file
            .write_all_at(&now().to_le_bytes(), Self::head_at(slot) + USED);
        Some(bytes.into())
    }

    /// Keeps a piece. The least recently used piece of its set is replaced.
    pub fn put(&self, object: u64, number: u64, bytes: &[u8]) {
        let key = self.key(object, number);
        // A disk that is full or broken keeps nothing.
        let _ = self.try_put(key, bytes);
    }

    fn try_put(&self, key: Key, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() || bytes.len() as u64 > PIECE {
            return Ok(());
        }
        let _held = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let first = self.first_slot(&key);
        let order = |head: &Option<Slot>| match head {
            Some(head) if head.key == key => (0, 0),
            None => (1, 0),
            Some(head) => (2, head.used),
        };
        let slots = (first..).zip(self.set(first)?);
        let slot = slots.min_by_key(|(_, head)| order(head));
        let Some((slot, _)) = slot else {
            return Ok(());
        };
        let head = Slot {
            len: bytes.len() as u32, // at most a piece
            used: now(),
            sum: sum(&key, bytes),
            key,
        };
        self.file.write_all_at(bytes, self.data_at(slot))?;
        self.file
            .write_all_at(&head.encode(slot), Self::head_at(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(n: u64) -> Vec<u8> {
        (0..PIECE).map(|at| (at / 100 + n) as u8).collect()
    }

    fn open(dir: &Path, identity: &str) -> DiskCache {
        DiskCache::open(&dir.join("pieces"), LEAST, identity).unwrap()
    }

    #[test]
    fn pieces_are_shared_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (open(dir.path(), "image"), open(dir.path(), "image"));
        for n in 0..200 {
            one.put(7, n, &piece(n));
            assert!(two.get(7, n).unwrap() == piece(n), "{n}");
        }
        one.put(7, 200, b"short");
        assert_eq!(two.get(7, 200).unwrap(), &b"short"[..]);
        let other = open(dir.path(), "another image");
        assert!(other.get(7, 200).is_none() && two.get(8, 200).is_none());
        let kept = (0..200).filter(|n| two.has(7, *n)).count() as u64;
        assert!(kept < LEAST / PIECE && kept > LEAST / PIECE / 2, "{kept}");
        let len = std::fs::metadata(dir.path().join("pieces")).unwrap().len();
        assert!(len <= LEAST, "{len}");
    }

    #[test]
    fn the_least_recently_used_piece_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), "image");
        // Pieces of one set.
        let set = cache.first_slot(&cache.key(0, 0));
        let same: Vec<u64> = (0..)
            .filter(|n| cache.first_slot(&cache.key(0, *n)) == set)
            .take(9)
            .collect();
        for n in &same[..8] {
            cache.put(0, *n, &piece(*n));
        }
        assert!(cache.get(0, same[0]).is_some());
        cache.put(0, same[8], &piece(8));
        let has = |n: usize| cache.has(0, same[n]);
        assert!(has(0) && !has(1) && has(2) && has(8));
    }

    #[test]
    fn damage_is_a_miss() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pieces");
        let cache = open(dir.path(), "image");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let (slot, first) = {
            cache.put(1, 1, &piece(1));
            let (slot, _) = cache.find(&cache.key(1, 1)).unwrap();
            (slot, DiskCache::head_at(slot))
        };
        // A bit of the data, of the checksum, of the length and of the key.
        for at in [cache.data_at(slot) + 5, first + 40, first + 16, first + 3] {
            cache.put(1, 1, &piece(1));
            assert!(cache.get(1, 1).unwrap() == piece(1));
            let mut byte = [0];
            cache.file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            assert!(cache.get(1, 1).is_none(), "at {at}");
            // The other process sees it as empty as well.
            assert!(!open(dir.path(), "image").has(1, 1), "at {at}");
        }
        cache.put(1, 1, &piece(1));
        // The file is cut, emptied, removed, and its superblock is damaged.
        file.set_len(START).unwrap();
        assert!(cache.get(1, 1).is_none());
        cache.put(1, 1, &piece(1));
        file.set_len(0).unwrap();
        assert!(cache.get(1, 1).is_none());
        let again = open(dir.path(), "image");
        again.put(1, 1, &piece(1));
        assert!(cache.get(1, 1).unwrap() == piece(1));
        file.write_all_at(&[255], 8).unwrap();
        assert!(open(dir.path(), "image").get(1, 1).is_none());
        std::fs::remove_file(&path).unwrap();
        cache.put(1, 1, &piece(1));
        std::fs::write(&path, "a text of somebody").unwrap();
        let refused = DiskCache::open(&path, LEAST, "image").err().unwrap();
        assert!(refused.to_string().contains("not a cache"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"a text of somebody");
    }

    #[test]
    fn slots_that_are_filled_at_once_have_right_bytes_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), "image");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let cache = open(dir.path(), "image");
                scope.spawn(move || {
                    for round in 0..150 {
                        let n = (thread * 37 + round) % 90;
                        match cache.get(0, n) {
                            Some(found) => assert!(found == piece(n)),
                            None => cache.put(0, n, &piece(n)),
                        }
                    }
                });
            }
        });
        let right = |n: &u64| cache.get(0, *n).is_some_and(|found| found == piece(*n));
        assert!((0..90).filter(right).count() > 20);
    }
}
