//! Figures as the benchmarks' JSON has them: what a report shows of it.

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

/// One target under a workload that repeats an operation.
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

/// How many times as fast a mount is as others.
#[derive(Debug, Deserialize)]
pub struct MountTimes {
    pub floor: Option<f64>,
    pub kernel: Option<f64>,
    pub fuse2fs: Option<f64>,
}

/// One target under a row of the benchmark of mounts.
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

/// One target under mdtest.
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

/// One way to move a tree.
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

/// Names a second in the steps of a growing directory.
#[derive(Debug, Deserialize)]
pub struct GrowRates {
    pub first: f64,
    pub later: f64,
    pub last: f64,
}

/// One target whose directory grows.
#[derive(Debug, Deserialize)]
pub struct Grown {
    pub target: String,
    pub create: GrowRates,
    pub synced: GrowRates,
}

/// The files of one aged target.
#[derive(Debug, Deserialize)]
pub struct Aged {
    pub target: String,
    pub files: u64,
    pub extents: u64,
    pub in_pieces: u64,
}

/// One program that checked an image.
#[derive(Debug, Deserialize)]
pub struct Checked {
    pub target: String,
    pub tasks: u64,
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub peak: f64,
}

/// All ways to move a tree.
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

/// One target under dbench.
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
