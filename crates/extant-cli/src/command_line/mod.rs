//! The command line: its definition, its help, and what is said about a wrong one.

pub mod args;
pub mod habits;
pub mod help;
pub mod usage;
