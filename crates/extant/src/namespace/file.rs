//! What a regular file holds: its mapping and its pages.

use super::extent_map::ExtentMap;
use super::pages::Pages;
use crate::locks::{self, RwLock};
use std::sync::atomic::AtomicU32;

/// The mapping of a file. Held shared to read, and to overwrite pages that have their block; held
/// exclusively to change the mapping, the size or what is promised.
#[derive(Debug, Default)]
pub struct FileMap {
    /// `extents` is what the device holds plus what is logged.
    pub loaded: bool,
    /// Logical to physical.
    pub extents: ExtentMap,
}

/// Data of one regular file.
pub struct FileData {
    /// Its mapping.
    pub map: RwLock<FileMap, locks::Map>,
    /// Its pages in memory.
    pub pages: Pages,
    /// Blocks promised to the mapping for dirty pages that will change it: for the worst case, so that
    /// write-back never lacks one. Changed with the map held exclusively.
    pub promised: AtomicU32,
}

impl FileData {
    /// Of a file made in memory: nothing to load.
    pub fn newborn() -> Self {
        Self {
            map: RwLock::new(FileMap {
                loaded: true,
                ..FileMap::default()
            }),
            pages: Pages::default(),
            promised: AtomicU32::new(0),
        }
    }

    /// Of a file read from the device.
    pub fn cold() -> Self {
        Self {
            map: RwLock::default(),
            pages: Pages::default(),
            promised: AtomicU32::new(0),
        }
    }
}
