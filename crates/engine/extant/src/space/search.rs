//! The search for blocks (mechanisms B1, B2, B4): five criteria, from demanding to undemanding.
//!
//! | criterion | takes | from groups |
//! |---|---|---|
//! | power of two | an aligned run of a wanted power of two | by order of the largest free run |
//! | goal length, fast | a run of the wanted length; of full groups the tightest | by mean free run |
//! | best available length | the longest run, first of those that hold what is needed now, then of those of an eighth of it | by order of the largest free run |
//! | goal length, slow | the same | any that may hold one |
//! | any free | the longest run there is | any |
//!
//! Each criterion looks from the goal's group to the last, across all fitting orders, and then from the first group to
//! the goal's. A group whose lock is busy is passed over, except by the last criterion, which waits. So no caller waits
//! while there is room elsewhere, and no block is overlooked. Candidates come from the sets of [`crate::space::ranks`],
//! or, with [`BlockScan::Linear`], from walking the groups. Either way the search inside a candidate is made with the
//! candidate's lock held.

use crate::base::error::{Error, Result};
use crate::base::failing::{self, Call};
use crate::space::block::{BlockAlloc, BlockGroup, GroupSource};
use crate::space::buddy::{Buddy, order};
use crate::types::settings::BlockScan;
use ext4_format::BlockNr;
use percpu::AtomicSet;

/// A request for blocks.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The wanted first block.
    pub goal: BlockNr,
    /// Most blocks wanted.
    pub want: u32,
    /// Blocks that are needed now; the rest is set aside.
    pub need: u32,
    /// At the goal the blocks follow others of the same file: fewer will do there.
    pub follows: bool,
    /// The inode of a file that grows: if its goal is taken, the search starts where the last such file of its kind
    /// ended.
    pub stream: Option<u32>,
}

impl Request {
    /// Makes a request for some blocks near a goal.
    pub fn near(goal: BlockNr, want: u32) -> Self {
        Self {
            goal,
            want,
            need: want,
            follows: false,
            stream: None,
        }
    }
}

/// The criteria in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Criterion {
    PowerOfTwo,
    GoalLengthFast,
    BestAvailable,
    GoalLengthSlow,
    AnyFree,
}

impl Criterion {
    const ALL: [Self; 5] = [
        Self::PowerOfTwo,
        Self::GoalLengthFast,
        Self::BestAvailable,
        Self::GoalLengthSlow,
        Self::AnyFree,
    ];

    /// Returns true if the criterion can find a run that the previous criterion could not.
    fn applies(self, want: u32) -> bool {
        match self {
            Self::PowerOfTwo => want >= 4 && want.is_power_of_two(),
            Self::BestAvailable => want >= 4,
            _ => true,
        }
    }

    /// Returns the fewest blocks that the criterion takes.
    pub(super) fn least(self, want: u32) -> u32 {
        match self {
            Self::PowerOfTwo | Self::GoalLengthFast | Self::GoalLengthSlow => want,
            // A run three orders smaller is enough.
            Self::BestAvailable => (1 << order(want) >> TRIM).max(2),
            Self::AnyFree => 1,
        }
    }

    /// Returns true if a group of this rank is searched.
    fn fits(self, (largest, average): (u32, u32), want: u32, least: u32) -> bool {
        match self {
            Self::PowerOfTwo => largest >= order(want),
            Self::GoalLengthFast => average >= order(want),
            Self::BestAvailable => largest >= least_order(least),
            Self::GoalLengthSlow => largest >= least_order(want),
            Self::AnyFree => true,
        }
    }

    /// Finds the run that the criterion takes of a group, as `(start, length)`.
    fn find(self, buddy: &Buddy, want: u32, least: u32, from: u32) -> Option<(u32, u32)> {
        match self {
            Self::PowerOfTwo => buddy.aligned(order(want), from).map(|start| (start, want)),
            Self::GoalLengthFast | Self::GoalLengthSlow => {
                buddy.run(want, from).map(|start| (start, want))
            }
            Self::BestAvailable | Self::AnyFree => {
                buddy.longest(want, from).filter(|&(_, len)| len >= least)
            }
        }
    }
}

