//! The server of a mount.

pub mod confine;
pub mod keeper;
pub mod lock_file;
pub mod service;
pub mod serving;
