//! What systems do differently: Linux has the best of it, the others do.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod here;
#[cfg(not(target_os = "linux"))]
#[path = "others.rs"]
mod here;

pub(crate) use here::{NO_ATIME, attribute, attribute_names, device_of, directory_names};
