//! The state of a check that its parts share.

use crate::claim::Claims;
use crate::group::Group;
use crate::inode_table::InodeTable;
use crate::progress::Steps;
use crate::report::Findings;
use crate::subject::Subject;
use crate::volume::Volume;
use ext4_format::quota::QuotaSums;
use ext4_format::{BlockNr, InodeNr};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

/// The state of a check that its parts share.
pub(crate) struct Check<'d> {
    pub(crate) volume: Volume<'d>,
    pub(crate) groups: Vec<Group>,
    pub(crate) findings: Findings,
    pub(crate) threads: usize,
    pub(crate) steps: Steps<'d>,
    /// Blocks in use, by owner.
    pub(crate) claims: Claims,
    /// Inodes in use.
    pub(crate) inodes: InodeTable,
    /// Blocks of extended attributes, with the stored and the counted number of inodes.
    pub(crate) attribute_blocks: Mutex<HashMap<BlockNr, SharedBlock>>,
    /// Use by each user, group and project.
    pub(crate) quota: Counted,
    /// Inodes that hold values of attributes, with the attributes found that name them.
    pub(crate) value_inodes: Mutex<HashMap<InodeNr, u32>>,
    /// Whether an inode has a translator of the Hurd, whose block is not known to be in use.
    pub(crate) has_translators: AtomicBool,
    /// Policies of encrypted inodes.
    pub(crate) policies: Mutex<HashMap<InodeNr, Box<[u8]>>>,
    /// Random seed of the hashes of names.
    pub(crate) name_seed: u64,
}

/// A block of attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBlock {
    /// Inodes that share it, as it says.
    pub(crate) stored: u32,
    /// Inodes that were found to share it.
    pub(crate) found: u32,
}

/// Counted use.
pub(crate) struct Counted {
    /// `None` if use is not counted on this volume.
    pub(crate) all: Option<Mutex<QuotaSums>>,
}

impl Counted {
    pub(crate) fn of(volume: &Volume<'_>) -> Self {
        let features = &volume.geo.features;
        Self {
            all: features.has_quota().then(Mutex::default),
        }
    }

    /// Adds an inode in use that a name should lead to, and the number of its attributes whose values are in inodes.
    pub(crate) fn add(&self, subject: &Subject<'_>, volume: &Volume<'_>, values: u64) {
        if let Some(all) = &self.all {
            let Subject { ino, raw, core } = subject;
            all.lock()
                .add(&volume.sb, &volume.geo, *ino, raw, core, values);
        }
    }
}

/// Returns the record of an inode.
pub(crate) fn read_record(check: &Check<'_>, ino: InodeNr) -> Option<Vec<u8>> {
    let (group, index) = check.volume.geo.group_of_inode(ino)?;
    let group = check.groups.get(group.0 as usize).filter(|g| g.usable)?;
    check.volume.record_in(group.desc.inode_table, index).ok()
}
