//! How far a check is.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far a check is, in the passes of e2fsck.
///
/// ```
/// use extant_check::CheckStep;
/// let step = CheckStep { pass: 1, done: 5, total: 20 };
/// assert_eq!(step.pass_name(), "inodes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckStep {
    /// 1: inodes, 2: directories (in blocks), 3 and 4: the way to every inode, and links (in directories), 5: bitmaps and counts (in
    /// groups).
    pub pass: u8,
    /// Units of work done in this pass.
    pub done: u64,
    /// Units of work in this pass.
    pub total: u64,
}

impl CheckStep {
    /// Returns the pass, as a word.
    pub const fn pass_name(&self) -> &'static str {
        match self.pass {
            1 => "inodes",
            2 => "directories",
            3 | 4 => "links",
            _ => "bitmaps",
        }
    }
}

/// Calls who wants to know, from whichever thread has done something.
pub(crate) struct Steps<'d> {
    tell: &'d (dyn Fn(CheckStep) + Sync),
    pass: AtomicU64,
    total: AtomicU64,
    done: AtomicU64,
}

impl<'d> Steps<'d> {
    pub(crate) fn new(tell: &'d (dyn Fn(CheckStep) + Sync)) -> Self {
        Self {
            tell,
            pass: AtomicU64::new(0),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Begins a pass with `total` units of work. No thread may still add to the previous pass.
    pub(crate) fn begin(&self, pass: u8, total: u64) {
        self.pass.store(pass.into(), Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.add(0);
    }

    /// Adds `n` units of finished work.
    pub(crate) fn add(&self, n: u64) {
        let done = self.done.fetch_add(n, Ordering::Relaxed) + n;
        (self.tell)(CheckStep {
            pass: self.pass.load(Ordering::Relaxed) as u8, // 1 to 5
            done,
            total: self.total.load(Ordering::Relaxed),
        });
    }
}
