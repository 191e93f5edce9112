//! Removing ranges from files, inserting them, and copying them from file to file.

use crate::common;
use blockdev::{BlockDevice, Crash, Event, RecordingDevice};
use common::*;
use extant::{Error, Fallocate, File, OpenOptions, Volume};
use std::sync::Arc;

fn have_tools() -> bool {
    needs::have(&["mke2fs", "e2fsck"])
}

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
];

/// Bytes that show where they belong.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i / 512 * 31 % 241 + i % 7) as u8 + 1)
        .collect()
}

fn invalid(r: extant::Result<()>) {
    assert!(matches!(r, Err(Error::Invalid(_))), "{r:?}");
}

#[test]
fn what_is_refused() {
    if !have_tools() {
        return;
    }
    let device = mem_image("32M", KINDS[0]);
    let v = open(&device);
    let f = v.create_new_file("/f").unwrap();
    f.write_all_at(&pattern(40_000), 0).unwrap();
    for how in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        invalid(f.fallocate(how, 100, 4096));
        invalid(f.fallocate(how, 4096, 100));
        invalid(f.fallocate(how, 4096, 0));
        invalid(f.fallocate(how, 40_960, 4096));
    }
    invalid(f.fallocate(Fallocate::CollapseRange, 36_864, 4096));
    invalid(f.fallocate(Fallocate::CollapseRange, 0, 40_960));
    let most = v.geometry().max_file_size(true);
    let too_large = f.fallocate(Fallocate::InsertRange, 0, most / 4096 * 4096);
    assert!(matches!(too_large, Err(Error::FileTooLarge)));
    // Blocks preallocated behind the end count, too.
    let keep = Fallocate::Allocate { keep_size: true };
    f.fallocate(keep, most / 4096 * 4096 - 4096, 4096).unwrap();
    let too_large = f.fallocate(Fallocate::InsertRange, 0, 8192);
    assert!(matches!(too_large, Err(Error::FileTooLarge)));
    assert_eq!(v.read("/f").unwrap(), pattern(40_000));
    v.close().unwrap();
    assert_clean(&device, "refused");
    let old = mem_image("32M", &["-t", "ext3", "-J", "size=4"]);
    let v = open(&old);
    v.write("/f", pattern(40_000)).unwrap();
    let f = v
        .open_file_with("/f", &OpenOptions::new().write(true))
        .unwrap();
    let r = f.fallocate(Fallocate::CollapseRange, 0, 4096);
    assert!(matches!(r, Err(Error::Unsupported(_))), "{r:?}");
}

/// A file in thousands of pieces, more than a step of a small journal moves.
#[test]
fn in_many_pieces() {
    if !have_tools() {
        return;
    }
    for args in KINDS {
        for parts in [None, Some(60)] {
            let device = mem_image("64M", args);
            IN_PARTS.set(parts);
            let v = open(&device);
            let bs = u64::from(v.geometry().block_size);
            let mut model = pattern(6000 * bs as usize + 777);
            let f = v.create_new_file("/f").unwrap();
            f.write_all_at(&model, 0).unwrap();
            for n in (1..6000).step_by(2) {
                f.fallocate(Fallocate::PunchHole, n * bs, bs).unwrap();
                model[(n * bs) as usize..][..bs as usize].fill(0);
            }
            f.fallocate(Fallocate::Allocate { keep_size: true }, 7000 * bs, 50 * bs)
                .unwrap();
            let check = |model: &[u8], what: &str| {
                assert!(v.read("/f").unwrap() == model, "{args:?}: {what}");
            };
            check(&model, "before");
            let b = bs as usize;
            f.fallocate(Fallocate::CollapseRange, 100 * bs, 33 * bs)
                .unwrap();
            model.drain(100 * b..133 * b);
            check(&model, "taken out");
            f.fallocate(Fallocate::InsertRange, 51 * bs, 20 * bs)
                .unwrap();
            model.splice(51 * b..51 * b, vec![0; 20 * b]);
            check(&model, "put in");
            f.write_all_at(b"in the hole", 60 * bs + 5).unwrap();
            model[60 * b + 5..][..11].copy_from_slice(b"in the hole");
            f.fallocate(Fallocate::InsertRange, 0, bs).unwrap();
            model.splice(0..0, vec![0; b]);
            f.fallocate(Fallocate::CollapseRange, 0, 3 * bs).unwrap();
            model.drain(..3 * b);
            check(&model, "once more");
            v.sync().unwrap();
            v.drop_caches();
            check(&model, "read back");
            let blocks = f.metadata().unwrap().blocks();
            drop(f);
            v.close().unwrap();
            assert_clean(&device, "shifted");
            let v = open(&device);
            assert!(v.read("/f").unwrap() == model, "{args:?}: opened again");
            assert_eq!(v.metadata("/f").unwrap().blocks(), blocks);
            v.remove_file("/f").unwrap();
            v.close().unwrap();
            assert_clean(&device, "removed");
            IN_PARTS.set(None);
        }
    }
}

