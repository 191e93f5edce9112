//! What more cores would bring: throughput for any number of cores, from what one core needs and what it holds.
//!
//! - [`mva`]: the queueing model;
//! - [`measure`]: what an operation costs, which locks it takes and how long it holds them, on one core;
//! - [`model`]: from those figures to stations;
//! - [`report`] has tables and plots.
//!
//! What is assumed is said in [`model`], and in the report.

pub mod measure;
pub mod model;
pub mod mva;
pub mod report;
