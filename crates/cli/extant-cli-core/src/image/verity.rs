//! Hash trees of dm-verity, behind a file system or in a separate file: made, and verified as a whole.

use crate::format::show::ShowPath;
use crate::image::{store, verified};
use anyhow::{Context, Result};
use blockdev::{Access, BlockDevice, FileDevice};
use extant_verity::{Parameters, RootHash, tree_len};
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
    let data = FileDevice::open(image, access).with_context(|| image.shown())?;
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
    made.with_context(|| place.shown())
}

/// Verifies a whole image, and returns a device that verifies each read.
pub fn open(
    image: &Arc<dyn BlockDevice>,
    tree: Option<&Path>,
    root: RootHash,
    threads: usize,
) -> Result<Arc<dyn BlockDevice>> {
    let tree = tree.map(|file| store::open(file, Access::ReadOnly));
    let device = verified::device(image, tree.transpose()?, root)?;
    device.verify(threads)?;
    Ok(Arc::new(device))
}
