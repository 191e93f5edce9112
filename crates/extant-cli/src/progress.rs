//! Progress of long work: on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A line on standard error that counts what is done; nothing if that is not a terminal.
#[derive(Clone)]
pub struct Progress(ProgressBar);

fn bar(template: &str, what: &str) -> Progress {
    if !std::io::stderr().is_terminal() {
        return Progress(ProgressBar::hidden());
    }
    // The templates are ours; a mistake in one costs the looks, not the work.
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(0)
        .with_style(style)
        .with_message(what.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    Progress(bar)
}

impl Progress {
    /// Counts things whose number is not known.
    pub fn count(what: &str) -> Self {
        bar("{spinner} {msg}: {human_pos} ({per_sec}) {elapsed}", what)
    }

    /// Counts up to a total.
    pub fn up_to(what: &str, total: u64) -> Self {
        let progress = bar("{msg} [{bar:40}] {human_pos}/{human_len} {eta}", what);
        progress.0.set_length(total);
        progress
    }

    /// Counts bytes; a total of 0 is not known.
    pub fn bytes(what: &str, total: u64) -> Self {
        if total == 0 {
            return bar("{spinner} {msg}: {bytes} ({bytes_per_sec}) {elapsed}", what);
        }
        let progress = bar(
            "{msg} [{bar:40}] {bytes}/{total_bytes} ({bytes_per_sec}) {eta}",
            what,
        );
        progress.0.set_length(total);
        progress
    }

    /// So many more.
    pub fn add(&self, n: u64) {
        self.0.inc(n);
    }

    /// Removes the line.
    pub fn done(&self) {
        self.0.finish_and_clear();
    }

    /// A line above the progress, or just on standard error.
    pub fn say(&self, text: &str) {
        self.around(|| crate::output::complain(text));
    }

    /// Does what prints, with the line out of its way.
    pub fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }
}
