//! Workloads with exact definitions, run by one harness over an Extant volume in process or over any mounted path, so
//! that peers run the same work in the same run. Results are medians of interleaved rounds, with CPU time and wall
//! time. The time to make the result durable is a separate column.
#![forbid(unsafe_code)]

pub mod age;
pub mod before;
pub mod bulk;
pub mod burst;
pub mod child;
pub mod coherence;
pub mod command;
pub mod conflicts;
pub mod dbench;
pub mod grow;
pub mod host_memory;
pub mod lackey;
pub mod latency;
pub mod mdtest;
pub mod metadata;
pub mod mount;
mod names;
pub mod predict;
pub mod report;
pub mod runner;
pub mod stats;
pub mod table;
pub mod target;
pub mod tree;
pub mod workload;

/// Compiles the example of the project's README here, because this crate is not published without the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
