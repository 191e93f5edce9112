//! An open volume: owns one of each layer and wires them.

pub mod background;
pub mod caller;
pub mod ending;
pub mod engine;
pub mod freeze;
mod grow;
pub mod guard;
pub mod open;
pub mod options;
mod recover;
pub mod snapshot;
pub mod statfs;
pub mod trim;
pub mod whereabouts;

#[cfg(test)]
mod failing_tests;
#[cfg(test)]
mod rules_tests;
