//! Images broken on purpose, by a mutator that knows the format, under everything that reads and writes them: the
//! library, the entry points of the mount's server, and in a sample the command. No panic, no hang, no memory beyond a
//! bound, and never a worse verdict of e2fsck after writing than before.
//!
//! Mutants run in worker processes, which say which one they begin, so that one that hangs, or takes all memory, or kills
//! its process, is known by its number. `make torture-images` runs 100,000 of them, `make test` 2,000; EXTANT_SEEDS says
//! how many, EXTANT_SEED takes one again.

#[path = "images/bases.rs"]
mod bases;
#[path = "images/commands.rs"]
mod commands;
#[path = "../../extant/tests/common/mod.rs"]
mod common;
#[path = "images/engine.rs"]
mod engine;
#[path = "../../extant/tests/hostile/image.rs"]
mod image;
#[path = "images/judge.rs"]
mod judge;
#[path = "../../extant/tests/hostile/map.rs"]
mod map;
#[path = "images/mutant.rs"]
mod mutant;
#[path = "../../extant/tests/hostile/mutate.rs"]
mod mutate;
#[path = "../../extant/tests/hostile/operations.rs"]
mod operations;
#[path = "images/server.rs"]
mod server;
#[path = "../../ext4-format/tests/walk/mod.rs"]
mod walk;
#[path = "images/workers.rs"]
mod workers;

/// Runs the mutants, or, in a worker process, some of them.
#[test]
fn mutants() {
    needs::tools!("mke2fs", "e2fsck");
    match workers::WorkShare::of_this_process() {
        Some(share) => share.run(),
        None => workers::run(common::seeds(0, 2_000, 100_000)),
    }
}
