//! Permissions by table, as in Linux: mode bits of each class, directories, the sticky bit, set-id bits, ACLs,
//! attributes that only owners or root may change.

#[path = "permissions/access.rs"]
mod access;
#[path = "permissions/acls.rs"]
mod acls;
#[path = "permissions/callers.rs"]
mod callers;
mod common;
#[path = "permissions/owners.rs"]
mod owners;
#[path = "permissions/servers.rs"]
mod servers;
#[path = "permissions/set_id.rs"]
mod set_id;
