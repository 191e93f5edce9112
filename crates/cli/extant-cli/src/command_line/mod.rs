//! The command line: its definition, its help, and messages about mistakes in it.

pub mod args;
pub mod habits;
pub mod help;
pub mod overlay;
pub mod usage;
