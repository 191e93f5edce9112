//! Addresses of verified images: `disk.img@verity=ROOTHASH` and `disk.img@verity=ROOTHASH,tree=FILE`, and the device that verifies each
//! read.

use anyhow::{Context, Result, ensure};
use blockdev::BlockDevice;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_verity::{RootHash, VerityDevice};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Proof of an image: the root hash, and the file with the tree if it is not behind the file system.
pub type Proof = (RootHash, Option<PathBuf>);

/// The text between the name of an image and its root hash.
const NAME: &str = "@verity=";

/// Why an image at such an address is not written.
pub const ONLY_READ: &str =
    "each block is verified with a hash tree, and a write would make the root hash wrong";

/// Splits an address into the image and what verifies it; `None` if nothing does, or if a file has this name.
pub fn split(image: &Path) -> Option<(&Path, Result<Proof>)> {
    let bytes = image.as_os_str().as_bytes();
    let at = position(bytes, NAME).filter(|at| *at > 0)?;
    if image.symlink_metadata().is_ok() {
        return None;
    }
    let rest = &bytes[at + NAME.len()..]; // found there
    Some((Path::new(OsStr::from_bytes(&bytes[..at])), proof(rest)))
}

/// Returns where a word begins in a text.
fn position(text: &[u8], word: &str) -> Option<usize> {
    text.windows(word.len())
        .position(|at| at == word.as_bytes())
}

/// Parses `ROOTHASH` or `ROOTHASH,tree=FILE`.
fn proof(text: &[u8]) -> Result<Proof> {
    const TREE: &str = ",tree=";
    let (root, tree) = match position(text, TREE) {
        Some(at) => (&text[..at], Some(&text[at + TREE.len()..])),
        None => (text, None),
    };
    let root: RootHash = String::from_utf8_lossy(root).parse()?;
    Ok((root, tree.map(|tree| OsStr::from_bytes(tree).into())))
}

/// Returns the bytes of the file system on a device, by its superblock.
fn file_system_len(image: &dyn BlockDevice) -> Result<u64> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    image.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let superblock = RawSuperblock::parse(&bytes).context("its superblock")?;
    superblock
        .volume_len()
        .context("its superblock has too many blocks")
}

/// Returns whether a hash tree is behind the file system on a device. Returns `false` without
/// a file system. Fails if the superblock or the beginning of the tree cannot be read.
pub fn has_tree_behind(image: &dyn BlockDevice) -> std::io::Result<bool> {
    const MAGIC: &[u8; 8] = b"verity\0\0";
    let mut magic = [0; MAGIC.len()];
    let is_inside = |at: u64, len: usize| {
        at.checked_add(len as u64)
            .is_some_and(|end| end <= image.len())
    };
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if !is_inside(SUPERBLOCK_OFFSET, bytes.len()) {
        return Ok(false);
    }
    image.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let size = RawSuperblock::parse(&bytes)
        .ok()
        .and_then(|superblock| superblock.volume_len());
    let Some(size) = size.filter(|&size| is_inside(size, magic.len())) else {
        return Ok(false);
    };
    image.read_at(size, &mut magic)?;
    Ok(magic == *MAGIC)
}

/// Returns a device that verifies each read of an image.
pub fn device(
    image: &Arc<dyn BlockDevice>,
    tree: Option<Arc<dyn BlockDevice>>,
    root: RootHash,
) -> Result<VerityDevice> {
    let size = file_system_len(&**image)?;
    let (tree, offset) = match tree {
        Some(tree) => (tree, 0),
        None => (Arc::clone(image), size),
    };
    ensure!(
        offset < tree.len(),
        "has no hash tree behind the file system: name one by --hash-tree"
    );
    let device = VerityDevice::open(Arc::clone(image), tree, offset, root)?;
    // The root hash does not cover the number of blocks, and the superblock was not verified before.
    ensure!(
        device.len() == size,
        "the hash tree is of {} bytes, and the file system has {size}",
        device.len()
    );
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::{FaultDevice, MemDevice, Op};

    #[test]
    fn a_tree_is_found_or_reading_fails() {
        let mut bytes = vec![0; 9 << 10];
        let sb = &mut bytes[1024..2048];
        sb[56..58].copy_from_slice(&[0x53, 0xef]);
        // Inodes, blocks, and the counts of both in a group.
        for (at, value) in [(0, 16), (4, 8), (32, 8192), (40, 16)] {
            sb[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        }
        bytes[8 << 10..][..8].copy_from_slice(b"verity\0\0");
        let whole = bytes.len();
        let found = |len: usize, part| {
            let device = FaultDevice::new(MemDevice::from_bytes(&bytes[..len]));
            device.fail_range(Op::Read, part);
            has_tree_behind(&device).map_err(|e| e.to_string())
        };
        let unreadable = |read: &str| Err(format!("injected fault: read of {read}"));
        assert_eq!(found(whole, 0..0), Ok(true));
        let superblock = unreadable("1024 bytes at offset 1024");
        assert_eq!(found(whole, 0..2000), superblock);
        let tree = unreadable("8 bytes at offset 8192");
        assert_eq!(found(whole, 8192..8193), tree);
        assert_eq!(found(8 << 10, 0..0), Ok(false), "nothing behind");
        assert_eq!(found(1500, 0..0), Ok(false), "no superblock");
        let zeros = MemDevice::new(1 << 20);
        assert!(!has_tree_behind(&zeros).unwrap());
    }

    #[test]
    fn addresses_name_a_root_hash_and_a_tree() {
        let root = "0123456789abcdef".repeat(4);
        let split = |address: &str| {
            let (image, proof) = split(Path::new(address))?;
            Some((image.to_str().unwrap().to_owned(), proof.ok()))
        };
        let parsed: RootHash = root.parse().unwrap();
        let found = split(&format!("no.img@p2@verity={root}"));
        assert_eq!(found, Some(("no.img@p2".into(), Some((parsed, None)))));
        let found = split(&format!("https://host/no.img@verity={root},tree=/a/b"));
        let tree = Some(PathBuf::from("/a/b"));
        assert_eq!(
            found,
            Some(("https://host/no.img".into(), Some((parsed, tree))))
        );
        assert_eq!(split("no.img@verity=12"), Some(("no.img".into(), None)));
        assert_eq!(split(&format!("@verity={root}")), None);
        assert_eq!(split("no.img@p2"), None);
    }
}
