//! Tests of the crate over its public interface, in one program.

use extant_testing::{bases, chosen, common, folded, image, mutant, verdict};

mod ahead;
mod damage;
mod folding;
mod inspect;
mod quota;
mod verdicts;
