//! MBR: four partitions in the first sector, one of which may hold a chain of logical ones.

use crate::error::Error;
use crate::kinds;
use crate::partition::{Partition, Scheme, Table};
use blockdev::BlockDevice;

/// Sector size in bytes. MBR has no field for it, and other sizes do not occur.
const SECTOR: u64 = 512;
/// Largest number of logical partitions that is read, as in Linux.
const MOST_LOGICAL: u32 = 251;
/// The type of the partition that protects a GPT from tools that do not know GPT.
const PROTECTIVE: u8 = 0xee;
/// Types of a partition that contains logical ones.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Signatures of file systems whose first sector ends like an MBR: offset and bytes.
const OTHERS: [(usize, &[u8]); 5] = [
    (3, b"NTFS    "),
    (3, b"EXFAT   "),
    (54, b"FAT"),
    (82, b"FAT32"),
    (3, b"-FVE-FS-"),
];

/// An entry of a sector.
#[derive(Clone, Copy)]
struct Entry {
    active: u8,
    kind: u8,
    start: u64,
    sectors: u64,
}

/// Places of the disk signature, the four entries, and the mark of an MBR in its sector.
const SIGNATURE_AT: usize = 440;
const ENTRIES_AT: [usize; 4] = [446, 462, 478, 494];
const MARK_AT: usize = 510;
const MARK: [u8; 2] = [0x55, 0xaa];

/// Returns the first sector of a disk with an MBR of these partitions: their types, first sectors and lengths in sectors.
pub fn encode(signature: u32, partitions: impl Iterator<Item = (u8, [u32; 2])>) -> [u8; 512] {
    let mut sector = [0; 512];
    for (at, (kind, [start, sectors])) in ENTRIES_AT.into_iter().zip(partitions) {
        // Cylinders, heads and sectors have the values for disks that are too large for them.
        sector[at..at + 8].copy_from_slice(&[0, 0xfe, 0xff, 0xff, kind, 0xfe, 0xff, 0xff]);
        sector[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    sector[SIGNATURE_AT..SIGNATURE_AT + 4].copy_from_slice(&signature.to_le_bytes());
    sector[MARK_AT..].copy_from_slice(&MARK);
    sector
}

/// Returns the four entries of a sector with the signature of an MBR.
fn entries(sector: &[u8; 512]) -> Option<[Entry; 4]> {
    if sector[MARK_AT..] != MARK {
        return None;
    }
    Some(ENTRIES_AT.map(|at| {
        // All offsets are within the sector.
        let number = |at: usize| {
            let bytes = [sector[at], sector[at + 1], sector[at + 2], sector[at + 3]];
            u64::from(u32::from_le_bytes(bytes))
        };
        Entry {
            active: sector[at],
            kind: sector[at + 4],
            start: number(at + 8),
            sectors: number(at + 12),
        }
    }))
}

/// Returns whether this first sector protects a GPT.
pub fn is_protective(sector: &[u8; 512]) -> bool {
    entries(sector).is_some_and(|all| all.iter().any(|e| e.kind == PROTECTIVE))
}

/// Reads the table; `None` if the first sector is not an MBR.
pub fn read(device: &dyn BlockDevice) -> Result<Option<Table>, Error> {
    if device.len() < SECTOR {
        return Ok(None);
    }
    let mut first = [0; 512];
    device.read_at(0, &mut first)?;
    let other = |(at, mark): &(usize, &[u8])| first[*at..].starts_with(mark);
    let Some(found) = entries(&first).filter(|_| !OTHERS.iter().any(other)) else {
        return Ok(None);
    };
    let used = |e: &&Entry| e.kind != 0 && e.sectors != 0;
    let sane = |e: &Entry| matches!(e.active, 0 | 0x80) && (e.kind == 0 || e.start != 0);
    if !found.iter().all(sane) || !found.iter().any(|e| used(&e)) {
        return Ok(None);
    }
    if is_protective(&first) {
        return Err(Error::damaged(
            "GPT",
            "it has neither a header nor a backup",
        ));
    }
    let signature = u32::from_le_bytes([first[440], first[441], first[442], first[443]]);
    let id = format!("{signature:08x}");
    let mut partitions = Vec::new();
    let mut note = None;
    let mut chained = false;
    for (number, entry) in (1..).zip(&found).filter(|(_, e)| used(e)) {
        if EXTENDED.contains(&entry.kind) {
            // Of several extended partitions Linux also uses the first.
            if !std::mem::replace(&mut chained, true) {
                note = logical(device, entry, &id, &mut partitions)?;
            }
        } else {
            partitions.push(partition(number, 0, entry, &id));
        }
    }
    partitions.sort_by_key(|p| p.number);
    Ok(Some(Table {
        scheme: Scheme::Mbr,
        sector: SECTOR,
        id,
        partitions,
        note,
    }))
}

fn partition(number: u32, base: u64, entry: &Entry, id: &str) -> Partition {
    Partition {
        number,
        start: base.saturating_add(entry.start).saturating_mul(SECTOR),
        len: entry.sectors * SECTOR, // of 32 bits
        type_name: kinds::of_mbr(entry.kind),
        type_id: format!("{:#04x}", entry.kind),
        label: None,
        uuid: Some(format!("{id}-{number:02x}")),
        first_free: SECTOR,
    }
}

/// Follows the chain of logical partitions, each of which has a separate sector; returns an error of the chain.
fn logical(
    device: &dyn BlockDevice,
    extended: &Entry,
    id: &str,
    partitions: &mut Vec<Partition>,
) -> Result<Option<String>, Error> {
    let broken = |why: &str| Ok(Some(format!("the chain of logical partitions {why}")));
    // Numbers up to 4 are those of the first sector.
    let mut number = 4;
    let mut at = extended.start;
    for _ in 0..MOST_LOGICAL {
        let mut sector = [0; 512];
        let place = at.saturating_mul(SECTOR);
        if place.saturating_add(SECTOR) > device.len() {
            return broken("leads beyond the end of the disk");
        }
        device.read_at(place, &mut sector)?;
        let Some([own, next, ..]) = entries(&sector) else {
            return broken("leads to a sector without entries");
        };
        if own.kind != 0 && own.sectors != 0 {
            number += 1;
            partitions.push(partition(number, at, &own, id));
        }
        if !EXTENDED.contains(&next.kind) || next.sectors == 0 {
            return Ok(None);
        }
        let then = extended.start.saturating_add(next.start);
        if then <= at && next.start == 0 {
            return broken("leads back to its beginning");
        }
        at = then;
    }
    broken("does not end")
}
