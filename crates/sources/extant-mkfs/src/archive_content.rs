//! Enters the members of archives into layers, and reads their data after the plan has placed them.

use crate::data::ContentReader;
use crate::error::{MkfsError, Result};
use crate::layers::Layers;
use crate::source_attributes::AttributeRules;
use crate::tree::{Body, Segment, Tree};
use extant_sources::parts::{Members, Store, Stream, squashfs};
use extant_sources::{ArchiveInput, SquashTree};

/// A reader's position in a sparse file's map.
struct MapPosition {
    inode: u32,
    segment: usize,
    /// Data of the segments before it.
    before: u64,
}

/// A thread's reader of archives' members.
pub(crate) struct ArchiveReader<'a> {
    store: &'a Store,
    tree: &'a Tree,
    place: Option<MapPosition>,
}

impl<'a> ArchiveReader<'a> {
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

impl ContentReader for ArchiveReader<'_> {
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

/// Enters the members of an archive. Returns a SquashFS image without entering it, because the image is read as a tree.
pub(super) fn scan(
    input: ArchiveInput,
    store: &mut Store,
    layers: &mut Layers,
    attribute_rules: &AttributeRules<'_>,
) -> Result<Option<SquashTree>> {
    let AttributeRules {
        options, monitor, ..
    } = *attribute_rules;
    let spool_dir = options.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut stream = Stream::open(input, store, &spool_dir, monitor)?;
    let tree = squashfs(&mut stream)?;
    if tree.is_some() {
        return Ok(tree);
    }
    let mut members = Members::new(&mut stream)?;
    while let Some(member) = members.next_member()? {
        layers.enter(member, attribute_rules)?;
        monitor.check()?;
    }
    Ok(None)
}
