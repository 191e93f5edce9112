//! Calls that can fail, so that a test of this crate can make each of them fail. In every other build the check below
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

/// The calls that are to fail.
#[cfg(test)]
#[derive(Clone, Copy)]
struct FailingCalls {
    call: Call,
    /// Calls of this kind that succeed before.
    left: u64,
    /// All that follow fail, too.
    all: bool,
}

#[cfg(test)]
thread_local! {
    static NEXT: std::cell::Cell<Option<FailingCalls>> = const { std::cell::Cell::new(None) };
    /// A call has failed since.
    static FIRED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes this thread's call number `n` of a kind fail, counted from 0.
#[cfg(test)]
pub(crate) fn arm(call: Call, n: u64) {
    arm_next(call, n, false);
}

/// Makes this thread's calls of a kind fail from number `n` on, as when no space is left.
#[cfg(test)]
pub(crate) fn arm_from(call: Call, n: u64) {
    arm_next(call, n, true);
}

#[cfg(test)]
fn arm_next(call: Call, left: u64, all: bool) {
    FIRED.set(false);
    NEXT.set(Some(FailingCalls { call, left, all }));
}

/// Lets all calls succeed again. Returns true if one has failed.
#[cfg(test)]
pub(crate) fn disarm() -> bool {
    NEXT.set(None);
    FIRED.take()
}

/// Returns true if this call fails.
#[cfg(test)]
pub(crate) fn now(call: Call) -> bool {
    let Some(next) = NEXT.get().filter(|next| next.call == call) else {
        return false;
    };
    let fails = next.left == 0;
    if fails {
        FIRED.set(true);
    }
    NEXT.set(match (fails, next.all) {
        (true, false) => None,
        (true, true) => Some(next),
        (false, _) => Some(FailingCalls {
            left: next.left - 1,
            ..next
        }),
    });
    fails
}

/// Returns false, because no call fails in this build.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn now(_call: Call) -> bool {
    false
}
