//! Progress of long work: on a terminal only, and only if the work takes longer than a second.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shorter work shows no progress. `EXTANT_PROGRESS` is another number of seconds.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(200);

/// A line on standard error with the progress of work; nothing if that is not a terminal.
#[derive(Clone)]
pub struct Progress(Arc<Line>);

struct Line {
    bar: ProgressBar,
    /// Whether the line may still appear; held while it does.
    pending: Arc<Mutex<bool>>,
    waiter: Option<Waiter>,
}

/// The thread that shows a line later, and a channel whose end notifies the thread that the work is over.
type Waiter = (Sender<()>, JoinHandle<()>);

impl Drop for Line {
    fn drop(&mut self) {
        self.end();
        if let Some((over, thread)) = self.waiter.take() {
            drop(over);
            // The thread returns nothing, and does not panic.
            let _ = thread.join();
        }
    }
}

impl Line {
    fn end(&self) {
        *lock(&self.pending) = false;
        self.bar.finish_and_clear();
    }
}

fn lock(pending: &Mutex<bool>) -> MutexGuard<'_, bool> {
    // The flag is valid even if another thread panicked.
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time before progress is shown.
fn patience() -> Duration {
    let told = std::env::var("EXTANT_PROGRESS").ok();
    let seconds = told.and_then(|t| t.parse().ok());
    let told = seconds.and_then(|s: f64| Duration::try_from_secs_f64(s).ok());
    told.unwrap_or(PATIENCE)
}

/// All lines on the terminal: nested work has a line below the outer work's.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

fn show(bar: &ProgressBar) {
    let bar = LINES.add(bar.clone());
    bar.tick();
    bar.enable_steady_tick(TICK);
}

/// Creates a style. A mistake in a template affects only the looks, not the work.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn line(style: ProgressStyle, what: &str, total: u64) -> Progress {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden())
        .with_style(style)
        .with_message(what.to_string());
    let pending = Arc::new(Mutex::new(true));
    let mut waiter = None;
    if std::io::stderr().is_terminal() {
        let patience = patience();
        if patience.is_zero() {
            show(&bar);
        } else {
            waiter = appears(&bar, &pending, patience);
        }
    }
    Progress(Arc::new(Line {
        bar,
        pending,
        waiter,
    }))
}

/// Shows a line after `patience`, unless its work is over by then. If the thread cannot be started, the line is not
/// shown.
fn appears(bar: &ProgressBar, pending: &Arc<Mutex<bool>>, patience: Duration) -> Option<Waiter> {
    let (waiter, over) = channel();
    let (bar, pending) = (bar.clone(), Arc::clone(pending));
    let waits = move || {
        if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let still = lock(&pending);
            if *still {
                show(&bar);
            }
        }
    };
    let thread = std::thread::Builder::new().name("progress".into());
    thread.spawn(waits).ok().map(|thread| (waiter, thread))
}

/// Creates a style with a number of files that is read from a counter.
fn with_files(template: &str, files: Arc<AtomicU64>) -> ProgressStyle {
    let write = move |_: &ProgressState, out: &mut dyn fmt::Write| {
        // Writing to memory does not fail.
        let _ = write!(out, "{}", files.load(Ordering::Relaxed));
    };
    style(template).with_key("files", write)
}

impl Progress {
    /// Counts things whose total is unknown.
    pub fn count(what: &str) -> Self {
        let template = "{spinner} {msg}: {human_pos} ({per_sec}) {elapsed}";
        line(style(template), what, 0)
    }

    /// Counts up to a total.
    pub fn up_to(what: &str, total: u64) -> Self {
        let template = "{msg} [{bar:40}] {human_pos}/{human_len} ({per_sec}) {eta} left";
        line(style(template), what, total)
    }

    /// Counts bytes; a total of 0 is not known.
    pub fn bytes(what: &str, total: u64) -> Self {
        let template = if total == 0 {
            "{spinner} {msg}: {bytes} ({bytes_per_sec}) {elapsed}"
        } else {
            "{msg} [{bar:40}] {bytes}/{total_bytes} ({bytes_per_sec}) {eta} left"
        };
        line(style(template), what, total)
    }

    /// Shows a spinner for work of unknown length.
    pub fn wait(what: &str) -> Self {
        line(style("{spinner} {msg} {elapsed}"), what, 0)
    }

    /// Counts bytes, and also shows a counter of files.
    pub fn transfer(what: &str, files: Arc<AtomicU64>) -> Self {
        let template = "{spinner} {msg}: {files} files, {bytes} ({bytes_per_sec}) {elapsed}";
        line(with_files(template, files), what, 0)
    }

    /// Sets the total of a transfer, in bytes.
    pub fn expect(&self, total: u64, files: Arc<AtomicU64>) {
        let template =
            "{msg} [{bar:30}] {files} files, {bytes}/{total_bytes} ({bytes_per_sec}) {eta} left";
        let bar = &self.0.bar;
        bar.set_length(total);
        bar.set_style(with_files(template, files));
        if !bar.is_hidden() {
            // indicatif ignores a tick while its own thread ticks.
            bar.disable_steady_tick();
            bar.tick();
            bar.enable_steady_tick(TICK);
        }
    }

    /// Adds to the count.
    pub fn add(&self, n: u64) {
        self.0.bar.inc(n);
    }

    /// Removes the line.
    pub fn done(&self) {
        self.0.end();
    }

    /// Prints a warning above the progress, or just on standard error.
    pub fn warn(&self, text: &str) {
        self.around(|| crate::output::warn(text));
    }

    /// Runs a function that prints, with the line hidden.
    pub fn around<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.bar.suspend(print)
    }
}
