//! Timing and medians.

use serde::Serialize;
use std::time::Instant;

/// Wall and CPU time of a phase.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Elapsed {
    /// Seconds on the clock.
    pub wall: f64,
    /// Seconds of CPU of this process, user and system.
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

    /// Time since the start.
    pub fn elapsed(&self) -> Elapsed {
        Elapsed {
            wall: self.start.elapsed().as_secs_f64(),
            cpu: process_cpu() - self.cpu,
        }
    }
}

/// Returns the middle of some figures; of an even number, the mean of the two in the middle. 0 of none.
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
