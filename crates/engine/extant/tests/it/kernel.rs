//! Linux's own ext4 as the judge, both ways. Trees made here are read by the kernel. Trees made by the kernel are read
//! and changed here and read by the kernel again. Journals left dirty by one are recovered by the other. A further
//! reader is ext4-view. Needs root and loop devices.

mod clusters;
mod contents;
mod index;
mod inline;
mod journals;

mod std_fs;
pub mod tree;
mod trees;
mod values;
mod view;
