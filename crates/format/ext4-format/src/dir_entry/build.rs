//! Whole blocks and directories built from their names.

use super::edit::{init_block, put, put_tail, set_rec_len, type_byte};
use super::{MIN_REC_LEN, check_name, check_name_len, rec_len_for, usable};
use crate::error::Result;
use crate::types::{FileType, InodeNr};

/// Packs names into a leaf without gaps.
///
/// ```
/// use ext4_format::{dir_entry::{entries, LeafBuilder}, InodeNr};
/// let mut block = [0; 1024];
/// let mut leaf = LeafBuilder::new(&mut block, false);
/// assert!(leaf.push(b"a", InodeNr(11), None).unwrap());
/// assert!(leaf.push(b"b", InodeNr(12), None).unwrap());
/// assert_eq!((leaf.free(), leaf.last()), (1024 - 24, Some((12, 24))));
/// leaf.finish();
/// assert_eq!(entries(&block).count(), 2);
/// ```
#[derive(Debug)]
pub struct LeafBuilder<'a> {
    block: &'a mut [u8],
    has_csum: bool,
    end: usize,
    /// Start of the last record and of the free space behind it.
    last: Option<usize>,
    next: usize,
}

impl<'a> LeafBuilder<'a> {
    /// Starts an empty leaf in `block`, and overwrites the old content.
    pub fn new(block: &'a mut [u8], has_csum: bool) -> Self {
        let end = usable(block.len(), has_csum);
        Self {
            block,
            has_csum,
            end,
            last: None,
            next: 0,
        }
    }

    /// Starts a leaf with the first records of another one of that size. The records must have no gaps, and the last
    /// of them is at `last`; otherwise `None`.
    ///
    /// ```
    /// use ext4_format::{dir_entry::{entries, LeafBuilder}, InodeNr};
    /// let (mut old, mut new) = ([0; 1024], [0; 1024]);
    /// let mut leaf = LeafBuilder::new(&mut old, false);
    /// assert!(leaf.push(b"a", InodeNr(11), None).unwrap());
    /// assert!(leaf.push(b"b", InodeNr(12), None).unwrap());
    /// leaf.finish();
    /// let mut leaf = LeafBuilder::continuing(&mut new, false, &old[..24], 12).unwrap();
    /// assert!(leaf.push(b"c", InodeNr(13), None).unwrap());
    /// leaf.finish();
    /// assert_eq!(entries(&new).count(), 3);
    /// ```
    pub fn continuing(
        block: &'a mut [u8],
        has_csum: bool,
        records: &[u8],
        last: usize,
    ) -> Option<Self> {
        let (end, next) = (usable(block.len(), has_csum), records.len());
        let len = next.checked_sub(last)?;
        if len < MIN_REC_LEN || next > end {
            return None;
        }
        block.get_mut(..next)?.copy_from_slice(records);
        // Its length covered the free space behind it.
        set_rec_len(block, last, len);
        Some(Self {
            block,
            has_csum,
            end,
            last: Some(last),
            next,
        })
    }

    /// Returns the start of the last record, and its end without the free space behind it; `None` without records.
    pub fn last(&self) -> Option<(usize, usize)> {
        self.last.map(|last| (last, self.next))
    }

    /// Returns the number of bytes still free.
    pub const fn free(&self) -> usize {
        self.end - self.next
    }

    /// Appends a name; `Ok(false)` when it does not fit.
    ///
    /// # Errors
    /// `Unrepresentable` for a bad name.
    pub fn push(&mut self, name: &[u8], ino: InodeNr, file_type: Option<FileType>) -> Result<bool> {
        check_name(name)?;
        self.push_any(name, ino, file_type)
    }

    /// Like [`push`](Self::push), for a name of any bytes, as in encrypted directories.
    ///
    /// # Errors
    /// `Unrepresentable` for a name that is empty or too long.
    pub fn push_any(
        &mut self,
        name: &[u8],
        ino: InodeNr,
        file_type: Option<FileType>,
    ) -> Result<bool> {
        check_name_len(name)?;
        let len = rec_len_for(name.len());
        if self.free() < len {
            return Ok(false);
        }
        put(
            self.block,
            self.next,
            len,
            ino.0,
            name,
            type_byte(file_type),
        );
        self.last = Some(self.next);
        self.next += len;
        Ok(true)
    }

    /// Gives the free space to the last name and writes the tail.
    pub fn finish(self) {
        match self.last {
            Some(last) => {
                set_rec_len(self.block, last, self.end - last);
                if let Some(rest) = self.block.get_mut(self.next..) {
                    rest.fill(0);
                }
                if self.has_csum {
                    put_tail(self.block);
                }
            }
            None => init_block(self.block, self.has_csum),
        }
    }
}

/// A name to put into a leaf, as [`build`] takes them.
pub type NewEntry<'n> = (&'n [u8], InodeNr, Option<FileType>);

/// Fills a leaf with names until one does not fit or `keep_free` bytes would not stay free, and returns how many it
/// took. A name not taken stays in the iterator. A first name is always taken if it fits a leaf.
///
/// # Errors
/// `Unrepresentable` for a bad name.
pub fn build<'n, I>(
    block: &mut [u8],
    has_csum: bool,
    keep_free: usize,
    names: &mut core::iter::Peekable<I>,
) -> Result<usize>
where
    I: Iterator<Item = NewEntry<'n>>,
{
    let mut leaf = LeafBuilder::new(block, has_csum);
    let mut taken = 0;
    while let Some(&(name, ino, file_type)) = names.peek() {
        let room = leaf.free().saturating_sub(rec_len_for(name.len()));
        if (taken > 0 && room < keep_free) || !leaf.push(name, ino, file_type)? {
            break;
        }
        names.next();
        taken += 1;
    }
    leaf.finish();
    Ok(taken)
}
