//! The log alone: no formatter, no journal, no volume.

use super::*;
use crate::log::transaction::Transaction;
use crate::space::counts::{Counts, Reserve};
use crate::types::settings::BlockScan;
use ext4_format::InodeNr;
use extant_formatter::item::MiscEvent;

/// A log over space for so many blocks, with no volume above it.
fn log(free: u64, capacity: u64) -> Log {
    let store = Store::in_memory();
    let counts = Counts::new(store.geometry.blocks_count, free, Reserve::default());
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
