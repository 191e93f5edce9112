//! Exact Mean Value Analysis of a closed network (Reiser and Lavenberg, JACM 27, 1980): computes the operations per
//! second of a number of cores, if each operation needs a delay and time at stations that serve one operation at a
//! time.

use serde::Serialize;

/// A station that serves one operation at a time: a lock, or a cache line that moves between cores.
///
/// ```
/// use extant_bench::predict::mva::Station;
/// let groups = Station::new("block group", 80.0, 16.0);
/// assert_eq!(groups.instances, 16.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Station {
    /// Its name.
    pub name: String,
    /// Nanoseconds that an operation needs at all instances together.
    pub demand_ns: f64,
    /// Number of instances, which are equally likely.
    pub instances: f64,
}

impl Station {
    /// Makes a station with `instances` instances.
    pub fn new(name: impl Into<String>, demand_ns: f64, instances: f64) -> Self {
        Self {
            name: name.into(),
            demand_ns: demand_ns.max(0.0),
            instances: instances.max(1.0),
        }
    }

    fn each(&self) -> f64 {
        self.demand_ns / self.instances
    }
}

/// The network with a number of customers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Cores, one customer each.
    pub cores: u32,
    /// Operations per second of all cores together.
    pub per_second: f64,
    /// Nanoseconds per operation spent waiting.
    pub waiting_ns: f64,
    /// Share of the time in which an instance of the busiest station is in use, 0 to 1.
    pub busiest: f64,
    /// The busiest station, if there is one.
    pub bottleneck: Option<String>,
}

/// Solves the network for `cores` customers: each operation takes `own_ns` without interference, and its demand at
/// every station.
///
/// ```
/// use extant_bench::predict::mva::{Station, solve};
/// let lock = Station::new("lock", 100.0, 1.0);
/// assert!((solve(900.0, &[lock.clone()], 1).per_second - 1e6).abs() < 1.0);
/// // However many cores: the lock is held for 100 ns, so it is taken ten million times a second.
/// assert!(solve(900.0, &[lock], 256).per_second < 1e7 + 1.0);
/// ```
pub fn solve(own_ns: f64, stations: &[Station], cores: u32) -> Point {
    let mut queues = vec![0.0; stations.len()];
    let (mut rate, mut total) = (0.0, 0.0);
    for n in 1..=cores.max(1) {
        let residence: Vec<f64> = stations
            .iter()
            .zip(&queues)
            .map(|(station, queue)| station.each() * (1.0 + queue))
            .collect();
        total = own_ns
            + residence
                .iter()
                .zip(stations)
                .map(|(r, s)| r * s.instances)
                .sum::<f64>();
        rate = if total > 0.0 {
            f64::from(n) / total
        } else {
            0.0
        };
        for (queue, residence) in queues.iter_mut().zip(&residence) {
            *queue = rate * residence;
        }
    }
    let busiest = stations
        .iter()
        .max_by(|a, b| a.each().total_cmp(&b.each()))
        .filter(|s| s.demand_ns > 0.0);
    let served: f64 = stations.iter().map(|s| s.demand_ns).sum();
    Point {
        cores: cores.max(1),
        per_second: rate * 1e9,
        waiting_ns: (total - own_ns - served).max(0.0),
        busiest: busiest.map_or(0.0, |s| rate * s.each()),
        bottleneck: busiest.map(|s| s.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn without_stations_cores_add_up() {
        close(solve(500.0, &[], 1).per_second, 2e6);
        close(solve(500.0, &[], 256).per_second, 512e6);
    }

    #[test]
    fn one_station_alone_gives_its_own_rate() {
        for n in [1, 2, 77] {
            close(
                solve(0.0, &[Station::new("x", 250.0, 1.0)], n).per_second,
                4e6,
            );
        }
    }

    #[test]
    fn balanced_stations() {
        // m equal stations of demand D each: n / (D (n + m - 1)).
        let m = 5.0;
        let apart: Vec<_> = (0..5)
            .map(|i| Station::new(i.to_string(), 100.0, 1.0))
            .collect();
        let together = [Station::new("all", 100.0 * m, m)];
        for n in [1u32, 3, 64] {
            let expected = 1e9 * f64::from(n) / (100.0 * (f64::from(n) + m - 1.0));
            close(solve(0.0, &apart, n).per_second, expected);
            close(solve(0.0, &together, n).per_second, expected);
        }
    }

    #[test]
    fn machines_and_one_repairman() {
        // M/M/1//N: p0 = 1 / sum over k of N!/(N-k)! (D/Z)^k, throughput (1 - p0) / D.
        let (z, d): (f64, f64) = (900.0, 60.0);
        for n in [1u32, 2, 16, 40] {
            let mut term = 1.0;
            let mut sum = 1.0;
            for k in 0..n {
                term *= f64::from(n - k) * d / z;
                sum += term;
            }
            let expected = 1e9 * (1.0 - 1.0 / sum) / d;
            let point = solve(z, &[Station::new("repairman", d, 1.0)], n);
            close(point.per_second, expected);
            close(point.busiest, 1.0 - 1.0 / sum);
        }
    }

    #[test]
    fn bounds_hold_and_the_bottleneck_is_named() {
        let stations = [
            Station::new("one", 20.0, 1.0),
            Station::new("many", 400.0, 100.0),
        ];
        let mut last = 0.0;
        for n in 1..=256 {
            let point = solve(580.0, &stations, n);
            assert!(point.per_second >= last * (1.0 - 1e-12));
            assert!(point.per_second <= (f64::from(n) / 1000e-9).min(1.0 / 20e-9) + 1.0);
            assert_eq!(point.bottleneck.as_deref(), Some("one"));
            last = point.per_second;
        }
        assert!(last > 0.95 * 5e7);
    }
}
