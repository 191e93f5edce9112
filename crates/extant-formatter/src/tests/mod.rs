//! The whole formatter: batch in, image out, e2fsck clean.

mod attributes;
mod directories;
pub(crate) mod harness;
mod hostile;
pub(crate) mod images;
mod inodes;
mod mappings;
mod units;

use harness::Fs;
