//! The present content of a device or file, for a warning before it is overwritten.

use super::store;
use crate::format::show::{HostPath, ShowPath};
use crate::image::streams::is_pipe;
use crate::messages::advised::advised;
use anyhow::{Context, Result, bail};
use blockdev::Access;
use extant::mkfs::{DeviceTable, Manifest, Source, SquashTree};
use extant_disk::Partition;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Signatures of file systems, partition tables and other formats: offset, bytes, name. The first match is reported.
const MARKS: &[(u64, &[u8], &str)] = &[
    // Formats come first that may contain the signatures of others by chance.
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"0707", "a cpio archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"XFSB", "an XFS file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, SQUASHFS, "a SquashFS file system"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"\x3a\xff\x26\xed", "an Android sparse image"),
    (0, b"conectix", "a VHD"),
    (0, b"vhdxfile", "a VHDX"),
    (0, b"KDMV", "a VMDK"),
    (64, b"\x7f\x10\xda\xbe", "a VDI"),
    (0, b"QED\0", "a QED image"),
    (0, b"WithoutFreeSpace", "a Parallels disk"),
    (0, b"WithouFreSpacExt", "a Parallels disk"),
    (0, b"# Disk Descriptor", "a VMDK"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (512, b"EFI PART", "a GPT partition table"),
    (536, b"LVM2 001", "an LVM physical volume"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
    // Last, because boot sectors of file systems end with these bytes, too.
    (510, b"\x55\xaa", "an MBR partition table"),
];

/// First bytes of a SquashFS image.
const SQUASHFS: &[u8] = b"hsqs";

/// Positions of the magic number of ext2, ext3 and ext4, of the label, and of the last mount point.
const EXT_MAGIC: (usize, [u8; 2]) = (1080, [0x53, 0xef]);
const EXT_LABEL: std::ops::Range<usize> = 1144..1160;
const EXT_LAST_MOUNTED: std::ops::Range<usize> = 1160..1224;

/// Number of bytes that are examined.
const LOOKED_AT: usize = 66 << 10;

/// Returns the content of the file or device: a file system by name, or data of any kind; `None` if it begins with
/// zeros.
pub fn content(path: &Path) -> io::Result<Option<String>> {
    Ok(name(&store::head(path, LOOKED_AT)?))
}

/// Returns whether a source is an image, or a disk with one: by its name, such as `disk.img@p2`, or by its first
/// bytes. Archives are never images, whatever they contain.
pub fn is_image(source: &Path) -> io::Result<bool> {
    if is_pipe(source) || source.is_dir() {
        return Ok(false);
    }
    if in_disk(source) {
        return Ok(true);
    }
    let head = store::head(source, LOOKED_AT)?;
    let is_archive = head.starts_with(b"0707")
        || head.starts_with(SQUASHFS)
        || head.get(257..262) == Some(b"ustar");
    Ok(!is_archive && has_ext_magic(&head))
}

/// Returns whether a source is a part of a disk, or in a disk format, and therefore not an archive.
fn in_disk(source: &Path) -> bool {
    let compressed = store::format(source).is_compressed();
    !store::is_plain(source) && (!compressed || store::split(source).is_some())
}

/// Opens the SquashFS image in a part of a disk, such as `disk.img@p2`. A plain SquashFS file is read like an archive.
pub fn squashfs_in_disk(source: &Path) -> Result<Option<Box<SquashTree>>> {
    if is_pipe(source) || source.is_dir() || !in_disk(source) {
        return Ok(None);
    }
    let shown = || source.shown();
    let head = store::head(source, SQUASHFS.len()).with_context(shown)?;
    if head != SQUASHFS {
        return Ok(None);
    }
    let device = store::open(source, Access::ReadOnly)?;
    Ok(Some(Box::new(SquashTree::open(shown(), device)?)))
}

/// Returns the file list in a source, if the first line identifies the source as one.
pub fn list(source: &Path) -> Result<Option<Source>> {
    if is_pipe(source) || source.is_dir() || !store::is_plain(source) {
        return Ok(None);
    }
    let head = store::head(source, LOOKED_AT).with_context(|| source.shown())?;
    Ok(if DeviceTable::is_table(&head) {
        Some(Source::Table(DeviceTable::open(source)?))
    } else {
        Manifest::is_manifest(&head).then(|| mtree(source))
    })
}

/// Returns a list in the format of mtree(5); its paths are relative to the working directory.
pub fn mtree(source: &Path) -> Source {
    Source::Other(Box::new(Manifest::new(source, "")))
}

/// Fails for a source that is another file system, or a disk with partitions, because the user must name a partition.
pub fn no_disk(source: &Path) -> Result<()> {
    if is_pipe(source) || !source.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(());
    }
    let shown = source.shown();
    match content(source).with_context(|| shown.to_string())? {
        Some(name) if name.ends_with("partition table") => Err(advised(
            format_args!("{shown}: holds {name}"),
            format_args!("name a partition, as {shown}@p1"),
        )),
        Some(name) if name.ends_with("file system") && !name.contains("SquashFS") => {
            bail!("{shown}: holds {name}, which is not read")
        }
        _ => Ok(()),
    }
}

