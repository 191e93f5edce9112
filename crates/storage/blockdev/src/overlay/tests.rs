use super::*;
use crate::{Crash, Event, FaultDevice, MemDevice, Op, RecordingDevice, SECTOR};
use std::sync::Arc;

const LEN: u64 = 600 * BLOCK + 1500;

type Over = Overlay<Arc<MemDevice>, Arc<RecordingDevice<MemDevice>>>;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Makes a base whose sectors all hold the number 1, as 32-bit words.
fn base() -> Arc<MemDevice> {
    let bytes: Vec<u8> = std::iter::repeat_n(1u32.to_le_bytes(), LEN as usize / 4)
        .flatten()
        .collect();
    Arc::new(MemDevice::from_bytes(&bytes))
}

fn blank() -> MemDevice {
    MemDevice::new(Over::store_len(LEN))
}

/// Returns the number that a whole sector holds.
fn number(sector: &[u8]) -> u32 {
    let words = sector.chunks_exact(4).map(|w| w.try_into().unwrap());
    let mut words = words.map(u32::from_le_bytes);
    let first = words.next().unwrap();
    assert!(words.all(|w| w == first), "torn inside a sector");
    first
}

fn numbers(dev: &dyn BlockDevice) -> Vec<u32> {
    let mut bytes = vec![0; dev.len() as usize];
    dev.read_at(0, &mut bytes).unwrap();
    bytes.chunks(SECTOR as usize).map(number).collect()
}

/// Numbered writes with some flushes: the contents of each sector, in order, and the durable ones at each mark.
struct Played {
    log: crate::Log,
    history: Vec<Vec<u32>>,
    durable: Vec<Vec<u32>>,
    last: Vec<u32>,
    store: Arc<RecordingDevice<MemDevice>>,
}

/// Whether this is a long run: `make torture` sets EXTANT_TORTURE.
fn is_long() -> bool {
    !cfg!(miri) && std::env::var_os("EXTANT_TORTURE").is_some()
}

fn play(seed: u64, ops: u32) -> Played {
    let store = Arc::new(RecordingDevice::new(blank()));
    let dev = Over::create(base(), Arc::clone(&store)).unwrap();
    let mut now = numbers(&dev);
    let mut history: Vec<Vec<u32>> = now.iter().map(|&n| vec![n]).collect();
    let mut durable = Vec::new();
    let mut random = Random(seed);
    store.mark(0);
    durable.push(now.clone());
    for op in 2..ops + 2 {
        if random.below(6) == 0 {
            dev.flush().unwrap();
            store.mark(durable.len() as u64);
            durable.push(now.clone());
            continue;
        }
        let sectors = now.len() as u64;
        // Often the same places, so that blocks are overwritten.
        let from = match random.below(3) {
            0 => random.below(40),
            _ => random.below(sectors),
        };
        let to = (from + 1 + random.below(40)).min(sectors);
        let end = (to * SECTOR).min(LEN);
        let words = (end - from * SECTOR) as usize / 4;
        let bytes: Vec<u8> = std::iter::repeat_n(op.to_le_bytes(), words)
            .flatten()
            .collect();
        let (head, tail) = bytes.split_at(bytes.len() / 8 * 4);
        dev.write_vectored_at(from * SECTOR, &[head, tail]).unwrap();
        for n in from..to {
            now[n as usize] = op;
            history[n as usize].push(op);
        }
        assert_eq!(
            numbers(&dev)[from as usize..to as usize],
            now[from as usize..to as usize]
        );
    }
    dev.flush().unwrap();
    assert_eq!(numbers(&dev), now);
    drop(dev);
    Played {
        log: store.log(),
        history,
        durable,
        last: now,
        store,
    }
}

