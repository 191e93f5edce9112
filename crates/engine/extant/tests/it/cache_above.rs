//! A server with a cache above it, like the kernel's: data that pass through the server are kept in that cache, not
//! here as well.

use crate::common;
use blockdev::{BlockDevice, FaultDevice, Op};
use common::*;
use extant::unstable::Node;
use extant::{Credentials, Error, Fallocate, Volume, VolumeOptions};
use std::sync::Arc;

const ARGS: &[&str] = &["-t", "ext4", "-J", "size=4"];
const MIB: usize = 1 << 20;

fn root() -> Credentials {
    Credentials::root()
}

fn make(v: &Volume) -> Node {
    let top = Node::root(v).unwrap();
    top.create(&root(), b"file", 0o600, true).unwrap().0
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut noise = Rng::new(seed);
    (0..len.div_ceil(8))
        .flat_map(|_| noise.next().to_le_bytes())
        .take(len)
        .collect()
}

#[test]
fn long_pieces_from_a_cache_above_are_not_kept() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let top = Node::root(&v).unwrap();
    let (file, _) = top.create(&root(), b"file", 0o600, true).unwrap();
    let data: Vec<u8> = (0..700_000u32).map(|i| (i / 7) as u8).collect();
    // Neither end of the range is at a block's.
    assert_eq!(file.write_cached(&data, 1000).unwrap(), data.len());
    let memory = v.memory();
    assert_eq!(memory.dirty, 0);
    assert!(memory.data <= 2 * 4096, "{memory:?}");
    // Meanwhile data in memory are overwritten, in part and whole.
    assert_eq!(file.write_at(&root(), b"here", 300_000).unwrap(), 4);
    assert_eq!(
        file.write_cached(&data[..200_000], 200_000).unwrap(),
        200_000
    );
    assert_eq!(file.write_cached(b"short", 0).unwrap(), 5);
    assert!(v.memory().dirty > 0);
    let mut want = vec![0; 701_000];
    want[1000..].copy_from_slice(&data);
    want[200_000..400_000].copy_from_slice(&data[..200_000]);
    want[..5].copy_from_slice(b"short");
    let mut found = vec![1; want.len() + 1];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), want.len());
    assert!(found[..want.len()] == want[..]);
    drop((file, top));
    v.close().unwrap();
    assert_clean(&device, "long pieces");
    let again = open(&device);
    assert!(again.read("/file").unwrap() == want);
}

#[test]
fn what_a_cache_above_reads_is_not_kept() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let data = noise(1, MIB + 100);
    let v = open(&device);
    v.write("/file", &data).unwrap();
    v.close().unwrap();
    let v = open(&device);
    let file = Node::root(&v).unwrap().lookup(&root(), b"file").unwrap();
    let read = |at: usize, len: usize| {
        let mut found = vec![7; len];
        let n = file.read_cached(&mut found, at as u64).unwrap();
        found.truncate(n);
        found
    };
    // Inside a block, over the ends of blocks, to the end of the file and past it.
    for (at, len) in [
        (8192, 4096),
        (5, 10),
        (4000, 9000),
        (0, MIB),
        (MIB - 3, 4096),
        (MIB + 100, 1),
    ] {
        let end = (at + len).min(data.len());
        assert!(read(at, len) == data[at..end], "{at} {len}");
    }
    assert_eq!(v.memory().data, 0);
    // A read returns the data in memory, which are newer than the device's.
    file.write_at(&root(), b"newer", 70_000).unwrap();
    let mut want = data.clone();
    want[70_000..70_005].copy_from_slice(b"newer");
    assert!(read(0, 2 * MIB) == want);
    assert!(read(65_536, 20_000) == want[65_536..85_536]);
    // A hole, and blocks that were never written.
    file.fallocate(&root(), Fallocate::PunchHole, 8192, 8192)
        .unwrap();
    let keep_size = Fallocate::Allocate { keep_size: true };
    file.fallocate(&root(), keep_size, 8192, 4096).unwrap();
    want[8192..16384].fill(0);
    assert!(read(4096, 40_960) == want[4096..45_056]);
}

/// Makes the same change to a file and to its expected bytes.
fn change(file: &Node, want: &mut Vec<u8>, noise: &mut Rng) {
    let at = noise.below(3 * MIB as u64);
    let block = |n: u64| n / 4096 * 4096;
    match noise.below(10) {
        // Whole blocks, up to what the kernel sends at a time.
        0..4 => write(file, want, block(at), 4096 * (32 + noise.below(225)), noise),
        4 => write(file, want, at, 130_000 + noise.below(500_000), noise),
        5 | 6 => write(file, want, at, 1 + noise.below(20_000), noise),
        7 => {
            file.truncate(&root(), at).unwrap();
            want.resize(at as usize, 0);
        }
        8 => {
            let len = 1 + noise.below(MIB as u64);
            file.fallocate(&root(), Fallocate::PunchHole, at, len)
                .unwrap();
            let end = want.len().min((at + len) as usize);
            if (at as usize) < end {
                want[at as usize..end].fill(0);
            }
        }
        _ => {
            let keep_size = Fallocate::Allocate { keep_size: true };
            file.fallocate(&root(), keep_size, at, 1 + noise.below(MIB as u64))
                .unwrap();
        }
    }
    if noise.below(8) == 0 {
        file.fsync(false).unwrap();
    }
}

