//! Tests of the crate over its public interface, in one program.

use extant_testing::{
    bases, chosen, common, folded, image, mounted, mutant, record_in_log, verdict, walk,
};

mod attributes;
mod damage;
mod debugfs;
mod extents;
mod features;
mod folding;
mod in_place;
mod kernel;
mod kinds;
mod moved;
mod mutants;
mod pending;
mod quota;
mod shared;
mod stages;
mod superblocks;
mod unread;
