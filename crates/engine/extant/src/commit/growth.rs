//! Growth of the volume: when the context that grows it is formatted, allocators and tables take the new groups on.
//!
//! That is before the context is durable. Data may be written to blocks past the old end at once. Until the context is
//! durable, these blocks belong to no file. Later contexts that refer to them become durable after it.

use crate::commit::Committer;
use ext4_format::growth::Growth;
use extant_formatter::Formatter;
use extant_formatter::groups::Groups;
use std::sync::Arc;

impl Committer {
    /// Publishes the new size, tables first, free blocks and numbers last; the formatter is locked.
    pub(super) fn take_growth(&self, formatter: &Formatter, growth: &Growth) {
        let new = &growth.new;
        if let Some(observer) = self.observer.get() {
            observer.will_grow(new.inodes_count);
        }
        self.store.groups.grow(Groups::lazy(new));
        self.store.zone.grow(Arc::clone(formatter.zone()));
        self.store.geometry.grow(new.clone());
        self.space.grow(growth);
        tracing::info!(
            blocks = new.blocks_count,
            groups = new.groups,
            "volume grown"
        );
    }
}
