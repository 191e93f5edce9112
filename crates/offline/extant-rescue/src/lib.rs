#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(test)]
extern crate self as extant_rescue;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod deleted;
mod error;
mod find;
mod find_journal;
mod guess;
mod inodes;
mod journal;
mod map;
mod names;
mod notes;
mod paths;
mod read;
mod scan;
mod state;
mod tables;

pub use blockdev;
pub use error::Error;
pub use notes::Progress;
pub use state::{DeletedSearch, Found, Rescue};

use blockdev::BlockDevice;
use journal::Journal;
use notes::Notes;
use std::collections::BTreeMap;

impl<'d> Rescue<'d> {
    /// Searches for all files. `progress` is called during searches of the whole device, which are made only if
    /// something is missing.
    ///
    /// # Errors
    /// [`Error`] if no geometry is found. Unreadable parts are not errors: they are in [`Self::notes`].
    pub fn open(device: &'d dyn BlockDevice, progress: Progress<'_>) -> Result<Self, Error> {
        let mut notes = Notes::default();
        let image = find::image(device, &mut notes, progress)?;
        let mut rescue = Self {
            image,
            tables: Vec::new(),
            journal: Journal::default(),
            inodes: BTreeMap::new(),
            dead: Vec::new(),
            found: Vec::new(),
            notes,
            directory_blocks: BTreeMap::new(),
            old_blocks: None,
            old_inodes: BTreeMap::new(),
            deleted_search: None,
        };
        rescue.find_tables();
        rescue.read_inodes();
        let mut names = names::Names::default();
        rescue.read_directories(&mut names);
        rescue.search_names(&mut names, progress);
        rescue.found = rescue.paths(&names);
        Ok(rescue)
    }
}
