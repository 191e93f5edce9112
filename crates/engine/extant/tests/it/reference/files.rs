//! Contents of files.

use super::{Answer, Id, Model, NodeKind, err};
use extant::Fallocate;
use rustix::io::Errno;

/// Adds zeros up to a length. Unlike `Vec::resize`, this is fast without optimisation.
fn lengthen(data: &mut Vec<u8>, len: usize) {
    data.append(&mut vec![0; len.saturating_sub(data.len())]);
}

impl Model {
    pub fn data(&self, id: Id) -> Option<&Vec<u8>> {
        match &self.nodes[id].kind {
            NodeKind::File(data) => Some(data),
            _ => None,
        }
    }

    pub(super) fn data_mut(&mut self, id: Id) -> Option<&mut Vec<u8>> {
        let node = self.node(id);
        node.mtime = None;
        match &mut node.kind {
            NodeKind::File(data) => Some(data),
            _ => None,
        }
    }

    pub fn write(&mut self, id: Id, at: u64, bytes: &[u8]) -> Answer<()> {
        let Some(data) = self.data_mut(id) else {
            return err(Errno::INVAL);
        };
        let (at, end) = (at as usize, at as usize + bytes.len());
        if !bytes.is_empty() {
            lengthen(data, end);
            data[at..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub fn truncate(&mut self, id: Id, size: u64) -> Answer<()> {
        match self.data_mut(id) {
            Some(data) => {
                data.truncate(size as usize);
                lengthen(data, size as usize);
                Ok(())
            }
            None => err(Errno::INVAL),
        }
    }

    pub fn fallocate(&mut self, id: Id, how: Fallocate, at: u64, len: u64) -> Answer<()> {
        let (extents, bs) = (self.extents, self.block_size);
        let Some(data) = self.data_mut(id) else {
            return err(Errno::INVAL);
        };
        if len == 0 {
            return err(Errno::INVAL);
        }
        if !extents && how != Fallocate::PunchHole {
            return err(Errno::OPNOTSUPP);
        }
        let aligned = at.is_multiple_of(bs) && len.is_multiple_of(bs);
        let (at, end) = (at as usize, (at + len) as usize);
        let (zero, keep) = match how {
            Fallocate::CollapseRange | Fallocate::InsertRange if !aligned => {
                return err(Errno::INVAL);
            }
            Fallocate::CollapseRange => {
                if end >= data.len() {
                    return err(Errno::INVAL);
                }
                data.drain(at..end);
                return Ok(());
            }
            Fallocate::InsertRange => {
                if at >= data.len() {
                    return err(Errno::INVAL);
                }
                data.splice(at..at, vec![0; end - at]);
                return Ok(());
            }
            Fallocate::Allocate { keep_size } => (false, keep_size),
            Fallocate::PunchHole => (true, true),
            Fallocate::ZeroRange { keep_size } => (true, keep_size),
        };
        if zero && at < data.len() {
            let upto = end.min(data.len());
            data[at..upto].fill(0);
        }
        if !keep {
            lengthen(data, end);
        }
        Ok(())
    }
}
