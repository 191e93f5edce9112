//! New file systems, judged by e2fsprogs and by the kernel.

mod compare;
mod empty;
mod from_cpio;
mod from_lists;
mod from_squashfs;
mod from_tar;
mod from_tree;
mod layers;
mod support;
