//! The images that the campaign breaks: every block size, with and without the optional features, each with files of
//! every kind.

use crate::common::*;
use crate::image::{open_as, populate_sized};
use crate::map::Map;
use blockdev::MemDevice;
use std::path::Path;
use std::sync::Arc;

/// Parameters of a base and of its mutants.
pub struct BaseKind {
    pub name: &'static str,
    args: &'static [&'static str],
    size: &'static str,
    /// The journal holds transactions to replay.
    pub dirty: bool,
    /// Checksums are recomputed after most mutations.
    pub sealed: bool,
}

macro_rules! is {
    (dirty) => {
        true
    };
    (clean) => {
        false
    };
    (sealed) => {
        true
    };
    (open) => {
        false
    };
}

macro_rules! kinds {
    ($($name:literal $size:literal $dirty:tt $sealed:tt : $($arg:expr),*;)*) => {
        pub const KINDS: &[BaseKind] = &[$(BaseKind {
            name: $name,
            args: &[$($arg),*],
            size: $size,
            dirty: is!($dirty),
            sealed: is!($sealed),
        }),*];
    };
}

kinds! {
    "1k csum 64bit flex journal" "8M" dirty sealed: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "metadata_csum,64bit,orphan_file";
    "1k csum flex" "8M" clean sealed: "-t", "ext4", "-b", "1024", "-O", "metadata_csum,^64bit,^has_journal";
    "1k plain 64bit journal" "8M" clean open: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^uninit_bg,64bit,^flex_bg";
    "1k plain flex journal" "8M" dirty open: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^uninit_bg,^64bit";
    "1k groups summed" "8M" clean open: "-t", "ext4", "-b", "1024", "-g", "2048", "-J", "size=1", "-O", "^metadata_csum,uninit_bg,^64bit";
    "1k ext3" "8M" dirty open: "-t", "ext3", "-b", "1024", "-J", "size=1";
    "1k ext2" "8M" clean open: "-t", "ext2", "-b", "1024";
    "1k meta_bg csum" "8M" clean sealed: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "metadata_csum,64bit,meta_bg,^resize_inode";
    "1k csum unsealed" "8M" dirty open: "-t", "ext4", "-b", "1024", "-J", "size=1";
    "2k csum seed journal" "12M" clean sealed: "-t", "ext4", "-b", "2048", "-J", "size=2", "-O", "metadata_csum,metadata_csum_seed,64bit";
    "2k plain" "12M" clean open: "-t", "ext4", "-b", "2048", "-O", "^metadata_csum,^uninit_bg,^has_journal,^flex_bg";
    "2k sparse_super2" "12M" dirty open: "-t", "ext4", "-b", "2048", "-J", "size=2", "-O", "^metadata_csum,^uninit_bg,sparse_super2,^resize_inode";
    "4k csum journal" "20M" dirty sealed: "-t", "ext4", "-J", "size=4", "-O", "metadata_csum,64bit,orphan_file";
    "4k csum flex" "16M" clean sealed: "-t", "ext4", "-O", "metadata_csum,64bit,^has_journal";
    "4k plain journal" "20M" clean open: "-t", "ext4", "-J", "size=4", "-O", "^metadata_csum,^uninit_bg,^64bit,^flex_bg";
    "4k plain" "16M" clean open: "-t", "ext2";
}

impl BaseKind {
    /// Returns the size, as mke2fs takes it.
    pub const fn size(&self) -> &'static str {
        self.size
    }

    /// Returns the options of mke2fs.
    pub const fn args(&self) -> &'static [&'static str] {
        self.args
    }
}

/// An image with its map.
pub struct Base {
    pub kind: &'static BaseKind,
    pub device: Arc<MemDevice>,
    pub map: Map,
    pub block: usize,
}

/// Makes all bases, as files of a directory.
pub fn make(dir: &Path) {
    for (n, kind) in KINDS.iter().enumerate() {
        let device = populate_sized(kind.size, kind.args, kind.dirty, 350);
        write_image(&device, &dir.join(n.to_string()));
    }
}

/// Loads all bases that [`make`] made.
pub fn load_all(dir: &Path) -> Vec<Base> {
    (0..KINDS.len()).map(|n| Base::load(dir, n)).collect()
}

/// Makes and loads all bases.
pub fn all() -> Vec<Base> {
    let dir = needs::memory_dir();
    make(dir.path());
    load_all(dir.path())
}

/// Makes and loads all bases whose journals need no replay.
pub fn without_pending_journals() -> Vec<Base> {
    let mut bases = all();
    bases.retain(|base| !base.kind.dirty);
    bases
}

impl Base {
    /// Loads an image that [`make`] made.
    pub fn load(dir: &Path, n: usize) -> Self {
        let kind = &KINDS[n];
        let device = Arc::new(load_image(dir.join(n.to_string())));
        let replayed = Arc::new(device.snapshot());
        let volume = open_as(&replayed, false).expect("a base opens");
        let block = volume.geometry().block_size as usize;
        volume.close().expect("a base closes");
        let map = Map::new(&device, &replayed);
        Self {
            kind,
            device,
            map,
            block,
        }
    }
}
