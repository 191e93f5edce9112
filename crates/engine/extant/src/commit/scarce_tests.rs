//! Threads that find no block or number while what others freed is on its way to be free.

use super::begin::{MOST_ROUNDS, Round, take_in_rounds};
use crate::base::schedule::{self, Point};
use crate::mkfs::{self, MkfsOptions};
use crate::{Credentials, Volume, VolumeOptions};
use std::sync::Arc;

/// Makes a volume of few inodes, without background pushes.
fn volume() -> Volume {
    let device = Arc::new(blockdev::MemDevice::new(16 << 20));
    let options = MkfsOptions {
        size: Some(16 << 20),
        inodes: Some(ext4_format::layout::Inodes::Count(32)),
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    mkfs::format(&*device, &options).unwrap();
    let options = VolumeOptions::new().background(false);
    options.open_device(device).unwrap()
}

/// Takes every block that can be taken.
fn take_all(volume: &Volume) -> u64 {
    let counts = &volume.guard_engine().space.counts;
    counts.take_up_to(&Credentials::root(), u64::MAX)
}

/// A push frees blocks. Before the thread that asked for them takes one, others take all, and free them again.
#[test]
fn blocks_that_others_took_and_freed_are_waited_for() {
    let volume = volume();
    let counts = &volume.guard_engine().space.counts;
    let all = take_all(&volume);
    counts.note_leaving(all);
    let others = volume.clone();
    let held = schedule::at(Point::Freed, move || {
        let counts = &others.guard_engine().space.counts;
        counts.give_left(all);
        assert_eq!(take_all(&others), all);
        counts.note_leaving(all);
        let later = others.clone();
        schedule::at(Point::Freed, move || {
            later.guard_engine().space.counts.give_left(all);
        });
    });
    assert!(held);
    let commit = &volume.guard_engine().commit;
    assert!(commit.take_space(&Credentials::root(), 1).unwrap());
    counts.give(1);
}

/// Inode numbers that other operations took and freed are waited for.
#[test]
fn numbers_that_others_took_and_freed_are_waited_for() {
    let volume = volume();
    let mut made = 0;
    while volume.create_new_file(format!("/{made}")).is_ok() {
        made += 1;
    }
    volume.sync().unwrap();
    volume.remove_file("/0").unwrap();
    let others = volume.clone();
    let held = schedule::at(Point::Freed, move || {
        std::thread::spawn(move || {
            others.create_new_file("/other").unwrap();
            // The number of a file that is not durable is free at once.
            others.sync().unwrap();
            others.remove_file("/other").unwrap();
        })
        .join()
        .unwrap();
    });
    assert!(held);
    volume.create_new_file("/new").unwrap();
    volume.create_new_file("/newer").unwrap_err();
}

/// A caller returns an error if other threads take everything that is released in each round.
#[test]
fn rounds_end() {
    let mut rounds = 0;
    let mut lose = || {
        rounds += 1;
        Ok(Round::<()>::Lost)
    };
    assert_eq!(take_in_rounds(&mut lose).unwrap(), None);
    assert_eq!(rounds, MOST_ROUNDS);
    let mut left = 3;
    let taken = take_in_rounds(|| {
        left -= 1;
        Ok(if left == 0 {
            Round::Taken(7)
        } else {
            Round::Lost
        })
    });
    assert_eq!((taken.unwrap(), left), (Some(7), 0));
    assert_eq!(take_in_rounds(|| Ok(Round::<()>::Nothing)).unwrap(), None);
}
