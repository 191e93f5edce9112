//! Tar archives: ustar, GNU, pax and star members.

mod fflags;
mod header;
mod member;
mod pax;

pub(crate) use member::Members;
