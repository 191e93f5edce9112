//! Memory that the machine has at hand.
//!
//! The host of a virtual machine takes back memory that is free for some seconds (free page reporting), and gives it again at the
//! first touch, which costs up to twenty times what clearing a page does. Work that needs new memory would be timed with that: a
//! round that comes late more than one that comes early, and a file system with much state more than one with little.

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

/// What the work between two calls may need; a step of any benchmark needs less.
const BYTES: u64 = 512 << 20;

/// Touches free memory and frees it again: the kernel hands out first what was freed last.
///
/// # Errors
/// Those of the memory.
pub fn touch() -> Result<()> {
    let memory = memfd_create(c"touched", MemfdFlags::CLOEXEC).context("a file in memory")?;
    let free = free()?;
    // A machine without so much to spare keeps what it has.
    fallocate(&memory, FallocateFlags::empty(), 0, BYTES.min(free / 4)).context("touch free memory")
}

/// Bytes that can be had without taking them from anybody.
fn free() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.context("MemAvailable in /proc/meminfo")? * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_touched_is_free_again() {
        super::touch().unwrap();
        let before = super::free().unwrap();
        super::touch().unwrap();
        let after = super::free().unwrap();
        assert!(after + (super::BYTES / 2) > before, "{before} then {after}");
    }
}
