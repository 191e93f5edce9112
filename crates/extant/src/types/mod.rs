//! Values: no locks, no I/O.

pub mod access_times;
pub mod credentials;
pub mod dentry;
pub mod no_key;
