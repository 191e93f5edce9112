//! Images broken on purpose, by a mutator that knows the format, under everything that reads and writes them: the
//! library, the entry points of the mount's server, and in a sample the command. No panic, no hang, no memory beyond a
//! bound, and never a worse verdict of e2fsck after writing than before.
//!
//! Mutants run in worker processes, which say which one they begin, so that one that hangs, or takes all memory, or kills
//! its process, is known by its number. `make torture-images` runs 100,000 of them, `make test` 2,000; EXTANT_SEEDS says
//! how many, EXTANT_SEED takes one again.

use crate::common;
mod commands;
mod engine;
mod judge;
mod mutant;
mod server;
mod workers;

/// Runs the mutants, or, in a worker process, some of them.
#[test]
fn mutants() {
    needs::tools!("mke2fs", "e2fsck");
    match workers::WorkShare::of_this_process() {
        Some(share) => share.run(),
        None => workers::run(common::seeds(0, 700, 100_000)),
    }
}
