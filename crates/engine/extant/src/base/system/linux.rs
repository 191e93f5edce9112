//! Linux.

use rustix::io::Errno;

/// The error number of bytes that break the format: that of Linux' ext4, EFSCORRUPTED.
pub(crate) const DAMAGED: i32 = Errno::UCLEAN.raw_os_error();
/// The error number of reading without a key.
pub(crate) const NO_KEY: i32 = Errno::NOKEY.raw_os_error();
/// The error number of a missing extended attribute.
pub(crate) const NO_ATTRIBUTE: i32 = Errno::NODATA.raw_os_error();

/// Returns the memory of the machine, in bytes.
pub(crate) fn memory() -> u64 {
    let memory = rustix::system::sysinfo();
    (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit.max(1)))
}

/// Seconds and nanoseconds of the coarse clock, as the kernel uses it for inode times: a few nanoseconds to read, a few
/// milliseconds of grain.
#[inline]
pub(crate) fn now() -> (i64, u32) {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (t.tv_sec, t.tv_nsec as u32)
}
