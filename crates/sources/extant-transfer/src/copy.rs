//! Copies a tree from one side to the other, with many threads.
//!
//! A task is a directory to list, or a few files of one directory to copy. The thread that lists a directory makes its
//! subdirectories on the other side before they become tasks, so that every file finds its directory, however large or
//! flat the tree is. Further names of files (hard links) and the attributes of directories come last, when no thread
//! adds to a directory any more.
//!
//! A directory is opened on both sides when its task starts, and its files are reached through these handles. A thread
//! copies the files of a directory before it lists another directory, so that at most one directory per thread is
//! open, however deep the tree is. Threads prefer separate directories, because file systems serialize the creation of
//! names in one directory. When no directories are left, threads take files from others.

use crate::copy_steps::{clear_destination, content, is_refused, set_attributes_with};
use crate::layers::{remove_all, stays};
use crate::meta::Meta;
use crate::monitor::Monitor;
use crate::paths::{Entered, base_name, below, join};
use crate::rules::Rules;
use crate::side::{Existing, Keep, Reason, Side, Source};
use anyhow::{Context, Result};
use ext4_format::FileType;
use extant_sources::WhiteOut;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Files in one task.
const PIECE: usize = 64;

/// A directory on both sides.
struct Pair {
    /// Its path from the top.
    path: Vec<u8>,
    src: Box<dyn Side>,
    dst: Box<dyn Side>,
}

/// Files of a directory.
struct Files {
    dir: Arc<Pair>,
    names: Vec<Vec<u8>>,
}

enum Task {
    Directory(Vec<u8>),
    Files(Files),
}

#[derive(Default)]
struct Stack {
    /// Paths from the top.
    directories: Vec<Vec<u8>>,
    /// The files of each thread's directory.
    files: Vec<Vec<Files>>,
    busy: usize,
    failed: Option<anyhow::Error>,
}

impl Stack {
    /// Returns the next task of a thread: files of its own directory, else another directory, else files of the thread
    /// with the most files.
    fn next(&mut self, thread: usize) -> Option<Task> {
        let own = self.files.get_mut(thread).and_then(Vec::pop);
        if let Some(files) = own {
            return Some(Task::Files(files));
        }
        if let Some(path) = self.directories.pop() {
            return Some(Task::Directory(path));
        }
        let most = self.files.iter_mut().max_by_key(|files| files.len())?;
        most.pop().map(Task::Files)
    }
}

/// Locks a mutex. A panic of another thread ends the copy anyway, and the data under the locks is always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The two sides of a copy, and its options.
#[derive(Clone, Copy)]
pub struct Route<'a> {
    /// The source.
    pub src: &'a dyn Side,
    /// The destination.
    pub dst: &'a dyn Side,
    /// The rules.
    pub rules: &'a Rules,
    /// Callbacks to the caller.
    pub monitor: &'a dyn Monitor,
}

/// A directory whose attributes are set at the end.
struct NewDirectory {
    /// Its path from the top.
    path: Vec<u8>,
    meta: Meta,
}

struct Copy<'a> {
    route: Route<'a>,
    /// The source directory and the destination directory.
    src: Box<dyn Side>,
    dst: Box<dyn Side>,
    /// Device number of the top directory, because the rules may exclude other file systems.
    device: u64,
    stack: Mutex<Stack>,
    changed: Condvar,
    /// Destination path of the first name of each file with several names.
    first_names: Mutex<HashMap<(u64, u64), Vec<u8>>>,
    links: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    directories: Mutex<Vec<NewDirectory>>,
    /// Source directories that were entered.
    entered: Mutex<Entered>,
}

