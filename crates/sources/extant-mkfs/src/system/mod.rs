//! Differences between systems: the best calls of Linux, and the portable ones of the others.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod here;
#[cfg(not(target_os = "linux"))]
#[path = "others.rs"]
mod here;

pub(crate) use here::{NO_ATIME, attribute, attribute_names, device_of, directory_names, flags};
