//! The push: a context goes from the slots' lists through the formatter to the journal (C2, C6).
//!
//! Three stages with a lock each, taken in order: the formatter's, the journal's, and that of commit blocks and
//! flushes. A push takes the second before it releases the first, and queues for the third before it releases the
//! second. So commit blocks reach the disk in the order of their contexts. Three contexts may be in flight, one being
//! formatted, one written into the log, one made durable, while operations commit into a fourth.
//!
//! A thread that finds its context full does only the first two stages. The next thread that needs one of the waiting
//! contexts durable does the last stage for all of them, and also releases the blocks and numbers that they freed.

use crate::base::error::{Error, Result};
use crate::base::invariants::{Rule, insist};
use crate::base::locks::{self, Mutex, MutexGuard};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::commit::Committer;
use crate::commit::stages::{PushStage, PushWatch};
use crate::log::Fullness;
use ext4_format::{BlockNr, InodeNr};
use extant_formatter::item::{InodeEvent, ItemList};
use extant_formatter::{Formatter, MetaSpace, Moment, Output, SpaceError, superblock_location};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The blocks and numbers to release once a context is on disk.
pub(crate) struct Release {
    context: u64,
    blocks: Vec<(BlockNr, u32)>,
    inodes: Vec<InodeNr>,
}

/// A formatted context: the blocks that it frees, and its parts: one, or as many as the journal needed.
type Formatted = (Vec<(BlockNr, u32)>, Vec<Output>);

/// Gives the formatter blocks from the allocator, and notes the blocks that the formatter frees.
struct PushSpace<'a> {
    engine: &'a Committer,
    taken: Mutex<Vec<BlockNr>, locks::PushSpace>,
    freed: Mutex<Vec<(BlockNr, u32)>, locks::PushSpace>,
}

impl MetaSpace for PushSpace<'_> {
    fn alloc_meta(&self, goal: BlockNr) -> Result<BlockNr, SpaceError> {
        let block = self.engine.space.allocate_block(goal)?;
        self.taken.lock().push(block);
        Ok(block)
    }

    fn free_meta(&self, start: BlockNr, len: u32) -> Result<(), SpaceError> {
        // A bitmap that is not in core at this point would be read from the image that frees the block, and the block
        // would be used again before that is durable.
        let loaded = self.engine.space.load_bitmaps(start, len);
        if !planted::is(Fault::UnreadBitmap) {
            loaded?;
        }
        self.freed.lock().push((start, len));
        Ok(())
    }
}

impl Committer {
    /// Waits, or pushes, while the current context holds as much as the journal can take.
    #[inline]
    pub(super) fn throttle(&self) -> Result<()> {
        let context = self.log.lists.context();
        match self.must_push(context) {
            false => Ok(()),
            true if self.log.budget.fullness(context) == Fullness::Hard => {
                self.push_into_log(context)
            }
            // Bitmaps leave memory when the changes that they wait for are durable.
            true => self.push_to(context),
        }
    }

    /// Returns true if the context must be pushed before more items are added. Asks for a push when that is near.
    #[inline]
    pub(super) fn must_push(&self, context: u64) -> bool {
        let bitmaps = self.space.blocks.excess().max(self.space.inodes.excess());
        let fullness = self.log.budget.fullness(context);
        if bitmaps == 0 && fullness == Fullness::Free {
            false
        } else {
            self.must_push_now(bitmaps, fullness)
        }
    }

    #[cold]
    #[inline(never)]
    fn must_push_now(&self, bitmaps: u32, fullness: Fullness) -> bool {
        // Bitmaps leave memory with a push.
        let bitmaps = match bitmaps {
            0 => Fullness::Free,
            1..8 => Fullness::Soft,
            _ => Fullness::Hard,
        };
        let fullness = bitmaps.max(fullness);
        if fullness == Fullness::Soft {
            self.log.wakeup.wake();
        }
        fullness == Fullness::Hard
    }

