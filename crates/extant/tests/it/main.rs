//! Tests of the crate over its public interface, in one program.

mod after_close;
mod bound;
mod cache_above;
mod common;
mod concurrent;
mod contents;
mod crash;
mod damage;
mod defragment;
mod examples;
mod fast_commit;
mod faults;
mod features_come;
#[path = "../../../extant-check/tests/it/folded/mod.rs"]
mod folded;
mod folding;
mod freeze;
mod full;
mod groups_leave;
mod grow;
mod hostile;
mod huge;
mod idle;
#[path = "hostile/image.rs"]
mod image;
mod in_flight;
mod index_full;
mod judge;
mod kernel;
mod kill;
mod large_journal;
mod limits;
mod linearizable;
#[path = "hostile/map.rs"]
mod map;
#[path = "common/medium.rs"]
mod medium;
mod model;
mod modules;
#[path = "hostile/mutate.rs"]
mod mutate;
mod node;
#[path = "hostile/operations.rs"]
mod operations;
mod permissions;
mod prealloc;
mod projects;
mod promise;
mod reference;
mod rooms;
mod schedules;
mod scratch;
mod shift;
mod small_journal;
mod stale_numbers;
mod superblock_counts;
mod times;
mod trim;
mod truth;
mod two_cuts;
mod unchanged;
#[path = "../../../ext4-format/tests/it/walk/mod.rs"]
mod walk;
mod write_back_errors;
