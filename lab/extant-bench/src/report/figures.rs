//! Figures from the benchmarks' JSON: the part that a report shows.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
pub struct Shape {
    pub tasks: u64,
}

#[derive(Debug, Deserialize)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
    pub buckets: Vec<(f64, f64)>,
}

/// Results of a target for a workload that repeats an operation.
#[derive(Debug, Deserialize)]
pub struct Repeated {
    pub workload: String,
    pub target: String,
    pub shape: Shape,
    pub ops: f64,
    pub ops_finished: f64,
    pub finishes: String,
    pub finish_seconds: f64,
    pub cpu_ns: f64,
    pub counts: BTreeMap<String, f64>,
    pub latency: Latency,
    pub failed: Option<String>,
}

/// Speed of a mount relative to others.
#[derive(Debug, Deserialize)]
pub struct MountTimes {
    pub floor: Option<f64>,
    pub kernel: Option<f64>,
    pub fuse2fs: Option<f64>,
}

/// Results of a target in a row of the benchmark of mounts.
#[derive(Debug, Deserialize)]
pub struct Mounted {
    #[serde(flatten)]
    pub repeated: Repeated,
    pub unit: String,
    pub figure: f64,
    pub times: MountTimes,
}

#[derive(Debug, Deserialize)]
pub struct MdtestShape {
    pub tasks: u64,
    pub shared: bool,
}

/// Results of a target for mdtest.
#[derive(Debug, Deserialize)]
pub struct Mdtest {
    pub target: String,
    pub params: MdtestShape,
    pub creates: f64,
    pub creates_synced: f64,
    pub create_cpu_ns: f64,
    pub unlinks: f64,
    pub unlinks_synced: f64,
    pub unlink_cpu_ns: f64,
}

/// Results of a method of moving a tree.
#[derive(Debug, Deserialize)]
pub struct Moved {
    pub name: String,
    pub direction: String,
    pub seconds: f64,
    pub sync_seconds: f64,
    pub files: f64,
    pub bytes: f64,
    pub cpu_ns: f64,
    pub peak: f64,
}

/// Names per second in the steps of a growing directory.
#[derive(Debug, Deserialize)]
pub struct GrowRates {
    pub first: f64,
    pub later: f64,
    pub last: f64,
}

/// Results of a target with a growing directory.
#[derive(Debug, Deserialize)]
pub struct Grown {
    pub target: String,
    pub create: GrowRates,
    pub synced: GrowRates,
}

/// Results of an aged target.
#[derive(Debug, Deserialize)]
pub struct Aged {
    pub target: String,
    pub files: u64,
    pub extents: u64,
    pub in_pieces: u64,
}

/// Results of a program that checks an image.
#[derive(Debug, Deserialize)]
pub struct Checked {
    pub target: String,
    pub tasks: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub peak: f64,
}

/// Results of all methods of moving a tree.
#[derive(Debug, Deserialize)]
pub struct Bulk {
    pub reports: Vec<Moved>,
}

/// Latencies of one of dbench's operations.
#[derive(Debug, Deserialize)]
pub struct Operation {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Results of a target for dbench.
#[derive(Debug, Deserialize)]
pub struct Dbench {
    pub target: String,
    pub bytes: f64,
    pub bytes_synced: f64,
    pub ops: f64,
    pub cpu_ns: f64,
    pub latencies: BTreeMap<String, Operation>,
    pub failed: Option<String>,
}
