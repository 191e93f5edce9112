//! Events of `tracing`, for programs whose logs and traces already go through its subscribers.

use crate::snapshot::Snapshot;

impl Snapshot {
    /// Emits an event of `tracing` for each call site that was used: level `INFO`, target `lockmeter`, with the counts as
    /// fields. Times are in nanoseconds. A program calls this function for the difference of two snapshots, every minute
    /// for example.
    ///
    /// ```
    /// lockmeter::lock_class!(Log = "log");
    /// let log: lockmeter::Mutex<(), Log> = lockmeter::Mutex::new(());
    /// lockmeter::set_on(true);
    /// let before = lockmeter::Snapshot::take();
    /// drop(log.lock());
    /// lockmeter::Snapshot::take().since(&before).to_tracing();
    /// # lockmeter::set_on(false);
    /// ```
    pub fn to_tracing(&self) {
        for class in &self.classes {
            for site in class
                .sites
                .iter()
                .filter(|site| site.stats.acquisitions > 0)
            {
                let stats = &site.stats;
                tracing::info!(
                    target: "lockmeter",
                    class = %class.name,
                    place = %site.place,
                    acquisitions = stats.acquisitions,
                    contentions = stats.contentions,
                    failed_tries = stats.failed_tries,
                    wait_ns = stats.wait_ns,
                    wait_cpu_ns = stats.wait_cpu_ns,
                    wait_max_ns = stats.wait_max_ns,
                    hold_ns = stats.hold_total_ns(),
                    hold_max_ns = stats.hold_max_ns,
                    waits_for = site.holders.first().map_or("", |holder| &holder.place),
                    "lock"
                );
            }
        }
    }
}
