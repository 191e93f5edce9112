//! Images broken on purpose, by a mutator that knows the format, under all code that reads and writes them: the
//! library, the entry points of the mount's server, and for a sample the command. A mutant may cause no panic, no
//! hang, no memory use beyond a bound, and never a worse verdict of e2fsck after writing than before.
//!
//! Mutants run in worker processes, which report the number of each mutant before they start it. So a mutant that
//! hangs, exhausts the memory or kills its process is known by its number. `make torture-images` runs 100,000 mutants
//! and `make test` 300; EXTANT_SEEDS sets the number, and EXTANT_SEED repeats one.

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
        None => workers::run(common::seeds(0, 180, 100_000)),
    }
}
