//! The record of an inode: changed, cleared and written.

use crate::error::Error;
use crate::session::Session;
use ext4_format::InodeNr;
use ext4_format::extent::{Node, NodeRules};
use ext4_format::inode::{self, InodeCore};

/// A record that is being mended.
pub(crate) struct Record {
    pub(crate) ino: InodeNr,
    pub(crate) raw: Vec<u8>,
    pub(crate) core: InodeCore,
}

impl Record {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.core.flags & flag != 0
    }

    pub(crate) fn place(&self) -> String {
        format!("inode {}", self.ino)
    }
}

pub(crate) fn clear(session: &mut Session<'_, '_>, ino: InodeNr, why: &str) -> Result<bool, Error> {
    let cleared = session.ask(
        format!("inode {ino}"),
        format!("it is cleared: {why}"),
        Some("the inode, and its data"),
    );
    if cleared {
        let mut raw = vec![0; session.geo.inode_size.into()];
        session.write_record(ino, &mut raw)?;
    }
    Ok(cleared)
}

/// Returns whether the record holds the root of an extent tree.
pub(crate) fn has_tree(session: &Session<'_, '_>, raw: &[u8]) -> bool {
    let rules = NodeRules::root(session.geo.blocks_count);
    inode::i_block(raw).is_ok_and(|root| Node::parse(root, &rules).is_ok())
}

/// Changes the fields of an inode and writes its record, if the record is valid.
pub(crate) fn edit(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    change: impl FnOnce(&mut InodeCore),
) -> Result<(), Error> {
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(());
    };
    if let Ok(mut core) = inode::decode_verified(&raw, &session.geo, ino) {
        change(&mut core);
        inode::encode_core(&core, &mut raw, &session.geo);
        session.write_record(ino, &mut raw)?;
    }
    Ok(())
}
