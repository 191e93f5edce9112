//! What systems do differently: Linux has the best of it, the others do.

#[cfg(target_os = "linux")]
#[path = "system/linux.rs"]
mod here;
#[cfg(not(target_os = "linux"))]
#[path = "system/others.rs"]
mod here;

pub(crate) use here::{DAMAGED, NO_ATTRIBUTE, NO_KEY, memory, now};
