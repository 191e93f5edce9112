//! Walking a directory tree of an image, with handles instead of paths, and no recursion: the depth of a
//! tree is not ours to choose.

use crate::address::join;
use anyhow::{Context, Result, bail, ensure};
use extant::{Dir, DirEntry, FileType};
use std::collections::HashSet;

/// Deeper than this is no tree but a loop.
const DEPTH: usize = 50_000;

/// Something met on the walk.
pub struct Met<'a> {
    /// Directory it is in.
    pub parent: &'a Dir,
    /// Its name there.
    pub name: &'a [u8],
    /// Path from the top, for messages.
    pub path: &'a [u8],
    /// Its type.
    pub kind: FileType,
    /// Names between it and the top, itself included.
    pub depth: usize,
}

/// Directories of an image that a walk has entered, by inode number. A directory has one name; one that is met again,
/// below itself or elsewhere, makes a loop or a tree that grows without end.
#[derive(Default)]
pub struct Entered(HashSet<u64>);

impl Entered {
    /// Fails if the directory has been entered before.
    pub fn enter(&mut self, ino: u64) -> Result<()> {
        ensure!(
            self.0.insert(ino),
            "directory loop: this directory (inode {ino}) has another name already; the image is damaged, run e2fsck"
        );
        Ok(())
    }
}

/// Whether a directory is met before or after what is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Before,
    After,
}

struct Level {
    dir: Dir,
    path: Vec<u8>,
    names: std::vec::IntoIter<DirEntry>,
    entered: Option<DirEntry>,
}

/// Names of a directory in order.
pub fn sorted(dir: &Dir, path: impl AsRef<[u8]>) -> extant::Result<Vec<DirEntry>> {
    let mut names = dir.read_dir(path)?;
    names.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(names)
}

/// Visits everything below `top`, directories before or after their contents. With [`Order::Before`] the answer of
/// `meet` says whether to enter a directory.
pub fn walk(
    top: &Dir,
    path: &[u8],
    order: Order,
    mut meet: impl FnMut(&Met<'_>) -> Result<bool>,
) -> Result<()> {
    let names = sorted(top, ".")?.into_iter();
    let mut entered = Entered::default();
    entered.enter(top.ino().into())?;
    let mut stack = vec![Level {
        dir: top.clone(),
        path: path.to_vec(),
        names,
        entered: None,
    }];
    while let Some(depth) = Some(stack.len()).filter(|&d| d > 0) {
        let Some(level) = stack.last_mut() else { break };
        if let Some(done) = level.entered.take()
            && order == Order::After
        {
            see(level, &done, depth, &mut meet)?;
        }
        let Some(entry) = level.names.next() else {
            stack.pop();
            continue;
        };
        crate::interrupt::check()?;
        let is_dir = entry.file_type == FileType::Directory;
        let enter = if is_dir && order == Order::After {
            true
        } else {
            see(level, &entry, depth, &mut meet)?
        };
        if is_dir && enter {
            let path = join(&level.path, &entry.name);
            let context = || crate::show::show(&path);
            if depth > DEPTH {
                bail!("{}: directories nested too deeply", context());
            }
            let dir = level.dir.open_dir(&entry.name).with_context(context)?;
            entered.enter(dir.ino().into()).with_context(context)?;
            let names = sorted(&dir, ".").with_context(context)?.into_iter();
            level.entered = Some(entry);
            stack.push(Level {
                dir,
                path,
                names,
                entered: None,
            });
        }
    }
    Ok(())
}

fn see(
    level: &Level,
    entry: &DirEntry,
    depth: usize,
    meet: &mut impl FnMut(&Met<'_>) -> Result<bool>,
) -> Result<bool> {
    let path = join(&level.path, &entry.name);
    let met = Met {
        parent: &level.dir,
        name: &entry.name,
        path: &path,
        kind: entry.file_type,
        depth,
    };
    meet(&met).with_context(|| crate::show::show(&path))
}
