//! Timing and medians.

use serde::Serialize;
use std::time::Instant;

/// Wall and CPU time of a phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Elapsed {
    /// Wall time in seconds.
    pub wall: f64,
    /// CPU seconds of this process, user and system.
    pub cpu: f64,
}

/// A running measurement.
pub struct Stopwatch {
    start: Instant,
    cpu: f64,
}

fn process_cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            cpu: process_cpu(),
        }
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Elapsed {
        Elapsed {
            wall: self.start.elapsed().as_secs_f64(),
            cpu: process_cpu() - self.cpu,
        }
    }
}

/// Returns the median; of an even number of figures, the mean of the middle two. Returns 0 without figures.
///
/// ```
/// assert_eq!(extant_bench::stats::median(&mut [3.0, 1.0, 2.0]), 2.0);
/// ```
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    let n = figures.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => figures[n / 2],
        _ => (figures[n / 2 - 1] + figures[n / 2]) / 2.0,
    }
}
