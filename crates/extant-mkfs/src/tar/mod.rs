//! Tar archives as a source: ustar, GNU, pax and star members, plain or compressed, from files or
//! streams; several are layers of a container image.
//!
//! One pass reads the headers. A plain file is read again for the data, at places noted in the pass;
//! the data of a stream or a compressed file is put aside in a temporary file meanwhile. (Spooling
//! beats decompressing twice: writing to the page cache is several times faster than inflating, and
//! the second pass can then read anywhere, from all threads.)

mod header;
pub(super) mod member;
mod pax;
pub(super) mod stream;
mod visit;

pub use visit::{TarKind, TarMember, read_tar};

use super::adopt::Adopter;
use super::data::ContentReader;
use super::error::{MkfsError, Result};
use super::layers::Layers;
use super::tree::{Body, Segment, Tree};
use member::Members;
use std::io::Read;
use std::path::PathBuf;
use stream::{Store, Stream};

/// A tar archive: plain, or compressed with gzip or zstd, which its first bytes say.
///
/// ```
/// use extant_mkfs::TarInput;
/// let from_pipe = TarInput::Reader { name: "standard input".into(), reader: Box::new(std::io::stdin()) };
/// let from_file = TarInput::File("layer.tar.zst".into());
/// # drop((from_pipe, from_file));
/// ```
pub enum TarInput {
    /// A file.
    File(PathBuf),
    /// A stream, read once; the name is for messages.
    Reader {
        /// Name of the stream.
        name: String,
        /// The stream.
        reader: Box<dyn Read + Send>,
    },
}

/// Enters the members of an archive.
pub(super) fn scan(
    input: TarInput,
    store: &mut Store,
    layers: &mut Layers,
    adopter: &Adopter<'_>,
) -> Result<()> {
    let Adopter {
        options, monitor, ..
    } = adopter;
    let spool_dir = options.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut stream = Stream::open(input, store, &spool_dir, monitor)?;
    let mut members = Members::new(&mut stream);
    while let Some(member) = members.next()? {
        layers.enter(member, adopter)?;
        monitor.check()?;
    }
    Ok(())
}

/// A reader's position in a sparse file's map.
struct MapPosition {
    inode: u32,
    segment: usize,
    /// Data of the segments before it.
    before: u64,
}

/// One thread's reader of archives' members.
pub(super) struct TarReader<'a> {
    store: &'a Store,
    tree: &'a Tree,
    place: Option<MapPosition>,
}

impl<'a> TarReader<'a> {
    pub fn new(store: &'a Store, tree: &'a Tree) -> Self {
        Self {
            store,
            tree,
            place: None,
        }
    }

    fn fetch(&self, inode: u32, at: u64, buf: &mut [u8]) -> Result<()> {
        self.store.read(at, buf).map_err(|e| {
            MkfsError::io(
                format!("reading {} from its archive", self.tree.show(inode)),
                e,
            )
        })
    }

    fn sparse(
        &mut self,
        inode: u32,
        origin: u64,
        map: &[Segment],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        let passed = |p: &MapPosition| match p.segment.checked_sub(1).and_then(|i| map.get(i)) {
            Some(last) => last.start + last.len <= offset,
            None => true,
        };
        let mut place = match self.place.take() {
            Some(p) if p.inode == inode && passed(&p) => p,
            _ => MapPosition {
                inode,
                segment: 0,
                before: 0,
            },
        };
        let (mut i, mut before) = (place.segment, place.before);
        while let Some(s) = map.get(i) {
            if s.start >= end {
                break;
            }
            let (from, to) = (s.start.max(offset), (s.start + s.len).min(end));
            if from < to {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                self.fetch(inode, origin + before + (from - s.start), part)?;
            }
            if s.start + s.len > end {
                break;
            }
            before += s.len;
            i += 1;
        }
        (place.segment, place.before) = (i, before);
        self.place = Some(place);
        Ok(())
    }
}

impl ContentReader for TarReader<'_> {
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let tree = self.tree;
        let file = &tree.inodes[inode as usize];
        let Body::File { origin, map } = &file.body else {
            buf.fill(0);
            return Ok(());
        };
        if let Some(map) = map {
            return self.sparse(inode, *origin, map, offset, buf);
        }
        let len = file.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (data, zeros) = buf.split_at_mut(len);
        zeros.fill(0);
        if data.is_empty() {
            return Ok(());
        }
        self.fetch(inode, origin + offset, data)
    }
}
