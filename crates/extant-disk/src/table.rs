//! A partition table of either kind, and how one of its partitions is found.

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

/// One partition, as the table has it: it need not lie on the disk.
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
    /// The number, as Linux counts: the place in a GPT; 1 to 4 in an MBR, logical ones from 5 on.
    pub number: u32,
    /// Offset of the first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The type by name, or by GUID or number if it has none here.
    pub type_name: String,
    /// The type's GUID, or its number in an MBR.
    pub type_id: String,
    /// The name that a GPT gives it.
    pub label: Option<String>,
    /// What Linux calls its `PARTUUID`: the GUID, or in an MBR the disk's number and its own.
    pub uuid: Option<String>,
    /// No partition begins before: the table is there.
    pub(crate) first_free: u64,
}

impl Partition {
    /// Its bytes, on a disk of so many.
    ///
    /// # Errors
    /// It is beyond the end, empty, or covers the table.
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
    /// Its kind.
    pub scheme: Scheme,
    /// Bytes of a sector.
    pub sector: u64,
    /// The disk's GUID, or its number in an MBR.
    pub id: String,
    /// The partitions in use, by number.
    pub partitions: Vec<Partition>,
    /// Damage that could be read around.
    pub note: Option<String>,
}

/// How a part of a disk is named.
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
    /// A partition by its UUID, in capitals or not.
    Uuid(String),
    /// Bytes, whatever a table says.
    Bytes {
        /// The first.
        offset: u64,
        /// How many; `None`: to the end.
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
    /// Reads the table of a disk; `None` if it has none.
    ///
    /// # Errors
    /// The device fails, or there is a table that is damaged beyond use.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>, Error> {
        match gpt_table::read(device)? {
            Some(table) => Ok(Some(table)),
            None => mbr::read(device),
        }
    }

    /// Returns the one partition of a name.
    ///
    /// # Errors
    /// There is none, or there are several.
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

/// Finds a part of a disk: the range of its bytes, which lies on the disk.
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
/// There is no such part, or it is not on the disk.
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
