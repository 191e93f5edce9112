//! New disks with a GPT or an MBR.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::mbr;
use crate::partition::Scheme;
use blockdev::BlockDevice;
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition::Partition;
use gpt::{GptConfig, partition_types};
use std::io;
use std::ops::Range;
use uuid::Uuid;

const SECTOR: u64 = 512;
/// Alignment of partitions, for the sake of disks with large blocks; tables have this much space at both ends.
const ALIGN: u64 = 1 << 20;
/// Largest number of partitions of a GPT.
const MOST: usize = 128;
/// Largest number of partitions of an MBR without logical ones.
const MOST_OF_MBR: usize = 4;
/// Length of a label in UTF-16 units.
const LABEL: usize = 36;

/// Purpose of a new partition.
///
/// ```
/// assert_ne!(extant_disk::Purpose::EfiSystem, extant_disk::Purpose::Linux);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Boot loaders, in a FAT file system.
    EfiSystem,
    /// A file system of Linux.
    Linux,
}

/// A partition of a new disk.
///
/// ```
/// use extant_disk::{NewPartition, Purpose};
/// let root = NewPartition { purpose: Purpose::Linux, label: "root".into(), size: 1 << 30 };
/// # drop(root);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// Purpose.
    pub purpose: Purpose,
    /// Its label, at most 36 units of UTF-16.
    pub label: String,
    /// Bytes; rounded up to whole MiB.
    pub size: u64,
}

/// The plan of a new disk: consecutive partitions, in MiB.
///
/// ```
/// use extant_disk::{NewDisk, NewPartition, Part, Purpose, blockdev::MemDevice, part};
/// let esp = NewPartition { purpose: Purpose::EfiSystem, label: "esp".into(), size: 4 << 20 };
/// let root = NewPartition { purpose: Purpose::Linux, label: "root".into(), size: 9 << 20 };
/// let disk = NewDisk::new("6e4f9d2c-0b1a-4c55-9a70-2f8f3c1d5e77".parse()?, vec![esp, root])?;
/// let device = MemDevice::new(disk.size());
/// disk.write(&device)?;
/// assert_eq!(part(&device, &Part::Label("root".into()))?, disk.ranges()[1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewDisk {
    scheme: Scheme,
    id: Uuid,
    partitions: Vec<NewPartition>,
    ranges: Vec<Range<u64>>,
}

impl NewDisk {
    /// Places the partitions of a disk with a GPT. Derives their GUIDs from that of the disk.
    ///
    /// # Errors
    /// There are too many partitions, or one is empty or has too long a label.
    pub fn new(id: Uuid, partitions: Vec<NewPartition>) -> Result<Self, Error> {
        Self::with_table(Scheme::Gpt, id, partitions)
    }

