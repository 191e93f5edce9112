//! Differences between systems: the best calls of Linux, and the portable ones of the others.

#[cfg(target_os = "linux")]
#[path = "system/linux.rs"]
mod here;
#[cfg(not(target_os = "linux"))]
#[path = "system/others.rs"]
mod here;

pub(crate) use here::{DAMAGED, NO_ATTRIBUTE, NO_KEY, memory, now};
