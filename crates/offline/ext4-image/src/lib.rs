#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod changes;
mod cluster_set;
mod e2undo;
mod error;
mod extent_order;
mod file_id;
mod image;
mod image_file;
mod in_place;
mod mapping;
mod overlay;
#[doc(hidden)]
pub mod planted;
mod split_change;
mod undo;
mod undo_area;
mod undo_log;

pub use blockdev;
pub use changes::Changes;
pub use cluster_set::{ClusterSet, GroupPart};
pub use e2undo::{E2Undo, MAGIC as E2UNDO_MAGIC};
pub use error::Error;
pub use extent_order::ExtentOrder;
pub use file_id::file_beside;
pub use image::{Image, backup_at, superblock, superblock_bytes, usual_backups};
pub use image_file::{ImageFile, take_back_interrupted};
pub use in_place::mark;
pub use mapping::{Mapping, place_of};
pub use overlay::MemOverlay;
pub use undo::Undo;
pub use undo_log::{LoggedDevice, UndoLog};
