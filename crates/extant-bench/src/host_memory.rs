//! Memory that the machine has at hand.
//!
//! The host of a virtual machine takes back memory that is free for some seconds (free page reporting), and gives it again at the
//! first touch, which costs up to twenty times what clearing a page does. Work that needs new memory would be timed with that: a
//! round that comes late more than one that comes early, and a file system with much state more than one with little.

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;

/// What the work between two calls may need; a step of any benchmark needs less, and one of a test nearly nothing.
const BYTES: u64 = if cfg!(test) { 4 << 20 } else { 512 << 20 };
/// What a directory of a million names and its image take is a third of this.
const MUCH: u64 = 6 << 30;
/// Bytes that are touched at once.
const PIECE: usize = 1 << 20;
/// The environment variable that says how many MiB are touched at most: 0 where no time is of interest.
const LIMIT: &str = "EXTANT_BENCH_TOUCH";

/// Touches free memory and frees it again, as small pages and as the large ones that an allocator asks for: of each size the
/// kernel hands out first what was freed last.
///
/// # Errors
/// Those of the memory.
pub fn touch() -> Result<()> {
    touch_bytes(BYTES)
}

/// The same once for work that takes many steps and keeps what it has: not all that it gets is what was freed last.
pub(crate) fn touch_much() -> Result<()> {
    touch_bytes(MUCH)
}

fn touch_bytes(bytes: u64) -> Result<()> {
    let memory = memfd_create(c"touched", MemfdFlags::CLOEXEC).context("a file in memory")?;
    let mut memory = File::from(memory);
    let most = std::env::var(LIMIT)
        .ok()
        .and_then(|mib| mib.parse::<u64>().ok());
    let bytes = bytes.min(most.map_or(u64::MAX, |mib| mib.saturating_mul(PIECE as u64)));
    let free = free()?;
    // What is only set aside is not touched. A machine without so much to spare keeps what it has.
    let bytes = bytes.min(free / 4);
    let piece = vec![1; PIECE];
    for _ in 0..bytes / PIECE as u64 {
        memory.write_all(&piece).context("touch free memory")?;
    }
    drop(memory);
    let large = usize::try_from(bytes).context("memory to touch")?;
    drop(std::hint::black_box(vec![1_u8; large]));
    Ok(())
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
