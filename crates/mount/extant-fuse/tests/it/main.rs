//! Tests of the crate over its public interface, in one program.

use extant_testing::{common, judge};

mod programs;
mod served;
