//! Values: no locks, no I/O.

pub mod credentials;
pub mod dentry;
pub mod no_key;
pub mod settings;
