//! GPT, by the crate `gpt`. The crate trusts the counts of a header, so this module checks them first.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::kinds;
use crate::mbr;
use crate::partition::{Partition, Scheme, Table};
use blockdev::{BlockDevice, PartDevice};
use gpt::disk::LogicalBlockSize;
use gpt::header::Header;
use std::collections::BTreeMap;

/// Size of an entry in practice, and the largest number of entries that is read: UEFI requires room for 128.
const ENTRY: u32 = 128;
const MOST: u32 = 4096;

/// Reads the table, from the end of the disk if it is damaged at the beginning; `None` if both are missing.
pub fn read(device: &dyn BlockDevice) -> Result<Option<Table>, Error> {
    let mut damage = None;
    for sector in [LogicalBlockSize::Lb512, LogicalBlockSize::Lb4096] {
        let size = sector.as_u64();
        let Some(last) = device.len().checked_sub(2 * size) else {
            continue;
        };
        // The crate reads the header in the second sector of its device. At the end of the disk, that is the last
        // sector.
        for (backup, from) in [(false, 0), (true, last / size * size)] {
            let end = PartDevice::new(device, from..from + 2 * size)?;
            let header =
                gpt::header::read_header_from_arbitrary_device(&mut Cursor::new(&end), sector);
            let read = match header {
                Ok(header) => entries(device, &header, sector),
                Err(gpt::header::HeaderError::InvalidGptSignature) => continue,
                Err(error) => Err(Error::damaged("GPT", error.to_string())),
            };
            match read {
                Ok((header, found)) => {
                    let note = match (backup, damage) {
                        (true, Some(error)) => Some(format!("{error}; its backup is used")),
                        (true, None) => {
                            Some("the GPT header is gone; its backup is used".to_string())
                        }
                        (false, _) => None,
                    };
                    // The end of a reformatted disk may still have an older table.
                    if backup && note.is_some() && !is_protected(device)? {
                        return Ok(None);
                    }
                    return Ok(Some(table(&header, found, size, note)));
                }
                Err(Error::Io(error)) => return Err(error.into()),
                Err(error) => damage = damage.or(Some(error)),
            }
        }
    }
    damage.map_or(Ok(None), Err)
}

/// Returns whether the first sector announces a GPT, or is empty.
fn is_protected(device: &dyn BlockDevice) -> Result<bool, Error> {
    let mut first = [0; 512];
    device.read_at(0, &mut first)?;
    Ok(mbr::is_protective(&first) || first == [0; 512])
}

type Entries = BTreeMap<u32, gpt::partition::Partition>;

/// Returns the entries of a header.
fn entries(
    device: &dyn BlockDevice,
    header: &Header,
    sector: LogicalBlockSize,
) -> Result<(Header, Entries), Error> {
    let damaged = |what: String| Error::damaged("GPT", what);
    if header.part_size != ENTRY {
        return Err(damaged(format!("entries of {} bytes", header.part_size)));
    }
    if header.num_parts > MOST {
        return Err(damaged(format!("{} entries", header.num_parts)));
    }
    let table = u64::from(header.num_parts * ENTRY);
    let start = header.part_start.checked_mul(sector.as_u64());
    let end = start.and_then(|start| start.checked_add(table));
    if end.is_none_or(|end| end > device.len()) {
        return Err(damaged("its entries are beyond the end of the disk".into()));
    }
    let found = gpt::partition::file_read_partitions(&mut Cursor::new(device), header, sector);
    Ok((header.clone(), found.map_err(|e| damaged(e.to_string()))?))
}

fn table(header: &Header, found: Entries, sector: u64, note: Option<String>) -> Table {
    let partition = |(number, p): (u32, gpt::partition::Partition)| {
        let guid = p.part_type_guid.guid.hyphenated().to_string();
        let sectors = p
            .last_lba
            .checked_sub(p.first_lba)
            .map(|n| n.saturating_add(1));
        Partition {
            number,
            start: p.first_lba.saturating_mul(sector),
            len: sectors.unwrap_or(0).saturating_mul(sector),
            type_name: kinds::of_gpt(&guid),
            type_id: guid,
            label: Some(p.name).filter(|name| !name.is_empty()),
            uuid: Some(p.part_guid.hyphenated().to_string()),
            // At least the protective MBR, the header and one sector of entries.
            first_free: 3 * sector,
        }
    };
    let used = found
        .into_iter()
        .filter(|(_, p)| !p.part_type_guid.guid.is_nil());
    Table {
        scheme: Scheme::Gpt,
        sector,
        id: header.disk_guid.hyphenated().to_string(),
        partitions: used.map(partition).collect(),
        note,
    }
}
