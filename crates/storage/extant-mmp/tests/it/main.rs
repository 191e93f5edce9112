//! Tests of the crate over its public interface, in one program.

mod claims;
