//! CPU time of a thread, because a wait may be sleep or work.

/// Nanoseconds of CPU that the calling thread has used; always 0 where the system does not tell.
pub(crate) fn of_this_thread() -> u64 {
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + time.tv_nsec as u64
    }
    #[cfg(not(target_os = "linux"))]
    0
}
