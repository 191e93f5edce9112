//! Defragmentation of files of a mounted image by its server, while programs use the files.

use crate::format::show::ShowPath;
use crate::image::overlaid::is_overlaid;
use crate::mounts::mounted::Mounted;
use anyhow::{Context, Result};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_fuse::control::{Client, Fragments};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A mount, and a file or directory on it.
pub struct MountedPath {
    /// Path of the file or directory.
    pub path: PathBuf,
    mounted: Mounted,
    client: Client,
}

/// Something met below a place.
pub struct Met {
    /// Its path.
    pub path: PathBuf,
    /// Its metadata; links are not followed.
    pub meta: Metadata,
}

impl Met {
    /// Returns the inode number by which the server knows the file.
    fn ino(&self) -> Result<u32> {
        u32::try_from(self.meta.ino()).context("no inode number of the image")
    }
}

impl MountedPath {
    /// Finds a path on one of our mounts, or an image with such a mount: its whole tree. `None` for anything else,
    /// even for an image that lies on a mount.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        // A mount of the image does not show its overlay.
        if is_overlaid(path) {
            return Ok(None);
        }
        let (path, mounted) = match (Mounted::of_image(path), Mounted::below(path)) {
            (Some(mounted), _) => (mounted.dir().to_owned(), mounted),
            // Paths below are canonical.
            (None, Some(mounted)) if !is_image(path) => (path.canonicalize()?, mounted),
            _ => return Ok(None),
        };
        let client = mounted.client()?;
        Ok(Some(Self {
            path,
            mounted,
            client,
        }))
    }

    /// Lists the path and everything below it, in order, without other file systems.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn all(&self) -> Result<Vec<Met>> {
        below(&self.path)
    }

    /// Returns the number of extents of a regular file.
    ///
    /// # Errors
    /// The server fails.
    pub fn fragments(&mut self, file: &Met) -> Result<Fragments> {
        let found = self.client.fragments(file.ino()?);
        found.with_context(|| file.path.shown())
    }

    /// Moves a regular file with these fragments into fewer extents. Returns the number of blocks moved.
    ///
    /// # Errors
    /// The server fails.
    pub fn defragment(&mut self, file: &Met, found: &Fragments) -> Result<u64> {
        let moved = self.client.defragment(file.ino()?, found.generation);
        moved.with_context(|| file.path.shown())
    }

    /// Returns the mount's directory.
    pub fn mount(&self) -> &Path {
        self.mounted.dir()
    }
}

/// Lists a path and everything below it, in order, without other file systems.
///
/// # Errors
/// A directory cannot be read.
pub fn below(path: &Path) -> Result<Vec<Met>> {
    let name = |path: &Path| path.shown();
    let device = |meta: &Metadata| meta.dev();
    let top = std::fs::symlink_metadata(path).with_context(|| name(path))?;
    let (mount, mut todo) = (device(&top), vec![path.to_owned()]);
    let mut found = Vec::new();
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).with_context(|| name(&path))?;
        if device(&meta) != mount {
            continue;
        }
        if meta.is_dir() {
            let entries = std::fs::read_dir(&path).with_context(|| name(&path))?;
            let mut below: Vec<_> = entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<_, _>>()
                .with_context(|| name(&path))?;
            below.sort_by(|a, b| b.cmp(a));
            todo.append(&mut below);
        }
        found.push(Met { path, meta });
    }
    Ok(found)
}

/// Returns whether a file has an ext4 superblock.
fn is_image(path: &Path) -> bool {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET));
    path.is_file() && read.is_ok() && RawSuperblock::parse(&bytes).is_ok()
}
