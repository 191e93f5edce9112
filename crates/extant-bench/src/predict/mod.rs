//! Throughput for any number of cores, predicted from the costs and the holds of one core.
//!
//! - [`mva`]: the queueing model;
//! - [`measure`]: what an operation costs, which locks it takes and how long it holds them, on one core;
//! - [`model`]: from those figures to stations;
//! - [`report`] has tables and plots.
//!
//! The assumptions are listed in [`model`], and in the report.

pub mod measure;
pub mod model;
pub mod mva;
pub mod report;
