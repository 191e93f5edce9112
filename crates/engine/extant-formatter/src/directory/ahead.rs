//! The leaves under one index block, computed by several threads ahead of the sweep. The sweep then writes them to
//! their blocks and allocates the blocks of split leaves, so the written bytes do not depend on the threads.

use super::leaf::{Leaf, LeafFacts, Pending, Rewritten};
use super::pages::Dir;
use super::shape::{Role, Shape, at};
use crate::error::Error;
use crate::error::Result;
use crate::image::BlockImages;
use ext4_format::BlockNr;
use ext4_format::hash::DirHasher;
use std::thread::Builder;

/// Smallest number of leaves that is worth another thread.
const LEAVES: usize = 32;

impl Dir<'_, '_> {
    /// Returns the rewritten leaves, in order. Leaves that are left to the sweep are missing: all of them, if every
    /// thread of the crew has work.
    pub fn ahead(
        &mut self,
        leaves: &[(usize, Leaf<'_>)],
        hasher: &DirHasher,
    ) -> Result<Vec<Option<(BlockNr, Rewritten)>>> {
        let threads = (1 + self.update.crew.idle()).min(leaves.len() / LEAVES);
        if threads < 2 {
            return Ok(Vec::new());
        }
        let mut blocks = Vec::with_capacity(leaves.len());
        for (_, leaf) in leaves {
            // The previous leaf may change a leaf of a chain.
            let block = if leaf.is_chained() {
                None
            } else {
                Some(self.locate(leaf.entry.block)?)
            };
            blocks.push(block.filter(|block| !self.has_changed(*block)));
        }
        let (images, shape) = (self.images(), self.shape);
        let work = |leaves: &[(usize, Leaf<'_>)], blocks: &[Option<BlockNr>]| -> Vec<_> {
            let pairs = leaves.iter().zip(blocks);
            pairs
                .map(|((_, leaf), block)| {
                    let block = (*block)?;
                    // The sweep meets the same error again and reports it.
                    let rewritten = rewritten(leaf, block, images, &shape, hasher).ok()?;
                    Some((block, rewritten))
                })
                .collect()
        };
        let each = leaves.len().div_ceil(threads);
        let mut parts = leaves.chunks(each).zip(blocks.chunks(each));
        let own = parts.next();
        std::thread::scope(|s| {
            let others: Vec<_> = parts
                .map(|(leaves, blocks)| {
                    let work = move || work(leaves, blocks);
                    // Work for which the system starts no thread is done here.
                    Builder::new().spawn_scoped(s, work).map_err(|_| work())
                })
                .collect();
            let mut all = own.map_or_else(Vec::new, |(leaves, blocks)| work(leaves, blocks));
            for other in others {
                all.extend(match other {
                    Ok(thread) => thread.join().map_err(Error::panicked)?,
                    Err(done) => done,
                });
            }
            Ok(all)
        })
    }
}

fn rewritten(
    leaf: &Leaf<'_>,
    block: BlockNr,
    images: &dyn BlockImages,
    shape: &Shape,
    hasher: &DirHasher,
) -> Result<Rewritten> {
    let page = images.image(block)?;
    shape.verify(&page, Role::Leaf, block)?;
    let pending = Pending::new(leaf.changes, shape);
    leaf.rewritten(&page, LeafFacts::of(&page), pending, shape, hasher)
        .map_err(at(block))
}
