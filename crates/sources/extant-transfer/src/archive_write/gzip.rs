//! gzip from many threads: one member (RFC 1952). Its deflate stream consists of blocks that are compressed separately
//! and end at a byte, as `pigz --independent` does. The output does not depend on the number of threads.

use crate::ordered::ordered;
use anyhow::{Context, Result};
use flate2::{Compress, Compression, Crc, FlushCompress};
use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::Builder;

/// Bytes compressed together: enough that the empty window at the start of a block costs less than 1%.
const BLOCK: usize = 1 << 20;
/// Magic, deflate, no flags, no time, no hint, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A last block without content (RFC 1951: final, fixed codes, end).
const LAST: [u8; 2] = [3, 0];

/// Compresses what `fill` writes.
pub fn gzip(
    threads: usize,
    mut out: impl Write,
    fill: impl FnOnce(&mut Blocks) -> Result<()> + Send,
) -> Result<()> {
    out.write_all(&HEADER)?;
    let mut sum = Crc::new();
    let (sender, blocks) = sync_channel(threads.max(1));
    std::thread::scope(|s| {
        let filler = Builder::new().spawn_scoped(s, move || {
            let mut blocks = Blocks {
                block: Vec::with_capacity(BLOCK),
                sender,
            };
            fill(&mut blocks)?;
            Ok(blocks.finish()?)
        });
        let filler = filler.context("cannot start a thread")?;
        let packed = ordered(
            threads,
            |give| blocks.into_iter().try_for_each(give),
            |block: Vec<u8>| {
                let mut sum = Crc::new();
                sum.update(&block);
                Ok((deflate(&block)?, sum))
            },
            |(bytes, of_block)| {
                sum.combine(&of_block);
                Ok(out.write_all(&bytes)?)
            },
        );
        // The thread that failed first reports why the input or the packers ended.
        let filled: Result<()> = filler
            .join()
            .map_err(|_| anyhow::anyhow!("a thread ended early"))?;
        packed.and(filled)
    })?;
    out.write_all(&LAST)?;
    out.write_all(&sum.sum().to_le_bytes())?;
    out.write_all(&sum.amount().to_le_bytes())?;
    Ok(out.flush()?)
}

/// Cuts the written bytes into blocks.
pub struct Blocks {
    block: Vec<u8>,
    sender: SyncSender<Vec<u8>>,
}

impl Blocks {
    fn send(&mut self) -> io::Result<()> {
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        self.sender
            .send(block)
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn finish(mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        self.send()
    }
}

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..n]);
        if self.block.len() == BLOCK {
            self.send()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses a block into a piece of a deflate stream that ends at a byte.
fn deflate(block: &[u8]) -> Result<Vec<u8>> {
    let mut compress = Compress::new(Compression::default(), false);
    let mut out = Vec::with_capacity(block.len() / 2 + 1024);
    loop {
        let taken = usize::try_from(compress.total_in())?;
        let rest = block.get(taken..).context("more was taken than given")?;
        compress.compress_vec(rest, &mut out, FlushCompress::Sync)?;
        let all = compress.total_in() == block.len() as u64;
        // If output space remains, the compressor holds no more output.
        if all && out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(out.len() / 4 + 1024);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Makes compressible text, then incompressible bytes.
    fn content(len: usize) -> Vec<u8> {
        let mut word = 0x9e37_79b9_u32;
        (0..len)
            .map(|n| {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if n < len / 2 {
                    b"some text "[n % 10]
                } else {
                    (word >> 24) as u8
                }
            })
            .collect()
    }

    #[test]
    fn comes_back_as_it_was_from_one_member() {
        for len in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let want = content(len);
            let pack = |threads| {
                let mut out = Vec::new();
                gzip(threads, &mut out, |blocks| Ok(blocks.write_all(&want)?)).unwrap();
                out
            };
            let packed = pack(1);
            assert!(packed == pack(4), "{len}");
            let mut found = Vec::new();
            // Reads one member and checks length and sum.
            let mut decoder = flate2::bufread::GzDecoder::new(&packed[..]);
            decoder.read_to_end(&mut found).unwrap();
            assert!(found == want && decoder.into_inner().is_empty(), "{len}");
        }
    }

    #[test]
    fn failures_on_either_side_end_it() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(bytes.len())
                    .ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let want = content(20 * BLOCK);
        let fill = |blocks: &mut Blocks| Ok(blocks.write_all(&want)?);
        for threads in [1, 3] {
            let e = gzip(threads, Full(2 * BLOCK), fill).unwrap_err();
            let kind = e.downcast_ref::<io::Error>().map(io::Error::kind);
            assert_eq!(kind, Some(io::ErrorKind::StorageFull));
            let e = gzip(threads, Vec::new(), |_| anyhow::bail!("no more")).unwrap_err();
            assert_eq!(e.to_string(), "no more");
        }
    }
}
