//! Fills one directory of a new image: `growth IMAGE ORDER NAMES...`. Each number of names is reached by a call of
//! `grow` and made durable inside it, so that a profiler can count the cost of a name as the directory grows. The image
//! is left to the caller to remove. `scripts/growth.sh` runs this program under callgrind. ORDER is `random` (a hash
//! spreads the names), `hash` (names are added in the order of their hashes, as a listing gives them) or `removals`
//! (after each third name one existing name is removed). With `time` before the others it prints the nanoseconds of
//! each call.

use blockdev::FileDevice;
use ext4_format::hash::DirHasher;
use ext4_format::layout::Inodes;
use extant::mkfs::{self, MkfsOptions};
use extant::{Dir, OpenOptions, Result, Volume, VolumeOptions};
use std::path::Path;
use std::time::Instant;

// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

const SEED: [u8; 16] = *b"0123456789abcdef";

/// A name, to be made or removed.
enum Step {
    Create(u32),
    Remove(u32),
}

fn name(number: u32) -> String {
    format!("file.mdtest.0.{number}")
}

/// Returns the steps that lead to the last of `sizes` names, one part for each of `sizes`. With removals the sizes
/// count the names made.
fn steps(order: &str, sizes: &[u32]) -> std::result::Result<Vec<Vec<Step>>, String> {
    let last = sizes.last().copied().unwrap_or(0);
    let mut numbers: Vec<u32> = (0..last).collect();
    match order {
        "random" | "removals" => {}
        "hash" => {
            let words = SEED.as_chunks().0;
            let seed = std::array::from_fn(|i| words.get(i).map_or(0, |w| u32::from_le_bytes(*w)));
            let hasher = DirHasher::new(1, false, seed).map_err(|e| e.to_string())?;
            numbers.sort_by_cached_key(|n| hasher.hash(name(*n).as_bytes()));
        }
        other => return Err(format!("no such order: {other}")),
    }
    let mut parts = Vec::new();
    let mut from = 0;
    let mut dice = 1u64;
    let mut alive: Vec<u32> = Vec::new();
    for &to in sizes {
        let mut part = Vec::new();
        for &number in numbers.get(from as usize..to as usize).unwrap_or(&[]) {
            part.push(Step::Create(number));
            if order != "removals" {
                continue;
            }
            alive.push(number);
            if number % 3 == 2 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let gone = alive.swap_remove((dice >> 33) as usize % alive.len());
                part.push(Step::Remove(gone));
            }
        }
        parts.push(part);
        from = to;
    }
    Ok(parts)
}

#[inline(never)]
fn grow(volume: &Volume, dir: &Dir, steps: &[Step]) -> Result<()> {
    for step in steps {
        match *step {
            Step::Create(number) => {
                dir.open_file_with(name(number), &OpenOptions::new().write(true).create(true))?;
            }
            Step::Remove(number) => dir.remove_file(name(number))?,
        }
    }
    volume.sync()
}

fn main() -> Outcome {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let timed = args.first().is_some_and(|arg| arg == "time");
    args.drain(..usize::from(timed));
    let [image, order, sizes @ ..] = &args[..] else {
        return Err("usage: growth [time] IMAGE ORDER NAMES...".into());
    };
    let sizes: Vec<u32> = sizes
        .iter()
        .map(|n| n.parse())
        .collect::<std::result::Result<_, _>>()?;
    let last = sizes.last().copied().ok_or("no number of names")?;
    let size = 8 << 30;
    let options = MkfsOptions {
        size: Some(size),
        inodes: Some(Inodes::Count(last + 1000)),
        journal_size: Some(1 << 30),
        uuid: Some(SEED),
        hash_seed: Some(SEED),
        source_date_epoch: Some(1_700_000_000),
        zeroed_device: true,
        threads: 1,
        ..MkfsOptions::default()
    };
    let image = Path::new(image);
    mkfs::format(&FileDevice::create(image, size)?, &options)?;
    // Without the background thread, which commits at intervals, and with the same memory on every machine.
    let volume = VolumeOptions::new()
        .background(false)
        .cache_bytes(1 << 30)
        .inodes_in_core(u64::from(last) + 1000)
        .open(image)?;
    let dir = volume.create_dir("grown")?;
    volume.sync()?;
    for part in steps(order, &sizes)? {
        let begun = Instant::now();
        grow(&volume, &dir, &part)?;
        if timed {
            println!("{}", begun.elapsed().as_nanos());
        }
    }
    // Closing a volume with a million inodes in core is not counted.
    std::process::exit(0)
}
