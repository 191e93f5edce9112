//! Tests of the crate over its public interface, in one program.

use extant_testing::{folded, record_in_log};

mod cuts;
mod folding;
mod superblock;
