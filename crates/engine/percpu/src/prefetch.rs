//! Prefetching: cache lines are requested ahead of their use, so that they arrive while other work is done. A locked
//! instruction on a line that is far away delays all instructions after it. On a line that has arrived it does not.
#![allow(unsafe_code)]

/// Bytes of a cache line, or fewer: to ask for a line twice costs little.
const LINE: usize = 64;

/// Prefetches the cache lines of a value. The address need not be valid: without memory there, the call does nothing.
///
/// ```
/// let table = vec![7_u64; 1 << 16];
/// extant_percpu::prefetch(&table[40_000]);
/// // Here the program does something else.
/// assert_eq!(table[40_000], 7);
/// ```
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    let size = size_of::<T>();
    for offset in (0..size).step_by(LINE) {
        prefetch_line(at.cast::<u8>().wrapping_add(offset));
    }
    // A value that does not begin a line may end on one more.
    if !align_of::<T>().is_multiple_of(LINE) {
        prefetch_line(at.cast::<u8>().wrapping_add(size.saturating_sub(1)));
    }
}

/// Values that [`prefetched`] has on their way.
const AHEAD: usize = 8;

/// Returns the same values one by one, each prefetched some values before.
///
/// ```
/// let table: Vec<u64> = (0..1 << 16).collect();
/// let places = (0..1000).map(|i| &table[i * 8191 % table.len()]);
/// assert_eq!(extant_percpu::prefetched(places.clone()).sum::<u64>(), places.sum());
/// ```
#[inline(always)]
pub fn prefetched<'t, T: 't>(
    mut values: impl Iterator<Item = &'t T>,
) -> impl Iterator<Item = &'t T> {
    let mut next = move || values.next().inspect(|value| prefetch(*value));
    let mut coming = [None; AHEAD];
    for place in &mut coming {
        *place = next();
        if place.is_none() {
            break;
        }
    }
    let mut at = 0;
    std::iter::from_fn(move || {
        let come = coming[at].take()?;
        coming[at] = next();
        at = (at + 1) % AHEAD;
        Some(come)
    })
}

#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction; it changes no register and no memory, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the same holds for this one.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = at;
}
