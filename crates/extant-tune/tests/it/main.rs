//! Tests of the crate over its public interface, in one program.

mod cuts;
#[path = "../../../extant-check/tests/it/folded/mod.rs"]
mod folded;
mod folding;
#[path = "../../../extant-repair/tests/it/record_in_log.rs"]
mod record_in_log;
mod superblock;