/// Orders by which the best available length may be less than the wanted one.
const TRIM: u32 = 3;
/// Groups next to the goal's that are tried before the lists.
const NEAR: u32 = 4;
/// Groups of one list that are tried before the next one.
const TRIES: u32 = 64;
/// Number of unread groups whose counts are read, and of those whose bitmaps are read, before a criterion fails.
const UNREAD_LOOKED_AT: u32 = 256;
const UNREAD_READ: u32 = 4;

/// Returns the lowest order of the largest aligned run in a group that may hold a run of `want` blocks. Wherever a run
/// begins, it holds an aligned run of half its length.
fn least_order(want: u32) -> u32 {
    order(want.div_ceil(2))
}

/// A position to search from.
#[derive(Clone, Copy)]
struct SearchStart {
    group: u32,
    bit: u32,
}

/// One search.
struct Search<'a> {
    blocks: &'a BlockAlloc,
    source: &'a dyn GroupSource,
    criterion: Criterion,
    want: u32,
    /// Fewest blocks that will do.
    least: u32,
    from: SearchStart,
    /// The goal of the request.
    goal: BlockNr,
}

impl BlockAlloc {
    /// Allocates up to `want` contiguous blocks; at least one. Runs do not cross groups.
    pub fn allocate(&self, request: &Request, source: &dyn GroupSource) -> Result<(BlockNr, u32)> {
        if failing::now(Call::Blocks) {
            return Err(Error::NoSpace("no free block"));
        }
        let want = request.want.clamp(1, self.geometry().blocks_per_group);
        let home = self.place(request.goal);
        let at_goal = || self.at_goal(home, want, request.follows, source);
        if let Some(found) = lockmeter::wanting(request.goal.0, at_goal)? {
            self.searches.found(0);
            return Ok(found);
        }
        let stream = request.stream.and_then(|ino| self.goals.get(ino));
        let from = stream.map_or(home, |goal| self.place(goal));
        let need = request.need.clamp(1, want);
        for criterion in Criterion::ALL {
            if !criterion.applies(want) {
                continue;
            }
            let search = |criterion: Criterion, least| Search {
                blocks: self,
                source,
                criterion,
                want,
                least,
                from,
                goal: request.goal,
            };
            let fewest = criterion.least(want);
            let mut found = None;
            if criterion == Criterion::BestAvailable && need > fewest {
                // Prefer the needed blocks in one piece: the part to be set aside is shortened for that.
                found = search(criterion, need).run()?;
            }
            if found.is_none() {
                found = search(criterion, fewest).run()?;
            }
            if let Some((start, len)) = found {
                self.searches.found(1 + criterion as usize);
                if let Some(ino) = request.stream {
                    self.goals.set(ino, BlockNr(start.0 + u64::from(len)));
                }
                return Ok((start, len));
            }
        }
        Err(Error::NoSpace("no free block"))
    }

    fn place(&self, block: BlockNr) -> SearchStart {
        let place = self.geometry().group_of_block(block);
        place.map_or(SearchStart { group: 0, bit: 0 }, |(group, bit)| {
            SearchStart {
                group: group.0,
                bit,
            }
        })
    }

    /// Takes free blocks at the goal itself.
    fn at_goal(
        &self,
        home: SearchStart,
        want: u32,
        follows: bool,
        source: &dyn GroupSource,
    ) -> Result<Option<(BlockNr, u32)>> {
        self.searches.considered();
        let least = if follows { 1 } else { want };
        if self.group(home.group, source)?.free() < least {
            return Ok(None);
        }
        let find = |buddy: &Buddy| {
            let len = buddy.run_at(home.bit, want);
            (len >= least).then_some((home.bit, len))
        };
        self.take_from(home.group, false, source, find)
    }
}

type FoundRun = Option<(BlockNr, u32)>;

