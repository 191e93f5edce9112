//! A batch in units, one for each group whose inodes it changes, formatted by several threads.
//!
//! An inode owns its record, its mapping and its directory blocks, and the records of a group fill separate table
//! blocks. So units share no block. Blocks of attributes, which inodes of several groups share, are changed when all
//! units are formatted ([`XattrBatch`]). Shared state is behind locks: the table blocks known to be zeros ([`Gaps`]),
//! and the space that blocks are taken from. On a corrupt image two units may claim one block; joining their workspaces
//! finds it.

use super::batch::{Batch, Each};
use super::inode_phase::InodePhase;
use super::ledger::Ledger;
use super::threads::PARALLEL_ITEMS;
use super::unit::{InodesDone, Part, Shared};
use super::workspace::Workspace;
use super::xattrs::XattrBatch;
use crate::error::{Error, Result};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicUsize, Ordering};

impl<'s, 'a> Shared<'s, 'a> {
    fn part(&self) -> Part<'a> {
        Part {
            ws: Workspace::new(self.geometry, self.images),
            ledger: Ledger::new(self.space, self.zone),
            done: InodesDone::default(),
        }
    }

    fn unit(&self, part: &mut Part<'a>, unit: Each<'_, '_>) -> Result<InodesDone> {
        let mut phase = InodePhase::new(&mut part.ws, &mut part.ledger, self);
        for changes in unit {
            phase.inode(&changes)?;
        }
        Ok(phase.finish())
    }

    /// Formats all units of a batch.
    pub fn run(self, batch: &Batch<'_>, xattrs: XattrBatch<'_, 'a>) -> Result<Part<'a>> {
        let units: Vec<_> = batch.units(self.geometry.inodes_per_group).collect();
        let items: usize = units.iter().map(Each::weight).sum();
        let threads = self.crew.threads.min(units.len());
        let mut whole = if items < PARALLEL_ITEMS || threads < 2 {
            let mut part = self.part();
            for unit in units {
                let done = self.unit(&mut part, unit)?;
                part.done.append(done);
            }
            part
        } else {
            self.run_on(threads, &units)?
        };
        xattrs.run(self.descs, &mut whole)?;
        Ok(whole)
    }

    /// Formats the units, the heaviest first: each thread takes the next one when it has finished one.
    fn run_on(&self, threads: usize, units: &[Each<'_, '_>]) -> Result<Part<'a>> {
        let mut order: Vec<usize> = (0..units.len()).collect();
        order.sort_by_key(|&i| Reverse(units[i].weight()));
        let next = AtomicUsize::new(0);
        self.crew.working.store(threads, Ordering::Relaxed);
        let work = || {
            let mut part = self.part();
            let mut done = Vec::new();
            while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.unit(&mut part, units[i].clone()) {
                    Ok(unit) => done.push((i, unit)),
                    Err(e) => {
                        // The batch is lost, so no thread needs to continue.
                        next.store(order.len(), Ordering::Relaxed);
                        return Err(e);
                    }
                }
            }
            self.crew.working.fetch_sub(1, Ordering::Relaxed);
            Ok((part, done))
        };
        let parts: Vec<_> = std::thread::scope(|s| {
            let others = blockdev::start_threads(s, 1..threads, |_| work());
            let own = work();
            let others = others
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|e| Err(Error::panicked(e))));
            std::iter::once(own).chain(others).collect()
        });
        let mut whole = self.part();
        let mut all_done = Vec::with_capacity(units.len());
        for part in parts {
            let (part, done) = part?;
            whole.ws.join(part.ws)?;
            whole.ledger.join(part.ledger);
            all_done.extend(done);
        }
        // In the order of the groups, whichever thread formatted them.
        all_done.sort_by_key(|(i, _)| *i);
        for (_, done) in all_done {
            whole.done.append(done);
        }
        Ok(whole)
    }
}
