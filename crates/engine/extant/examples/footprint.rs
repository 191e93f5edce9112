//! Memory of a file in core, for `scripts/footprint.sh`. `footprint heap IMAGE` prints the bytes of heap for each file.
//! `footprint lines IMAGE` makes files between stores to a word, by which a trace of all accesses is cut into
//! operations. The image is made, and left to the caller to remove.

mod counted;

use counted::{Outcome, make};
use extant::{Dir, OpenOptions, Volume, VolumeOptions};
use std::alloc::{GlobalAlloc, Layout};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The allocator of the command, which counts the requested bytes.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)] // the contract of an allocator
// SAFETY: every call is passed on unchanged to an allocator that keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of this function, which is that of the function called.
        unsafe { mimalloc::MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { mimalloc::MiMalloc.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn open(image: &Path) -> std::result::Result<Volume, Box<dyn std::error::Error>> {
    make(image, "")?;
    // Without the background thread, which commits at intervals.
    let options = VolumeOptions::new().background(false);
    Ok(options.inodes_in_core(1_000_000).open(image)?)
}

fn create(dir: &Dir, name: &str) -> extant::Result<()> {
    dir.open_file_with(name, &OpenOptions::new().write(true).create(true))
        .map(drop)
}

/// Bytes that the engine allocates for each of many new files: the in-core inode, its name, its places in the index and
/// in the list of all inodes, and until the next push its items in the log.
fn heap(image: &Path) -> Outcome {
    const FILES: usize = 16_000;
    let names: Vec<_> = (0..FILES).map(|i| format!("file.{i}")).collect();
    let volume = open(image)?;
    let dir = volume.create_dir("dir")?;
    volume.sync()?;
    let before = ALLOCATED.load(Ordering::Relaxed);
    names.iter().try_for_each(|name| create(&dir, name))?;
    println!("{}", (ALLOCATED.load(Ordering::Relaxed) - before) / FILES);
    drop(dir);
    Ok(volume.close()?)
}

static MARK: AtomicUsize = AtomicUsize::new(0);

fn lines(image: &Path) -> Outcome {
    const WARM: usize = 1500;
    const COUNTED: usize = 200;
    let names: Vec<_> = (0..WARM + COUNTED).map(|i| format!("file.{i}")).collect();
    let volume = open(image)?;
    let dir = volume.create_dir("dir")?;
    let here = 0u8;
    println!("mark {:p} stack {:p}", &MARK, &here);
    let (warm, counted) = names.split_at(WARM);
    warm.iter().try_for_each(|name| create(&dir, name))?;
    let marked = |f: &dyn Fn() -> extant::Result<()>| {
        MARK.store(1, Ordering::Relaxed);
        let done = f();
        MARK.store(0, Ordering::Relaxed);
        done
    };
    for name in counted {
        marked(&|| create(&dir, name))?;
    }
    for name in counted {
        marked(&|| dir.remove_file(name))?;
    }
    Ok(volume.close()?)
}

fn main() -> Outcome {
    let mut args = std::env::args_os().skip(1);
    let (Some(what), Some(image)) = (args.next(), args.next()) else {
        return Err("usage: footprint heap|lines IMAGE".into());
    };
    match what.to_str() {
        Some("heap") => heap(Path::new(&image)),
        Some("lines") => lines(Path::new(&image)),
        _ => Err("usage: footprint heap|lines IMAGE".into()),
    }
}
