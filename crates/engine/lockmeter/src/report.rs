//! The report: one line for a class, its call sites below it.

use crate::snapshot::{Snapshot, Stats};
use std::fmt;

/// Formats a time in three or four characters and a unit.
fn time(ns: f64) -> String {
    match ns {
        n if n < 10.0 => format!("{n:.1}ns"),
        n if n < 10e3 => format!("{n:.0}ns"),
        n if n < 10e6 => format!("{:.0}us", n / 1e3),
        n if n < 10e9 => format!("{:.0}ms", n / 1e6),
        n => format!("{:.0}s", n / 1e9),
    }
}

impl Snapshot {
    fn line(&self, f: &mut fmt::Formatter<'_>, stats: &Stats, name: &str) -> fmt::Result {
        let hold = format!(
            "{}({})",
            time(stats.hold_mean_ns()),
            time(stats.hold_max_ns as f64)
        );
        let wait = if stats.contentions == 0 {
            "0".into()
        } else {
            format!(
                "{}({})({:.2}%)",
                time(stats.wait_mean_ns()),
                time(stats.wait_max_ns as f64),
                100.0 * self.wait_share(stats)
            )
        };
        let different = stats.different();
        let different = different.map_or("-".into(), |d| format!("{:.0}%", 100.0 * d));
        writeln!(
            f,
            "{:5.1}% {:5.2}%  {hold:>15}  {wait:>22} {:>12} {:>9} {different:>6}  {name}",
            100.0 * self.utilisation(stats),
            100.0 * stats.contention(),
            stats.acquisitions,
            stats.failed_tries,
        )
    }
}

impl fmt::Display for Snapshot {
    /// UTIL: share of the time in which the lock is held. CON: share of the acquisitions that waited. HOLD: mean and
    /// longest hold. WAIT: mean and longest wait of the acquisitions that waited, and the share of all CPU time that
    /// was lost in waits. TOTAL: acquisitions. FAILED: tries that found the lock taken. OTHER: share of the waits and
    /// failed tries in which the holder wanted a different object, counted if both have named their objects
    /// ([`wanting`](crate::wanting)). Classes are sorted by time waited, then by time held.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>6} {:>6}  {:>15}  {:>22} {:>12} {:>9} {:>6}  NAME",
            "UTIL", "CON", "HOLD mean(max)", "WAIT mean(max)(%CPU)", "TOTAL", "FAILED", "OTHER"
        )?;
        for class in &self.classes {
            self.line(f, &class.total, &class.name)?;
            for site in &class.sites {
                let holder = site.holders.first();
                let holder = holder.map_or(String::new(), |h| format!(", waits for {}", h.place));
                self.line(f, &site.stats, &format!("  {}{holder}", site.place))?;
            }
        }
        writeln!(
            f,
            "metered for {} on {} CPUs",
            time(self.metered_ns as f64),
            self.cpus
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let all = [0.4, 9.96, 820.0, 12_345.0, 4.2e8, 3e11].map(time);
        assert_eq!(all, ["0.4ns", "10.0ns", "820ns", "12us", "420ms", "300s"]);
    }
}
