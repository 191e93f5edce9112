//! Tar archives: ustar, GNU, pax and star members.

mod fflags;
pub use fflags::flag_names;
mod header;
mod member;
mod pax;

pub(crate) use member::Members;