#[test]
fn agrees_with_a_plain_device_and_comes_back() {
    for seed in 0..if is_long() { 4 } else { 1 } {
        let played = play(seed, if is_long() { 300 } else { 120 });
        let before = base().to_bytes().unwrap();
        let shared = base();
        let dev = Over::open(Arc::clone(&shared), Arc::clone(&played.store)).unwrap();
        assert_eq!(numbers(&dev), played.last);
        assert!(dev.changed() > 0 && dev.changed() <= LEN.next_multiple_of(BLOCK));
        assert!(shared.to_bytes().unwrap() == before, "the base was written");
        // Trimming touches nothing else.
        dev.trim(100 * BLOCK - 1, 10 * BLOCK).unwrap();
        let after = numbers(&dev);
        let kept = (100 * 8)..(109 * 8);
        for (n, value) in after.iter().enumerate() {
            assert!(kept.contains(&n) || *value == played.last[n]);
        }
    }
}

/// Cut at every write and flush, in several ways: every sector is as the last flush left it, or newer.
#[test]
fn cut_at_every_write() {
    let (seeds, ops) = if is_long() { (2, 90) } else { (1, 25) };
    for seed in 0..seeds {
        let played = play(seed + 10, ops);
        let blank = blank();
        let mut replayer = played.log.replay(&blank);
        let mut mark = None;
        while let Some(event) = replayer.step().unwrap() {
            if let Event::Mark(n) = event {
                mark = Some(*n as usize);
            }
            for variant in 0..4 {
                let mut crash = Crash::new(variant * 1000 + replayer.position() as u64);
                crash.torn = variant < 3;
                let image = Arc::new(replayer.crash(&crash).unwrap());
                let dev = match Overlay::open_or_create(base(), image) {
                    Ok(dev) => dev,
                    // The store was torn while it was made.
                    Err(e) => {
                        assert!(mark.is_none(), "{e}");
                        continue;
                    }
                };
                let found = numbers(&dev);
                let durable = mark.map(|m| &played.durable[m]);
                for (n, value) in found.iter().enumerate() {
                    let least = durable.map_or(1, |d| d[n]);
                    assert!(
                        *value >= least && played.history[n].contains(value),
                        "seed {seed}, event {}, sector {n}: {value}, durable was {least}",
                        replayer.position()
                    );
                }
                // The overlay can be written further.
                dev.write_at(3 * BLOCK + 512, &[9; 512]).unwrap();
                dev.write_at(LEN - 4, &[9; 4]).unwrap();
                dev.flush().unwrap();
            }
        }
    }
}

/// Merging is cut at every write, and done again.
#[test]
fn merging_cut_at_every_write() {
    let played = play(77, if is_long() { 200 } else { 70 });
    let store = played.store.inner();
    let target = RecordingDevice::new(base().snapshot());
    let recorded = RecordingDevice::new(store.snapshot());
    assert!(apply_overlay(&recorded, &target).unwrap() > 0);
    assert_eq!(numbers(&target), played.last);
    assert_eq!(apply_overlay(&recorded, &target).unwrap(), 0);
    let err = Overlay::open(base(), &recorded).err().unwrap();
    assert!(err.to_string().contains("already"), "{err}");
    // The store is marked as being merged before the base is touched, and as merged when all is done.
    let log = recorded.log();
    let writes = |e: &&Event| matches!(e, Event::Write { .. });
    assert_eq!(log.events().iter().filter(writes).count(), 2);
    let begun = log.image_at(&store.snapshot(), 2).unwrap();
    let err = Overlay::open(base(), begun.snapshot()).err().unwrap();
    assert!(err.to_string().contains("again"), "{err}");
    let base = base();
    let target_log = target.log();
    let mut replayer = target_log.replay(&base);
    loop {
        for seed in 0..3 {
            let image = replayer.crash(&Crash::new(seed)).unwrap();
            apply_overlay(&begun.snapshot(), &image).unwrap();
            assert_eq!(numbers(&image), played.last);
        }
        if replayer.step().unwrap().is_none() {
            break;
        }
    }
    // Torn at its own header.
    for cut in 0..=log.events().len() {
        let mut replayer = log.replay(store);
        replayer.advance_to(cut).unwrap();
        let torn = replayer.crash(&Crash::new(cut as u64)).unwrap();
        let image = base.snapshot();
        let done = apply_overlay(&torn, &image).unwrap();
        assert!(done == 0 || numbers(&image) == played.last);
    }
}