impl Search<'_> {
    fn run(&self) -> Result<FoundRun> {
        match (self.criterion, self.blocks.scan()) {
            (Criterion::AnyFree, _) => self.exhaustive(),
            (_, BlockScan::Linear) => self.walk(0..self.blocks.count()),
            (_, BlockScan::Lists) => self.by_lists(),
        }
    }

    /// Searches a group with its lock held.
    fn look(&self, group: u32, wait: bool) -> Result<FoundRun> {
        let bit = if group == self.from.group {
            self.from.bit
        } else {
            0
        };
        let find = |buddy: &Buddy| self.criterion.find(buddy, self.want, self.least, bit);
        let take = || self.blocks.take_from(group, wait, self.source, find);
        lockmeter::wanting(self.goal.0, take)
    }

    /// Returns true if a group is worth its lock, by the fields that can be read without it.
    fn promises(&self, group: &BlockGroup) -> bool {
        self.blocks.searches.considered();
        let free = group.free();
        free >= self.least
            && match group.rank.get() {
                Some(rank) => self.criterion.fits(rank, self.want, self.least),
                // The group's bitmap has not been read.
                None => !group.skipped(),
            }
    }

    /// Walks `steps` groups from the goal's on, wrapping round.
    fn walk(&self, steps: std::ops::Range<u32>) -> Result<FoundRun> {
        let count = self.blocks.count();
        for step in steps {
            let index = (self.from.group + step) % count;
            if self.promises(self.blocks.group(index, self.source)?)
                && let Some(found) = self.look(index, false)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn by_lists(&self) -> Result<FoundRun> {
        let near = self.walk(0..NEAR.min(self.blocks.count()))?;
        if near.is_some() {
            return Ok(near);
        }
        let ranks = &self.blocks.ranks;
        let sets = match self.criterion {
            Criterion::GoalLengthFast => &ranks.by_average[order(self.want) as usize..],
            Criterion::PowerOfTwo => &ranks.by_order[order(self.want) as usize..],
            Criterion::BestAvailable | Criterion::AnyFree => {
                &ranks.by_order[least_order(self.least) as usize..]
            }
            Criterion::GoalLengthSlow => &ranks.by_order[least_order(self.want) as usize..],
        };
        let tries = match self.criterion {
            Criterion::GoalLengthSlow => u32::MAX,
            _ => TRIES,
        };
        // Past the goal across all orders, then before it.
        for (from, to) in [(self.from.group, self.blocks.count()), (0, self.from.group)] {
            for set in sets {
                for group in members(set, from, to).take(tries as usize) {
                    self.blocks.searches.considered();
                    if let Some(found) = self.look(group, false)? {
                        return Ok(Some(found));
                    }
                }
            }
        }
        self.unread()
    }

    /// Searches a few groups that were never read.
    fn unread(&self) -> Result<FoundRun> {
        let mut read = 0;
        let unread = &self.blocks.ranks.unread;
        let (from, count) = (self.from.group, self.blocks.count());
        let all = members(unread, from, count).chain(members(unread, 0, from));
        for index in all.take(UNREAD_LOOKED_AT as usize) {
            if !self.promises(self.blocks.group(index, self.source)?) {
                continue;
            }
            if let Some(found) = self.look(index, false)? {
                return Ok(Some(found));
            }
            read += 1;
            if read == UNREAD_READ {
                break;
            }
        }
        Ok(None)
    }

    /// Waits for every lock. The caller has taken a number of free blocks from the count, so at least one block is
    /// free. But blocks may have been freed behind the search and others taken before it. So the search is repeated as
    /// long as any blocks are freed.
    fn exhaustive(&self) -> Result<FoundRun> {
        loop {
            let before = self.blocks.times_freed();
            if self.blocks.scan() == BlockScan::Lists {
                // The sets of the longest runs first.
                for set in self.blocks.ranks.by_order.iter().rev() {
                    let all = members(set, self.from.group, self.blocks.count()).chain(members(
                        set,
                        0,
                        self.from.group,
                    ));
                    for group in all.take(TRIES as usize) {
                        self.blocks.searches.considered();
                        if let Some(found) = self.look(group, true)? {
                            return Ok(Some(found));
                        }
                    }
                }
            }
            let count = self.blocks.count();
            for step in 0..count {
                let index = (self.from.group + step) % count;
                let group = self.blocks.group(index, self.source)?;
                self.blocks.searches.considered();
                if group.skipped() || group.free() == 0 {
                    continue;
                }
                if let Some(found) = self.look(index, true)? {
                    return Ok(Some(found));
                }
            }
            if self.blocks.times_freed() == before {
                return Ok(None);
            }
        }
    }
}

/// Returns the members of a set in `[from, to)`, while it changes.
fn members(set: &AtomicSet, from: u32, to: u32) -> impl Iterator<Item = u32> {
    let mut at = from;
    std::iter::from_fn(move || {
        let found = set.next(at, to)?;
        at = found + 1;
        Some(found)
    })
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
