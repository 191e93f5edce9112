//! Linux's own ext4 as the judge, both ways: trees made here are read by the kernel, trees made by the
//! kernel are read and changed here and read by it again; journals left dirty by one are recovered by
//! the other. And ext4-view as one more reader. Needs root and loop devices.

mod contents;
mod index;
mod inline;
mod journals;
pub mod mounted;
mod std_fs;
pub mod tree;
mod trees;
mod view;
