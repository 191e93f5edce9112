//! A device whose blocks are verified when they are read.

use crate::layout::{HASH, Layout, RootHash, SUPERBLOCK};
use crate::parallel::for_each;
use blockdev::BlockDevice;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks of hashes that are kept: 32 MiB of a tree of blocks of 4 KiB.
const MOST_KEPT: usize = 8192;
/// Bytes of a read when the whole image is verified.
const PIECE: u64 = 1 << 20;

/// Blocks of hashes, by level and number.
type Hashes = HashMap<(usize, u64), Arc<[u8]>>;

/// A read-only device.
pub struct VerityDevice {
    data: Arc<dyn BlockDevice>,
    tree: Arc<dyn BlockDevice>,
    /// Offset of the superblock in the device of the tree.
    offset: u64,
    layout: Layout,
    starts: Vec<u64>,
    root: RootHash,
    /// Verified blocks of hashes.
    kept: Mutex<Hashes>,
}

impl VerityDevice {
    /// Opens an image with the tree at an offset of a device, and verifies the top of the tree.
    ///
    /// The root hash does not cover the number of blocks, which is the length of this device: compare it with that of the file system.
    ///
    /// # Errors
    /// `InvalidData` if the tree is not valid, does not fit the image or has another root hash, and `Unsupported` for another
    /// algorithm.
    pub fn open(
        data: Arc<dyn BlockDevice>,
        tree: Arc<dyn BlockDevice>,
        offset: u64,
        root: RootHash,
    ) -> io::Result<Self> {
        let mut bytes = [0; SUPERBLOCK];
        tree.read_at(offset, &mut bytes)?;
        let layout = Layout::decode(&bytes)?;
        let room = tree.len().saturating_sub(offset);
        if layout.data_blocks * layout.data_block > data.len() || layout.len() > room {
            let why = "the hash tree is longer than its device, or is that of a longer image";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let device = Self {
            starts: layout.starts(),
            data,
            tree,
            offset,
            layout,
            root,
            kept: Mutex::default(),
        };
        device.expected(0)?;
        Ok(device)
    }

    fn kept(&self) -> MutexGuard<'_, Hashes> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hash that a block of data has by the tree.
    fn expected(&self, block: u64) -> io::Result<[u8; HASH as usize]> {
        let mut expected = self.root.0;
        // The walk descends from the top. Each block of hashes is verified before one of its hashes counts.
        for level in (0..self.starts.len()).rev() {
            let below = self.layout.fan().pow(level as u32); // fewer than 64 bits of blocks in all
            let number = block / below / self.layout.fan();
            let hashes = self.hashes(level, number, &expected)?;
            let at = (block / below % self.layout.fan() * HASH) as usize;
            let hash = hashes.get(at..at + HASH as usize);
            let hash = hash.and_then(|hash| hash.try_into().ok());
            expected = hash.ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        Ok(expected)
    }

    /// Reads a block of hashes, whose own hash is `expected`.
    fn hashes(&self, level: usize, number: u64, expected: &[u8]) -> io::Result<Arc<[u8]>> {
        if let Some(known) = self.kept().get(&(level, number)) {
            return Ok(Arc::clone(known));
        }
        let at = self.offset + self.starts[level] + number * self.layout.hash_block;
        let mut bytes = vec![0; self.layout.hash_block as usize];
        self.tree.read_at(at, &mut bytes)?;
        if self.layout.hash(&bytes) != expected {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                if level + 1 == self.starts.len() {
                    format!("the root hash of the tree is not {}", self.root)
                } else {
                    format!("the hash tree is damaged: block {number} of level {level}")
                },
            ));
        }
        let bytes: Arc<[u8]> = bytes.into();
        let mut kept = self.kept();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert((level, number), Arc::clone(&bytes));
        Ok(bytes)
    }

    /// Reads whole blocks and verifies them.
    fn read_blocks(&self, first: u64, buf: &mut [u8]) -> io::Result<()> {
        let size = self.layout.data_block;
        self.data.read_at(first * size, buf)?;
        for (block, bytes) in (first..).zip(buf.chunks_exact(size as usize)) {
            if self.layout.hash(bytes) != self.expected(block)? {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("block {block} of {size} bytes does not have the hash of the tree"),
                ));
            }
        }
        Ok(())
    }

    /// Verifies all blocks by several threads. Returns the error of the first block that is wrong.
    pub fn verify(&self, threads: usize) -> io::Result<()> {
        for_each(threads, self.len().div_ceil(PIECE), |piece| {
            let at = piece * PIECE;
            let mut bytes = vec![0; PIECE.min(self.len() - at) as usize];
            self.read_blocks(at / self.layout.data_block, &mut bytes)
        })
    }
}

impl BlockDevice for VerityDevice {
    fn len(&self) -> u64 {
        self.layout.data_blocks * self.layout.data_block
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let size = self.layout.data_block;
        let end = offset.checked_add(buf.len() as u64);
        let end = end.filter(|end| *end <= self.len());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (first, last) = (offset / size, end.div_ceil(size));
        if offset.is_multiple_of(size) && end.is_multiple_of(size) {
            return self.read_blocks(first, buf);
        }
        let mut whole = vec![0; ((last - first) * size) as usize];
        self.read_blocks(first, &mut whole)?;
        let skip = (offset - first * size) as usize;
        buf.copy_from_slice(&whole[skip..skip + buf.len()]);
        Ok(())
    }

    blockdev::only_read!();
}
