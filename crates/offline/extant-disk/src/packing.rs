//! Parameters and helpers that all writers of packed formats share.

use crate::scratch::{PIECE, Scratch};
use blockdev::BlockDevice;
use std::io;
use uuid::Uuid;

/// Size of a cluster of qcow2, and of a grain of VMDK.
pub const CLUSTER: u64 = 1 << 16;
/// Size of the beginning of a disk that identifies it: the UUID of a partition table or a file system lies there.
const HEAD: u64 = 4096;
/// Name space of the identities of disks.
const DISKS: Uuid = Uuid::from_u128(0x3c5e_2f0a_9b41_4d6c_8a57_6e0d_41b9_72c3);

/// Parameters of [`NewImage::finish`](crate::NewImage::finish).
///
/// ```
/// let packing = extant_disk::Packing { threads: 2, step: &|_| Ok(()) };
/// # drop(packing);
/// ```
#[derive(Clone, Copy)]
pub struct Packing<'s> {
    /// Number of threads that compress. The bytes of the file do not depend on it.
    pub threads: usize,
    /// Called with the number of image bytes packed since the last call; an error ends the work.
    pub step: &'s (dyn Fn(u64) -> io::Result<()> + Sync),
}

/// Returns the numbers of the clusters that are not all zeros.
pub fn filled(scratch: &Scratch) -> io::Result<Vec<u64>> {
    let mut filled = Vec::new();
    let mut buf = vec![0; PIECE as usize];
    for piece in (0..scratch.len().div_ceil(PIECE)).filter(|piece| scratch.is_touched(*piece)) {
        let start = piece * PIECE;
        let count = PIECE.min(scratch.len() - start) as usize;
        let buf = buf.get_mut(..count).unwrap_or_default();
        scratch.read_at(start, buf)?;
        let clusters = (start / CLUSTER..).zip(buf.chunks(CLUSTER as usize));
        let data = clusters.filter(|(_, bytes)| !blockdev::is_zero(bytes));
        filled.extend(data.map(|(cluster, _)| cluster));
    }
    Ok(filled)
}

/// Passes the offset and the bytes of each of these clusters to `write`. The last cluster of a disk ends with zeros.
pub fn copy(
    scratch: &Scratch,
    filled: &[u64],
    packing: &Packing<'_>,
    mut write: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let len = scratch.len();
    let mut buf = vec![0; CLUSTER as usize];
    let mut told = 0;
    for cluster in filled {
        let start = cluster * CLUSTER;
        let count = CLUSTER.min(len - start) as usize;
        buf.fill(0);
        scratch.read_at(start, buf.get_mut(..count).unwrap_or_default())?;
        write(start, &buf)?;
        let end = start + count as u64;
        (packing.step)(end - told)?;
        told = end;
    }
    (packing.step)(len - told)
}

/// Returns an identity of the disk. The same disk has the same identity.
pub fn identity(scratch: &Scratch) -> io::Result<[u8; 16]> {
    let mut head = vec![0; scratch.len().min(HEAD) as usize];
    scratch.read_at(0, &mut head)?;
    Ok(Uuid::new_v5(&DISKS, &head).into_bytes())
}