impl Route<'_> {
    /// Copies the contents of directory `from` into directory `to`. If `to` does not exist, it is made with the
    /// attributes of `from`.
    ///
    /// # Errors
    /// Returns the first error of a side, the rules or the monitor.
    pub fn tree(self, from: &[u8], to: &[u8]) -> Result<()> {
        let Self { src, dst, .. } = self;
        let meta = existing(src, from)?;
        if meta.kind != FileType::Directory {
            return Err(Reason::NotDirectory).with_context(|| src.place(from));
        }
        let device = meta.id.0;
        let meta = self.rules.adjust(meta);
        let made = if self.rules.only_new {
            let made = dst.make_dir(to, meta.mode);
            made.with_context(|| dst.place(to)).map(|()| true)?
        } else {
            self.make_directory(dst, to, &meta, true)?
        };
        if made {
            self.monitor.made(FileType::Directory);
        }
        let copy = Copy {
            route: self,
            src: src.directory(from, true).with_context(|| src.place(from))?,
            dst: dst.directory(to, true).with_context(|| dst.place(to))?,
            device,
            stack: Mutex::default(),
            changed: Condvar::new(),
            first_names: Mutex::default(),
            links: Mutex::default(),
            directories: Mutex::default(),
            entered: Mutex::default(),
        };
        lock(&copy.stack).directories.push(Vec::new());
        copy.run()?;
        copy.finish()?;
        if made {
            self.keep((src, from), (dst, to), &meta)?;
        }
        Ok(())
    }

    /// Makes a directory. Returns false if the directory exists already. The top directory may be behind a symbolic
    /// link.
    fn make_directory(self, dst: &dyn Side, to: &[u8], meta: &Meta, top: bool) -> Result<bool> {
        let context = || dst.place(to);
        match dst.meta(to, top).with_context(context)? {
            Some(there) if there.kind == FileType::Directory => Ok(false),
            Some(_) if !self.rules.layer => Err(Reason::FileInTheWay).with_context(context),
            there => {
                if there.is_some() {
                    dst.remove(to).with_context(context)?;
                }
                dst.make_dir(to, meta.mode).with_context(context)?;
                Ok(true)
            }
        }
    }

    /// Copies a file that is not a directory. If `follow` is true, copies the target of a symbolic link.
    ///
    /// # Errors
    /// As of [`tree`](Self::tree).
    pub fn file(self, from: &[u8], to: &[u8], follow: bool, existing: Existing) -> Result<()> {
        let Self { src, dst, .. } = self;
        let meta = src
            .meta(from, follow)
            .and_then(|m| m.ok_or_else(|| Reason::NotFound.into()))
            .with_context(|| src.place(from))?;
        let meta = self.rules.adjust(meta);
        self.transfer((src, from), (dst, to), &meta, follow, existing)
    }

    /// Copies a single name that is not a directory, with its attributes.
    fn transfer(
        self,
        (src, from): (&dyn Side, &[u8]),
        (dst, to): (&dyn Side, &[u8]),
        meta: &Meta,
        follow: bool,
        existing: Existing,
    ) -> Result<()> {
        let monitor = self.monitor;
        let context = || dst.place(to);
        match meta.kind {
            FileType::Regular => {
                let source = src.open(from, follow).with_context(|| src.place(from))?;
                return self.regular(&*source, (src, from), (dst, to), meta, existing);
            }
            FileType::Directory => {
                return Err(Reason::IsDirectory).with_context(|| src.place(from));
            }
            FileType::Symlink => {
                let target = src.read_link(from).with_context(|| src.place(from))?;
                clear_destination(dst, to, self.rules, monitor)?;
                dst.make_symlink(&target, to).with_context(context)?;
            }
            _ => {
                clear_destination(dst, to, self.rules, monitor)?;
                match dst.make_special(to, meta) {
                    Err(e) if e.downcast_ref().is_some_and(|e: &Errno| is_refused(*e)) => {
                        let what = "a device that only root can make is left out";
                        monitor.refused(what, &dst.show(to));
                        return Ok(());
                    }
                    other => other.with_context(context)?,
                }
            }
        }
        self.keep((src, from), (dst, to), meta)?;
        monitor.made(meta.kind);
        Ok(())
    }

    fn regular(
        self,
        source: &dyn Source,
        (src, from): (&dyn Side, &[u8]),
        (dst, to): (&dyn Side, &[u8]),
        meta: &Meta,
        existing: Existing,
    ) -> Result<()> {
        let Self { rules, monitor, .. } = self;
        let context = || dst.place(to);
        // The file that another name leads to, a device or a pipe stays.
        let is_new = existing == Existing::Replace || !matches!(dst.meta(to, false), Ok(Some(_)));
        let make = || dst.make_file(to, meta.mode & 0o777, existing);
        let sink = make().or_else(|e| {
            let there = dst.meta(to, existing == Existing::Overwrite);
            let there = there.ok().flatten();
            if there.is_none_or(|t| t.kind != FileType::Directory) {
                return Err(e).with_context(context);
            }
            if !rules.layer {
                return Err(Reason::DirectoryInTheWay).with_context(context);
            }
            remove_all(dst, to, monitor)?;
            make().with_context(context)
        })?;
        let copied = content(source, &*sink, meta, rules, monitor).with_context(context);
        if copied.is_err() && is_new {
            // A file with the beginning of its content looks like a whole one.
            let _ = dst.remove(to);
        }
        copied?;
        let xattrs = if rules.keep_xattrs {
            source.xattrs().with_context(|| src.place(from))?
        } else {
            Vec::new()
        };
        let set = |keep: &mut Keep<'_>| sink.keep(keep);
        set_attributes_with((meta, &xattrs), rules, &context(), monitor, set)?;
        monitor.made(meta.kind);
        Ok(())
    }

    /// Copies the attributes of a file that is not open.
    fn keep(
        self,
        (src, from): (&dyn Side, &[u8]),
        (dst, to): (&dyn Side, &[u8]),
        meta: &Meta,
    ) -> Result<()> {
        let xattrs = if self.rules.keep_xattrs {
            src.xattrs(from).with_context(|| src.place(from))?
        } else {
            Vec::new()
        };
        let (rules, place) = (self.rules, dst.place(to));
        set_attributes_with((meta, &xattrs), rules, &place, self.monitor, |keep| {
            dst.keep(to, keep)
        })
    }
}

