//! Inodes by number: loaded, looked at, changed.

pub mod access_times;
pub mod attributes;
pub mod load;
pub mod observe;
pub mod xattrs;
