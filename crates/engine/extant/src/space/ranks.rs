//! Sets of groups by their free runs (mechanism B4): for every order, one set of the groups whose largest aligned free
//! run has that order, and one of the groups whose mean free run has it. A candidate is found by looking into a few
//! words, from the goal's group on, without a lock and without walking hundreds of thousands of groups.

use crate::space::buddy::{Buddy, ORDERS, order};
use percpu::AtomicSet;
use std::sync::atomic::{AtomicU16, Ordering};

/// A group's largest and mean free run. Written with the group's lock held.
#[derive(Debug, Default)]
pub struct Rank(AtomicU16);

const SHIFT: u16 = 8;

impl Rank {
    /// Returns the order of the largest aligned free run, and of the mean run, or `None` if nothing is free or the
    /// group's bitmap has not been read.
    pub fn get(&self) -> Option<(u32, u32)> {
        let both = self.0.load(Ordering::Relaxed);
        let largest = u32::from(both & ((1 << SHIFT) - 1)).checked_sub(1)?;
        Some((largest, u32::from(both >> SHIFT)))
    }
}

/// The groups of a volume by their free runs.
pub struct Ranks {
    /// Groups by the order of their largest aligned free run.
    pub by_order: [AtomicSet; ORDERS],
    /// Groups by the order of their mean free run.
    pub by_average: [AtomicSet; ORDERS],
    /// Groups whose bitmap has not been read.
    pub unread: AtomicSet,
}

impl Ranks {
    /// Makes the sets of a volume with no bitmap read. `room` is the number of groups that the sets have room for.
    pub fn new(groups: u32, room: u32) -> Self {
        Self {
            by_order: std::array::from_fn(|_| AtomicSet::new(room)),
            by_average: std::array::from_fn(|_| AtomicSet::new(room)),
            unread: AtomicSet::first(groups, room),
        }
    }

    /// Moves a group whose blocks changed; its lock is held.
    pub fn update(&self, group: u32, rank: &Rank, buddy: &Buddy) {
        let now = buddy
            .largest_order()
            .map(|largest| (largest, order(buddy.average())));
        self.set(group, rank, now);
    }

    /// Removes a group whose bitmap leaves memory; its lock is held.
    pub fn forget(&self, group: u32, rank: &Rank) {
        self.set(group, rank, None);
    }

    fn set(&self, group: u32, rank: &Rank, now: Option<(u32, u32)>) {
        let before = rank.get();
        if now == before {
            return;
        }
        let word = now.map_or(0, |(largest, average)| {
            (largest as u16 + 1) | (average as u16) << SHIFT
        });
        rank.0.store(word, Ordering::Relaxed);
        // The group enters its new set before it leaves the old one.
        if let Some((largest, average)) = now {
            self.by_order[largest as usize].insert(group);
            self.by_average[average as usize].insert(group);
        }
        if let Some((largest, average)) = before {
            if now.is_none_or(|n| n.0 != largest) {
                self.by_order[largest as usize].remove(group);
            }
            if now.is_none_or(|n| n.1 != average) {
                self.by_average[average as usize].remove(group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stands_in_one_set_of_each_kind() {
        let ranks = Ranks::new(3, 3);
        let (rank, mut buddy) = (Rank::default(), Buddy::new(&[0; 4], 256));
        let places = |sets: &[AtomicSet]| -> Vec<usize> {
            (0..ORDERS).filter(|&o| sets[o].contains(1)).collect()
        };
        ranks.update(1, &rank, &buddy);
        assert_eq!(rank.get(), Some((8, 8)));
        for at in (0..256).step_by(4) {
            buddy.take(at, 2);
            ranks.update(1, &rank, &buddy);
            let (largest, average) = rank.get().unwrap();
            assert_eq!(places(&ranks.by_order), [largest as usize]);
            assert_eq!(places(&ranks.by_average), [average as usize]);
        }
        assert_eq!(rank.get(), Some((1, 1)));
        for at in (0..256).step_by(4) {
            buddy.take(at + 2, 2);
            ranks.update(1, &rank, &buddy);
        }
        assert_eq!(rank.get(), None);
        buddy.give(0, 256);
        ranks.update(1, &rank, &buddy);
        assert_eq!(places(&ranks.by_order), [8]);
        ranks.forget(1, &rank);
        assert_eq!(rank.get(), None);
        assert!(places(&ranks.by_order).is_empty() && places(&ranks.by_average).is_empty());
    }
}
