//! Tests of the crate over its public interface, in one program.

use extant_testing::{common, image, verdict};

mod growth;
mod shapes;
