//! An open volume: owns one of each layer and wires them.

pub mod address_names;
pub mod background;
pub mod caller;
pub mod engine;
pub mod freeze;
mod grow;
pub mod guard;
pub mod open;
pub mod options;
mod recover;
pub mod shutdown;
pub mod snapshot;
pub mod statfs;
pub mod trim;

#[cfg(test)]
mod failing_tests;
#[cfg(test)]
mod rules_tests;
