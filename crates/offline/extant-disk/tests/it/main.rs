//! Tests of the crate over its public interface, in one program.

mod compressed;
mod formats;
mod new_images;
mod qcow2;
mod random;
mod tables;
