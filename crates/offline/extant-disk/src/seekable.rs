//! A zstd file with a seek table as a device: decompresses the frames that are read, and caches the latest ones.

use crate::mapped::beyond;
use crate::piece_cache::PieceCache;
use crate::seek_table::{Frame, SeekTable};
use blockdev::BlockDevice;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zstd::bulk::Decompressor;

/// The device.
pub struct Seekable {
    file: Arc<dyn BlockDevice>,
    /// Name of the file in errors.
    name: String,
    table: SeekTable,
    frames: PieceCache,
    /// Idle decompressors.
    idle: Mutex<Vec<Decompressor<'static>>>,
}

impl Seekable {
    /// Makes a device from a file with this table, whose frames are short.
    pub fn new(file: Arc<dyn BlockDevice>, name: String, table: SeekTable) -> Self {
        Self {
            file,
            name,
            table,
            frames: PieceCache::default(),
            idle: Mutex::default(),
        }
    }

    fn frame(&self, frame: &Frame) -> io::Result<Arc<Vec<u8>>> {
        self.frames
            .get(frame.index as u64, || self.decompress(frame))
    }

    fn decompress(&self, frame: &Frame) -> io::Result<Vec<u8>> {
        // Both lengths were checked to be short.
        let mut packed = vec![0; (frame.packed.end - frame.packed.start) as usize];
        self.file.read_at(frame.packed.start, &mut packed)?;
        let len = (frame.data.end - frame.data.start) as usize;
        let mut data = Vec::with_capacity(len);
        let idle = self.idle().pop();
        let mut decompressor = match idle {
            Some(decompressor) => decompressor,
            None => Decompressor::new()?,
        };
        let made = decompressor.decompress_to_buffer(&packed, &mut data);
        self.idle().push(decompressor);
        let what = match made {
            Ok(made) if made == len => None,
            Ok(made) => Some(format!(
                "it has {made} bytes, and the seek table says {len}"
            )),
            Err(e) => Some(e.to_string()),
        };
        if let Some(what) = what {
            let (name, start) = (&self.name, frame.packed.start);
            let text = format!("{name}: the zstd frame at {start} is damaged: {what}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(data)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Decompressor<'static>>> {
        // Every holder of the lock leaves the state consistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockDevice for Seekable {
    fn len(&self) -> u64 {
        self.table.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let frame = self.table.find(at).ok_or_else(beyond)?;
            let data = self.frame(&frame)?;
            let data = data
                .get((at - frame.data.start) as usize..)
                .unwrap_or_default();
            let n = data.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&data[..n]);
            at += n as u64;
            rest = later;
        }
        Ok(())
    }

    blockdev::only_read!();
}
