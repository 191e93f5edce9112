//! A partition table of either kind, and the search for one of its partitions.

use crate::{Error, gpt_table, mbr};
use blockdev::BlockDevice;
use std::fmt;
use std::ops::Range;

/// A kind of partition table.
///
/// ```
/// assert_eq!(extant_disk::Scheme::Gpt.to_string(), "GPT");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The table of UEFI.
    Gpt,
    /// The table of DOS.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// A partition, as described by the table: it may extend beyond the disk.
///
/// ```no_run
/// # let disk = extant_disk::blockdev::MemDevice::new(1 << 20);
/// for partition in extant_disk::Table::read(&disk)?.iter().flat_map(|table| &table.partitions) {
///     println!("{} at {}, {} bytes", partition.number, partition.start, partition.len);
/// }
/// # Ok::<(), extant_disk::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partition {
    /// Number of the partition in Linux: its position in a GPT; 1 to 4 in an MBR, logical ones from 5 on.
    pub number: u32,
    /// Offset of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
    /// Name of the type, or its GUID or number if the name is unknown.
    pub type_name: String,
    /// The type's GUID, or its number in an MBR.
    pub type_id: String,
    /// Name of the partition in a GPT.
    pub label: Option<String>,
    /// The `PARTUUID` of Linux: the GUID, or in an MBR the numbers of the disk and the partition.
    pub uuid: Option<String>,
    /// Offset below which no partition may begin, because of the table.
    pub(crate) first_free: u64,
}

impl Partition {
    /// Returns its byte range, on a disk of `disk` bytes.
    ///
    /// # Errors
    /// The partition extends beyond the end, is empty, or covers the table.
    pub fn range(&self, disk: u64) -> Result<Range<u64>, Error> {
        let Self {
            number, start, len, ..
        } = self;
        if *start < self.first_free || *len == 0 {
            return Err(Error::Outside(match len {
                0 => format!("partition {number} is empty"),
                _ => format!("partition {number} covers the partition table"),
            }));
        }
        let end = start.checked_add(*len).filter(|end| *end <= disk);
        let end = end.ok_or_else(|| {
            Error::Outside(format!(
                "partition {number} ends behind the disk's {disk} bytes: is the image truncated?"
            ))
        })?;
        Ok(*start..end)
    }
}

/// A partition table.
///
/// ```
/// use extant_disk::{Table, blockdev::MemDevice};
/// assert!(Table::read(&MemDevice::new(1 << 20))?.is_none());
/// # Ok::<(), extant_disk::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// Kind of the table.
    pub scheme: Scheme,
    /// Sector size in bytes.
    pub sector: u64,
    /// The disk's GUID, or its number in an MBR.
    pub id: String,
    /// The partitions in use, by number.
    pub partitions: Vec<Partition>,
    /// Damage that did not prevent reading.
    pub note: Option<String>,
}

/// Name of a part of a disk.
///
/// ```
/// use extant_disk::Part;
/// assert_eq!(Part::Number(2).to_string(), "2");
/// assert_eq!(Part::Label("root".into()).to_string(), "with the label root");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A partition by its number.
    Number(u32),
    /// A partition by its name in a GPT.
    Label(String),
    /// A partition by its UUID, in either case.
    Uuid(String),
    /// A byte range, independent of any table.
    Bytes {
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes; `None` for the rest of the disk.
        size: Option<u64>,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Label(label) => write!(f, "with the label {label}"),
            Self::Uuid(uuid) => write!(f, "with the UUID {uuid}"),
            Self::Bytes { offset, .. } => write!(f, "at {offset}"),
        }
    }
}

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