    /// Makes everything committed until now durable.
    pub(crate) fn push_all(&self) -> Result<()> {
        self.push_to(self.log.lists.context())
    }

    /// Makes everything committed until now durable, and waits until all blocks and numbers that it freed can be taken.
    /// Releasing them takes a moment longer, and another thread may do it.
    pub(crate) fn push_and_release(&self) -> Result<()> {
        let target = self.log.lists.context();
        self.push_to(target)?;
        self.wait_until_released(target)
    }

    /// Releases what durable contexts freed, and waits for other threads that do so for contexts up to `target`.
    pub(super) fn wait_until_released(&self, target: u64) -> Result<()> {
        self.release_durable()?;
        self.log.unreleased.wait_up_to(target);
        Ok(())
    }

    /// Makes everything committed until now durable, unless the volume is frozen: for callers with locks held that
    /// readers need. They must release them and wait for the thaw.
    pub(crate) fn push_unless_frozen(&self) -> Result<bool> {
        // An open gate stays open while this thread is inside.
        let Some(_pass) = self.store.gate.try_enter() else {
            return Ok(false);
        };
        self.push_all()?;
        Ok(true)
    }

    /// Makes every context up to `target` durable. Callers that arrive together share one push.
    pub(crate) fn push_to(&self, target: u64) -> Result<()> {
        loop {
            self.store.check_running()?;
            if self.log.durable() >= target {
                return Ok(());
            }
            if let Some(mut watch) = self.log_up_to(target)? {
                let worked = self.commit_stage.finish(self)?;
                watch.ends(PushStage::Wait);
                watch.moves(worked, PushStage::Wait, PushStage::Flush);
                self.totals.pushed(&watch);
            } else if self.log.wait_logged(target)? {
                // The thread that logged the context need not wait for flushes.
                self.commit_stage.finish(self)?;
            }
            self.release_durable()?;
        }
    }

    /// Closes the context if it is still open, and writes it into the log, for a caller that only wants room for more.
    /// The context becomes durable with the next caller that needs it, at the latest the background thread. So a full
    /// context costs no flush.
    fn push_into_log(&self, context: u64) -> Result<()> {
        if let Some(watch) = self.log_up_to(context)? {
            self.totals.pushed(&watch);
            // The log may have been full, and contexts may have been made durable for that reason.
            self.release_durable()?;
        }
        Ok(())
    }

    /// Formats the open context and writes it into the log, unless it is beyond `target`: another thread does so with
    /// `target` then, or has.
    fn log_up_to(&self, target: u64) -> Result<Option<PushWatch>> {
        let formatter = loop {
            if self.log.formatted() >= target {
                // Later contexts may be formatted now, but the caller does not need them.
                return Ok(None);
            }
            schedule::reached(Point::PushQueued);
            let formatter = self.formatter.lock();
            // The thread that cut the volume off has waited for this lock, and relies on it that nothing is written
            // afterwards.
            self.store.check_running()?;
            if !self.store.gate.is_shut() {
                break formatter;
            }
            // Frozen: the contexts committed now wait in memory.
            drop(formatter);
            self.store.gate.wait_while_shut();
        };
        if self.log.formatted() >= target {
            return Ok(None);
        }
        let watch = PushWatch::start();
        let (context, items) = self.close_context();
        self.log_context(formatter, watch, context, items).map(Some)
    }

