//! The traffic of cache lines between many cores: the engine's own accesses to memory through a model of their caches.
//!
//! One thread per core executes operations, one thread at a time, under valgrind's lackey. Each access of an operation
//! goes through [`caches::Caches`], a MESI model with unlimited capacity. A miss is a line that another core's write
//! invalidated, or a written line that other cores have. First accesses and capacity misses do not count, so the count
//! contains only costs of many cores that a single core does not have.
//!
//! Two cores here say little about the time that such misses take on 64; but the number of misses per operation holds
//! for any machine. Because operations run one after the other as a whole, several misses of a line within an
//! operation count once.

pub mod caches;
pub mod report;
pub mod run;
pub mod traced;

/// Warm-up operations of each core: they fill lists, stocks and stretches of slots, and touch memory for the first
/// time.
pub const WARM: usize = 8;
