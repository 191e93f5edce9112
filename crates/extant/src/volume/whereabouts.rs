//! What stands at an address of an open volume's memory: the names that the conflict test gives to cache lines.

use crate::base::address::within;
use crate::incore::inode::{Content, Inode};
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

impl Engine {
    /// Names what is at an address, if it is one of the objects that operations meet at.
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        if let Some(offset) = within(self, address) {
            let field = field!(
                Engine,
                offset,
                [
                    geometry,
                    device,
                    buffers,
                    groups,
                    hasher,
                    inodes,
                    blocks,
                    space,
                    index,
                    walks,
                    open_files,
                    in_core,
                    in_core_count,
                    dirty_inodes,
                    dirty_bytes,
                    cached_bytes,
                    log,
                    formatter,
                    journal,
                    kick,
                    limits,
                    read_only,
                    stopped,
                    marked_open,
                    rename
                ]
            );
            return Some(format!("Engine::{field}"));
        }
        if let Some(name) = self.index.what_is_at(address) {
            return Some(name);
        }
        if let Some(name) = self.open_files.what_is_at(address) {
            return Some(name);
        }
        if self
            .dirty_inodes
            .iter()
            .any(|list| within(list, address).is_some())
        {
            return Some("a slot's list of dirty inodes".into());
        }
        self.in_core
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
