//! Tests of the crate over its public interface, in one program.

use extant_testing::walk;

mod checksum;
mod contents;
mod fold;
mod mke2fs;
