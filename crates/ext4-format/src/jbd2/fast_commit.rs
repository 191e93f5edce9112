//! Fast commits: ext4's own log of small changes, in the last blocks of the journal.
//!
//! A fast commit holds logical changes, no images of blocks. They continue the last transaction of the log: the first
//! tag of the area is a head with that transaction's successor. Each fast commit begins at a block and ends with a tail, which
//! holds the number again and a CRC-32C of all bytes since the head or the tail before. What no tail follows is not committed.

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

/// The blocks of the area in the journal, counted from its start; none without the feature.
pub(super) fn area(sb: &Superblock) -> core::ops::Range<u32> {
    if sb.fast_commit_blocks() == 0 {
        return 0..0;
    }
    // Linux leaves one block between the log and the area unused.
    sb.log_range().end.saturating_add(1)..sb.max_len
}

/// Whether the first block of the area begins fast commits that continue the log, whose next transaction would be `tid`.
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
    for at in area(sb) {
        let block = read(at)?;
        if at == area(sb).start && !begins(&block, tid) {
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
                // The rest of the tail's block is padding.
                return Ok(self.tail(all));
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

/// Tag and length at the beginning of some bytes.
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

#[cfg(test)]
mod tests {
    use super::*;
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

    /// A fast commit of these tags, in blocks.
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
        let start = super::area(&sb).start;
        fast_changes::<FormatError, _>(&sb, Tid(tid), |at| {
            let from = (at - start) as usize * SIZE;
            let mut block = area.get(from..).unwrap_or(&[]).to_vec();
            block.resize(SIZE, 0);
            Ok(block)
        })
        .unwrap()
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
            // Only the padding behind the tail may change.
            let left = read(&area, 7);
            assert!(left == all[..1] || left == all && flipped > 60, "{flipped}");
        }
        let cut = [commit(&first(), 7), second().concat()].concat();
        assert_eq!(read(&cut, 7), all[..1]);
    }
}
