//! The command `extant`. Each subcommand is a file in `commands`; the other modules are shared.
#![forbid(unsafe_code)]

mod address;
mod advice;
mod args;
mod attr_flags;
mod check_progress;
mod clock;
mod commands;
mod confine;
mod container;
mod habits;
mod help;
mod holders;
mod host_files;
mod image_place;
mod images;
mod keeper;
mod lock_file;
mod mode;
mod mounted;
mod multicall;
mod name_spaces;
mod new_file;
mod online;
mod online_files;
mod owners;
mod patterns;
mod present_content;
mod rate_limit;
mod remote;
mod server_exit;
mod service;
mod serving;
mod show;
mod store;
mod streams;
mod sums;
mod survey;
mod system;
mod times;
mod transfer;
mod usage;
mod walk;

use clap::FromArgMatches;
use extant_terminal::{interrupt, output, progress};
use std::process::ExitCode;

/// Inodes and names are allocated and freed by the hundred thousand, from many threads. The system's allocator takes a
/// fifth of the time of a create, this one a twentieth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    output::speak_as(multicall::speaker(), advice::in_general);
    let words: Vec<_> = multicall::args().collect();
    let parsed = help::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|found| args::Cli::from_arg_matches(&found));
    let args = parsed.unwrap_or_else(|error| {
        if usage::is_asked_for(&error) {
            error.exit();
        }
        let habit = habits::answer(&error, &words);
        output::complain(habit.unwrap_or_else(|| usage::line(&error, &words)));
        std::process::exit(usage::exit_code(&words))
    });
    if let Some(slots) = args.slots {
        // The number is still unset, because no slot has been used yet.
        let _ = percpu::slot::configure(slots.into());
    }
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
