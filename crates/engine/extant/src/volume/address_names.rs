//! Names of the objects at addresses of an open volume's memory, which the conflict test gives to cache lines.

use crate::base::address::within;
use crate::commit::Committer;
use crate::data::Data;
use crate::incore::inode::{Content, Inode};
use crate::inodes::Inodes;
use crate::log::Log;
use crate::names::Names;
use crate::space::Space;
use crate::store::Store;
use crate::volume::engine::Engine;
use std::mem::offset_of;
use std::sync::Arc;

/// Bytes of counts before what an `Arc` holds.
const COUNTS: usize = 2 * size_of::<usize>();

/// The last field that begins at or before an offset.
macro_rules! field {
    ($type:ty, $offset:expr, [$($field:ident),* $(,)?]) => {{
        let fields = [$((offset_of!($type, $field), stringify!($field))),*];
        fields
            .into_iter()
            .filter(|(begin, _)| *begin <= $offset)
            .max()
            .map_or("?", |(_, name)| name)
    }};
}

/// The field of a layer that is at an address, if it is in the layer.
macro_rules! layer {
    ($engine:expr, $address:expr, $layer:ident: $type:ident { $($field:ident),* $(,)? }) => {
        within(&*$engine.$layer, $address).map(|offset| {
            let field = field!($type, offset, [$($field),*]);
            format!("{}::{field}", stringify!($type))
        })
    };
}

impl Engine {
    /// Names the object at an address, if it is one of the objects on which operations meet.
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        let layer = layer!(self, address, store: Store { geometry, device, buffers, groups, hasher, gate, flushes, health, limits, settings })
            .or_else(|| layer!(self, address, space: Space { store, counts, blocks, inodes, trimming }))
            .or_else(|| layer!(self, address, log: Log { store, space, wakeup, lists, budget, formatted, durable, spare }))
            .or_else(|| layer!(self, address, commit: Committer { store, formatter, journal, commit_stage, releases, totals, marked_open }))
            .or_else(|| layer!(self, address, inodes: Inodes { store, index, in_core, dirty_inodes, lazy_times, open_files, walks }))
            .or_else(|| layer!(self, address, data: Data { store, slot_preallocations, short_at, dirty_bytes, cached_bytes, writing_back }))
            .or_else(|| layer!(self, address, names: Names { store, rename, index_allowance }));
        if layer.is_some() {
            return layer;
        }
        if within(self, address).is_some() {
            return Some("Engine: what finds its layers".into());
        }
        if let Some(name) = self.inodes.index.what_is_at(address) {
            return Some(name);
        }
        if let Some(name) = self.inodes.open_files.what_is_at(address) {
            return Some(name);
        }
        if self
            .inodes
            .dirty_inodes
            .iter()
            .any(|list| within(list, address).is_some())
        {
            return Some("a slot's list of dirty inodes".into());
        }
        self.inodes
            .in_core
            .iter()
            .find_map(|inode| in_inode(&inode, address))
    }
}

fn in_inode(inode: &Arc<Inode>, address: usize) -> Option<String> {
    let whose = match inode.content {
        Content::Directory(_) => "directory",
        _ => "file",
    };
    if let Some(offset) = within(&**inode, address) {
        return Some(match inode.field_at(offset) {
            "state" => format!("inode of a {whose}: its lock and core"),
            field => format!("inode of a {whose}: {field}"),
        });
    }
    if within(&**inode, address + COUNTS).is_some() {
        return Some(format!("inode of a {whose}: its reference counts"));
    }
    match &inode.content {
        Content::Directory(names) => names.what_is_at(address),
        Content::File(data) => {
            let data = data.get()?;
            if within(&data.map, address).is_some() {
                return Some("map of a file: its lock".into());
            }
            if within(&**data, address).is_some() {
                return Some("data of a file: its page index".into());
            }
            data.pages.what_is_at(address)
        }
        _ => None,
    }
}