fn write(file: &Node, want: &mut Vec<u8>, at: u64, len: u64, noise: &mut Rng) {
    let data = self::noise(noise.next(), len as usize);
    let from = at as usize;
    assert_eq!(file.write_cached(&data, at).unwrap(), data.len());
    if want.len() < from + data.len() {
        want.resize(from + data.len(), 0);
    }
    want[from..from + data.len()].copy_from_slice(&data);
}

#[test]
fn pieces_of_any_length_are_what_was_written() {
    needs::tools!("mke2fs");
    for args in [
        ARGS,
        &["-t", "ext4", "-b", "1024", "-J", "size=4"],
        // Files mapped by indirect blocks.
        &["-t", "ext3", "-J", "size=4"],
        &["-t", "ext4", "-O", "^has_journal"],
    ] {
        let extents = args[1] == "ext4";
        for seed in seeds(0, 3, 60) {
            let what = format!("{args:?}, seed {seed}");
            let device = mem_image("32M", args);
            let v = open(&device);
            let (file, mut want) = (make(&v), Vec::new());
            let mut noise = Rng::new(seed);
            for _ in 0..40 {
                if extents {
                    change(&file, &mut want, &mut noise);
                } else {
                    let at = noise.below(3 * MIB as u64) / 4096 * 4096;
                    let len = 4096 * (1 + noise.below(256));
                    write(&file, &mut want, at, len, &mut noise);
                }
            }
            let mut found = vec![1; want.len() + 1];
            assert_eq!(file.read_cached(&mut found, 0).unwrap(), want.len());
            assert!(found[..want.len()] == want[..], "{what}");
            drop(file);
            v.close().unwrap();
            assert_clean(&device, &what);
            let again = open(&device);
            assert!(again.read("/file").unwrap() == want, "{what}, again");
        }
    }
}

#[test]
fn a_volume_is_filled_to_the_last_block() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", ARGS);
    let v = open(&device);
    let before = v.statfs().unwrap().free_blocks;
    let file = make(&v);
    let data = noise(3, MIB);
    let filled = |write: &dyn Fn(u64) -> extant::Result<usize>| {
        let mut end = 0;
        loop {
            match write(end) {
                Ok(n) => end += n as u64,
                Err(e) => break (end, e),
            }
        }
    };
    let (end, error) = filled(&|at| file.write_cached(&data, at));
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert_eq!(v.statfs().unwrap().available_blocks, 0);
    let mut found = vec![0; MIB];
    for at in (0..end).step_by(MIB) {
        let n = file.read_cached(&mut found, at).unwrap();
        assert_eq!(n as u64, (end - at).min(MIB as u64));
        assert!(found[..n] == data[..n], "{at}");
    }
    // Overwriting needs no space.
    assert_eq!(file.write_cached(&data, MIB as u64).unwrap(), MIB);
    file.truncate(&root(), 0).unwrap();
    v.sync().unwrap();
    assert_eq!(v.statfs().unwrap().free_blocks, before);
    // Through pages, no more data fit.
    let (by_pages, _) = filled(&|at| file.write_at(&root(), &data, at));
    assert_eq!(by_pages, end);
    drop(file);
    v.close().unwrap();
    assert_clean(&device, "filled");
}

#[test]
fn a_piece_that_cannot_be_written_stops_the_volume() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", ARGS);
    let faulty = Arc::new(FaultDevice::new(device.snapshot()));
    let shared = Arc::clone(&faulty) as Arc<dyn BlockDevice>;
    let options = VolumeOptions::new().background(false);
    let v = options.open_device(shared).unwrap();
    let file = make(&v);
    let data = noise(4, MIB);
    assert_eq!(file.write_cached(&data, 0).unwrap(), MIB);
    file.fsync(false).unwrap();
    faulty.fail_all(Op::Write);
    let error = file.write_cached(&data, MIB as u64).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let error = file.write_cached(&data, 0).unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)), "{error}");
    // The failed data are not stored.
    let mut found = vec![0; 2 * MIB];
    assert_eq!(file.read_cached(&mut found, 0).unwrap(), MIB);
    assert!(found[..MIB] == data[..]);
}
