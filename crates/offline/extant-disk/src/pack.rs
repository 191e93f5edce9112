//! Packs a device into a seekable zstd file, compressed by many threads. Frames are independent and in order, so the
//! bytes do not depend on the number of threads.

use crate::packing::Packing;
use crate::scratch::{PIECE, Scratch};
use crate::seek_table::{self, MOST_FRAMES};
use blockdev::BlockDevice;
use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::thread;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CLEVEL_DEFAULT, CParameter};

/// Number of frames that a thread may be ahead of the writer.
const AHEAD: usize = 4;

/// A frame, and the length of its content.
type Packed = (Vec<u8>, u32);

/// Writes the frames and the seek table.
pub fn pack(scratch: &Scratch, out: &mut impl Write, packing: &Packing<'_>) -> io::Result<()> {
    let frames = scratch.len().div_ceil(PIECE);
    if frames > MOST_FRAMES {
        let text = "images beyond 16 TiB are not written as zstd";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let threads = packing.threads.clamp(1, frames.max(1) as usize); // at most 2^24
    let mut table = Vec::with_capacity(frames as usize);
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for first in 0..threads as u64 {
            let (give, take) = sync_channel::<io::Result<Packed>>(AHEAD);
            let started = thread::Builder::new().spawn_scoped(scope, move || {
                let mut packer = Packer::new(scratch);
                for frame in (first..frames).step_by(threads) {
                    let packed = packer.as_mut().map_err(|e| io::Error::other(e.to_string()));
                    let packed = packed.and_then(|packer| packer.pack(frame));
                    let failed = packed.is_err();
                    // The writer ends early if it fails.
                    if give.send(packed).is_err() || failed {
                        return;
                    }
                }
            });
            started?;
            workers.push(take);
        }
        for frame in 0..frames {
            // Threads alternate.
            let packed = workers[(frame % threads as u64) as usize].recv();
            let (bytes, len) = packed.map_err(|_| io::Error::other("a thread ended early"))??;
            out.write_all(&bytes)?;
            table.push((bytes.len() as u32, len)); // as long as the content and a little more
            (packing.step)(len.into())?;
        }
        Ok::<_, io::Error>(())
    })?;
    out.write_all(&seek_table::bytes(&table))
}

/// Compressor of a thread.
struct Packer<'s> {
    scratch: &'s Scratch,
    compressor: Compressor<'static>,
    buf: Vec<u8>,
    /// A whole frame of zeros, compressed.
    zeros: Vec<u8>,
}

impl<'s> Packer<'s> {
    fn new(scratch: &'s Scratch) -> io::Result<Self> {
        let mut compressor = Compressor::new(CLEVEL_DEFAULT)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        let buf = vec![0; PIECE as usize];
        let zeros = compressor.compress(&buf)?;
        Ok(Self {
            scratch,
            compressor,
            buf,
            zeros,
        })
    }

    fn pack(&mut self, frame: u64) -> io::Result<Packed> {
        let start = frame * PIECE;
        let len = PIECE.min(self.scratch.len() - start) as usize;
        let whole = len as u64 == PIECE;
        if whole && !self.scratch.is_touched(frame) {
            return Ok((self.zeros.clone(), len as u32));
        }
        let buf = &mut self.buf[..len];
        self.scratch.read_at(start, buf)?;
        if whole && blockdev::is_zero(buf) {
            return Ok((self.zeros.clone(), len as u32));
        }
        Ok((self.compressor.compress(buf)?, len as u32))
    }
}
