//! Tests of the crate over its public interface, in one program.

#[path = "../../../extant/tests/it/common/mod.rs"]
mod common;
mod growth;
#[path = "../../../extant/tests/it/hostile/image.rs"]
mod image;
#[path = "../../../extant-check/tests/it/verdicts/judge.rs"]
mod judge;
#[path = "../../../extant-repair/tests/it/record_in_log.rs"]
mod record_in_log;
mod shapes;
