#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(test)]
extern crate self as extant_verity;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod device;
mod layout;
mod make;
mod parallel;

pub use device::VerityDevice;
pub use layout::{BLOCK, ParseRootError, RootHash};
pub use make::{Parameters, make, tree_len};