    /// Formats the context that was closed last, and what fast commits have made durable before it, and writes it into
    /// the log.
    pub(super) fn log_context(
        &self,
        mut formatter: MutexGuard<'_, Formatter, locks::Formatter>,
        mut watch: PushWatch,
        context: u64,
        items: ItemList,
    ) -> Result<PushWatch> {
        watch.ends(PushStage::Gather);
        let emptied = if self.log.half_full.swap(false, Ordering::Relaxed) {
            // Every published image is durable once both locks are held.
            self.journal.lock().checkpoint(self)
        } else {
            Ok(())
        };
        watch.ends(PushStage::Home);
        let pushed =
            emptied.and_then(|()| self.format_context(&mut formatter, &mut watch, context, items));
        let (blocks, mut parts) = pushed.inspect_err(|e| self.store.stop(e))?;
        let freed = parts
            .iter_mut()
            .map(|part| std::mem::take(&mut part.freed_inodes));
        // There is mostly one part, whose list is moved.
        let joined = freed.reduce(|mut all, more| {
            all.extend(more);
            all
        });
        let inodes = joined.unwrap_or_default();
        // Noted before any thread can find the context durable.
        self.log.unreleased.note(context);
        self.releases.lock().push_back(Release {
            context,
            blocks,
            inodes,
        });
        let mut journal = self.journal.lock();
        drop(formatter);
        watch.ends(PushStage::Wait);
        let last = parts.len().saturating_sub(1);
        let logged = self.store.check_running().and_then(|()| {
            let mut parts = parts.iter().enumerate();
            parts.try_for_each(|(i, part)| journal.log(self, part, (i == last).then_some(context)))
        });
        let dirty =
            self.store.buffers.dirty_count() as u64 * u64::from(self.store.geometry.block_size);
        if journal.wants_checkpoint() || dirty > self.store.limits.cache_bytes / 4 {
            self.log.half_full.store(true, Ordering::Relaxed);
        }
        if let Err(e) = logged {
            let journal = (!planted::is(Fault::PushAfterFailure)).then_some(journal);
            schedule::reached(Point::LogFailed);
            // The journal is still locked: the next thread that takes it finds the volume stopped.
            self.store.stop(&e);
            drop(journal);
            return Err(e);
        }
        drop(journal);
        self.log.note_logged(context);
        watch.ends(PushStage::Log);
        Ok(watch)
    }

    /// Closes the open context, with the formatter's lock held; returns its number and its items.
    pub(super) fn close_context(&self) -> (u64, ItemList) {
        let (context, lists) = self.log.lists.switch();
        let mut items = ItemList::default();
        for mut list in lists {
            if list.is_empty() {
                continue;
            }
            items.append(&mut list);
            self.log.spare.recycle(list);
        }
        self.log.budget.close(context);
        (context, items)
    }

    /// Formats a context, after the contexts before it that are durable by fast commits.
    fn format_context(
        &self,
        formatter: &mut Formatter,
        watch: &mut PushWatch,
        context: u64,
        items: ItemList,
    ) -> Result<Formatted> {
        let _span = lockmeter::span!("format a context");
        // The next transaction ends the validity of fast commits, so it holds all of their items and nothing else.
        let (unformatted, most) = self.take_unformatted();
        let most = (!unformatted.is_empty()).then_some(most);
        let batches = [items, unformatted];
        let batches = batches.into_iter().filter(|items| !items.is_empty());
        let batches: Vec<_> = batches.collect();
        let mut blocks: Vec<_> = batches
            .iter()
            .flat_map(|items| items.bits.iter())
            .filter(|b| !b.alloc && !planted::is(Fault::ReuseBeforeCommit))
            .map(|b| (b.start, b.len))
            .collect();
        let reserved = batches.iter().map(|items| items.reserved_blocks).sum();
        let commits = batches.iter().map(|items| items.commits).sum();
        tracing::debug!(context, commits, "push");
        let parts = if batches.is_empty() {
            vec![Output::default()]
        } else {
            self.mark_open(formatter)?;
            if let Some(last) = formatter.grows_from() {
                // No reader finds the last group's new image before the geometry contains the new length.
                let block = self.store.geometry.group_first_block(last);
                self.space.load_bitmaps(block, 1)?;
            }
            if self.space.blocks.has_shrunk() {
                // Before an image marks these blocks as free. No bitmap is dropped meanwhile.
                for &(start, len) in &blocks {
                    self.space.load_bitmaps(start, len)?;
                }
            }
            if self.space.inodes.has_shrunk() {
                let all = batches.iter().flat_map(|items| items.inodes.iter());
                for item in all.filter(|i| i.event == InodeEvent::Free) {
                    self.space.inodes.ensure_loaded(item.ino, &*self.space)?;
                }
            }
            self.log.pushes.fetch_add(1, Ordering::Relaxed);
            let count = batches.iter().map(ItemList::len).sum();
            let parts = self.format_in_parts(formatter, context, (batches, most), &mut blocks)?;
            let changed = parts.iter().map(|part| part.blocks.len()).sum();
            self.log.budget.measure(count, changed);
            parts
        };
        self.totals.formatted(commits, &parts);
        self.space
            .counts
            .account(reserved, parts.iter().map(|p| p.taken).sum());
        let formatted = self.log.formatted();
        insist!(
            context > formatted && (context == formatted + 1 || self.fast.is_some()),
            FormattedInOrder,
            "context {context} after {formatted}"
        );
        self.log.formatted.store(context, Ordering::Release);
        self.space.blocks.shrink(&*self.space);
        self.space.inodes.shrink(context, &*self.space);
        watch.ends(PushStage::Format);
        let sorted = parts.iter().map(|part| part.sorting).sum();
        watch.moves(sorted, PushStage::Format, PushStage::Sort);
        Ok((blocks, parts))
    }

