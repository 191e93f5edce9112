//! Throughput for any number of cores, predicted from the costs and the holds of one core.
//!
//! - [`mva`] is the queueing model;
//! - [`measure`] finds the costs of an operation, its locks and their hold times, on one core;
//! - [`model`] converts these figures to stations;
//! - [`report`] makes tables and plots.
//!
//! The assumptions are listed in [`model`], and in the report.

pub mod measure;
pub mod model;
pub mod mva;
pub mod report;
