//! Fast commits: ext4's own log of small changes, in the last blocks of the journal.
//!
//! A fast commit holds logical changes instead of images of blocks. Fast commits continue the last transaction of the log: the
//! first tag of the area is a head with the number of that transaction's successor. Each fast commit ends with a tail, which
//! holds the number again and a CRC-32C of all bytes since the tail before it. Changes that no tail follows are not committed.
//!
//! Linux begins each fast commit at a block: the length of its tails covers the rest of the block. Readers go on where a tail
//! ends, so [`FastWriter`] writes short tails, and many fast commits share a block. The first of them writes the whole block. Each
//! later one writes the sectors that it changes, with the same bytes up to the last tail. So a write that is torn at a sector keeps
//! the earlier fast commits.

use super::{Superblock, Tid};
use crate::checksum::crc32c;
use crate::error::{FormatError, Where};
use crate::extent::Extent;
use crate::types::InodeNr;

const ADD_RANGE: u16 = 1;
const REMOVE_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

/// Bytes of a tag and of the length behind it.
const TAG_LEN: usize = 4;
/// Bytes of a head's value, and of the part of a tail's value that means something.
const ENDS_LEN: usize = 8;

/// Name in a directory, as a fast commit adds or removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastName {
    /// Directory.
    pub parent: InodeNr,
    /// Inode that the name leads to.
    pub ino: InodeNr,
    /// The name itself, of any bytes.
    pub name: Vec<u8>,
}

/// Change in a fast commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastChange {
    /// Maps blocks. The mapping replaces an older one of the same logical blocks.
    AddRange(InodeNr, Extent),
    /// Unmaps blocks: the first logical block and their number.
    RemoveRange(InodeNr, u32, u32),
    /// A new inode gets its first name.
    Create(FastName),
    /// An inode gets one more name.
    Link(FastName),
    /// A name goes.
    Unlink(FastName),
    /// The record of an inode, of which the mapping does not count.
    Inode(InodeNr, Vec<u8>),
}

/// Returns whether the first block of the area begins fast commits that continue the log, whose next transaction
/// would be `tid`.
pub(super) fn begins(block: &[u8], tid: Tid) -> bool {
    let head = block.get(TAG_LEN + 4..TAG_LEN + ENDS_LEN);
    block.starts_with(&HEAD.to_le_bytes()) && head == Some(&tid.0.to_le_bytes())
}

/// Reads the committed changes of the area, in their order. `tid` is the number that the next transaction of the log would
/// have; `read` gives a block of the journal.
///
/// # Errors
/// Errors of `read`; `Incompatible` for features of a later version.
///
/// ```
/// use ext4_format::{FormatError, jbd2::{Features, Superblock, Tid, fast_changes}};
/// let sb = Superblock::new(4096, 1024, Features::default(), [0; 16]);
/// let changes = fast_changes(&sb, Tid(1), |_| Ok::<_, FormatError>(vec![0; 4096]))?;
/// assert!(changes.is_empty());
/// # Ok::<(), FormatError>(())
/// ```
pub fn fast_changes<E, F>(sb: &Superblock, tid: Tid, mut read: F) -> Result<Vec<FastChange>, E>
where
    E: From<FormatError>,
    F: FnMut(u32) -> Result<Vec<u8>, E>,
{
    let mut scan = Scan {
        tid,
        begun: false,
        crc: 0,
        open: Vec::new(),
        committed: Vec::new(),
    };
    for at in sb.fast_commit_area() {
        let block = read(at)?;
        if at == sb.fast_commit_area().start && !begins(&block, tid) {
            break;
        }
        if !scan.block(&block).map_err(|e| e.at(Where::Journal(at)))? {
            break;
        }
    }
    Ok(scan.committed)
}

struct Scan {
    tid: Tid,
    /// A tag was read: a head is the first one.
    begun: bool,
    /// Checksum since the last tail.
    crc: u32,
    /// Changes since the last tail.
    open: Vec<FastChange>,
    committed: Vec<FastChange>,
}

