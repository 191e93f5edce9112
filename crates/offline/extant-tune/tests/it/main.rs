//! Tests of the crate over its public interface, in one program.

use extant_testing::{folded, record_in_log};

mod changes;
mod clusters;
mod cuts;
mod folding;
mod inside;
mod sizes;
mod superblock;
