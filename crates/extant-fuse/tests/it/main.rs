//! Tests of the crate over its public interface, in one program.

#[path = "../../../extant/tests/it/common/mod.rs"]
mod common;
#[path = "../../../extant/tests/it/judge/mod.rs"]
mod judge;
mod programs;
mod served;
