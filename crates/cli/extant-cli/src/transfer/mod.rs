//! Moves trees between the host, images and archives, with all their attributes.
//!
//! The crate `extant_transfer` copies and writes archives. This module has the messages and options of the commands.

pub mod container;
mod image;
mod image_tree;
mod rules;

pub use extant_transfer::{Packing, pack};
pub use image::{image_side, side_at};
pub use image_tree::ImageTree;
pub use rules::OwnerArgs;

use anyhow::Result;
use extant::FileType;
use extant_cli_core::format::show::{count, human};
use extant_cli_core::messages::advised::advised;
use extant_terminal::interrupt;
use extant_terminal::progress::Progress;
use extant_transfer::Side;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Returns the error for a path that does not exist.
pub fn nowhere(side: &dyn Side, path: &[u8]) -> anyhow::Error {
    let error = format!("{}: no such file or directory", side.show(path));
    match side.missing(path) {
        Some(advice) => advised(error, advice),
        None => anyhow::anyhow!(error),
    }
}

/// Counts of moved files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub directories: u64,
    pub files: u64,
    pub symlinks: u64,
    pub specials: u64,
    pub hard_links: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    pub warnings: u64,
}

impl Counts {
    /// Formats the counts as one line.
    pub fn line(&self) -> String {
        let Self {
            directories,
            files,
            symlinks,
            specials,
            hard_links,
            bytes,
            warnings,
        } = self;
        let mut line = count(*files, "file", "files");
        line += &format!(", {}", count(*directories, "directory", "directories"));
        for (n, one, many) in [
            (symlinks, "symbolic link", "symbolic links"),
            (
                specials,
                "device, FIFO or socket",
                "devices, FIFOs and sockets",
            ),
            (hard_links, "hard link", "hard links"),
            (warnings, "warning", "warnings"),
        ] {
            if *n > 0 {
                line += &format!(", {}", count(*n, one, many));
            }
        }
        line + &format!(", {} of data", human(*bytes))
    }
}

/// Progress of the work, counted from any thread.
pub struct Monitor {
    progress: Progress,
    directories: AtomicU64,
    files: Arc<AtomicU64>,
    symlinks: AtomicU64,
    specials: AtomicU64,
    hard_links: AtomicU64,
    bytes: AtomicU64,
    /// Number of warnings of each kind; only a few of a kind are shown.
    warnings: Mutex<Vec<(String, u64)>>,
}

impl Monitor {
    pub fn new(what: &str) -> Self {
        let zero = || AtomicU64::new(0);
        let files = Arc::new(zero());
        Self {
            progress: Progress::transfer(what, Arc::clone(&files)),
            directories: zero(),
            files,
            symlinks: zero(),
            specials: zero(),
            hard_links: zero(),
            bytes: zero(),
            warnings: Mutex::new(Vec::new()),
        }
    }

    /// Announces the total number of bytes, if it is known.
    pub fn expect(&self, bytes: u64) {
        self.progress.expect(bytes, Arc::clone(&self.files));
    }

    /// Ends the progress display, and returns the counts.
    pub fn finish(&self) -> Counts {
        self.progress.done();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = self
            .warnings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Counts {
            directories: get(&self.directories),
            files: get(&self.files),
            symlinks: get(&self.symlinks),
            specials: get(&self.specials),
            hard_links: get(&self.hard_links),
            bytes: get(&self.bytes),
            warnings: kinds.iter().map(|(_, n)| n).sum(),
        }
    }
}

impl extant_transfer::Monitor for Monitor {
    fn check(&self) -> Result<()> {
        interrupt::check()
    }

    fn cancel(&self) -> Option<Arc<AtomicBool>> {
        Some(interrupt::flag())
    }

    fn made(&self, kind: FileType) {
        let counter = match kind {
            FileType::Directory => &self.directories,
            FileType::Regular => &self.files,
            FileType::Symlink => &self.symlinks,
            _ => &self.specials,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn linked(&self) {
        self.hard_links.fetch_add(1, Ordering::Relaxed);
    }

    fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.add(bytes);
    }

    /// Warns about an attribute or file that was not kept; after a few of a kind only their number is reported.
    fn warn(&self, what: &str, place: &str) {
        const SHOWN: u64 = 3;
        // A panic elsewhere cannot leave the list inconsistent.
        let mut kinds = self
            .warnings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let times = match kinds.iter_mut().find(|(w, _)| w == what) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                kinds.push((what.to_string(), 1));
                1
            }
        };
        if times <= SHOWN {
            self.progress.warn(&format!("{place}: {what}"));
        } else if times == SHOWN + 1 {
            self.progress
                .warn(&format!("{what}: more of these are only counted"));
        }
    }
}
