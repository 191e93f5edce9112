//! Tests of the crate over its public interface, in one program.

use extant_testing::{bases, common, image, map, mutate, operations};

mod cli;
mod documents;
mod images;
mod mount;
#[path = "terminal/text.rs"]
mod text;
#[path = "terminal/tmux.rs"]
mod tmux;
