//! Latencies of single operations: a high dynamic range histogram per thread, merged at the end.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Latencies in nanoseconds, to two digits.
///
/// ```
/// use extant_bench::latency::Latencies;
/// let mut seen = Latencies::new();
/// (1..=100).for_each(|us| seen.record(std::time::Duration::from_micros(us)));
/// let summary = seen.summary();
/// assert!((49_000..=51_000).contains(&summary.p50) && summary.count == 100);
/// ```
#[derive(Clone, Debug)]
pub struct Latencies(Option<Histogram<u64>>);

/// An hour; longer latencies are counted as one hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A summary of latencies for a report, in nanoseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Operations that were timed.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
    /// Latencies with their approximate number of operations.
    pub buckets: Vec<(u64, u64)>,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// Makes an empty histogram.
    pub fn new() -> Self {
        // The bounds are valid; without a histogram, nothing would be recorded.
        Self(Histogram::new_with_bounds(1, LONGEST, 2).ok())
    }

    /// Records the latency of an operation.
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ns);
        }
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if let (Some(ours), Some(theirs)) = (&mut self.0, &other.0) {
            // Both have the same bounds.
            let _ = ours.add(theirs);
        }
    }

    /// Returns the figures for a report.
    pub fn summary(&self) -> Summary {
        let Some(histogram) = self.0.as_ref().filter(|h| !h.is_empty()) else {
            return Summary::default();
        };
        let at = |quantile| histogram.value_at_quantile(quantile);
        let recorded = histogram.iter_recorded();
        Summary {
            count: histogram.len(),
            mean: histogram.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
            buckets: recorded
                .map(|v| (v.value_iterated_to(), v.count_since_last_iteration()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_all() {
        let (mut a, mut b) = (Latencies::new(), Latencies::new());
        assert_eq!(a.summary().count, 0);
        a.record(Duration::from_nanos(100));
        b.record(Duration::from_secs(100));
        a.merge(&b);
        let summary = a.summary();
        assert_eq!((summary.count, summary.p50), (2, 100));
        assert!(summary.max > 99_000_000_000);
        assert_eq!(summary.buckets.iter().map(|b| b.1).sum::<u64>(), 2);
    }
}
