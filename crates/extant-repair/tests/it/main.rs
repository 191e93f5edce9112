//! Tests of the crate over its public interface, in one program.

#[path = "../../../extant-cli/tests/it/images/bases.rs"]
mod bases;
#[path = "../../../extant-check/tests/it/chosen/mod.rs"]
mod chosen;
#[path = "../../../extant/tests/it/common/mod.rs"]
mod common;
mod damage;
mod debugfs;
mod extents;
mod features;
#[path = "../../../extant-check/tests/it/folded/mod.rs"]
mod folded;
mod folding;
#[path = "../../../extant/tests/it/hostile/image.rs"]
mod image;
mod in_place;
#[path = "../../../extant-check/tests/it/verdicts/judge.rs"]
mod judge;
mod kernel;
mod kinds;
#[path = "../../../extant/tests/it/hostile/map.rs"]
mod map;
#[allow(dead_code)] // each user has its own part
#[path = "../../../extant/tests/it/kernel/mounted.rs"]
mod mounted;
#[path = "../../../extant-check/tests/it/mutant/mod.rs"]
mod mutant;
mod mutants;
#[path = "../../../extant/tests/it/hostile/mutate.rs"]
mod mutate;
mod pending;
mod quota;
mod record_in_log;
mod shared;
mod stages;
#[path = "../../../ext4-format/tests/it/walk/mod.rs"]
mod walk;
