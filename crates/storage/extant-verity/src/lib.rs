#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod device;
mod layout;
mod make;
mod parallel;

pub use device::VerityDevice;
pub use layout::{BLOCK, ParseRootError, RootHash};
pub use make::{Parameters, make, tree_len};
