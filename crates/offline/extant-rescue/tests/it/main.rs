//! Tests of the crate over its public interface, in one program.

#[path = "../../../../cli/extant-cli/tests/it/images/bases.rs"]
mod bases;
#[path = "../../../../engine/extant/tests/it/common/mod.rs"]
mod common;
#[path = "../../../../engine/extant/tests/it/hostile/image.rs"]
mod image;
#[path = "../../../../engine/extant/tests/it/hostile/map.rs"]
mod map;
#[path = "../../../extant-check/tests/it/mutant/mod.rs"]
mod mutant;
#[path = "../../../../engine/extant/tests/it/hostile/mutate.rs"]
mod mutate;
#[path = "../../../../format/ext4-format/tests/it/walk/mod.rs"]
mod walk;
mod wiped;
