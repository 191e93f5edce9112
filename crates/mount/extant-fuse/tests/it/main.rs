//! Tests of the crate over its public interface, in one program.

#[path = "../../../../engine/extant/tests/it/common/mod.rs"]
mod common;
#[path = "../../../../engine/extant/tests/it/judge/mod.rs"]
mod judge;
mod programs;
mod served;
