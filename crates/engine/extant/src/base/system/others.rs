//! Systems that are not Linux.

use rustix::io::Errno;

pub(crate) const DAMAGED: i32 = Errno::IO.raw_os_error();
pub(crate) const NO_KEY: i32 = Errno::ACCESS.raw_os_error();
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NOENT.raw_os_error();

/// Returns half of a small machine's memory, because no portable call reports the size. Callers that know the size set
/// their limits.
pub(crate) fn memory() -> u64 {
    2 << 30
}

pub(crate) fn now() -> (i64, u32) {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (t.tv_sec, t.tv_nsec as u32)
}
