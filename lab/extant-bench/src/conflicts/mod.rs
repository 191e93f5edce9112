//! The conflict test: finds cache lines that two commuting operations both touch and one of them writes.
//!
//! Commuting operations can be implemented without a shared cache line that one of them writes, and then they scale
//! with cores (Clements, Kaashoek, Zeldovich, Morris, Kohler: The Scalable Commutativity Rule, SOSP 2013). The test
//! takes every pair of operations, in every relation in which they commute. It runs them on two threads, one at a
//! time, under a tool that prints every memory access (valgrind's lackey), and looks for lines of 64 bytes that one
//! operation wrote and the other touched. A measurement on two cores says little about two hundred; the absence of
//! shared lines holds for any number of cores.
//!
//! - [`cases`] has the table of operations, which pairs commute, and why the others do not;
//! - [`work`] has the work of each operation, and its preparation;
//! - [`traced`] is the traced process: marks around each operation;
//! - [`reasons`] has the known reasons for shared lines;
//! - [`trace`] finds conflicts in the stream of accesses;
//! - [`run`] is the process that starts the traced one, reads its trace and reports;
//! - [`report`] makes the tables.

pub mod cases;
pub mod reasons;
pub mod report;
pub mod run;
pub mod trace;
pub mod traced;
pub mod work;

/// Warm-up rounds before the measured ones: they fill lists, stocks and stretches of both slots, and touch memory for
/// the first time.
pub const WARM: usize = 3;
/// Number of measured rounds.
pub const ROUNDS: usize = 4;