/// Returns whether a file that is not an image is a disk with a partition table, even a damaged one.
pub fn is_disk(image: &Path) -> bool {
    if store::file(image).is_dir() {
        return false;
    }
    let blank = |e: &anyhow::Error| e.downcast_ref::<io::Error>().is_some();
    let is_ext = content(image).is_ok_and(|c| c.is_some_and(|c| c.contains("ext4")));
    !is_ext && store::table(image).map_or_else(|e| !blank(&e), |table| table.is_some())
}

/// Returns the number of the first partition that holds data, or of the first partition.
pub fn first_partition(image: &Path) -> Option<u32> {
    let (table, size) = store::table(image).ok()??;
    let held = |p: &&Partition| {
        let address = HostPath::from(image).partition(p.number);
        p.range(size).is_ok() && matches!(content(address.path()), Ok(Some(_)))
    };
    let first = table.partitions.iter().find(held);
    first.or(table.partitions.first()).map(|p| p.number)
}

fn has_ext_magic(head: &[u8]) -> bool {
    head.get(EXT_MAGIC.0..EXT_MAGIC.0 + 2) == Some(&EXT_MAGIC.1)
}

fn name(head: &[u8]) -> Option<String> {
    if has_ext_magic(head) {
        let text = |range: std::ops::Range<usize>| {
            let bytes = head.get(range).unwrap_or(&[]);
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            Some(String::from_utf8_lossy(&bytes[..end]).into_owned()).filter(|t| !t.is_empty())
        };
        let mut name = String::from("an ext2, ext3 or ext4 file system");
        if let Some(label) = text(EXT_LABEL) {
            name += &format!(" labelled {label:?}");
        }
        if let Some(place) = text(EXT_LAST_MOUNTED) {
            name += &format!(", last mounted on {place:?}");
        }
        return Some(name);
    }
    let fits = |(at, mark, _): &&(u64, &[u8], &str)| {
        head.get(*at as usize..)
            .is_some_and(|rest| rest.starts_with(mark))
    };
    match MARKS.iter().find(fits) {
        Some((_, _, name)) => Some((*name).to_string()),
        None => head.iter().any(|b| *b != 0).then(|| "data".to_string()),
    }
}

/// Returns the present use of a block device: its mount point, or swap. `None` for a file, or if the device is unused.
pub fn user(path: &Path) -> io::Result<Option<String>> {
    let meta = path.metadata()?;
    if !meta.file_type().is_block_device() {
        return Ok(None);
    }
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    let number = format!("{major}:{minor}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    for line in mounts.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        if let [_, _, device, _, place, ..] = fields[..]
            && device == number
        {
            return Ok(Some(format!("mounted on {place}")));
        }
    }
    let real = path.canonicalize()?;
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swapped = swaps
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .any(|device| Path::new(device) == real);
    Ok(swapped.then(|| "in use as swap space".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_told_by_name() {
        assert_eq!(name(&[]), None);
        assert_eq!(name(&[0; 4096]), None);
        let mut head = vec![0; LOOKED_AT];
        head[3000] = 1;
        assert_eq!(name(&head).as_deref(), Some("data"));
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(name(&head).as_deref(), Some("an MBR partition table"));
        head[65_600..65_608].copy_from_slice(b"_BHRfS_M");
        assert_eq!(name(&head).as_deref(), Some("a Btrfs file system"));
        head[1080..1082].copy_from_slice(&[0x53, 0xef]);
        head[1144..1148].copy_from_slice(b"data");
        head[1160..1164].copy_from_slice(b"/srv");
        assert_eq!(
            name(&head).as_deref(),
            Some("an ext2, ext3 or ext4 file system labelled \"data\", last mounted on \"/srv\"")
        );
    }
}
