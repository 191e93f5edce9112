//! Which cache lines two operations that commute both touch, one of them writing: the conflict test.
//!
//! Operations that commute can be made to run without a shared cache line that one of them writes, and then they
//! scale with cores (Clements, Kaashoek, Zeldovich, Morris, Kohler: The Scalable Commutativity Rule, SOSP 2013). The
//! test takes every pair of operations, in every relation in which they commute, runs them on two threads that
//! take turns under a tool that prints every access to memory (valgrind's lackey), and looks for lines of 64 bytes that one
//! wrote and the other touched. Two cores say little about two hundred; lines that are not shared say it for any number.
//!
//! - [`cases`]: the table of operations, which pairs commute, and why the others do not;
//! - [`work`]: what each operation does, and what has to be there before;
//! - [`traced`]: the process that is traced: marks around each operation;
//! - [`trace`]: from the stream of accesses to conflicts;
//! - [`run`]: the process that starts the traced one, reads and reports;
//! - [`report`] has tables.

pub mod cases;
pub mod report;
pub mod run;
pub mod trace;
pub mod traced;
pub mod work;

/// Rounds before those that are measured: lists, stocks and stretches of both slots are filled, memory has been
/// touched once.
pub const WARM: usize = 3;
/// Rounds that are measured.
pub const ROUNDS: usize = 4;