/// Cut at every write: one of these operations is undone or done. If it is done in steps, the volume is sound.
#[test]
fn cut_at_every_write() {
    if !have_tools() {
        return;
    }
    for (parts, pieces) in [(None, 40usize), (Some(40), 700)] {
        let base = mem_image("32M", KINDS[1]);
        IN_PARTS.set(parts);
        let device = Arc::new(RecordingDevice::new(base.snapshot()));
        let v = options()
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap();
        let f = v.create_new_file("/f").unwrap();
        let mut now = pattern(pieces * 2 * 1024 + 300);
        f.write_all_at(&now, 0).unwrap();
        for n in 0..pieces {
            let at = (2 * n + 1) * 1024;
            f.fallocate(Fallocate::PunchHole, at as u64, 1024).unwrap();
            let end = (at + 1024).min(now.len());
            now[at..end].fill(0);
        }
        v.sync().unwrap();
        device.mark(0);
        let mut states = vec![now.clone()];
        for (n, how) in [Fallocate::CollapseRange, Fallocate::InsertRange]
            .into_iter()
            .cycle()
            .take(4)
            .enumerate()
        {
            let (at, len) = ((3 + n) * 1024, (2 + 3 * n) * 1024);
            f.fallocate(how, at as u64, len as u64).unwrap();
            match how {
                Fallocate::CollapseRange => drop(now.drain(at..at + len)),
                _ => drop(now.splice(at..at, vec![0; len])),
            }
            states.push(now.clone());
            f.sync_all().unwrap();
            device.mark(n as u64 + 1);
        }
        drop(f);
        v.close().unwrap();
        let log = device.log();
        let mut replayer = log.replay(&base);
        let mut mark = None;
        let mut cuts = 0u64;
        while let Some(event) = replayer.step().unwrap() {
            match event {
                Event::Mark(n) => mark = Some(*n as usize),
                Event::Flush => continue,
                _ => {}
            }
            let Some(done) = mark else { continue };
            cuts += 1;
            if parts.is_some() && !cuts.is_multiple_of(5) && !torture() {
                continue;
            }
            let image = Arc::new(replayer.crash(&Crash::new(cuts)).unwrap());
            let again = open(&image);
            let found = again.read("/f").unwrap();
            let legal = states.iter().skip(done).take(2).any(|s| *s == found);
            assert!(
                legal || parts.is_some(),
                "cut {cuts}: neither undone nor done"
            );
            again.close().unwrap();
            if cuts.is_multiple_of(3) || torture() {
                assert_clean(&image, "cut while shifting");
            }
        }
        IN_PARTS.set(None);
    }
}

fn two_files(v: &Volume) -> (File, File) {
    let options = OpenOptions::new().read(true).write(true).create(true);
    (
        v.open_file_with("/from", &options.mode(0o600)).unwrap(),
        v.open_file_with("/to", &options.mode(0o600)).unwrap(),
    )
}