    /// Formats a context, in the number of parts that the journal needs, because the changes of an operation are only
    /// estimated, and many operations may commit at once. Adds the freed metadata blocks to `freed`. The last batch is formatted
    /// first, in one part if it comes with the number of blocks that it changes at most.
    fn format_in_parts(
        &self,
        formatter: &mut Formatter,
        context: u64,
        (mut todo, mut whole): (Vec<ItemList>, Option<u64>),
        freed: &mut Vec<(BlockNr, u32)>,
    ) -> Result<Vec<Output>> {
        let most = self.log.most();
        let mut born = HashSet::new();
        let mut parts = Vec::new();
        while let Some(items) = todo.pop() {
            let space = PushSpace {
                engine: self,
                taken: Mutex::default(),
                freed: Mutex::default(),
            };
            let formatted = formatter.format(&items, &self.store.buffers, &space, most)?;
            if let Some(bound) = whole.take() {
                let found = formatted.as_ref().map(|output| output.blocks.len() as u64);
                if found.is_some_and(|n| n > bound + 1) {
                    tracing::warn!(
                        ?found,
                        bound,
                        "fast commits change more blocks than expected"
                    );
                }
                // A release checks only that there is one part.
                let fits = found.is_some_and(|n| !cfg!(debug_assertions) || n <= bound + 1);
                insist!(fits, FastCommitsFit, "{found:?} blocks of {bound}");
            }
            match formatted {
                Some(mut output) => {
                    self.check_output(&output, most)?;
                    let mut metadata = space.freed.into_inner();
                    let blocks = metadata.iter().map(|(_, len)| u64::from(*len)).sum();
                    self.space.counts.note_leaving(blocks);
                    freed.append(&mut metadata);
                    // The object in core is the later life of a number that a later part allocates again.
                    let later = todo.iter().flat_map(|items| items.inodes.iter());
                    let reborn: HashSet<_> = later
                        .filter(|i| i.event == InodeEvent::Init)
                        .map(|i| i.ino)
                        .collect();
                    output.published.retain(|p| !reborn.contains(&p.ino));
                    self.publish(formatter, context, &mut output)?;
                    // Numbers born and freed in one context became free at once.
                    output.freed_inodes.retain(|ino| !born.contains(ino));
                    parts.push(output);
                    self.log.spare.recycle(items);
                }
                None => {
                    for block in space.taken.into_inner() {
                        self.space.mark_free(block, 1)?;
                    }
                    let inits = items.inodes.iter().filter(|i| i.event == InodeEvent::Init);
                    born.extend(inits.map(|i| i.ino));
                    tracing::debug!(context, "context larger than the journal: in parts");
                    let (first, rest) = items.split().ok_or_else(|| {
                        Error::Stopped(format!(
                            "one operation changes more than the {most} blocks the journal holds"
                        ))
                    })?;
                    todo.extend([rest, first]);
                }
            }
        }
        Ok(parts)
    }

