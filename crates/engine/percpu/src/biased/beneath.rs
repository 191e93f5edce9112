//! The locks that a bias is put on.
#![allow(unsafe_code)] // the contracts of lock_api's raw locks

use lock_api::RawRwLock;
use lockmeter::Word;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// A lock for beneath a bias, which may keep a bit in the flags of that; the methods are those of
/// [`RawRwLock`], with its contracts.
#[allow(missing_docs, clippy::missing_safety_doc)]
pub trait Beneath: Sized {
    const INIT: Self;
    /// A reader leaves it by a read-modify-write, not by a store.
    const LEFT_BY_STEP: bool;
    fn lock_shared(&self, flags: &AtomicU8);
    fn try_lock_shared(&self, flags: &AtomicU8) -> bool;
    unsafe fn unlock_shared(&self, flags: &AtomicU8);
    fn lock_exclusive(&self, flags: &AtomicU8);
    fn try_lock_exclusive(&self, flags: &AtomicU8) -> bool;
    unsafe fn unlock_exclusive(&self, flags: &AtomicU8);
    fn is_locked(&self) -> bool;
    fn is_locked_exclusive(&self) -> bool;
}

impl Beneath for parking_lot::RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // as above
    const INIT: Self = RawRwLock::INIT;
    const LEFT_BY_STEP: bool = true;

    #[inline]
    fn lock_shared(&self, _: &AtomicU8) {
        RawRwLock::lock_shared(self);
    }

    #[inline]
    fn try_lock_shared(&self, _: &AtomicU8) -> bool {
        RawRwLock::try_lock_shared(self)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _: &AtomicU8) {
        // SAFETY: the contract is the same.
        unsafe { RawRwLock::unlock_shared(self) }
    }

    #[inline]
    fn lock_exclusive(&self, _: &AtomicU8) {
        RawRwLock::lock_exclusive(self);
    }

    #[inline]
    fn try_lock_exclusive(&self, _: &AtomicU8) -> bool {
        RawRwLock::try_lock_exclusive(self)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, _: &AtomicU8) {
        // SAFETY: the contract is the same.
        unsafe { RawRwLock::unlock_exclusive(self) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawRwLock::is_locked(self)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        RawRwLock::is_locked_exclusive(self)
    }
}

/// A raw mutex as a reader-writer lock: its readers wait for each other. One byte, and a bit in the flags of the
/// bias above.
///
/// ```
/// assert_eq!(size_of::<extant_percpu::Biased<extant_percpu::Exclusive>>(), 4);
/// ```
pub struct Exclusive(AtomicBool);

impl Exclusive {
    #[inline]
    fn word<'a>(&'a self, flags: &'a AtomicU8) -> Word<'a> {
        let held = &self.0;
        Word { held, flags }
    }
}

impl Beneath for Exclusive {
    #[allow(clippy::declare_interior_mutable_const)] // as above
    const INIT: Self = Self(AtomicBool::new(false));
    const LEFT_BY_STEP: bool = false;

    #[inline]
    fn lock_shared(&self, flags: &AtomicU8) {
        self.word(flags).take();
    }

    #[inline]
    fn try_lock_shared(&self, flags: &AtomicU8) -> bool {
        self.word(flags).try_take()
    }

    #[inline]
    unsafe fn unlock_shared(&self, flags: &AtomicU8) {
        self.word(flags).release();
    }

    #[inline]
    fn lock_exclusive(&self, flags: &AtomicU8) {
        self.word(flags).take();
    }

    #[inline]
    fn try_lock_exclusive(&self, flags: &AtomicU8) -> bool {
        self.word(flags).try_take()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, flags: &AtomicU8) {
        self.word(flags).release();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        Beneath::is_locked(self)
    }
}
