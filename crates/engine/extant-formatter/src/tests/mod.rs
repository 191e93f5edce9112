//! The whole formatter: from a batch to an image that is clean for e2fsck.

mod attributes;
mod directories;
pub(crate) mod harness;
mod hostile;
pub(crate) mod images;
mod inodes;
mod mappings;
mod units;

use harness::Fs;