    /// Shows what the formatter made to readers.
    fn publish(&self, formatter: &Formatter, context: u64, output: &mut Output) -> Result<()> {
        for block in &output.revoked {
            self.store.buffers.forget(*block);
        }
        for block in output
            .zeroed
            .iter()
            .flat_map(|&(b, n)| b.0..b.0 + u64::from(n))
        {
            self.store.buffers.forget(BlockNr(block));
        }
        // Descriptors last, so that a reader of a descriptor that marks its group's bitmap as written finds the bitmap.
        for last in [false, true] {
            for (block, image) in &output.blocks {
                if output.descriptors.binary_search(block).is_ok() == last {
                    self.store
                        .buffers
                        .publish(*block, Arc::clone(image), context);
                    crate::base::jitter::point();
                }
            }
        }
        self.complete_superblock(formatter, context, output)?;
        if let Some(growth) = output.grown.take() {
            self.take_growth(formatter, &growth);
        }
        if let Some(observer) = self.observer.get() {
            for published in &output.published {
                observer.published(published);
            }
        }
        Ok(())
    }

    /// Brings the superblock up to date if the formatter changed it: the head of the list of orphans, features, the
    /// name. Its free counts [L4] alone do not cause a superblock write. An open of a volume that was not closed adds
    /// up the descriptors, as e2fsck and the kernel do, and a close writes the counts. Without a journal every push
    /// writes them.
    fn complete_superblock(
        &self,
        formatter: &Formatter,
        context: u64,
        output: &mut Output,
    ) -> Result<()> {
        let own = superblock_location(&self.store.geometry).0;
        let found = output.blocks.binary_search_by_key(&own, |(b, _)| *b);
        let counts_go_home = !self.store.geometry.features.has_journal();
        if output.blocks.is_empty() || found.is_err() && !counts_go_home {
            return Ok(());
        }
        let now = crate::base::now().secs();
        let (buffers, damage) = (&self.store.buffers, &self.store.health.damage);
        let (block, image) =
            formatter.superblock_update(buffers, now, Moment::Sync, |sb| damage.apply(sb))?;
        buffers.publish(block, Arc::clone(&image), context);
        match found {
            Ok(at) => output.blocks[at].1 = image,
            Err(at) => output.blocks.insert(at, (block, image)),
        }
        Ok(())
    }

    /// Releases the blocks and numbers that contexts freed which are durable at present, unless another thread does
    /// that.
    fn release_durable(&self) -> Result<()> {
        loop {
            let durable = self.log.durable();
            let mut releases = self.releases.lock();
            if releases.front().is_none_or(|r| r.context > durable) {
                return Ok(());
            }
            let Some(release) = releases.pop_front() else {
                return Ok(());
            };
            drop(releases);
            let _unreleased = self.log.unreleased.begin(release.context);
            self.release(release)?;
        }
    }

    /// Releases the blocks and numbers that a context freed, because the context is on disk.
    fn release(&self, release: Release) -> Result<()> {
        let rest = self.rests_inode_numbers();
        self.space.inodes.release(release.inodes, rest);
        // Adjacent runs are returned as one.
        let mut blocks = release.blocks;
        blocks.sort_unstable();
        for (start, len) in merged(blocks) {
            self.space.mark_free(start, len)?;
            self.space.counts.give_left(u64::from(len));
        }
        let (free, _) = self.space.counts.free();
        let all = self.store.geometry.blocks_count;
        self.store.insist(free <= all, Rule::FreeWithinVolume, || {
            format!("{free} of {all}")
        });
        self.store.check_running()
    }

