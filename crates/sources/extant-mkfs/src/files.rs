//! The data of directory trees' files, read where the scan found them.

use super::data::{Content, ContentReader};
use super::error::{MkfsError, Result};
use super::inspect::open_dir;
use super::progress::Monitor;
use extant_sources::parts::show;

use super::tree::Tree;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory tree that files are read from.
pub(super) struct TreeRoot {
    root: OwnedFd,
    monitor: Monitor,
    /// Whether the system lets us read without changing access times.
    no_atime: AtomicBool,
}

impl TreeRoot {
    pub fn new(root: OwnedFd, monitor: Monitor) -> Self {
        Self {
            root,
            monitor,
            no_atime: AtomicBool::new(true),
        }
    }
}

/// Places of a volume's files in their source tree.
pub(super) trait Places: Sync {
    /// Returns a directory, by a number that only this trait's user keeps, and a name there.
    fn place(&self, inode: u32) -> (u32, &[u8]);
    /// Returns the path of a directory from the root, components joined by slashes.
    fn path(&self, dir: u32) -> Vec<u8>;
}

/// The files of one directory tree that is all of a volume.
pub(super) struct TreeContent {
    root: TreeRoot,
    /// Directory and name of one path to each inode.
    places: OnceLock<Vec<(u32, u32)>>,
}

impl TreeContent {
    pub fn new(root: TreeRoot) -> Self {
        Self {
            root,
            places: OnceLock::new(),
        }
    }
}

/// The volume's tree is the source's.
struct SourcePlaces<'a> {
    tree: &'a Tree,
    places: &'a [(u32, u32)],
}

impl Places for SourcePlaces<'_> {
    fn place(&self, inode: u32) -> (u32, &[u8]) {
        let (dir, name) = self.places[inode as usize]; // as long as the inodes
        (dir, self.tree.name(&self.tree.names[name as usize]))
    }

    fn path(&self, dir: u32) -> Vec<u8> {
        self.tree.path_of(dir).join(&b'/')
    }
}

fn places(tree: &Tree) -> Vec<(u32, u32)> {
    let mut places = vec![(0, u32::MAX); tree.inodes.len()];
    for (d, dir) in (0..).zip(&tree.dirs) {
        for n in dir.names.clone() {
            let place = &mut places[tree.names[n as usize].inode as usize];
            if place.1 == u32::MAX {
                *place = (d, n);
            }
        }
    }
    places
}

impl Content for TreeContent {
    fn reader<'a>(&'a self, tree: &'a Tree) -> Box<dyn ContentReader + 'a> {
        let places = self.places.get_or_init(|| places(tree));
        let places = SourcePlaces { tree, places };
        Box::new(TreeReader::new(&self.root, tree, places))
    }
}

/// A thread's reader. Keeps the last directory and the last file open, because the next read is mostly there, too.
pub(super) struct TreeReader<'a, P> {
    content: &'a TreeRoot,
    tree: &'a Tree,
    places: P,
    dir: Option<(u32, OwnedFd)>,
    file: Option<(u32, OwnedFd)>,
}

impl<'a, P: Places> TreeReader<'a, P> {
    pub fn new(content: &'a TreeRoot, tree: &'a Tree, places: P) -> Self {
        Self {
            content,
            tree,
            places,
            dir: None,
            file: None,
        }
    }

    fn path(&self, inode: u32) -> String {
        let (dir, name) = self.places.place(inode);
        let path = self.places.path(dir);
        if path.is_empty() {
            show(name)
        } else {
            show(&[&path[..], b"/", name].concat())
        }
    }

    fn io(&self, what: &str, inode: u32, e: Errno) -> MkfsError {
        MkfsError::io(format!("{what} {}", self.path(inode)), e)
    }

    fn open(&mut self, inode: u32) -> Result<()> {
        if self.file.as_ref().is_some_and(|(open, _)| *open == inode) {
            return Ok(());
        }
        let (dir, name) = self.places.place(inode);
        let dir_fd = match self.dir.take() {
            Some((open, fd)) if open == dir => fd,
            _ => {
                let path = self.places.path(dir);
                open_dir(self.content.root.as_fd(), &path)
                    .map_err(|e| self.io("opening the directory of", inode, e))?
            }
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let no_atime = &self.content.no_atime;
        let mut opened = Err(Errno::PERM);
        if no_atime.load(Ordering::Relaxed) {
            opened = rustix::fs::openat(
                &dir_fd,
                name,
                flags | crate::system::NO_ATIME,
                Mode::empty(),
            );
        }
        if opened.as_ref().is_err_and(|e| *e == Errno::PERM) {
            // O_NOATIME is allowed for the owner and root only.
            no_atime.store(false, Ordering::Relaxed);
            opened = rustix::fs::openat(&dir_fd, name, flags, Mode::empty());
        }
        self.dir = Some((dir, dir_fd));
        let fd = opened.map_err(|e| self.io("opening", inode, e))?;
        self.file = Some((inode, fd));
        Ok(())
    }

    fn changed(&self, inode: u32, how: &str) {
        let path = self.path(inode);
        self.content
            .monitor
            .warn(format!("{path}: {how} while it was read"));
    }
}

impl<P: Places> ContentReader for TreeReader<'_, P> {
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.open(inode)?;
        let Some((_, fd)) = &self.file else {
            return Ok(()); // open has set it
        };
        let size = self.tree.inodes[inode as usize].size;
        let wanted = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        // Whole blocks are asked for, so that a file that grew shows without another call.
        let mut n = 0;
        while n < buf.len() {
            match rustix::io::pread(fd, &mut buf[n..], offset + n as u64) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(self.io("reading", inode, e)),
            }
            if n >= wanted {
                break;
            }
        }
        buf[wanted.min(n)..].fill(0);
        let is_last = offset + buf.len() as u64 >= size;
        if n < wanted {
            self.changed(inode, "shrank");
        } else if n > wanted {
            self.changed(inode, "grew");
        } else if is_last && wanted == buf.len() {
            let now = rustix::fs::fstat(fd).map_err(|e| self.io("looking at", inode, e))?;
            if now.st_size as u64 > size {
                self.changed(inode, "grew");
            }
        }
        Ok(())
    }
}
