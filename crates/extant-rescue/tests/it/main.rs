//! Tests of the crate over its public interface, in one program.

#[path = "../../../extant-cli/tests/it/images/bases.rs"]
mod bases;
#[path = "../../../extant/tests/it/common/mod.rs"]
mod common;
#[path = "../../../extant/tests/it/hostile/image.rs"]
mod image;
#[path = "../../../extant/tests/it/hostile/map.rs"]
mod map;
#[path = "../../../extant-check/tests/it/mutant/mod.rs"]
mod mutant;
#[path = "../../../extant/tests/it/hostile/mutate.rs"]
mod mutate;
#[path = "../../../ext4-format/tests/it/walk/mod.rs"]
mod walk;
mod wiped;
