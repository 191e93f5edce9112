//! Tests of the crate over its public interface, in one program.

#[path = "../../../../engine/extant/tests/it/common/mod.rs"]
mod common;
mod growth;
#[path = "../../../../engine/extant/tests/it/hostile/image.rs"]
mod image;
#[path = "../../../extant-check/tests/it/verdicts/judge.rs"]
mod judge;
mod shapes;
