//! Terminal input and output of the commands of Extant.
//!
//! | module | what |
//! |---|---|
//! | [`output`] | standard output, errors in one line, exit codes |
//! | [`progress`] | lines that count what is done |
//! | [`interrupt`] | work that ends in order when the user asks for it |
//! | [`help`] | help that begins with examples |
//! | [`numbers`] | sizes and rates as people read and write them |
#![forbid(unsafe_code)]

pub mod help;
pub mod interrupt;
mod interrupted;
pub mod numbers;
pub mod output;
pub mod progress;
