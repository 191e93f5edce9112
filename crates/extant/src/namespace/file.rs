//! What a regular file holds: its mapping and its pages.

use super::extent_map::ExtentMap;
use super::pages::Pages;
use crate::alloc::window::Window;
use crate::locks::{self, Mutex, RwLock};
use crate::log::Relog;
use std::sync::atomic::AtomicU32;

/// The mapping of a file. Held shared to read, and to overwrite pages that have their block; held
/// exclusively to change the mapping, the size or what is promised.
#[derive(Debug, Default)]
pub struct FileMap {
    /// `extents` is what the device holds plus what is logged.
    pub loaded: bool,
    /// Logical to physical.
    pub extents: ExtentMap,
    /// The last change of the mapping, if it can be logged again in place.
    pub relog: Option<Relog>,
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
    /// Blocks promised to dirty pages in holes: stat counts them as taken. Changed with the map held exclusively.
    pub promised_pages: AtomicU32,
    /// Blocks set aside for it while it grows [L8].
    pub window: Mutex<Window, locks::Window>,
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
            promised_pages: AtomicU32::new(0),
            window: Mutex::default(),
        }
    }

    /// Of a file read from the device.
    pub fn cold() -> Self {
        Self {
            map: RwLock::default(),
            pages: Pages::default(),
            promised: AtomicU32::new(0),
            promised_pages: AtomicU32::new(0),
            window: Mutex::default(),
        }
    }
}
