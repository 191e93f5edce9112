//! The command run as users run it, on images of mke2fs and its own; e2fsck, debugfs and the kernel judge.

#[path = "cli/support.rs"]
mod support;

#[path = "cli/addresses.rs"]
mod addresses;
#[path = "cli/called.rs"]
mod called;
#[path = "cli/changes.rs"]
mod changes;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/compressed.rs"]
mod compressed;
#[path = "cli/configured.rs"]
mod configured;
#[path = "cli/container.rs"]
mod container;
#[path = "cli/copies.rs"]
mod copies;
#[path = "cli/cpio.rs"]
mod cpio;
#[path = "cli/damage.rs"]
mod damage;
#[path = "cli/debugfs_scripts.rs"]
mod debugfs_scripts;
#[path = "cli/deep.rs"]
mod deep;
#[path = "cli/diff.rs"]
mod diff;
#[path = "cli/disks.rs"]
mod disks;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/e2fsck_steps.rs"]
mod e2fsck_steps;
#[path = "cli/failures.rs"]
mod failures;
#[path = "cli/folding.rs"]
mod folding;
#[path = "cli/free_space.rs"]
mod free_space;
#[path = "cli/from_image.rs"]
mod from_image;
#[path = "cli/inspect.rs"]
mod inspect;
#[path = "cli/install.rs"]
mod install;
#[path = "cli/layers.rs"]
mod layers;
#[path = "cli/lists.rs"]
mod lists;
#[path = "cli/map.rs"]
mod map;
#[path = "cli/messages.rs"]
mod messages;
#[path = "cli/mkfs.rs"]
mod mkfs;
#[path = "cli/parts.rs"]
mod parts;
#[path = "cli/progress.rs"]
mod progress;
#[path = "cli/projects.rs"]
mod projects;
#[path = "cli/qcow2.rs"]
mod qcow2;
#[path = "cli/reading.rs"]
mod reading;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/rescue.rs"]
mod rescue;
#[path = "cli/resize.rs"]
mod resize;
#[path = "cli/resized.rs"]
mod resized;
#[path = "cli/squashfs.rs"]
mod squashfs;
#[path = "cli/streams.rs"]
mod streams;
#[path = "terminal/tmux.rs"]
mod tmux;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/trees.rs"]
mod trees;
#[path = "cli/tune.rs"]
mod tune;
