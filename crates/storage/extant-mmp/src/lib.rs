//! Multiple mount protection (`mmp`): keeps two writers of one volume apart if no lock does.
//!
//! A volume with the feature has a block that says who writes to it. A mount writes a new number there every few seconds. A
//! process that finds a number waits, and checks whether the number changes. A checker writes a fixed number, which others refuse at once.
//! `fs/ext4/mmp.c` of Linux and `ext2fs_mmp_start` of e2fsprogs define the block and the times; this code is independent of both.
//!
//! # Why two claims never succeed together
//! A claim reads the block, writes its number, waits [`MmpOptions::settle`], and reads the block again. It starts over if more than half of
//! that time lay between its first read and the end of its write. So, of two claims that both found the volume free, the one that writes
//! last does so before the other one reads again, and the other one finds a foreign number.
//!
//! e2fsprogs waits 11 s between its write and its second read. Linux reads again at once if the block says that the volume is
//! free. So both may claim the volume if Linux mounts within the half second between the first read and the write of a
//! claim here. The next renewal, at most [`MmpOptions::update`] later, finds the number of Linux and stops the writes of this claim.
//!
//! # After a pause
//! A process that was stopped for a minute does not know that another one has taken the volume over. Therefore a claim is a lease:
//! a write through [`MmpDevice`] first renews the claim if the last renewal is too old, and fails if the claim is lost.
#![forbid(unsafe_code)]

mod block;
mod device;

pub use block::{MmpError, wait_until_free};
pub use device::{MmpDevice, MmpOptions};