impl Scan {
    /// Reads the tags of a block; returns whether the next block may go on.
    fn block(&mut self, block: &[u8]) -> Result<bool, FormatError> {
        let mut rest = block;
        while let Some((tag, len)) = head(rest) {
            let Some((all, behind)) = rest.split_at_checked(TAG_LEN + len) else {
                return Ok(false);
            };
            let value = all.get(TAG_LEN..).unwrap_or(&[]);
            if tag == TAIL {
                if !self.tail(all) {
                    return Ok(false);
                }
                rest = behind;
                continue;
            }
            self.crc = crc32c(self.crc, all);
            match tag {
                PAD => {}
                HEAD if self.begun => return Ok(false),
                HEAD => {
                    if word(value, 0) != Some(0) {
                        let what = "features of fast commits";
                        return Err(FormatError::Incompatible(what.into()));
                    }
                    if word(value, 4) != Some(self.tid.0) {
                        return Ok(false);
                    }
                }
                _ => match change(tag, value) {
                    Some(change) => self.open.push(change),
                    None => return Ok(false),
                },
            }
            self.begun = true;
            rest = behind;
        }
        Ok(true)
    }

    /// Commits the open changes if the tail is sound; returns whether the tail is sound.
    fn tail(&mut self, all: &[u8]) -> bool {
        let Some(summed) = all.get(..TAG_LEN + 4) else {
            return false;
        };
        let crc = crc32c(self.crc, summed);
        self.crc = 0;
        let sound = word(all, TAG_LEN) == Some(self.tid.0) && word(all, TAG_LEN + 4) == Some(crc);
        if sound {
            self.committed.append(&mut self.open);
        }
        sound
    }
}