#[test]
fn copied_ranges_agree_with_a_model() {
    if !have_tools() {
        return;
    }
    let kinds = [KINDS[0], KINDS[1], &["-t", "ext2"]];
    for (kind, args) in kinds.into_iter().enumerate() {
        let device = mem_image("64M", args);
        let v = open(&device);
        let (from, to) = two_files(&v);
        let mut rng = Rng::new(kind as u64 + 5);
        let mut source = pattern(900_000);
        from.write_all_at(&source, 0).unwrap();
        for _ in 0..30 {
            let (at, len) = (rng.below(900_000), 1 + rng.below(60_000));
            from.fallocate(Fallocate::PunchHole, at, len).unwrap();
            let end = (at + len).min(900_000) as usize;
            source[at as usize..end].fill(0);
        }
        let mut target: Vec<u8> = Vec::new();
        for round in 0..200 {
            let (at, place) = (rng.below(1_000_000), rng.below(1_200_000));
            let len = 1 + rng.below(if round % 9 == 0 { 2_000_000 } else { 100_000 });
            let copied = from.copy_range_to(at, &to, place, len).unwrap();
            let end = (at + len).min(source.len() as u64);
            assert_eq!(copied, end.saturating_sub(at));
            if copied > 0 {
                let (at, place, n) = (at as usize, place as usize, copied as usize);
                target.resize(target.len().max(place + n), 0);
                target[place..place + n].copy_from_slice(&source[at..at + n]);
            }
            if round % 20 == 0 {
                assert!(v.read("/to").unwrap() == target, "round {round}");
                v.sync().unwrap();
                v.drop_caches();
            }
        }
        assert!(v.read("/to").unwrap() == target);
        assert!(v.read("/from").unwrap() == source, "the source");
        drop((from, to));
        v.close().unwrap();
        assert_clean(&device, "copied");
    }
}

#[test]
fn copies_of_holes_and_of_parts_of_one_file() {
    let v = extant::doc_volume();
    let (from, to) = two_files(&v);
    from.set_len(8 << 20).unwrap();
    from.write_all_at(b"island", 1 << 20).unwrap();
    assert_eq!(from.copy_range_to(0, &to, 0, u64::MAX).unwrap(), 8 << 20);
    assert_eq!(to.metadata().unwrap().len(), 8 << 20);
    v.sync().unwrap();
    assert!(to.metadata().unwrap().blocks() < 200, "holes became blocks");
    assert_eq!(to.seek_data(0).unwrap(), 1 << 20);
    assert_eq!(from.copy_range_to(8 << 20, &to, 0, 10).unwrap(), 0);
    // Copies inside a single file, apart and overlapping.
    let island = 1 << 20;
    assert_eq!(from.copy_range_to(island, &from, 0, 6).unwrap(), 6);
    let overlap = from.copy_range_to(0, &from, 5, 6);
    assert!(matches!(overlap, Err(Error::Invalid(_))), "{overlap:?}");
    let mut buf = [0; 6];
    from.read_at(&mut buf, 0).unwrap();
    assert_eq!(&buf, b"island");
    // Handles that were not opened for this are refused.
    let only = |how: OpenOptions| v.open_file_with("/to", &how).unwrap();
    let bad = |r: extant::Result<u64>| assert!(matches!(r, Err(Error::BadHandle(_))), "{r:?}");
    bad(from.copy_range_to(0, &only(OpenOptions::new().read(true)), 0, 1));
    bad(from.copy_range_to(0, &only(OpenOptions::new().append(true)), 0, 1));
    bad(only(OpenOptions::new().write(true)).copy_range_to(0, &to, 0, 1));
    let other = extant::doc_volume();
    let foreign = other.create_new_file("/x").unwrap();
    let across = from.copy_range_to(0, &foreign, 0, 1);
    assert!(matches!(across, Err(Error::CrossDevice)));
    let too_far = from.copy_range_to(0, &to, u64::MAX - 3, 10);
    assert!(matches!(too_far, Err(Error::FileTooLarge)));
}
