//! Existing mounts: finding them, querying them, waiting for their end.

pub mod holders;
pub mod host_files;
pub mod mounted;
pub mod online;
pub mod online_files;
pub mod server_exit;
