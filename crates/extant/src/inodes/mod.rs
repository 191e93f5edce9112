//! Inodes by number: loaded, looked at, changed.

pub mod access_times;
pub mod attributes;
pub mod load;
pub mod log_core;
pub mod new;
pub mod observe;
pub mod open_files;
pub mod permit;
pub mod published;
pub mod xattrs;
