//! The command run as users run it, on images of mke2fs and its own; e2fsck, debugfs and the kernel judge.

#[path = "cli/support.rs"]
mod support;

#[path = "cli/addresses.rs"]
mod addresses;
#[path = "cli/changes.rs"]
mod changes;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/container.rs"]
mod container;
#[path = "cli/copies.rs"]
mod copies;
#[path = "cli/damage.rs"]
mod damage;
#[path = "cli/deep.rs"]
mod deep;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/failures.rs"]
mod failures;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/install.rs"]
mod install;
#[path = "cli/layers.rs"]
mod layers;
#[path = "cli/map.rs"]
mod map;
#[path = "cli/messages.rs"]
mod messages;
#[path = "cli/mkfs.rs"]
mod mkfs;
#[path = "cli/progress.rs"]
mod progress;
#[path = "cli/reading.rs"]
mod reading;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/rescue.rs"]
mod rescue;
#[path = "cli/streams.rs"]
mod streams;
#[path = "terminal/tmux.rs"]
mod tmux;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/trees.rs"]
mod trees;