    /// Places the partitions of a disk with this kind of table. An MBR has no labels, and its number of the disk is
    /// derived from `id`.
    ///
    /// # Errors
    /// As of [`new`](Self::new); for an MBR, more than four partitions, or one beyond 2 TiB.
    pub fn with_table(
        scheme: Scheme,
        id: Uuid,
        partitions: Vec<NewPartition>,
    ) -> Result<Self, Error> {
        let refused = |what: String| Err(Error::Outside(what));
        let most = match scheme {
            Scheme::Gpt => MOST,
            Scheme::Mbr => MOST_OF_MBR,
        };
        if partitions.len() > most {
            return refused(format!(
                "a disk with {scheme} table has at most {most} partitions"
            ));
        }
        let mut at = ALIGN;
        let mut ranges = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            let label = &partition.label;
            if label.encode_utf16().count() > LABEL {
                return refused(format!(
                    "the label {label} is longer than {LABEL} characters"
                ));
            }
            let size = partition.size.checked_next_multiple_of(ALIGN);
            let end = size.and_then(|size| at.checked_add(size));
            // Within the largest size of a file.
            let Some(end) = end.filter(|end| *end > at && *end < i64::MAX as u64 - ALIGN) else {
                return refused(format!(
                    "partition {label} has no size that a disk can hold"
                ));
            };
            if scheme == Scheme::Mbr && end / SECTOR > u64::from(u32::MAX) {
                return refused(format!(
                    "partition {label} ends beyond 2 TiB, the limit of an MBR: use a GPT"
                ));
            }
            ranges.push(at..end);
            at = end;
        }
        Ok(Self {
            scheme,
            id,
            partitions,
            ranges,
        })
    }

    /// Returns the GUID of the disk's partition with this number.
    fn partition_id(&self, number: usize) -> Uuid {
        Uuid::new_v5(&self.id, format!("partition {number}").as_bytes())
    }

    /// Returns the ID of the disk in its table: a GUID, or the number of an MBR.
    pub fn table_id(&self) -> String {
        match self.scheme {
            Scheme::Gpt => self.id.to_string(),
            Scheme::Mbr => format!("{:08x}", self.signature()),
        }
    }

    /// Returns the number of a disk with an MBR, which is not 0.
    fn signature(&self) -> u32 {
        let [a, b, c, d, ..] = *self.id.as_bytes();
        u32::from_be_bytes([a, b, c, d]).max(1)
    }

    /// Returns the size of the disk in bytes.
    pub fn size(&self) -> u64 {
        self.ranges.last().map_or(ALIGN, |last| last.end) + ALIGN
    }

    /// Returns the byte range of each partition.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Writes the MBR, or the tables of the GPT at both ends of the disk with a protective MBR. Partitions keep their
    /// contents.
    ///
    /// # Errors
    /// The device is too small, or fails.
    pub fn write(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        if device.len() < self.size() {
            return Err(Error::Outside(
                "the disk is too small for its partitions".into(),
            ));
        }
        if self.scheme == Scheme::Mbr {
            return self.write_mbr(device);
        }
        let failed = |e: gpt::GptError| Error::Io(io::Error::other(e.to_string()));
        let mut cursor = Cursor::new(device);
        let sectors = u32::try_from(device.len() / SECTOR - 1).unwrap_or(u32::MAX);
        ProtectiveMBR::with_lb_size(sectors)
            .overwrite_lba0(&mut cursor)
            .map_err(|e| Error::Io(io::Error::other(e.to_string())))?;
        let mut disk = GptConfig::new()
            .writable(true)
            .logical_block_size(LogicalBlockSize::Lb512)
            .create_from_device(cursor, Some(self.id))
            .map_err(failed)?;
        let entries = (1..).zip(self.partitions.iter().zip(&self.ranges));
        let entries = entries.map(|(number, (partition, range))| {
            let entry = Partition {
                part_type_guid: match partition.purpose {
                    Purpose::EfiSystem => partition_types::EFI,
                    Purpose::Linux => partition_types::LINUX_FS,
                },
                part_guid: self.partition_id(number as usize),
                first_lba: range.start / SECTOR,
                last_lba: range.end / SECTOR - 1,
                flags: 0,
                name: partition.label.clone(),
            };
            (number, entry)
        });
        disk.update_partitions(entries.collect()).map_err(failed)?;
        disk.write().map_err(failed)?;
        Ok(())
    }

    /// Writes the first sector, and zeros where the headers of a GPT would be.
    fn write_mbr(&self, device: &dyn BlockDevice) -> Result<(), Error> {
        let entry = |(partition, range): (&NewPartition, &Range<u64>)| {
            let kind = match partition.purpose {
                Purpose::EfiSystem => 0xef,
                Purpose::Linux => 0x83,
            };
            // The constructor has checked both numbers.
            let numbers = [range.start, range.end - range.start].map(|at| (at / SECTOR) as u32);
            (kind, numbers)
        };
        let entries = self.partitions.iter().zip(&self.ranges).map(entry);
        let sector = mbr::encode(self.signature(), entries);
        let zeros = [0; SECTOR as usize];
        device.write_at(device.len() / SECTOR * SECTOR - SECTOR, &zeros)?;
        device.write_at(SECTOR, &zeros)?;
        device.write_at(0, &sector)?;
        Ok(())
    }
}
