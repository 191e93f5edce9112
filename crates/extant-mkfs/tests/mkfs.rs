//! New file systems, judged by e2fsprogs and by the kernel.

#[path = "mkfs/compare.rs"]
mod compare;
#[path = "mkfs/empty.rs"]
mod empty;
#[path = "mkfs/from_cpio.rs"]
mod from_cpio;
#[path = "mkfs/from_lists.rs"]
mod from_lists;
#[path = "mkfs/from_squashfs.rs"]
mod from_squashfs;
#[path = "mkfs/from_tar.rs"]
mod from_tar;
#[path = "mkfs/from_tree.rs"]
mod from_tree;
#[path = "mkfs/layers.rs"]
mod layers;
#[path = "mkfs/support.rs"]
mod support;