/// Returns the tag and length at the beginning of some bytes.
fn head(bytes: &[u8]) -> Option<(u16, usize)> {
    let [a, b, c, d] = *bytes.first_chunk::<TAG_LEN>()?;
    Some((
        u16::from_le_bytes([a, b]),
        u16::from_le_bytes([c, d]).into(),
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// Decodes a change; `None` for an impossible one.
fn change(tag: u16, value: &[u8]) -> Option<FastChange> {
    let ino = InodeNr(word(value, 0)?);
    let name = || {
        let name = value
            .get(8..)
            .filter(|name| (1..=255).contains(&name.len()))?;
        Some(FastName {
            parent: ino,
            ino: InodeNr(word(value, 4)?),
            name: name.to_vec(),
        })
    };
    Some(match tag {
        ADD_RANGE => FastChange::AddRange(ino, Extent::from_bytes(value.get(4..)?.first_chunk()?)),
        REMOVE_RANGE => FastChange::RemoveRange(ino, word(value, 4)?, word(value, 8)?),
        CREATE => FastChange::Create(name()?),
        LINK => FastChange::Link(name()?),
        UNLINK => FastChange::Unlink(name()?),
        INODE => FastChange::Inode(ino, value.get(4..).filter(|raw| raw.len() >= 128)?.to_vec()),
        _ => return None,
    })
}

impl FastChange {
    /// Appends the tag of the change; `None` for an extent or a value beyond the format.
    fn encode(&self, out: &mut Vec<u8>) -> Option<()> {
        let (kind, ino) = match self {
            Self::AddRange(ino, _) => (ADD_RANGE, ino),
            Self::RemoveRange(ino, ..) => (REMOVE_RANGE, ino),
            Self::Create(name) => (CREATE, &name.parent),
            Self::Link(name) => (LINK, &name.parent),
            Self::Unlink(name) => (UNLINK, &name.parent),
            Self::Inode(ino, _) => (INODE, ino),
        };
        let start = out.len();
        out.extend(kind.to_le_bytes());
        out.extend([0; 2]);
        out.extend(ino.0.to_le_bytes());
        match self {
            Self::AddRange(_, extent) => out.extend(extent.to_bytes().ok()?),
            Self::RemoveRange(_, first, len) => {
                out.extend(first.to_le_bytes());
                out.extend(len.to_le_bytes());
            }
            Self::Create(name) | Self::Link(name) | Self::Unlink(name) => {
                out.extend(name.ino.0.to_le_bytes());
                out.extend(&name.name);
            }
            Self::Inode(_, record) => out.extend(record),
        }
        let len = u16::try_from(out.len() - start - TAG_LEN).ok()?;
        let field = out.get_mut(start + 2..start + TAG_LEN)?;
        field.copy_from_slice(&len.to_le_bytes());
        Some(())
    }
}

/// Bytes of one block of the journal that a fast commit writes.
///
/// ```
/// use ext4_format::jbd2::{FastWriter, Features, Superblock, Tid, features::Incompat};
/// let features = Features { incompat: Incompat::FAST_COMMIT, ..Features::default() };
/// let sb = Superblock::new(4096, 2048, features, [0; 16]);
/// let mut writer = FastWriter::new(&sb, Tid(9)).with_unit(512);
/// let pieces = writer.append(&[]).expect("an empty area has room");
/// let (first, next) = (&pieces[0], &writer.append(&[]).expect("the area has room")[0]);
/// assert_eq!((first.offset, first.bytes.len()), (0, 4096));
/// assert_eq!((next.block, next.offset, next.bytes.len()), (first.block, 0, 512));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastPiece {
    /// Number of the block in the journal.
    pub block: u32,
    /// Offset of the bytes in the block.
    pub offset: usize,
    /// The bytes to write there.
    pub bytes: Vec<u8>,
}

/// Writes the fast commits that continue one transaction.
///
/// ```
/// use ext4_format::jbd2::{FastChange, FastWriter, Features, Superblock, Tid, fast_changes, features::Incompat};
/// use ext4_format::{FormatError, InodeNr};
/// let features = Features { incompat: Incompat::FAST_COMMIT, ..Features::default() };
/// let sb = Superblock::new(4096, 2048, features, [0; 16]);
/// let mut writer = FastWriter::new(&sb, Tid(9));
/// let change = FastChange::RemoveRange(InodeNr(12), 0, 5);
/// let pieces = writer.append(std::slice::from_ref(&change)).expect("an empty area has room");
/// let read = |at| {
///     let found = pieces.iter().find(|piece| piece.block == at);
///     Ok::<_, FormatError>(found.map_or_else(|| vec![0; 4096], |piece| piece.bytes.clone()))
/// };
/// assert_eq!(fast_changes(&sb, Tid(9), read)?, [change]);
/// # Ok::<(), FormatError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FastWriter {
    tid: Tid,
    size: usize,
    /// Pieces of a block that was written before are multiples of this.
    unit: usize,
    area: core::ops::Range<u32>,
    /// The block for the next tag, with its present bytes.
    at: u32,
    block: Vec<u8>,
}

/// A tail this close to the end of its block covers the rest, because no other change would fit.
const USELESS: usize = 64;

impl FastWriter {
    /// Starts at the beginning of the journal's area. `tid` is the number that the next transaction of the log will have.
    /// Pieces are whole blocks.
    pub fn new(sb: &Superblock, tid: Tid) -> Self {
        let area = sb.fast_commit_area();
        let size = sb.block_size as usize;
        Self {
            tid,
            size,
            unit: size,
            at: area.start,
            area,
            block: Vec::new(),
        }
    }

    /// Writes of a block that was written before begin and end at multiples of `unit` bytes, which is what the device writes
    /// without reading other bytes first. A unit that does not divide the block is ignored.
    #[must_use]
    pub fn with_unit(mut self, unit: usize) -> Self {
        if unit != 0 && self.size.is_multiple_of(unit) {
            self.unit = unit;
        }
        self
    }

    /// Returns the number of the transaction after the last one of the log.
    pub const fn tid(&self) -> Tid {
        self.tid
    }

    /// Appends a fast commit; returns the pieces to write, in their order, all of which must be on the medium before the fast
    /// commit counts. `None`, and nothing is changed, if the area has no room or a change is
    /// beyond the format.
    pub fn append(&mut self, changes: &[FastChange]) -> Option<Vec<FastPiece>> {
        let (at, len) = (self.at, self.block.len());
        let mut full = Vec::new();
        if self.put_all(changes, &mut full).is_none() {
            if let Some(open) = full.into_iter().next() {
                // The block that was open is the first that is full.
                self.block = open;
                self.at = at;
            }
            self.block.truncate(len);
            return None;
        }
        let pieces = (at..).zip(full.iter().chain([&self.block]));
        let pieces = pieces.filter(|(_, bytes)| !bytes.is_empty());
        let pieces = pieces.map(|(block, bytes)| {
            // A block that is written for the first time may hold fast commits of an earlier transaction.
            let (offset, end) = if block == at && len > 0 {
                (
                    len - len % self.unit,
                    bytes.len().next_multiple_of(self.unit),
                )
            } else {
                (0, self.size)
            };
            let mut bytes = bytes.get(offset..).unwrap_or(&[]).to_vec();
            bytes.resize(end - offset, 0);
            FastPiece {
                block,
                offset,
                bytes,
            }
        });
        let pieces = pieces.collect();
        if self.block.len() == self.size {
            self.next_block();
        }
        Some(pieces)
    }

    /// Puts the tags of a fast commit into the open block and those after it. The blocks that become full go to `full`.
    fn put_all(&mut self, changes: &[FastChange], full: &mut Vec<Vec<u8>>) -> Option<()> {
        let mut crc = 0;
        let mut tag = Vec::with_capacity(256);
        if self.at == self.area.start && self.block.is_empty() {
            tag.extend(HEAD.to_le_bytes());
            tag.extend((ENDS_LEN as u16).to_le_bytes());
            tag.extend(0u32.to_le_bytes());
            tag.extend(self.tid.0.to_le_bytes());
            self.put(&tag, &mut crc, full)?;
        }
        for change in changes {
            tag.clear();
            change.encode(&mut tag)?;
            self.put(&tag, &mut crc, full)?;
        }
        self.make_room(TAG_LEN + ENDS_LEN, &mut crc, full)?;
        let left = self.size - self.block.len();
        let len = match left {
            ..USELESS => left - TAG_LEN,
            _ => ENDS_LEN,
        };
        let start = self.block.len();
        self.block.extend(TAIL.to_le_bytes());
        self.block.extend((len as u16).to_le_bytes());
        self.block.extend(self.tid.0.to_le_bytes());
        let crc = crc32c(crc, self.block.get(start..)?);
        self.block.extend(crc.to_le_bytes());
        self.block.resize(start + TAG_LEN + len, 0);
        Some(())
    }

    /// Begins the next block; returns the present one.
    fn next_block(&mut self) -> Vec<u8> {
        self.at = self.at.saturating_add(1);
        core::mem::replace(&mut self.block, Vec::with_capacity(self.size))
    }

    /// Puts a tag into the block, or into the next one.
    fn put(&mut self, tag: &[u8], crc: &mut u32, full: &mut Vec<Vec<u8>>) -> Option<()> {
        self.make_room(tag.len(), crc, full)?;
        self.block.extend(tag);
        *crc = crc32c(*crc, tag);
        Some(())
    }

    /// Makes room for a tag in a block, so that the rest of the block is nothing or holds another tag.
    fn make_room(&mut self, len: usize, crc: &mut u32, full: &mut Vec<Vec<u8>>) -> Option<()> {
        let left = self.size.checked_sub(self.block.len())?;
        let rest = left.checked_sub(len);
        if !rest.is_some_and(|rest| rest == 0 || rest >= TAG_LEN) {
            self.pad(left, crc);
            full.push(self.next_block());
            if self.size < len + TAG_LEN {
                return None;
            }
        }
        self.area.contains(&self.at).then_some(())
    }

    fn pad(&mut self, left: usize, crc: &mut u32) {
        let start = self.block.len();
        if let Some(len) = left.checked_sub(TAG_LEN) {
            self.block.extend(PAD.to_le_bytes());
            self.block.extend((len as u16).to_le_bytes());
            self.block.resize(start + left, 0);
            *crc = crc32c(*crc, self.block.get(start..).unwrap_or(&[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BlockNr;
    use crate::jbd2::{Features, features::Incompat};

    const SIZE: usize = 1024;

    fn superblock() -> Superblock {
        let features = Features {
            incompat: Incompat::FAST_COMMIT,
            ..Features::default()
        };
        let mut sb = Superblock::new(SIZE as u32, 1100, features, [0; 16]);
        sb.num_fc_blks = 8;
        sb
    }

    fn tag(tag: u16, value: &[u8]) -> Vec<u8> {
        let len = value.len() as u16;
        [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
    }

    /// Returns a fast commit of these tags, in blocks.
    fn commit(tags: &[Vec<u8>], tid: u32) -> Vec<u8> {
        let mut bytes = tags.concat();
        let left = SIZE - (bytes.len() + TAG_LEN) % SIZE;
        bytes.extend(TAIL.to_le_bytes());
        bytes.extend((left as u16).to_le_bytes());
        bytes.extend(tid.to_le_bytes());
        let crc = crc32c(0, &bytes);
        bytes.extend(crc.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(SIZE), 0xee);
        bytes
    }

    fn first() -> Vec<Vec<u8>> {
        let head = [0u32, 7].map(u32::to_le_bytes).concat();
        let named = [&2u32.to_le_bytes()[..], &12u32.to_le_bytes(), b"a/\0b"].concat();
        vec![tag(HEAD, &head), tag(CREATE, &named)]
    }

    fn second() -> Vec<Vec<u8>> {
        let range = [12u32, 3, 4].map(u32::to_le_bytes).concat();
        vec![tag(REMOVE_RANGE, &range), tag(PAD, &[0; 40])]
    }

    fn read(area: &[u8], tid: u32) -> Vec<FastChange> {
        let sb = superblock();
        let start = sb.fast_commit_area().start;
        fast_changes::<FormatError, _>(&sb, Tid(tid), |at| {
            let from = (at - start) as usize * SIZE;
            let mut block = area.get(from..).unwrap_or(&[]).to_vec();
            block.resize(SIZE, 0);
            Ok(block)
        })
        .unwrap()
    }

    /// Returns fast commits of many lengths, so that tags end at all distances from the ends of blocks.
    fn changes(nth: u32) -> Vec<FastChange> {
        let name = FastName {
            parent: InodeNr(2),
            ino: InodeNr(11 + nth),
            name: vec![b'n'; 1 + (nth as usize * 37) % 255],
        };
        let extent = Extent {
            logical: nth,
            len: 3,
            physical: BlockNr(1 << 33 | u64::from(nth)),
            unwritten: nth.is_multiple_of(2),
        };
        let all = [
            FastChange::Inode(name.ino, vec![nth as u8; 160]),
            FastChange::AddRange(name.ino, extent),
            FastChange::Create(name.clone()),
            FastChange::Link(name.clone()),
            FastChange::Unlink(name),
            FastChange::RemoveRange(InodeNr(11), nth, u32::MAX),
        ];
        all.into_iter()
            .cycle()
            .skip(nth as usize)
            .take(1 + nth as usize % 9)
            .collect()
    }

    #[test]
    fn every_fast_commit_is_read_again() {
        let (whole_blocks, sectors) = (write_and_read(SIZE), write_and_read(512));
        assert!(sectors < whole_blocks, "{sectors} of {whole_blocks} bytes");
    }

    /// Returns the sectors of a piece with their places in the area.
    fn sectors_of(piece: &FastPiece) -> impl Iterator<Item = (usize, &[u8])> {
        let block = (piece.block - superblock().fast_commit_area().start) as usize;
        let start = block * SIZE + piece.offset;
        (start..).step_by(512).zip(piece.bytes.chunks(512))
    }

    /// Fills the area with fast commits that are written in this unit; returns the bytes written.
    fn write_and_read(unit: usize) -> usize {
        let sb = superblock();
        let mut writer = FastWriter::new(&sb, Tid(7)).with_unit(unit);
        let mut written = 0;
        // The area has fast commits of an earlier writer.
        let stale = commit(&first(), 6);
        let mut area = stale.repeat(7);
        let mut all = Vec::new();
        let mut nth = 0;
        let too_long = Extent {
            logical: 0,
            len: 1 << 20,
            physical: BlockNr(1),
            unwritten: false,
        };
        let refused = FastChange::AddRange(InodeNr(11), too_long);
        loop {
            // Changes that cannot be represented leave no trace, even over several blocks.
            let mut more: Vec<_> = (0..nth % 4).flat_map(|_| changes(8)).collect();
            more.push(refused.clone());
            assert_eq!(writer.append(&more), None);
            let Some(pieces) = writer.append(&changes(nth)) else {
                break;
            };
            let sectors: Vec<(usize, &[u8])> = pieces.iter().flat_map(sectors_of).collect();
            let whole = [&all[..], &changes(nth)].concat();
            // Writes that are torn behind any sector, and any of which come first, keep the old commits.
            let mut torn = area.clone();
            for (at, bytes) in &sectors {
                let found = read(&torn, 7);
                assert!(found == all || found == whole, "{nth}, before byte {at}");
                torn[*at..][..512].copy_from_slice(bytes);
            }
            for chosen in 0..(1u32 << sectors.len().min(5)) {
                let mut some = area.clone();
                let is_written = |n: usize| chosen >> (n % 5) & 1 == 1;
                for (_, (at, bytes)) in (0..).zip(&sectors).filter(|(n, _)| is_written(*n)) {
                    some[*at..][..512].copy_from_slice(bytes);
                }
                let found = read(&some, 7);
                assert!(found == all || found == whole, "{nth}, sectors {chosen:b}");
            }
            let is_aligned = |piece: &FastPiece| {
                piece.offset.is_multiple_of(unit) && piece.bytes.len().is_multiple_of(unit)
            };
            assert!(pieces.iter().all(is_aligned), "{nth}");
            written += sectors.len() * 512;
            all.extend(changes(nth));
            area = torn;
            assert_eq!(read(&area, 7), all, "{nth}");
            nth += 1;
        }
        assert!(nth > 10, "{nth} fast commits in seven blocks");
        // Commits without room change nothing.
        assert_eq!(read(&area, 7), all);
        assert!(read(&area, 6).is_empty());
        written
    }

    #[test]
    fn what_a_tail_follows_counts() {
        let area = [commit(&first(), 7), commit(&second(), 7)].concat();
        let name = FastName {
            parent: InodeNr(2),
            ino: InodeNr(12),
            name: b"a/\0b".to_vec(),
        };
        let all = [
            FastChange::Create(name),
            FastChange::RemoveRange(InodeNr(12), 3, 4),
        ];
        assert_eq!(read(&area, 7), all);
        assert!(read(&area, 8).is_empty(), "of another transaction");
        for flipped in 0..SIZE {
            let mut area = area.clone();
            area[SIZE + flipped] ^= 1;
            // The padding behind the tail is the only part that may change.
            let left = read(&area, 7);
            assert!(left == all[..1] || left == all && flipped > 60, "{flipped}");
        }
        let cut = [commit(&first(), 7), second().concat()].concat();
        assert_eq!(read(&cut, 7), all[..1]);
    }
}