#[test]
fn what_is_no_overlay_of_this_base_is_refused() {
    let store = MemDevice::new(Over::store_len(LEN));
    assert!(Overlay::open(base(), store.snapshot()).is_err());
    assert!(Overlay::create(base(), MemDevice::new(4096 * 100)).is_err());
    let dev = Overlay::create(base(), store.snapshot()).unwrap();
    dev.write_at(0, &[7; 5000]).unwrap();
    dev.flush().unwrap();
    let store = dev.store.snapshot();
    let refused = |base: MemDevice, store: MemDevice, why: &str| {
        let err = Overlay::open(base, store).err().unwrap();
        assert_eq!(err.kind(), io::ErrorKind::InvalidData);
        assert!(err.to_string().contains(why), "{err}");
    };
    let changed = base().snapshot();
    changed.write_at(1024, b"x").unwrap();
    refused(changed, store.snapshot(), "changed");
    refused(MemDevice::new(LEN + 512), store.snapshot(), "bytes");
    let short = store.snapshot();
    short.set_len(10 * BLOCK);
    refused(base().snapshot(), short, "cut short");
    let foreign = store.snapshot();
    foreign.write_at(0, &[1; 8192]).unwrap();
    refused(base().snapshot(), foreign, "not an overlay");
    // A sealed index with impossible contents.
    for entries in [vec![5, 5], vec![1 << 50]] {
        let index = Index {
            sequence: 9,
            entries,
        };
        let broken = store.snapshot();
        let bytes = index.to_bytes(dev.id, 0);
        broken.write_at(index.place(0) * BLOCK, &bytes).unwrap();
        refused(base().snapshot(), broken, "slot");
    }
}

#[test]
fn any_bytes_are_an_error_at_worst() {
    let played = play(5, 60);
    let image = played.store.inner();
    let mut random = Random(3);
    for _ in 0..if is_long() { 600 } else { 80 } {
        let broken = image.snapshot();
        for _ in 0..=random.below(4) {
            let at = match random.below(3) {
                0 => random.below(64),
                1 => 2 * BLOCK + random.below(2 * BLOCK),
                _ => random.below(broken.len()),
            };
            broken.write_at(at, &[random.below(256) as u8]).unwrap();
        }
        if let Ok(dev) = Overlay::open(base(), &broken) {
            let mut bytes = vec![0; LEN as usize];
            dev.read_at(0, &mut bytes).unwrap();
        }
        let _ = apply_overlay(&broken, &base().snapshot());
    }
}

#[test]
fn writers_of_parts_of_one_block_do_not_lose_each_other() {
    let store = blank();
    let dev = Overlay::create(base(), &store).unwrap();
    for block in 0..50 {
        std::thread::scope(|s| {
            for part in 0..4u64 {
                let dev = &dev;
                s.spawn(move || {
                    let at = block * BLOCK + part * 1024;
                    dev.write_at(at, &[part as u8 + 10; 1024]).unwrap();
                    if part == 0 {
                        dev.flush().unwrap();
                    }
                });
            }
        });
        let mut bytes = [0; BLOCK as usize];
        dev.read_at(block * BLOCK, &mut bytes).unwrap();
        for (part, piece) in bytes.chunks(1024).enumerate() {
            assert!(piece.iter().all(|&b| b == part as u8 + 10));
        }
    }
}

/// A retried write goes to the same place, because the other copy may be the only durable one.
#[test]
fn a_failed_flush_leaves_the_durable_copy() {
    let store = FaultDevice::new(blank());
    let dev = Overlay::create(base(), &store).unwrap();
    let copies = |at: u64| [0, 1].map(|n| format::read_block(&store, at + n).unwrap());
    let one_stays = |old: [Vec<u8>; 2], at: u64| {
        let new = copies(at);
        assert!((0..2).any(|n| old[n] == new[n] && old[n] != [0; BLOCK as usize]));
    };
    // The header, which is written before the first flush, then an index.
    for (at, flushes) in [(0, 0), (format::segment_start(0), 1)] {
        let old = copies(at);
        dev.write_at(at * BLOCK, &[6; BLOCK as usize]).unwrap();
        store.fail_after(Op::Flush, flushes);
        dev.flush().unwrap_err();
        store.heal();
        dev.flush().unwrap();
        one_stays(old, at);
    }
}
