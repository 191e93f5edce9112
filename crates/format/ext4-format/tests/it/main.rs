//! Tests of the crate over its public interface, in one program.

mod contents;
mod fold;
mod mke2fs;
mod walk;
