//! Values of extended attributes that are in inodes (`ea_inode`).

use super::inode::Inode;
use super::{InspectError, Inspector};
use crate::mapping::Step;
use crate::report::Findings;
use ext4_format::extent::Extent;
use ext4_format::inode::value;
use ext4_format::xattr::ValueInode;
use ext4_format::{BlockNr, FormatError};

impl Inspector<'_> {
    /// Reads the value of the attribute `name` of an inode from the inode that holds it, and checks the value.
    pub(super) fn value_in_inode(
        &self,
        owner: &Inode,
        name: &[u8],
        value: &ValueInode,
    ) -> Result<Vec<u8>, InspectError> {
        let geo = &self.volume.geo;
        let damaged = |e: FormatError| InspectError::Missing(e.to_string());
        value::check_number(geo, owner.ino, value).map_err(damaged)?;
        let holder = self.inode(value.ino)?;
        value::check_record(&holder.raw, geo, value).map_err(damaged)?;
        let mut bytes = vec![0; value.size as usize];
        let mut failed = None;
        self.walk(&holder, &Findings::new(0), None, &mut |step| {
            let mut behind = false;
            if let Step::Run(run) = step {
                behind = run.end() * geo.block_size as u64 >= value.size.into();
                failed = self.read_run(&run, &mut bytes).err();
            }
            // Runs behind the value are not walked.
            failed.is_none() && !behind
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let owner = (owner.ino, &owner.raw[..]);
        let checked = value::check_bytes(&holder.raw, geo, owner, (name, value), &bytes);
        checked.map(|()| bytes).map_err(damaged)
    }

    /// Reads the blocks of a run into their places in the bytes of a file, as far as the bytes go.
    fn read_run(&self, run: &Extent, bytes: &mut [u8]) -> Result<(), InspectError> {
        if run.unwritten {
            return Ok(());
        }
        let size = self.volume.block_size();
        let parts = bytes.chunks_mut(size).skip(run.logical as usize);
        for (part, within) in parts.zip(0..run.len) {
            let block = BlockNr(run.physical.0.saturating_add(within.into()));
            let stored = self.block(block)?;
            for (to, from) in part.iter_mut().zip(stored) {
                *to = from;
            }
        }
        Ok(())
    }
}
