//! Hash trees of dm-verity, behind a file system or in a separate file.

use crate::image::store;
use anyhow::{Context, Result, ensure};
use blockdev::{Access, BlockDevice, FileDevice};
use ext4_format::superblock::RawSuperblock;
use extant_verity::{Parameters, RootHash, VerityDevice, tree_len};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;

/// Makes the tree of a new image with a file system of `size` bytes. The salt depends on the UUID only, so that the same image has the same
/// root hash.
pub fn make(
    image: &Path,
    tree: Option<&Path>,
    size: u64,
    uuid: [u8; 16],
    threads: usize,
) -> Result<RootHash> {
    let salt = Sha256::new_with_prefix(b"extant mkfs --verity").chain_update(uuid);
    let parameters = Parameters {
        uuid,
        salt: salt.finalize().to_vec(),
    };
    let threads = store::threads(threads, [image]);
    let access = match tree {
        None => Access::ReadWrite,
        Some(_) => Access::ReadOnly,
    };
    let data = FileDevice::open(image, access).with_context(|| image.display().to_string())?;
    let (file, place) = match tree {
        None => {
            data.set_len(size + tree_len(size))?;
            (&data, image)
        }
        Some(tree) => (&FileDevice::create(tree, tree_len(size))?, tree),
    };
    let offset = if tree.is_some() { 0 } else { size };
    let made = extant_verity::make(&data, size, file, offset, &parameters, threads);
    let made = made.and_then(|root| file.flush().map(|()| root));
    made.with_context(|| place.display().to_string())
}

/// Verifies an image, and returns a device that verifies each read.
pub fn open(
    image: &Arc<dyn BlockDevice>,
    tree: Option<&Path>,
    root: RootHash,
    threads: usize,
) -> Result<Arc<dyn BlockDevice>> {
    let mut bytes = vec![0; 1024];
    image.read_at(1024, &mut bytes)?;
    let superblock = RawSuperblock::parse(&bytes).context("its superblock")?;
    let block = 1024_u64.checked_shl(superblock.log_block_size.get());
    let size = block.and_then(|block| superblock.blocks_count().checked_mul(block));
    let size = size.context("its superblock has too many blocks")?;
    let (tree, offset) = match tree {
        Some(file) => (store::open(file, Access::ReadOnly)?, 0),
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
    device.verify(threads)?;
    Ok(Arc::new(device))
}
