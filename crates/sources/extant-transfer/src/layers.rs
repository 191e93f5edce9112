//! Applies a source as a layer over the other side. White-outs of the layer remove existing names, and its files
//! replace anything; only directories are merged. The rules are those of mkfs, where several sources become a tree
//! before the image exists (`extant_mkfs`).

use crate::monitor::Monitor;
use crate::paths::{Entered, below, join};
use crate::side::Side;
use anyhow::{Context, Result};
use ext4_format::FileType;
use extant_sources::WhiteOut;
use std::collections::HashSet;

/// Returns true if a layer must not remove a name, because it is the lost+found of the file system.
pub(crate) fn stays(dir: (u64, u64), name: &[u8]) -> bool {
    // Device 0 and inode 2 are the root of an image, because device numbers of the host are never 0.
    dir == (0, 2) && name == b"lost+found"
}

/// Removes a name and everything below it.
pub(crate) fn remove_all(side: &dyn Side, path: &[u8], monitor: &dyn Monitor) -> Result<()> {
    let context = || side.place(path);
    let there = side.meta(path, false).with_context(context)?;
    match there.map(|m| m.kind) {
        None => return Ok(()),
        Some(FileType::Directory) => {}
        Some(_) => return side.remove(path).with_context(context),
    }
    // Outer directories come before inner ones; in reverse order each directory is empty before its removal.
    let mut directories = vec![path.to_vec()];
    let mut next = 0;
    let mut entered = Entered::default();
    while let Some(path) = directories.get(next).cloned() {
        monitor.check()?;
        let context = || side.place(&path);
        let dir = side.directory(&path, false).with_context(context)?;
        entered.enter_side(&*dir).with_context(context)?;
        for (name, kind) in dir.list().with_context(context)? {
            match kind {
                FileType::Directory => directories.push(below(&path, &name)?),
                _ => dir.remove(&name).with_context(|| dir.place(&name))?,
            }
        }
        next += 1;
    }
    for path in directories.iter().rev() {
        side.remove_dir(path).with_context(|| side.place(path))?;
    }
    Ok(())
}

/// Names that the current layer has created. A white-out must not remove them, even if it comes after them.
#[derive(Default)]
pub(crate) struct Touched {
    /// Inodes of the directories that the layer contains, or in which it has names.
    directories: HashSet<u64>,
    /// Other names, with the inode of their directory.
    names: HashSet<(u64, Box<[u8]>)>,
    /// Directory of the last call.
    last: Option<(Vec<u8>, u64)>,
}

impl Touched {
    /// Records that the layer has this directory and all its parents.
    pub(crate) fn directory(&mut self, side: &dyn Side, path: &[u8]) -> Result<u64> {
        if let Some((last, id)) = &self.last
            && last == path
        {
            return Ok(*id);
        }
        let id_of = |path: &[u8]| -> Result<u64> {
            let meta = side.meta(path, true).with_context(|| side.place(path))?;
            Ok(meta.with_context(|| side.place(path))?.id.1)
        };
        let own = id_of(path)?;
        let (mut at, mut id) = (path.to_vec(), own);
        // The root is its own parent.
        while self.directories.insert(id) {
            at = join(&at, b"..");
            id = id_of(&at)?;
        }
        self.last = Some((path.to_vec(), own));
        Ok(own)
    }

    /// Records a name that is not a directory.
    pub(crate) fn name(&mut self, side: &dyn Side, dir: &[u8], name: &[u8]) -> Result<()> {
        let id = self.directory(side, dir)?;
        self.names.insert((id, name.into()));
        Ok(())
    }

    /// Forgets the last path, because removed names may make paths lead elsewhere.
    pub(crate) fn forget_paths(&mut self) {
        self.last = None;
    }

    /// Removes the names that a white-out covers from a directory, except the names of the layer itself.
    pub(crate) fn apply(
        &mut self,
        side: &dyn Side,
        dir: &[u8],
        white_out: WhiteOut<'_>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        self.forget_paths();
        match white_out {
            WhiteOut::Bookkeeping => Ok(()),
            WhiteOut::Opaque => self.prune(side, dir, None, monitor),
            WhiteOut::Name(name) => self.prune(side, dir, Some(name), monitor),
        }
    }

    /// Removes one name of a directory, or all names, except the names of the layer itself.
    fn prune(
        &self,
        side: &dyn Side,
        dir: &[u8],
        only: Option<&[u8]>,
        monitor: &dyn Monitor,
    ) -> Result<()> {
        let mut todo = vec![(dir.to_vec(), only)];
        while let Some((path, only)) = todo.pop() {
            let context = || side.place(&path);
            let dir = side.directory(&path, true).with_context(context)?;
            let id = dir.meta(b".", true).with_context(context)?;
            let id = id.with_context(context)?.id;
            let names = match only {
                Some(name) => vec![name.to_vec()],
                None => dir.list()?.into_iter().map(|(name, _)| name).collect(),
            };
            for name in names {
                let inner = below(&path, &name)?;
                let context = || side.place(&inner);
                let Some(meta) = dir.meta(&name, false).with_context(context)? else {
                    continue;
                };
                if meta.kind == FileType::Directory && self.directories.contains(&meta.id.1) {
                    todo.push((inner, None));
                } else if !stays(id, &name) && !self.names.contains(&(id.1, name.as_slice().into()))
                {
                    remove_all(&*dir, &name, monitor)?;
                }
            }
        }
        Ok(())
    }
}
