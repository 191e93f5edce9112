//! Permissions by table, as in Linux: mode bits of each class, directories, the sticky bit, set-id bits, ACLs,
//! attributes that only owners or root may change.

mod access;
mod acls;
mod callers;
mod owners;
mod servers;
mod set_id;
