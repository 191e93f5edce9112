//! Does every operation many times on a new image, each through a separate function, so that a profiler can separate
//! their costs: `instructions IMAGE`. The image is made, and left to the caller to remove. `scripts/instructions.sh`
//! runs this program under callgrind.

mod counted;

use counted::{Outcome, make};
use extant::{Dir, Fallocate, File, OpenOptions, Result, Volume, VolumeOptions};
use std::hint::black_box;
use std::path::Path;

// The allocator of the command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FILES: usize = 20_000;
const BLOCK: usize = 4096;

// `black_box` keeps the compiler from merging functions with the same body.

#[inline(never)]
fn create(dir: &Dir, name: &str) -> Result<()> {
    dir.open_file_with(name, &OpenOptions::new().write(true).create(true))?;
    Ok(())
}

#[inline(never)]
fn unlink(dir: &Dir, name: &str) -> Result<()> {
    dir.remove_file(name)
}

#[inline(never)]
fn rename(dir: &Dir, from: &str, to: &str) -> Result<()> {
    dir.rename(from, to)
}

#[inline(never)]
fn write_4k(file: &File, offset: u64, data: &[u8]) -> Result<()> {
    file.write_at(data, offset)?;
    Ok(())
}

#[inline(never)]
fn fsync(file: &File) -> Result<()> {
    file.sync_all()
}

#[inline(never)]
fn fsync_fast(file: &File) -> Result<()> {
    black_box("fsync_fast");
    file.sync_all()
}

#[inline(never)]
fn file_fast(volume: &Volume, name: &str, data: &[u8]) -> Result<()> {
    let file = volume.create_new_file(name)?;
    file.write_all_at(data, 0)?;
    file.sync_all()
}

#[inline(never)]
fn lookup_cold(dir: &Dir, name: &str) -> Result<()> {
    black_box("lookup_cold");
    dir.metadata(name)?;
    Ok(())
}

#[inline(never)]
fn lookup_warm(dir: &Dir, name: &str) -> Result<()> {
    black_box("lookup_warm");
    dir.metadata(name)?;
    Ok(())
}

#[inline(never)]
fn fallocate(file: &File, offset: u64, len: u64) -> Result<()> {
    file.fallocate(Fallocate::Allocate { keep_size: false }, offset, len)
}

#[inline(never)]
fn truncate(file: &File) -> Result<()> {
    file.set_len(0)
}

#[inline(never)]
fn sync_creates(volume: &Volume) -> Result<()> {
    black_box("sync_creates");
    volume.sync()
}

#[inline(never)]
fn sync_unlinks(volume: &Volume) -> Result<()> {
    black_box("sync_unlinks");
    volume.sync()
}

#[inline(never)]
fn sync_writes(volume: &Volume) -> Result<()> {
    black_box("sync_writes");
    volume.sync()
}

/// Without the background thread, which commits at intervals, and with the same memory on every machine.
fn open(image: &Path) -> Result<Volume> {
    VolumeOptions::new()
        .background(false)
        .cache_bytes(1 << 30)
        .inodes_in_core(1_000_000)
        .open(image)
}

/// Two rounds, so that the second uses numbers, memory and blocks of the directory again.
fn names(volume: &Volume) -> Result<()> {
    let old: Vec<_> = (0..FILES).map(|i| format!("file.{i}")).collect();
    let new: Vec<_> = (0..FILES).map(|i| format!("new.{i}")).collect();
    for dir in ["first", "second"] {
        let dir = volume.create_dir(dir)?;
        volume.sync()?;
        old.iter().try_for_each(|name| create(&dir, name))?;
        sync_creates(volume)?;
        old.iter().try_for_each(|name| lookup_warm(&dir, name))?;
        for (from, to) in old.iter().zip(&new) {
            rename(&dir, from, to)?;
        }
        volume.sync()?;
        new.iter().try_for_each(|name| unlink(&dir, name))?;
        sync_unlinks(volume)?;
    }
    Ok(())
}

fn data(volume: &Volume) -> Result<()> {
    let block = [7; BLOCK];
    let at = |i: usize| (i * BLOCK) as u64;
    for i in 0..64 {
        let file = volume.create_new_file(format!("written.{i}"))?;
        (0..64).try_for_each(|i| write_4k(&file, at(i), &block))?;
    }
    sync_writes(volume)?;
    let file = volume.create_new_file("synced")?;
    for i in 0..400 {
        file.write_all_at(&block, at(i))?;
        fsync(&file)?;
    }
    // The loop of will-it-scale's fallocate2, with its file of 1 MiB in steps of 8 KiB.
    let file = volume.create_new_file("allocated")?;
    for _ in 0..100 {
        (0..128).try_for_each(|i| fallocate(&file, at(2 * i), 2 * BLOCK as u64))?;
        truncate(&file)?;
    }
    volume.sync()
}

/// On a volume with fast commits.
fn fast(image: &Path) -> Result<()> {
    let volume = open(image)?;
    let block = [7; BLOCK];
    let file = volume.create_new_file("synced")?;
    for i in 0..400 {
        file.write_all_at(&block, (i * BLOCK) as u64)?;
        fsync_fast(&file)?;
    }
    volume.create_dir("files")?;
    volume.sync()?;
    (0..400).try_for_each(|i| file_fast(&volume, &format!("files/{i}"), &block))?;
    volume.close()
}

fn cold(image: &Path) -> Result<()> {
    let volume = open(image)?;
    let dir = volume.create_dir("cold")?;
    for i in 0..FILES {
        dir.create_new_file(format!("file.{i}"))?;
    }
    drop(dir);
    volume.close()?;
    let volume = open(image)?;
    let dir = volume.open_dir("cold")?;
    // The first operation reads the blocks of the directory and of inode tables.
    dir.metadata("file.1")?;
    for i in (0..FILES).step_by(4) {
        lookup_cold(&dir, &format!("file.{i}"))?;
    }
    drop(dir);
    volume.close()
}

fn main() -> Outcome {
    let image = std::env::args_os()
        .nth(1)
        .ok_or("usage: instructions IMAGE")?;
    let image = Path::new(&image);
    make(image, "")?;
    let volume = open(image)?;
    names(&volume)?;
    data(&volume)?;
    volume.close()?;
    cold(image)?;
    make(image, "fast_commit")?;
    Ok(fast(image)?)
}
