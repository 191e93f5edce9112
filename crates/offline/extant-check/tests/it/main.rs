//! Tests of the crate over its public interface, in one program.

mod ahead;
#[path = "../../../../cli/extant-cli/tests/it/images/bases.rs"]
mod bases;
mod chosen;
#[path = "../../../../engine/extant/tests/it/common/mod.rs"]
mod common;
mod damage;
mod folded;
mod folding;
#[path = "../../../../engine/extant/tests/it/hostile/image.rs"]
mod image;
mod inspect;
#[path = "verdicts/judge.rs"]
mod judge;
#[path = "../../../../engine/extant/tests/it/hostile/map.rs"]
mod map;
mod mutant;
#[path = "../../../../engine/extant/tests/it/hostile/mutate.rs"]
mod mutate;
mod quota;
mod verdicts;
#[path = "../../../../format/ext4-format/tests/it/walk/mod.rs"]
mod walk;
