//! Linux's own ext4 as the judge, both ways: trees made here are read by the kernel, trees made by the
//! kernel are read and changed here and read by it again; journals left dirty by one are recovered by
//! the other. And ext4-view as one more reader. Needs root and loop devices.

mod common;
#[path = "kernel/contents.rs"]
mod contents;
#[path = "kernel/index.rs"]
mod index;
#[path = "kernel/inline.rs"]
mod inline;
#[path = "kernel/journals.rs"]
mod journals;
#[path = "kernel/mounted.rs"]
mod mounted;
#[path = "kernel/std_fs.rs"]
mod std_fs;
#[path = "kernel/tree.rs"]
mod tree;
#[path = "kernel/trees.rs"]
mod trees;
#[path = "kernel/view.rs"]
mod view;
#[path = "../../ext4-format/tests/walk/mod.rs"]
mod walk;