fn existing(side: &dyn Side, path: &[u8]) -> Result<Meta> {
    side.meta(path, true)
        .and_then(|m| m.ok_or_else(|| Reason::NotFound.into()))
        .with_context(|| side.place(path))
}

/// Returns the part of a path before its last slash.
fn parent(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|&b| b == b'/');
    &path[..slash.unwrap_or(0)]
}

impl Copy<'_> {
    fn run(&self) -> Result<()> {
        let threads = self.route.rules.threads.max(1);
        lock(&self.stack).files.resize_with(threads, Vec::new);
        std::thread::scope(|s| {
            blockdev::start_threads(s, 1..threads, |thread| self.work(thread));
            self.work(0);
        });
        lock(&self.stack).failed.take().map_or(Ok(()), Err)
    }

    fn work(&self, thread: usize) {
        let mut stack = lock(&self.stack);
        loop {
            if stack.failed.is_some() {
                return;
            }
            let Some(task) = stack.next(thread) else {
                if stack.busy == 0 {
                    return;
                }
                stack = self
                    .changed
                    .wait(stack)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            stack.busy += 1;
            drop(stack);
            let done = match task {
                Task::Directory(path) => self.list(thread, path),
                Task::Files(files) => self.files(&files),
            };
            self.route.monitor.step();
            stack = lock(&self.stack);
            stack.busy -= 1;
            if let Err(e) = done {
                stack.failed.get_or_insert(e);
            }
            if stack.busy == 0 || stack.failed.is_some() {
                self.changed.notify_all();
            }
        }
    }

    /// Opens a directory on both sides.
    fn open(&self, path: Vec<u8>) -> Result<Pair> {
        let open = |side: &dyn Side| {
            side.directory(&path, false)
                .with_context(|| side.place(&path))
        };
        Ok(Pair {
            src: open(&*self.src)?,
            dst: open(&*self.dst)?,
            path,
        })
    }

    fn list(&self, thread: usize, path: Vec<u8>) -> Result<()> {
        self.route.monitor.check()?;
        let rules = self.route.rules;
        let dir = Arc::new(self.open(path)?);
        lock(&self.entered)
            .enter_side(&*dir.src)
            .with_context(|| dir.src.place(b"."))?;
        let mut names = dir.src.list().with_context(|| dir.src.place(b"."))?;
        if rules.layer {
            names = self.white_outs(&dir, names)?;
        }
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        let mut pieces = Vec::new();
        let piece = |names: &mut Vec<Vec<u8>>| Files {
            dir: Arc::clone(&dir),
            names: std::mem::take(names),
        };
        for (name, kind) in names {
            let path = below(&dir.path, &name)?;
            if kind != FileType::Directory {
                files.push(name);
                if files.len() == PIECE {
                    pieces.push(piece(&mut files));
                }
                continue;
            }
            let meta = self.look(&dir, &name)?;
            let elsewhere = rules.one_file_system && meta.id.0 != self.device;
            let meta = rules.adjust(meta);
            self.route.make_directory(&*dir.dst, &name, &meta, false)?;
            self.route.monitor.made(FileType::Directory);
            if !elsewhere {
                directories.push(path.clone());
            }
            lock(&self.directories).push(NewDirectory { path, meta });
        }
        if !files.is_empty() {
            pieces.push(piece(&mut files));
        }
        let mut stack = lock(&self.stack);
        // The first directory in order is on top of the stack.
        stack.directories.extend(directories.into_iter().rev());
        if let Some(own) = stack.files.get_mut(thread) {
            own.extend(pieces.into_iter().rev());
        }
        drop(stack);
        self.changed.notify_all();
        Ok(())
    }

    /// Removes the files that white-outs cover, before any file of the directory is copied. Returns the other names.
    fn white_outs(
        &self,
        dir: &Pair,
        names: Vec<(Vec<u8>, FileType)>,
    ) -> Result<Vec<(Vec<u8>, FileType)>> {
        let dst = &*dir.dst;
        let context = || dst.place(b".");
        let mut kept = Vec::with_capacity(names.len());
        let mut gone: Vec<Vec<u8>> = Vec::new();
        for (name, kind) in names {
            match WhiteOut::of(&name) {
                None => kept.push((name, kind)),
                Some(WhiteOut::Bookkeeping) => {}
                Some(WhiteOut::Name(hidden)) => gone.push(hidden.to_vec()),
                Some(WhiteOut::Opaque) => {
                    let all = dst.list().with_context(context)?;
                    gone.extend(all.into_iter().map(|(name, _)| name));
                }
            }
        }
        if !gone.is_empty() {
            let id = dst.meta(b".", true).with_context(context)?;
            let id = id.with_context(context)?.id;
            gone.retain(|name| !stays(id, name));
        }
        for name in gone {
            below(&dir.path, &name)?;
            remove_all(dst, &name, self.route.monitor)?;
        }
        Ok(kept)
    }

    fn look(&self, dir: &Pair, name: &[u8]) -> Result<Meta> {
        dir.src
            .meta(name, false)
            .and_then(|m| m.context("removed during the copy"))
            .with_context(|| dir.src.place(name))
    }

    fn files(&self, files: &Files) -> Result<()> {
        for name in &files.names {
            self.route.monitor.check()?;
            self.file(&files.dir, name)?;
        }
        Ok(())
    }

    fn file(&self, dir: &Pair, name: &[u8]) -> Result<()> {
        let meta = self.route.rules.adjust(self.look(dir, name)?);
        if self.route.rules.skip == Some(meta.id) {
            return Ok(());
        }
        if meta.links > 1 && self.route.rules.keep_links {
            use std::collections::hash_map::Entry;
            let path = join(&dir.path, name);
            match lock(&self.first_names).entry(meta.id) {
                Entry::Occupied(first) => {
                    lock(&self.links).push((first.get().clone(), path));
                    return Ok(());
                }
                Entry::Vacant(entry) => {
                    entry.insert(path);
                }
            }
        }
        let (from, to) = ((&*dir.src, name), (&*dir.dst, name));
        self.route
            .transfer(from, to, &meta, false, Existing::Replace)
    }

    /// Creates the further names of files, and sets the attributes of directories.
    fn finish(&self) -> Result<()> {
        let dst = &*self.dst;
        for (first, to) in std::mem::take(&mut *lock(&self.links)) {
            self.route.monitor.check()?;
            let context = || dst.place(&to);
            clear_destination(dst, &to, self.route.rules, self.route.monitor)?;
            // The first name may have been skipped, with a warning.
            if dst.meta(&first, false).with_context(context)?.is_some() {
                dst.make_link(&first, &to).with_context(context)?;
                self.route.monitor.linked();
            }
        }
        let mut directories = std::mem::take(&mut *lock(&self.directories));
        // Inner directories first, because the mode of an outer one may deny access to them.
        directories.sort_by(|a, b| b.path.cmp(&a.path));
        let mut near: Option<Pair> = None;
        for made in directories {
            let outer = parent(&made.path);
            let dir = match near.take() {
                Some(dir) if dir.path == outer => dir,
                _ => self.open(outer.to_vec())?,
            };
            let name = base_name(&made.path);
            self.route
                .keep((&*dir.src, name), (&*dir.dst, name), &made.meta)?;
            near = Some(dir);
        }
        Ok(())
    }
}
