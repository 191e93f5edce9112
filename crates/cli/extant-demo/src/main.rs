//! `make demo`: a separate program, so that a newcomer builds the engine and nothing else.
#![forbid(unsafe_code)]

mod beside;
mod demo;
mod files;

use clap::{CommandFactory, FromArgMatches};
use extant_terminal::help::arranged;
use extant_terminal::{interrupt, output};
use std::process::ExitCode;

/// Many threads allocate inodes and names by the hundred thousand: the system's allocator takes a fifth of the time of
/// a create, this one a twentieth.
#[global_allocator]
static ALLOCATOR: extant_allocator::MiMalloc = extant_allocator::MiMalloc;

fn main() -> ExitCode {
    extant_allocator::keep_freed_memory();
    output::speak_as("extant-demo", |_| None);
    let found = arranged(demo::Args::command()).get_matches();
    let args = demo::Args::from_arg_matches(&found).unwrap_or_else(|error| error.exit());
    match interrupt::install().and_then(|()| demo::run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::report(&error),
    }
}
