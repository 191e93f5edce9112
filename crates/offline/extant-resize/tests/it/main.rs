//! Tests of the crate over its public interface, in one program.

use extant_testing::{common, image, record_in_log, verdict};

mod clusters;
mod growth;
mod inside;
mod quota;
mod shapes;
