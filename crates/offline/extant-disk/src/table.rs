//! A partition table of either kind, and the search for one of its partitions.

use crate::error::Error;
use crate::partition::{Part, Partition, Table};
use crate::{gpt_table, mbr};
use blockdev::BlockDevice;
use std::ops::Range;

impl Table {
    /// Reads the table of a disk; `None` if the disk has no table.
    ///
    /// # Errors
    /// The device fails, or the table is damaged beyond use.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>, Error> {
        match gpt_table::read(device)? {
            Some(table) => Ok(Some(table)),
            None => mbr::read(device),
        }
    }

    /// Returns the single partition with a name.
    ///
    /// # Errors
    /// The table has no such partition, or several.
    pub fn find(&self, part: &Part) -> Result<&Partition, Error> {
        let is = |p: &&Partition| match part {
            Part::Number(number) => p.number == *number,
            Part::Label(label) => p.label.as_ref() == Some(label),
            Part::Uuid(uuid) => {
                let own = p.uuid.as_ref();
                own.is_some_and(|own| own.eq_ignore_ascii_case(uuid))
            }
            Part::Bytes { .. } => false,
        };
        let mut found = self.partitions.iter().filter(is);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(Error::NotFound(part.to_string())),
            (Some(_), Some(_)) => Err(Error::Several(part.to_string())),
        }
    }
}

/// Finds a part of a disk: its byte range, which is within the disk.
///
/// ```
/// use extant_disk::{Error, Part, blockdev::MemDevice, part};
/// let disk = MemDevice::new(4 << 20);
/// let half = Part::Bytes { offset: 1 << 20, size: Some(2 << 20) };
/// assert_eq!(part(&disk, &half)?, 1 << 20..3 << 20);
/// assert!(matches!(part(&disk, &Part::Number(1)), Err(Error::NoTable)));
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// The part does not exist, or extends beyond the disk.
pub fn part(device: &dyn BlockDevice, part: &Part) -> Result<Range<u64>, Error> {
    let len = device.len();
    if let Part::Bytes { offset, size } = part {
        let end = match size {
            Some(size) => offset.checked_add(*size),
            None => Some(len),
        };
        let end = end.filter(|end| *end <= len && offset < end);
        let end = end.ok_or_else(|| {
            Error::Outside(format!(
                "bytes from {offset} on are asked for, and the disk has {len}"
            ))
        })?;
        return Ok(*offset..end);
    }
    let table = Table::read(device)?.ok_or(Error::NoTable)?;
    table.find(part)?.range(len)
}
