//! Inode numbers, assigned in ascending order and near the data.

use super::error::{MkfsError, Result};
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, GroupNr, InodeNr};

/// Consecutive inode numbers that were assigned together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub first: u32,
    pub count: u32,
}

/// Assigner of inode numbers.
pub(super) struct Numbers<'a> {
    pub geo: &'a Geometry,
    /// The next number.
    pub next: u32,
    /// Inodes still without a number.
    pub left: u64,
    pub stretches: Vec<Stretch>,
}

impl Numbers<'_> {
    pub fn take(&mut self) -> Result<u32> {
        let n = self.next;
        if n > self.geo.inodes_count {
            return Err(MkfsError::TooFewInodes {
                given: self.geo.inodes_count,
                needed: u64::from(n) + self.left,
            });
        }
        self.left = self.left.saturating_sub(1);
        self.next += 1;
        match self.stretches.last_mut() {
            Some(s) if s.first + s.count == n => s.count += 1,
            _ => self.stretches.push(Stretch { first: n, count: 1 }),
        }
        Ok(n)
    }

    /// Advances to the flex group of `block`, if all remaining inodes fit behind its start.
    pub fn align(&mut self, block: u64) {
        let geo = self.geo;
        let (Some((at, _)), Some((here, _))) = (
            geo.group_of_block(BlockNr(block)),
            geo.group_of_inode(InodeNr(self.next)),
        ) else {
            return;
        };
        let flex = geo.flex_of(at);
        let first = geo.inode_nr(GroupNr(flex << geo.log_groups_per_flex), 0);
        let room = u64::from(geo.inodes_count).saturating_sub(u64::from(first.0) - 1);
        if flex > geo.flex_of(here) && self.left <= room {
            self.next = first.0;
        }
    }
}
