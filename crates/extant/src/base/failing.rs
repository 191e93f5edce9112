//! Calls that can fail, and that a test of this crate has fail one after the other. In every other build the check below
//! is a constant, and the compiler removes it.

/// A call that fails when space has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Taking blocks out of the count of free ones.
    Count,
    /// Finding blocks.
    Blocks,
    /// Finding an inode number.
    Number,
}

#[cfg(test)]
thread_local! {
    /// The call that is to fail, and how many of its kind succeed before.
    static NEXT: std::cell::Cell<Option<(Call, u64)>> = const { std::cell::Cell::new(None) };
}

/// Has this thread's call number `n` of a kind fail, from 0 on.
#[cfg(test)]
pub(crate) fn arm(call: Call, n: u64) {
    NEXT.set(Some((call, n)));
}

/// No call fails any more. True if one has.
#[cfg(test)]
pub(crate) fn disarm() -> bool {
    NEXT.take().is_none()
}

/// Whether this call fails.
#[cfg(test)]
pub(crate) fn now(call: Call) -> bool {
    match NEXT.get() {
        Some((which, 0)) if which == call => {
            NEXT.set(None);
            true
        }
        Some((which, n)) if which == call => {
            NEXT.set(Some((which, n - 1)));
            false
        }
        _ => false,
    }
}

/// Whether this call fails: in this build none does.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn now(_call: Call) -> bool {
    false
}
