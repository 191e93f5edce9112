//! The text that Prometheus reads.

use crate::snapshot::{Snapshot, Stats};
use std::fmt::Write;

/// Escapes a label's value: backslash, quote and line feed.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

type Metric = (&'static str, &'static str, &'static str, fn(&Stats) -> f64);

#[rustfmt::skip]
const METRICS: [Metric; 11] = [
    ("acquisitions_total", "counter", "Times the lock was taken", |s| s.acquisitions as f64),
    ("contentions_total", "counter", "Acquisitions that waited", |s| s.contentions as f64),
    ("failed_tries_total", "counter", "Tries that found it taken", |s| s.failed_tries as f64),
    ("hand_overs_total", "counter", "Acquisitions by another owner", |s| s.hand_overs as f64),
    ("objects_known_total", "counter", "Waits and failed tries of which both objects are known", |s| s.objects_known as f64),
    ("different_objects_total", "counter", "Those for different objects", |s| s.different_objects as f64),
    ("wait_seconds_total", "counter", "Time waited", |s| s.wait_ns as f64 / 1e9),
    ("wait_cpu_seconds_total", "counter", "CPU lost in waits", |s| s.wait_cpu_ns as f64 / 1e9),
    ("wait_max_seconds", "gauge", "Longest wait", |s| s.wait_max_ns as f64 / 1e9),
    ("hold_seconds_total", "counter", "Time held, from samples", |s| s.hold_total_ns() / 1e9),
    ("hold_max_seconds", "gauge", "Longest hold measured", |s| s.hold_max_ns as f64 / 1e9),
];

impl Snapshot {
    /// Formats the counts as Prometheus' text: a sample for each class and call site, named `lockmeter_…`.
    ///
    /// ```
    /// lockmeter::lock_class!(Log = "log");
    /// let log: lockmeter::Mutex<(), Log> = lockmeter::Mutex::new(());
    /// lockmeter::set_on(true);
    /// drop(log.lock());
    /// let text = lockmeter::Snapshot::take().to_prometheus();
    /// assert!(text.contains("lockmeter_acquisitions_total{class=\"log\",place="));
    /// # lockmeter::set_on(false);
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for (name, kind, help, value) in METRICS {
            // Writing to a String does not fail.
            let _ = writeln!(text, "# HELP lockmeter_{name} {help}.");
            let _ = writeln!(text, "# TYPE lockmeter_{name} {kind}");
            for class in &self.classes {
                for site in &class.sites {
                    let _ = writeln!(
                        text,
                        "lockmeter_{name}{{class=\"{}\",place=\"{}\"}} {}",
                        escaped(&class.name),
                        escaped(&site.place),
                        value(&site.stats)
                    );
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\n"), "a\\\"b\\\\c\\n");
    }
}
