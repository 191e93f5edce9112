//! Time by function (mechanism I6): a table of name, total, count and average.
//!
//! A function opens a [`span!`](crate::span) at its head; while the profile is on, the time until its end is added to
//! the function's line. Each thread adds to separate cells.

use crate::switch::nanos;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

static ON: AtomicBool = AtomicBool::new(false);

/// Switches the profile on or off. The measured times stay.
pub fn set_on(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Returns whether the profile is on.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[derive(Default)]
struct Cell {
    count: AtomicU64,
    total_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Cell {
    fn add(&self, count: u64, total_ns: u64, max_ns: u64) {
        // Only one thread writes, so no addition is lost.
        let add = |a: &AtomicU64, n| a.store(a.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.count, count);
        add(&self.total_ns, total_ns);
        let max = self.max_ns.load(Ordering::Relaxed).max(max_ns);
        self.max_ns.store(max, Ordering::Relaxed);
    }
}

type Cells = Vec<(&'static str, Arc<Cell>)>;

/// Cells of running threads, and lines of threads that have ended.
static ALL: Mutex<(Cells, BTreeMap<&'static str, Line>)> =
    Mutex::new((Vec::new(), BTreeMap::new()));

#[derive(Default)]
struct Own(HashMap<&'static str, Arc<Cell>>);

impl Drop for Own {
    fn drop(&mut self) {
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, cell) in self.0.drain() {
            all.0.retain(|(_, c)| !Arc::ptr_eq(c, &cell));
            all.1
                .entry(name)
                .or_insert_with(|| Line::new(name))
                .add(&cell);
        }
    }
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// Measures a function while it lives; [`span!`](crate::span) makes one.
///
/// ```
/// use lockmeter::profile;
/// fn work() {
///     let _span = lockmeter::span!("work");
/// }
/// profile::set_on(true);
/// (0..3).for_each(|_| work());
/// let table = profile::Table::take();
/// assert_eq!(table.line("work").unwrap().count, 3);
/// # profile::set_on(false);
/// ```
#[must_use = "the span ends where it is dropped"]
pub struct Span(Option<(&'static str, Instant)>);

impl Span {
    /// Begins to measure, if the profile is on.
    #[inline]
    pub fn new(name: &'static str) -> Self {
        if is_on() {
            Self::begin(name)
        } else {
            Self(None)
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(name: &'static str) -> Self {
        Self(Some((name, Instant::now())))
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if let Some((name, since)) = self.0 {
            end(name, since);
        }
    }
}

#[cold]
#[inline(never)]
fn end(name: &'static str, since: Instant) {
    let ns = nanos(since);
    let _ = OWN.try_with(|own| {
        let Ok(mut own) = own.try_borrow_mut() else {
            return;
        };
        let cell = own.0.entry(name).or_insert_with(|| {
            let cell = Arc::new(Cell::default());
            let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            all.0.push((name, Arc::clone(&cell)));
            cell
        });
        cell.add(1, ns, ns);
    });
}

/// Measures from here to the end of the block, under a name: `let _span = span!("create");`
#[macro_export]
macro_rules! span {
    ($name:expr) => {
        $crate::profile::Span::new($name)
    };
}

/// One function.
///
/// ```
/// let line = lockmeter::profile::Line::new("read");
/// assert_eq!((line.count, line.average_us()), (0, 0.0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Name of the function.
    pub name: &'static str,
    /// Nanoseconds spent in it and in the functions it called.
    pub total_ns: u64,
    /// Times it ran.
    pub count: u64,
    /// The longest run.
    pub max_ns: u64,
}

impl Line {
    /// Makes the line of a function that has not run.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            total_ns: 0,
            count: 0,
            max_ns: 0,
        }
    }

    fn add(&mut self, cell: &Cell) {
        self.total_ns += cell.total_ns.load(Ordering::Relaxed);
        self.count += cell.count.load(Ordering::Relaxed);
        self.max_ns = self.max_ns.max(cell.max_ns.load(Ordering::Relaxed));
    }

    /// Returns the mean of a run, in microseconds.
    pub fn average_us(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.total_ns as f64 / self.count as f64 / 1e3
        }
    }
}

/// All functions, in descending order of time. Displayed, it is the table.
///
/// ```
/// lockmeter::profile::set_on(true);
/// drop(lockmeter::span!("sync"));
/// let table = lockmeter::profile::Table::take();
/// assert!(table.to_string().contains("sync"));
/// # lockmeter::profile::set_on(false);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Lines of the table.
    pub lines: Vec<Line>,
}

impl Table {
    /// Returns the times of all threads until now.
    pub fn take() -> Self {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = all.1.clone();
        for (name, cell) in &all.0 {
            lines
                .entry(name)
                .or_insert_with(|| Line::new(name))
                .add(cell);
        }
        let mut lines: Vec<_> = lines.into_values().collect();
        lines.sort_by_key(|l| std::cmp::Reverse(l.total_ns));
        Self { lines }
    }

    /// Returns the line of a function.
    pub fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|l| l.name == name)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:24} {:>12} {:>12} {:>10}",
            "FUNCTION", "TOTAL us", "COUNT", "AVG us"
        )?;
        for line in &self.lines {
            writeln!(
                f,
                "{:24} {:>12.0} {:>12} {:>10.3}",
                line.name,
                line.total_ns as f64 / 1e3,
                line.count,
                line.average_us()
            )?;
        }
        Ok(())
    }
}
