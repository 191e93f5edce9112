//! Writes VMDK images in one growing file (`monolithicSparse`). All numbers are little-endian. The file has no data for grains of
//! zeros, and the same disk and name give the same bytes.
//!
//! | in the file | contents |
//! |---|---|
//! | header | one sector |
//! | description | 20 sectors of text |
//! | directory and tables, twice | the sector of each table; in the tables the sector of each grain, or 0 |
//! | grains | the grains of the disk that are not all zeros, in order; they start at a whole grain |

use crate::packing::{self, CLUSTER, Packing};
use crate::scratch::Scratch;
use crate::vmdk::{MAGIC, SECTOR};
use blockdev::BlockDevice;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

/// Sectors of a grain.
const GRAIN: u64 = CLUSTER / SECTOR;
/// Entries of a table, and the sectors that they take.
const ENTRIES: u64 = 512;
const TABLE: u64 = ENTRIES * 4 / SECTOR;
/// The first sector of the description, and its sectors.
const TEXT: (u64, u64) = (1, 20);
/// Flags: the test for line ends is valid, and the directory is there twice.
const FLAGS: u32 = 3;
/// Heads and sectors per track of an IDE disk.
const IDE: (u64, u64) = (16, 63);
/// Most cylinders of an IDE disk.
const MOST_CYLINDERS: u64 = 16383;

/// Places of the parts, in sectors.
struct Layout {
    sectors: u64,
    tables: u64,
    /// Sectors of a directory and its tables.
    index: u64,
    grains: u64,
}

impl Layout {
    fn new(sectors: u64) -> Self {
        let tables = sectors.div_ceil(GRAIN * ENTRIES);
        let index = (tables * 4).div_ceil(SECTOR) + tables * TABLE;
        Self {
            sectors,
            tables,
            index,
            grains: (TEXT.0 + TEXT.1 + 2 * index).next_multiple_of(GRAIN),
        }
    }

    /// Returns the sectors of the two directories.
    fn directories(&self) -> [u64; 2] {
        let first = TEXT.0 + TEXT.1;
        [first, first + self.index]
    }
}

/// Writes a device as a VMDK image for a file of this name.
pub fn pack(
    scratch: &Scratch,
    name: &Path,
    out: &mut (impl Write + Seek),
    packing: &Packing<'_>,
) -> io::Result<()> {
    let len = scratch.len();
    let filled = packing::filled(scratch)?;
    let layout = Layout::new(len / SECTOR);
    let end = layout.grains + filled.len() as u64 * GRAIN;
    if !len.is_multiple_of(SECTOR) || end.max(layout.sectors) > u64::from(u32::MAX) {
        let text =
            "the size of a VMDK image must be whole sectors of 512 bytes, and less than 2 TiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let [_, _, _, _, _, _, a, b, c, d, ..] = packing::identity(scratch)?;
    out.write_all(&header(&layout))?;
    out.write_all(&description(&layout, name, [a, b, c, d]))?;
    for directory in layout.directories() {
        index(&layout, directory, &filled, out)?;
    }
    // The file ends after the tables even if no grain follows.
    out.seek(SeekFrom::Start((layout.grains - 1) * SECTOR))?;
    if filled.is_empty() {
        out.write_all(&[0; SECTOR as usize])?;
    }
    out.seek(SeekFrom::Start(layout.grains * SECTOR))?;
    packing::copy(scratch, &filled, packing, |_, grain| out.write_all(grain))
}

fn header(layout: &Layout) -> Vec<u8> {
    let [spare, directory] = layout.directories();
    let mut bytes = Vec::with_capacity(SECTOR as usize);
    bytes.extend(MAGIC);
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(FLAGS.to_le_bytes());
    for number in [layout.sectors, GRAIN, TEXT.0, TEXT.1] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((ENTRIES as u32).to_le_bytes());
    for number in [spare, directory, layout.grains] {
        bytes.extend(number.to_le_bytes());
    }
    // The file was closed, and line ends are as they were written.
    bytes.push(0);
    bytes.extend(b"\n \r\n");
    bytes.resize(SECTOR as usize, 0);
    bytes
}

fn description(layout: &Layout, name: &Path, id: [u8; 4]) -> Vec<u8> {
    let name = name.file_name().and_then(|name| name.to_str());
    let is_plain = |c: char| c == ' ' || (c.is_ascii_graphic() && c != '"');
    // The name is only informative. VMware and QEMU read the tables of the file that has the description.
    let name = name.filter(|name| name.len() <= 255 && name.chars().all(is_plain));
    let name = name.unwrap_or("disk.vmdk");
    // All ones would stand for no disk.
    let id = u32::from_le_bytes(id).min(u32::MAX - 1);
    let sectors = layout.sectors;
    let cylinders = (sectors / (IDE.0 * IDE.1)).min(MOST_CYLINDERS);
    let mut text = format!(
        "# Disk DescriptorFile\nversion=1\nCID={id:08x}\nparentCID=ffffffff\ncreateType=\"monolithicSparse\"\n\n\
         # Extent description\nRW {sectors} SPARSE \"{name}\"\n\n\
         # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"{cylinders}\"\n\
         ddb.geometry.heads = \"{}\"\nddb.geometry.sectors = \"{}\"\nddb.adapterType = \"ide\"\n",
        IDE.0, IDE.1
    )
    .into_bytes();
    text.resize((TEXT.1 * SECTOR) as usize, 0); // 20 sectors
    text
}

/// Writes a directory and its tables. A table without grains is a hole.
fn index(
    layout: &Layout,
    start: u64,
    filled: &[u64],
    out: &mut (impl Write + Seek),
) -> io::Result<()> {
    let first = start + (layout.tables * 4).div_ceil(SECTOR);
    let sector = |number: u64| (number as u32).to_le_bytes(); // `pack` bounds the end of the file
    out.seek(SeekFrom::Start(start * SECTOR))?;
    for table in 0..layout.tables {
        out.write_all(&sector(first + table * TABLE))?;
    }
    let mut place = layout.grains;
    for grains in filled.chunk_by(|a, b| a / ENTRIES == b / ENTRIES) {
        let table = grains.first().map_or(0, |grain| grain / ENTRIES);
        let mut bytes = vec![0; (ENTRIES * 4) as usize];
        for grain in grains {
            let at = (grain % ENTRIES * 4) as usize;
            if let Some(entry) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
                *entry = sector(place);
            }
            place += GRAIN;
        }
        out.seek(SeekFrom::Start((first + table * TABLE) * SECTOR))?;
        out.write_all(&bytes)?;
    }
    Ok(())
}
