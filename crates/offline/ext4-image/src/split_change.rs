//! A change split for writing: the first sector of the superblock, and the rest.

use blockdev::BlockDevice;
use ext4_format::change_mark::MARK_SIZE;
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use std::collections::BTreeMap;
use std::io;

/// The bytes that a change writes. The first sector of the superblock is apart, because it is written last, and its mark first.
pub(crate) struct Pieces<'c> {
    /// Everything else, by its offset.
    pub(crate) rest: Vec<(u64, &'c [u8])>,
    /// The sector, even if it stays the same; `None` if the image is too short to have it.
    pub(crate) first: Option<[u8; MARK_SIZE]>,
}

impl<'c> Pieces<'c> {
    pub(crate) fn of(
        image: &dyn BlockDevice,
        changes: &'c BTreeMap<u64, Vec<u8>>,
    ) -> io::Result<Self> {
        let (begin, end) = (SUPERBLOCK_OFFSET, SUPERBLOCK_OFFSET + MARK_SIZE as u64);
        let mut pieces = Self {
            rest: Vec::new(),
            first: None,
        };
        if image.len() < end {
            pieces.rest = changes.iter().map(|(&at, new)| (at, &new[..])).collect();
            return Ok(pieces);
        }
        let mut first = [0; MARK_SIZE];
        image.read_at(begin, &mut first)?;
        for (&at, new) in changes {
            let (before, new) = split(new, begin.saturating_sub(at));
            let middle = at + before.len() as u64;
            let (inside, after) = split(new, end.saturating_sub(middle));
            let within = first.iter_mut().skip(middle.saturating_sub(begin) as usize);
            within.zip(inside).for_each(|(to, from)| *to = *from);
            pieces.add(at, before);
            pieces.add(middle + inside.len() as u64, after);
        }
        pieces.first = Some(first);
        Ok(pieces)
    }

    fn add(&mut self, at: u64, bytes: &'c [u8]) {
        if !bytes.is_empty() {
            self.rest.push((at, bytes));
        }
    }
}

/// Returns the first `len` bytes, or all, and those behind them.
fn split(bytes: &[u8], len: u64) -> (&[u8], &[u8]) {
    bytes.split_at(len.min(bytes.len() as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    #[test]
    fn the_first_sector_of_the_superblock_is_apart() {
        let image = MemDevice::from_bytes(&[1; 8192]);
        let whole: BTreeMap<_, _> = [(0, vec![2; 4096]), (4096, vec![3; 512])].into();
        let pieces = Pieces::of(&image, &whole).unwrap();
        let places: Vec<_> = pieces.rest.iter().map(|(at, b)| (*at, b.len())).collect();
        assert_eq!(places, [(0, 1024), (1536, 2560), (4096, 512)]);
        assert_eq!(pieces.first, Some([2; MARK_SIZE]));
        let parts: BTreeMap<_, _> = [(1000, vec![2; 30]), (1500, vec![3; 40])].into();
        let pieces = Pieces::of(&image, &parts).unwrap();
        let places: Vec<_> = pieces.rest.iter().map(|(at, b)| (*at, b.len())).collect();
        assert_eq!(places, [(1000, 24), (1536, 4)]);
        let first = pieces.first.unwrap();
        assert_eq!((first[5], first[6], first[475], first[476]), (2, 1, 1, 3));
        let short = MemDevice::from_bytes(&[1; 1024]);
        let pieces = Pieces::of(&short, &[(0, vec![2; 512])].into()).map(|p| p.first);
        assert_eq!(pieces.unwrap(), None);
    }
}
