//! Tests of the crate over its public interface, in one program.

use extant_testing::{bases, common, image, mutant};

mod wiped;