    /// Checks that the formatter's output is fit for readers and the log.
    fn check_output(&self, output: &Output, most: usize) -> Result<()> {
        let count = output.blocks.len();
        insist!(
            count <= most,
            NoMoreThanATransaction,
            "{count} blocks of {most}"
        );
        let size = self.store.geometry.block_size as usize;
        let mut before = None;
        for (block, image) in &output.blocks {
            insist!(
                before < Some(*block),
                BlocksAscend,
                "block {block} after {before:?}"
            );
            insist!(
                image.len() == size,
                ImageIsABlock,
                "{} bytes, block {block}",
                image.len()
            );
            before = Some(*block);
        }
        let all = self.store.geometry.blocks_count;
        insist!(
            before.is_none_or(|last| last.0 < all),
            BlocksInVolume,
            "block {before:?} of {all}"
        );
        for block in &output.revoked {
            let logged = output.blocks.binary_search_by_key(block, |(b, _)| *b);
            insist!(logged.is_err(), RevokedIsNotLogged, "block {block}");
        }
        Ok(())
    }
}

/// Sorts runs of blocks, and joins those that meet.
fn merged(runs: Vec<(BlockNr, u32)>) -> Vec<(BlockNr, u32)> {
    let mut out: Vec<(BlockNr, u32)> = Vec::with_capacity(runs.len());
    for (start, len) in runs {
        match out.last_mut() {
            Some((before, n))
                if before.0 + u64::from(*n) == start.0 && n.checked_add(len).is_some() =>
            {
                *n += len;
            }
            _ => out.push((start, len)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first inode of a group makes the formatter write a block bitmap that did not exist. A reader of the bitmap
    /// at that moment computes it, or finds it; it never reads the device's old bytes under a descriptor that calls
    /// them written.
    #[test]
    fn a_bitmap_is_there_before_its_descriptor_says_so() {
        use crate::mkfs::{self, MkfsOptions};
        use crate::space::block::GroupSource;
        use ext4_format::GroupNr;
        use std::sync::atomic::{AtomicBool, AtomicU32};

        let size = 4 << 30;
        let device = Arc::new(blockdev::MemDevice::new(size));
        // 1024 groups of 16 inodes.
        let options = MkfsOptions {
            size: Some(size),
            zeroed_device: true,
            features: "^resize_inode".into(),
            blocks_per_group: Some(1024),
            inodes: Some(ext4_format::layout::Inodes::Count(16 << 10)),
            ..Default::default()
        };
        mkfs::format(&*device, &options).unwrap();
        let volume = crate::VolumeOptions::new()
            .background(false)
            .open_device(device)
            .unwrap();
        assert_eq!(volume.geometry().inodes_per_group, 16);
        let engine = volume.guard_engine();
        let unwritten = |group: u32| {
            let desc = engine.store.desc(GroupNr(group));
            desc.is_ok_and(|d| d.flags & ext4_format::group_desc::BLOCK_UNINIT != 0)
        };
        let (next, done) = (AtomicU32::new(0), AtomicBool::new(false));
        crate::unstable::jitter(2);
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !done.load(Ordering::Relaxed) {
                    let group = next.load(Ordering::Relaxed);
                    if unwritten(group) {
                        engine.space.block_bitmap(GroupNr(group)).map(drop)?;
                        seen.insert(group);
                    }
                }
                Ok::<_, Error>(seen.len())
            });
            // Empty files, one group after the other; the directory's blocks are in the first ones.
            for n in 0..200 * 16 {
                let ino = volume.create_new_file(format!("/{n}")).unwrap().ino();
                let group = (ino - 1) / 16;
                if group > 100 && next.swap(group, Ordering::Relaxed) != group {
                    volume.sync().unwrap();
                }
                if reader.is_finished() {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap().unwrap() > 50);
        });
        crate::unstable::jitter(0);
        volume.close().unwrap();
    }

    #[test]
    fn runs_that_meet_are_one() {
        let runs = [(5, 2), (7, 1), (9, 1), (10, u32::MAX - 1), (11, 1)];
        let runs = merged(runs.map(|(b, n)| (BlockNr(b), n)).to_vec());
        let plain: Vec<_> = runs.iter().map(|(b, n)| (b.0, *n)).collect();
        assert_eq!(plain, [(5, 3), (9, u32::MAX), (11, 1)]);
    }
}
