//! Tests of the crate over its public interface, in one program.

mod cuts;
#[path = "../../../extant-check/tests/it/folded/mod.rs"]
mod folded;
mod folding;
mod superblock;
