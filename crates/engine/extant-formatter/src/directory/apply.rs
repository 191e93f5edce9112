//! Applying a batch to one directory.

use super::pages::Dir;
use super::update::{DirBlocks, DirOutcome, DirUpdate};
use crate::error::Result;
use crate::workspace::Workspace;

/// Applies a batch to one directory.
///
/// # Errors
/// `Format` when the directory is found corrupt, `NoSpace` when its index has no level left to
/// grow. Blocks may have been changed in `ws` then: the batch cannot be used.
pub fn apply(
    ws: &mut Workspace<'_>,
    blocks: &mut dyn DirBlocks,
    update: &DirUpdate<'_>,
) -> Result<DirOutcome> {
    let mut dir = Dir::new(ws, blocks, update);
    let indexed = if update.indexed && update.init.is_none() {
        dir.apply_to_index()?;
        true
    } else {
        dir.apply_to_linear()?
    };
    Ok(DirOutcome { indexed })
}
