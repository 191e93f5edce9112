//! The command `extant`. Subcommands are in `commands`, one file each; what they share is beside it.
#![forbid(unsafe_code)]

mod address;
mod args;
mod commands;
mod confine;
mod container;
mod images;
mod interrupt;
mod keeper;
mod known;
mod mode;
mod mounted;
mod multicall;
mod output;
mod owners;
mod progress;
mod service;
mod serving;
mod show;
mod times;
mod transfer;
mod walk;

use clap::Parser;
use std::process::ExitCode;

/// Inodes and names come and go by the hundred thousand, from many threads: the system's allocator
/// takes a fifth of the time of a create, this one a twentieth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Cli::parse_from(multicall::args());
    images::leave_journals(args.noload);
    lockmeter::set_on(args.lockmeter);
    lockmeter::profile::set_on(args.profile);
    let done = interrupt::install().and_then(|()| commands::run(args.command));
    if args.lockmeter {
        eprint!("{}", lockmeter::Snapshot::take());
    }
    if args.profile {
        eprint!("{}", lockmeter::profile::Table::take());
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report(&error),
    }
}
