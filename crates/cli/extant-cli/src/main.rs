//! The command `extant`. Each subcommand is a file in `commands`; the other modules are shared.
#![forbid(unsafe_code)]

mod command_line;
mod commands;
mod host;
mod mount;
mod multicall;
mod survey;
mod transfer;

use crate::command_line::{habits, help, overlay, usage};
use crate::host::{at_panic, own_words};
use extant_cli_core::format::show::show;
use extant_cli_core::image::{images, io_timeout, overlaid};
use extant_cli_core::messages::advised;
use extant_terminal::{interrupt, output};
use std::process::ExitCode;

/// Inodes and names are allocated and freed by the hundred thousand, from many threads. The system's allocator takes a
/// fifth of the time of a create, this one a twentieth.
#[global_allocator]
static ALLOCATOR: extant_allocator::MiMalloc = extant_allocator::MiMalloc;

fn main() -> ExitCode {
    extant_allocator::keep_freed_memory();
    output::speak_as(multicall::speaker(), advised::in_general);
    let words = multicall::args();
    own_words::keep(&words);
    at_panic::end_with_error(usage::exit_code(&words));
    let (args, matches) = help::parse(&words).unwrap_or_else(|error| {
        if usage::is_asked_for(&error) {
            error.exit();
        }
        let habit = habits::answer(&error, &words);
        let line = habit.unwrap_or_else(|| usage::line(&error, &words));
        output::complain(show(line.as_bytes()));
        std::process::exit(usage::exit_code(&words))
    });
    if let Some(slots) = args.slots {
        // The number is still unset, because no slot has been used yet.
        let _ = percpu::slot::configure(slots.into());
    }
    if let Err(why) = io_timeout::set(args.io_timeout.as_deref()) {
        output::complain(output::one_line(&why));
        std::process::exit(usage::exit_code(&words));
    }
    if let Some(file) = &args.overlay_file
        && let Err(why) = overlay::set(file, &matches)
    {
        output::complain(why);
        std::process::exit(usage::exit_code(&words));
    }
    images::leave_journals(args.noload);
    lockmeter::set_on(args.lockmeter);
    lockmeter::profile::set_on(args.profile);
    let done = interrupt::install().and_then(|()| commands::run(args.command));
    overlaid::remove_if_empty();
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
