//! The tree of checksums of an image. `push` and `pull` find the differing blocks by it.
//!
//! | bytes | contents, numbers little endian |
//! |---|---|
//! | 0 | a head of 4096 bytes: the magic, length of the image (u64), state (u64: 0 complete, 1 incomplete), SHA-256 of the page sums, SHA-256 of the bytes before |
//! | 4096 | the page sums: SHA-256 of each page |
//! | rounded up to 4096 | the pages, each the SHA-256 of 128 pieces of 64 KiB of the image |
//!
//! A piece that has only free blocks has the sum [`FREE`]; one whose contents are not known, because a copy was interrupted, has
//! [`UNKNOWN`].

use anyhow::{Result, bail};
use blockdev::BlockDevice;
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A checksum.
pub type Sum = [u8; 32];
/// Sum of a piece that has only free blocks.
pub const FREE: Sum = [0; 32];
/// Sum of a piece with unknown contents.
pub const UNKNOWN: Sum = [0xff; 32];
/// Bytes of a piece.
pub const PIECE: u64 = 64 << 10;
/// Pieces of a page.
pub const PIECES: u64 = 128;
/// Bytes of a page.
pub const PAGE: usize = 4096;
const MAGIC: [u8; 8] = *b"EXTSUM1\n";
const SUM: u64 = 32;
/// Longest image: 16 TiB, whose page sums take 64 MiB.
const MOST: u64 = 16 << 40;

/// Returns the checksum of bytes.
pub fn sum(bytes: &[u8]) -> Sum {
    Sha256::digest(bytes).into()
}

/// Returns the address of the tree of an image. Returns `None` for an export of an NBD server, a block device, a partition and a snapshot.
pub fn beside(image: &Path) -> Option<PathBuf> {
    let text = image.to_str()?;
    if text.starts_with("nbd") && crate::address::schemes::is_remote(image)
        || crate::image::store::has_suffix(image)
        || text.starts_with("/dev/")
    {
        return None;
    }
    if !crate::address::schemes::is_remote(image) {
        return Some(format!("{text}.sums").into());
    }
    let (place, query) = text.split_once('?').unwrap_or((text, ""));
    // A snapshot has no separate tree.
    if crate::address::schemes::is_made(image) && place.rsplit('/').next()?.contains('@') {
        return None;
    }
    let mark = if query.is_empty() { "" } else { "?" };
    Some(format!("{place}.sums{mark}{query}").into())
}

fn page_count(len: u64) -> u64 {
    len.div_ceil(PIECE * PIECES)
}

fn pages_at(len: u64) -> u64 {
    (PAGE as u64 + page_count(len) * SUM).next_multiple_of(PAGE as u64)
}

/// Returns the length of the tree of an image of `len` bytes.
pub fn tree_len(len: u64) -> u64 {
    pages_at(len) + page_count(len) * PAGE as u64
}

/// A tree on a device.
pub struct Tree {
    device: Arc<dyn BlockDevice>,
    len: u64,
    pages: Vec<Sum>,
    /// Whether all sums were computed.
    pub complete: bool,
}

impl Tree {
    /// Reads the head of the tree of an image of `len` bytes; `None` if the device has no tree of such an image.
    pub fn open(device: Arc<dyn BlockDevice>, len: u64) -> io::Result<Option<Self>> {
        if device.len() < tree_len(len) || len > MOST {
            return Ok(None);
        }
        let mut head = [0; 88];
        device.read_at(0, &mut head)?;
        let number = |at: usize| {
            let bytes = head.get(at..).and_then(|b| b.first_chunk());
            bytes.map_or(0, |b| u64::from_le_bytes(*b))
        };
        if head[..8] != MAGIC || head[56..] != sum(&head[..56]) || number(8) != len {
            return Ok(None);
        }
        let mut tree = Self {
            device,
            len,
            pages: Vec::new(),
            complete: number(16) == 0,
        };
        if tree.complete {
            let mut pages = vec![0; (page_count(len) * SUM) as usize];
            tree.device.read_at(PAGE as u64, &mut pages)?;
            if head[24..56] != sum(&pages) {
                return Ok(None);
            }
            tree.pages = pages.as_chunks().0.to_vec();
        } else {
            for page in 0..page_count(len) {
                let bytes = tree.raw_page(page)?;
                tree.pages.push(sum(&bytes));
            }
        }
        Ok(Some(tree))
    }

