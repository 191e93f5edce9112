//! Preparation of the machine's free memory.
//!
//! The host of a virtual machine reclaims memory that is free for some seconds (free page reporting), and returns it
//! at the first touch, which costs up to twenty times the clearing of a page. Without preparation, that cost would be
//! part of the times of work that needs new memory. It would hit later rounds more than earlier ones, and file systems
//! with much state more than those with little.

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::Write;

/// Memory that the work between two calls may need. Every step of a benchmark needs less, and that of a test nearly
/// nothing.
const BYTES: u64 = if cfg!(test) { 4 << 20 } else { 512 << 20 };
/// Three times the memory of a directory of a million names and its image.
const MUCH: u64 = 6 << 30;
/// Bytes touched at once.
const PIECE: usize = 1 << 20;
/// The environment variable that limits the memory touched, in MiB: 0 if times do not matter.
const LIMIT: &str = "EXTANT_BENCH_TOUCH";

/// Touches free memory and frees it again, as small pages and as the large pages that an allocator requests. The
/// kernel allocates the most recently freed pages of each size first.
///
/// # Errors
/// Touching the memory fails.
pub fn touch() -> Result<()> {
    touch_bytes(BYTES)
}

/// Touches much more memory, once, for work that takes many steps and keeps its memory, and so needs more than the
/// most recently freed pages.
pub(crate) fn touch_much() -> Result<()> {
    touch_bytes(MUCH)
}

fn touch_bytes(wanted: u64) -> Result<()> {
    let memory = memfd_create(c"touched", MemfdFlags::CLOEXEC).context("a file in memory")?;
    let mut memory = File::from(memory);
    let limit = std::env::var(LIMIT).ok().and_then(|mib| mib.parse().ok());
    let bytes = amount(wanted, limit, free()?);
    let piece = vec![1; PIECE];
    for _ in 0..bytes / PIECE as u64 {
        memory.write_all(&piece).context("touch free memory")?;
    }
    drop(memory);
    let large = usize::try_from(bytes).context("memory to touch")?;
    drop(std::hint::black_box(vec![1_u8; large]));
    Ok(())
}

/// Returns the bytes to touch, for a limit in MiB. Reserved memory is not touched, and a machine without enough free memory touches
/// less.
fn amount(wanted: u64, limit: Option<u64>, free: u64) -> u64 {
    let limit = limit.map_or(u64::MAX, |mib| mib.saturating_mul(PIECE as u64));
    wanted.min(limit).min(free / 4)
}

/// Returns the bytes of memory that are free without reclaim.
fn free() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.context("MemAvailable in /proc/meminfo")? * 1024)
}

#[cfg(test)]
mod tests {
    use super::{BYTES, amount, free, touch};

    #[test]
    fn a_limit_and_the_free_memory_bound_what_is_touched() {
        touch().unwrap();
        assert!(free().unwrap() > 4 * BYTES);
        assert_eq!(amount(100 << 20, None, 1 << 40), 100 << 20);
        assert_eq!(amount(100 << 20, Some(3), 1 << 40), 3 << 20);
        assert_eq!(amount(100 << 20, Some(0), 1 << 40), 0);
        assert_eq!(amount(100 << 20, Some(u64::MAX), 40 << 20), 10 << 20);
    }
}
