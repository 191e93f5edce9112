//! For which blocks of inode tables the log was charged, and in which context last.
//!
//! A word for each block, in tables that groups share if the volume has more of them than there is memory for. A
//! block whose word another has taken is charged for once more: the log counts too much, never too little.

use crate::base::chunked::Chunked;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of one group, or of several that take turns.
type Table = Box<[AtomicU64]>;

/// Bits of a word that say which of its groups it speaks of; the others are the context.
const TURN_BITS: u32 = 24;

/// Tables there are at least, if there are as many groups.
const FEWEST: u32 = 64;

pub(super) struct Charged {
    tables: Chunked<OnceLock<Table>>,
    blocks: u32,
}

impl Charged {
    /// For groups whose inode tables have so many blocks, in about so much memory.
    pub fn new(groups: u32, blocks: u32, memory: u64) -> Self {
        let each = u64::from(blocks).max(1) * size_of::<AtomicU64>() as u64;
        let tables = u32::try_from(memory / each).unwrap_or(u32::MAX);
        Self {
            tables: Chunked::new(tables.max(FEWEST).min(groups)),
            blocks,
        }
    }

    /// True the first time in a context, and seldom again.
    pub fn charge(&self, group: u32, block: u32, context: u64) -> bool {
        let tables = self.tables.len().max(1);
        // There is one for every remainder.
        let Some(table) = self.tables.get_or_default(group % tables) else {
            return false;
        };
        let table = table.get_or_init(|| (0..self.blocks).map(|_| AtomicU64::new(0)).collect());
        let Some(word) = table.get(block as usize) else {
            return false;
        };
        let now = context << TURN_BITS | u64::from(group / tables);
        word.load(Ordering::Relaxed) != now && word.swap(now, Ordering::Relaxed) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_a_context_and_seldom_again() {
        // Room for all.
        let all = Charged::new(200, 4, 1 << 20);
        for context in 1..4 {
            let charged = || (0..200).filter(|&g| all.charge(g, g % 4, context)).count();
            assert_eq!((charged(), charged()), (200, 0));
        }
        // Room for 64: groups that share a word count too often, others as before.
        let few = Charged::new(1 << 20, 4, 0);
        assert_eq!(few.tables.len(), 64);
        assert!(few.charge(3, 0, 1) && !few.charge(3, 0, 1));
        assert!(few.charge(3 + 64, 0, 1) && !few.charge(3 + 64, 0, 1));
        assert!(few.charge(3, 0, 1) && few.charge(4, 0, 1) && few.charge(3, 1, 1));
        assert!(!few.charge(3, 0, 1) && few.charge(3, 0, 2));
        // No inode is past the end of its table.
        assert!(!few.charge(3, 4, 1));
    }
}