    /// Makes a tree whose pieces are all unknown, incomplete.
    pub fn make(device: Arc<dyn BlockDevice>, len: u64) -> io::Result<Self> {
        let page = [0xff; PAGE];
        let tree = Self {
            device,
            len,
            pages: vec![sum(&page); page_count(len) as usize],
            complete: false,
        };
        for number in 0..page_count(len) {
            tree.device
                .write_at(pages_at(len) + number * PAGE as u64, &page)?;
        }
        tree.write_head(false)?;
        Ok(tree)
    }

    fn raw_page(&self, page: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE];
        self.device
            .read_at(pages_at(self.len) + page * PAGE as u64, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the sum of a page.
    pub fn page_sum(&self, page: u64) -> Sum {
        self.pages.get(page as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Returns the sums of the pieces of a page.
    pub fn page(&self, page: u64) -> Result<Vec<Sum>> {
        let bytes = self.raw_page(page)?;
        if self.complete && sum(&bytes) != self.page_sum(page) {
            bail!("the checksums next to the image are damaged: remove them");
        }
        Ok(bytes.as_chunks().0.to_vec())
    }

    /// Writes the sums of the pieces of a page.
    pub fn write_page(&self, page: u64, sums: &[Sum]) -> io::Result<()> {
        let at = pages_at(self.len) + page * PAGE as u64;
        self.device.write_at(at, sums.as_flattened())
    }

    /// Makes all writes durable.
    pub fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    /// Writes the head: complete, with the sums of all pages, or incomplete.
    pub fn write_head(&self, complete: bool) -> io::Result<()> {
        let mut pages = Vec::new();
        if complete {
            for page in 0..page_count(self.len) {
                pages.extend(sum(&self.raw_page(page)?));
            }
            self.device.write_at(PAGE as u64, &pages)?;
        }
        let mut head = MAGIC.to_vec();
        head.extend(self.len.to_le_bytes());
        head.extend(u64::from(!complete).to_le_bytes());
        head.extend(sum(&pages));
        head.extend(sum(&head));
        self.device.write_at(0, &head)?;
        self.device.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    #[test]
    fn a_tree_is_read_as_it_is_written_and_damage_is_noticed() {
        let len = 3 * PIECE * PIECES - 5;
        let device = Arc::new(MemDevice::new(tree_len(len)));
        let open = || Tree::open(Arc::clone(&device) as _, len).unwrap();
        assert!(open().is_none());
        let tree = Tree::make(Arc::clone(&device) as _, len).unwrap();
        let mut sums = vec![UNKNOWN; PIECES as usize];
        sums[5] = sum(b"x");
        tree.write_page(2, &sums).unwrap();
        assert!(!open().unwrap().complete);
        tree.write_head(true).unwrap();
        let read = open().unwrap();
        assert!(read.complete && read.page(2).unwrap() == sums);
        assert_ne!(read.page_sum(2), read.page_sum(1));
        device
            .write_at(pages_at(len) + 2 * PAGE as u64, &[9])
            .unwrap();
        assert!(open().unwrap().page(2).is_err());
        device.write_at(PAGE as u64 + 40, &[9]).unwrap();
        assert!(open().is_none());
    }

    #[test]
    fn trees_are_beside_images() {
        let is = |image: &str, tree: Option<&str>| {
            assert_eq!(
                beside(Path::new(image)).as_deref(),
                tree.map(Path::new),
                "{image}"
            );
        };
        is("a.img", Some("a.img.sums"));
        is(
            "https://h/a.img?cache=1M",
            Some("https://h/a.img.sums?cache=1M"),
        );
        is("s3://b/p", Some("s3://b/p.sums"));
        is("s3://b/p@old", None);
        is("nbd://h/x", None);
        is("none.img@p2", None);
    }
}
