//! The log alone: no formatter, no journal, no volume.

use super::*;
use crate::log::transaction::Transaction;
use crate::space::counts::{Counts, Reserve};
use crate::types::settings::BlockScan;
use ext4_format::InodeNr;
use ext4_format::inode::InodeCore;
use extant_formatter::item::{InodeEvent, MiscEvent};

/// Makes a log over space for this number of blocks, with no volume above it.
fn log(free: u64, capacity: u64) -> Log {
    let store = Store::in_memory();
    let counts = Counts::new(store.geometry.blocks_count, 1, free, Reserve::default());
    let space = Space::new(store, counts, 100, BlockScan::default());
    Log::new(Arc::new(space), Some(capacity), None)
}

fn open(log: &Log, reserved: u32) -> Transaction<'_> {
    let who = crate::types::credentials::Credentials::root();
    assert!(log.space.counts.take(&who, reserved.into()));
    Transaction { log, reserved }
}

#[test]
fn a_transaction_returns_its_reservation_or_hands_it_to_its_context() {
    let log = log(2000, 1000);
    let free = || log.space.counts.free().0;
    let before = free();
    drop(open(&log, 5));
    assert_eq!(free(), before);
    open(&log, 5).commit(0, |c| c.misc(InodeNr(12), MiscEvent::OrphanAdd));
    assert_eq!(free(), before - 5);
    let (context, lists) = log.lists.switch();
    assert_eq!(log.context(), context + 1);
    let reserved: u64 = lists.iter().map(|list| list.reserved_blocks).sum();
    assert_eq!(reserved, 5);
}

#[test]
fn items_of_a_slot_are_ordered_behind_those_seen() {
    let log = log(2000, 1000);
    let stamp = |seen| open(&log, 0).commit(seen, |c| c.stamp);
    let first = stamp(0);
    assert!(stamp(0) > first);
    assert!(stamp(first + 1000) > first + 1000);
}

#[test]
fn contexts_become_durable_in_order_and_after_they_were_formatted() {
    let log = log(2000, 1000);
    open(&log, 0).commit(0, |c| c.misc(InodeNr(12), MiscEvent::OrphanAdd));
    assert!(log.is_pending());
    let (context, _) = log.lists.switch();
    assert!(log.note_durable(context).is_err());
    log.formatted.store(context, Ordering::Release);
    log.note_durable(context).unwrap();
    assert_eq!(log.durable(), context);
    assert!(log.note_durable(context).is_err());
}

fn core(mode: u16) -> InodeCore {
    InodeCore {
        mode,
        ..InodeCore::default()
    }
}

/// Modes of inode items, by slot and order.
fn modes(log: &Log) -> Vec<(u32, u16)> {
    let (_, lists) = log.lists.switch();
    let items = lists.iter().flat_map(|list| list.inodes.iter());
    items.map(|item| (item.ino.0, item.core.mode)).collect()
}

#[test]
fn a_core_that_changes_again_and_again_is_one_item() {
    let log = log(2000, 1000);
    let mut seen = 0;
    for mode in 0..1000 {
        let before = seen;
        seen = open(&log, 0).commit(before, |c| {
            c.core_alone(InodeNr(12), core(mode), before);
            c.stamp
        });
    }
    assert_eq!(modes(&log), [(12, 999)]);
}

#[test]
fn a_core_is_not_logged_in_place_across_another_operation() {
    let log = log(2000, 1000);
    let change = |ino, mode, seen| {
        open(&log, 0).commit(seen, |c| {
            c.core_alone(InodeNr(ino), core(mode), seen);
            c.stamp
        })
    };
    let first = change(12, 1, 0);
    let other = change(13, 2, 0);
    change(12, 3, first);
    // The previous commit is of inode 12, but inode 13 was changed before it.
    change(13, 4, other);
    assert_eq!(modes(&log), [(12, 1), (13, 2), (12, 3), (13, 4)]);
    // Two items of one commit keep their common stamp.
    let both = open(&log, 0).commit(0, |c| {
        c.misc(InodeNr(12), MiscEvent::OrphanAdd);
        c.inode(InodeNr(12), InodeEvent::Update, core(5));
        c.stamp
    });
    change(12, 6, both);
    assert_eq!(modes(&log), [(12, 5), (12, 6)]);
    // An item of an earlier context is not changed.
    let last = change(12, 7, 0);
    assert_eq!(modes(&log), [(12, 7)]);
    change(12, 8, last);
    assert_eq!(modes(&log), [(12, 8)]);
}
