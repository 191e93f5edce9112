//! Images of a Ceph cluster (RBD), through librbd.

mod address;
mod ceph;
mod device;
mod lock;

pub use address::RbdAddress;
pub use ceph::end_now;
pub use device::{RbdDevice, snapshot};
