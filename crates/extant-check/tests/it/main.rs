//! Tests of the crate over its public interface, in one program.

mod ahead;
#[path = "../../../extant-cli/tests/it/images/bases.rs"]
mod bases;
mod chosen;
#[path = "../../../extant/tests/it/common/mod.rs"]
mod common;
mod damage;
mod folded;
mod folding;
#[path = "../../../extant/tests/it/hostile/image.rs"]
mod image;
mod inspect;
#[path = "verdicts/judge.rs"]
mod judge;
#[path = "../../../extant/tests/it/hostile/map.rs"]
mod map;
mod mutant;
#[path = "../../../extant/tests/it/hostile/mutate.rs"]
mod mutate;
mod quota;
mod verdicts;
#[path = "../../../ext4-format/tests/it/walk/mod.rs"]
mod walk;
