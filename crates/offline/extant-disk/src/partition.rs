//! Partitions as a table describes them, and the words for one of them.

use crate::error::Error;
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
