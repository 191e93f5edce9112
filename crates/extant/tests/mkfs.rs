//! New file systems, judged by e2fsprogs and by the kernel.

#[path = "mkfs/empty.rs"]
mod empty;
#[path = "mkfs/support.rs"]
mod support;
