//! The traffic of cache lines between many cores: the engine's own accesses to memory through a model of their caches.
//!
//! As many threads as cores take turns at an operation under valgrind's lackey. Each access of an operation goes through
//! [`caches::Caches`], a MESI model without limits of size: a miss is a line that another core's write took away, or that
//! others have when it is written. Lines that are touched for the first time, or that no longer fit, are none of these: what is
//! counted is what many cores cost that one does not.
//!
//! Two cores here say little of the time that such misses take on 64; their number for each operation holds for any machine. As
//! operations take turns as a whole, several misses at one line within an operation count once.

pub mod caches;
pub mod report;
pub mod run;
pub mod traced;

/// Operations of each core before those that count: lists, stocks and stretches of slots are filled, memory has been touched.
pub const WARM: usize = 8;
