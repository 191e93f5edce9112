//! ext4 for many cores, in user space: the engine and its library.
//!
//! [`Volume::open`] opens an image or block device, [`Volume::create`] makes one, and [`VolumeOptions`] has all
//! options. A volume is its root directory, so the operations of [`Dir`] work on it. They have the names of `std::fs`,
//! and [`Dir::open_file`] returns a [`File`] that reads, writes and seeks like one of the system's. All handles may be
//! shared between threads, and operations that commute do not wait for each other. [`unstable`] has the interface for
//! servers, which receive names one at a time and know inodes by number.
//!
//! ```
//! use extant::Volume;
//!
//! fn task(volume: &Volume, number: u32) -> extant::Result<()> {
//!     let dir = volume.create_dir(format!("/task{number}"))?;
//!     (0..100).try_for_each(|n| dir.create_new_file(format!("file{n}")).map(drop))
//! }
//!
//! # fn main() -> extant::Result<()> {
//! # let volume = extant::doc_volume();
//! std::thread::scope(|s| {
//!     let volume = &volume;
//!     let tasks: Vec<_> = (0..4).map(|n| s.spawn(move || task(volume, n))).collect();
//!     // An error of any task is the error of all.
//!     tasks.into_iter().try_for_each(|t| t.join().expect("a task does not panic"))
//! })?;
//! volume.sync()?;
//! assert_eq!(volume.read_dir("/task3")?.count(), 100);
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! Both features are on by default. A program that neither reads nor writes archives sets `default-features = false`.
//!
//! | feature | adds |
//! |---|---|
//! | `archives` | [`Dir::import_archive`] and [`Dir::export_archive`] (tar, cpio), and the crate `tar` |
//! | `compression` | `archives`; compressed archives and SquashFS images, for [`mkfs`], too; the decompressors, and zstd in C |
//!
//! ARCHITECTURE.md describes the engine: operations commit small log items, a push turns a batch of them into block
//! images, and the journal makes these durable.

mod api;
mod base;
mod commit;
mod data;
mod incore;
mod inodes;
mod lifecycle;
mod log;
mod names;
mod space;
mod store;
mod types;
mod volume;
mod watch;

pub use api::control::{Frozen, Memory, Shutdown};
pub use api::copy::{CopyCounts, CopyOptions, PathError};
pub use api::dir::Dir;
pub use api::file::File;
pub use api::open_options::OpenOptions;
pub use api::read_dir::{DirEntry, ReadDir};
pub use api::read_files::{FileBatch, ReadFiles};
pub use api::tree::{Walk, WalkEntry};
pub use api::volume::Volume;
pub use api::watch::Watch;
pub use api::{scratch, unstable};
pub use base::error::{Error, Result};
pub use blockdev;
pub use commit::journal::recovery::Recovery;
pub use commit::stages::{PushStage, StageTimes};
pub use commit::statistics::{LogState, PushTimes, SlotState, Statistics};
pub use data::defragment::Defragmented;
pub use data::extents::Extent;
pub use data::fallocate::Fallocate;
pub use ext4_format as format;
pub use ext4_format::FileType;
pub use ext4_format::acl;
pub use ext4_format::timestamp::Timestamp;
pub use extant_mkfs as mkfs;
#[cfg(feature = "archives")]
pub use extant_transfer::Packing;
pub use inodes::attributes::{Metadata, SetAttributes, SetTime};
pub use inodes::xattrs::SetXattr;
pub use names::rename::RenameMode;
pub use space::contention::SearchCounts;
pub use store::damage::Damage;
pub use types::credentials::Credentials;
pub use types::settings::{AccessTimes, BlockScan, ErrorPolicy, Settings};
pub use volume::options::VolumeOptions;
pub use volume::statfs::StatFs;
pub use watch::watchers::WatchEvent;

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Makes an empty volume in memory, for the examples of this documentation.
#[doc(hidden)]
pub fn doc_volume() -> Volume {
    let device = std::sync::Arc::new(blockdev::MemDevice::new(16 << 20));
    let options = mkfs::MkfsOptions {
        size: Some(16 << 20),
        zeroed_device: true,
        ..Default::default()
    };
    let made = mkfs::format(&*device, &options).map_err(|e| e.to_string());
    let opened = made.and_then(|_| {
        VolumeOptions::new()
            .background(false) // what is committed, the caller decides
            .open_device(device)
            .map_err(|e| e.to_string())
    });
    match opened {
        Ok(volume) => volume,
        // Memory has no faults and the options are valid, so only a broken test fails here.
        Err(e) => panic!("a volume in memory: {e}"),
    }
}
