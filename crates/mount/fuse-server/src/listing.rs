//! Directory listings.

use zerocopy::IntoBytes;

use crate::attr::Entry;
use crate::wire::{self, RECORD_ALIGN};

/// A directory listing in the making. Each name has the position of the next name (`next_offset`, never 0), from which
/// the kernel continues.
///
/// ```
/// use fuse_server::Answer;
///
/// let mut buffer = [0; 512];
/// let mut answer = Answer::new(&mut buffer);
/// let mut listing = answer.directory(64);
/// assert!(listing.push(1, 1, 4, b"."));
/// assert!(listing.push(1, 2, 4, b".."));
/// assert!(!listing.push(2, 3, 8, b"full"));
/// assert_eq!(answer.payload().len(), 64);
/// ```
#[derive(Debug)]
pub struct Listing<'a> {
    room: &'a mut [u8],
    length: &'a mut usize,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(room: &'a mut [u8], length: &'a mut usize) -> Self {
        Self { room, length }
    }

    /// Adds a name; `type_bits` is the type for `d_type` (4 directory, 8 file: the upper bits of the mode, shifted by
    /// 12). Returns false if the answer is full and does not contain the name.
    pub fn push(&mut self, ino: u64, next_offset: u64, type_bits: u32, name: &[u8]) -> bool {
        self.add(None, ino, next_offset, type_bits, name)
    }

    /// Adds a name with its entry, for `ReadDirPlus`. The kernel counts a lookup of `entry.node`, unless that is 0:
    /// then the kernel gets only the name, with the inode number of `entry.attr`. Add `.` and `..` with node 0.
    /// Returns false if the answer is full; then it does not contain the name, and no lookup is counted.
    pub fn push_plus(
        &mut self,
        entry: &Entry,
        next_offset: u64,
        type_bits: u32,
        name: &[u8],
    ) -> bool {
        self.add(Some(entry), entry.attr.ino, next_offset, type_bits, name)
    }

    fn add(&mut self, entry: Option<&Entry>, ino: u64, off: u64, kind: u32, name: &[u8]) -> bool {
        let head = entry.map_or(0, |_| size_of::<wire::EntryOut>());
        let plain = head + size_of::<wire::Dirent>() + name.len();
        let record = plain.next_multiple_of(RECORD_ALIGN);
        let Some(room) = self.room.get_mut(*self.length..*self.length + record) else {
            return false;
        };
        let Ok(namelen) = u32::try_from(name.len()) else {
            return false;
        };
        let (room, padding) = room.split_at_mut(plain);
        padding.fill(0);
        let (entry_room, room) = room.split_at_mut(head);
        if let Some(entry) = entry {
            entry_room.copy_from_slice(entry.to_wire().as_bytes());
        }
        let (dirent_room, name_room) = room.split_at_mut(size_of::<wire::Dirent>());
        dirent_room.copy_from_slice(
            wire::Dirent {
                ino,
                off,
                namelen,
                kind,
            }
            .as_bytes(),
        );
        name_room.copy_from_slice(name);
        *self.length += record;
        true
    }

    /// Returns the number of bytes left.
    pub fn room(&self) -> usize {
        self.room.len() - *self.length
    }

    /// Returns whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        *self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use crate::{Answer, Attr, Entry};

    #[test]
    fn records_are_aligned_and_padded() {
        let mut buffer = [0xff; 1024];
        let mut answer = Answer::new(&mut buffer);
        let mut listing = answer.directory(1000);
        assert!(listing.is_empty());
        let entry = Entry {
            node: 9,
            attr: Attr {
                ino: 7,
                ..Attr::default()
            },
            ..Entry::default()
        };
        assert!(listing.push_plus(&entry, 3, 8, b"abc"));
        assert_eq!(listing.room(), 1000 - 160);
        let bytes = answer.payload();
        assert_eq!(bytes.len(), 160);
        assert_eq!(bytes[..8], 9u64.to_ne_bytes());
        assert_eq!(bytes[128..136], 7u64.to_ne_bytes());
        assert_eq!(bytes[152..160], *b"abc\0\0\0\0\0");
    }

    #[test]
    fn a_listing_never_grows_past_what_was_asked() {
        let mut buffer = [0; 100];
        let mut answer = Answer::new(&mut buffer);
        assert!(!answer.directory(31).push(1, 1, 4, b"12345678"));
        assert!(answer.directory(32).push(1, 1, 4, b"12345678"));
        assert!(!answer.directory(u32::MAX).push(1, 1, 4, &[b'a'; 200]));
    }
}
