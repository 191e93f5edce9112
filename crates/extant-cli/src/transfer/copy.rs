//! From one side to the other, from many threads.
//!
//! Work lies on one stack: a directory to be listed, or a few files of one to be copied. Whoever lists a
//! directory makes its subdirectories on the other side before putting them on the stack, so that every
//! file finds its place, however large or flat the tree is. Names of files met before (hard links) and
//! the attributes of directories come last, when nobody adds to a directory any more.

use super::{Existing, Meta, Monitor, Rules, Side, Sink, Source, below};
use anyhow::{Context, Result, anyhow};
use extant::FileType;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Files in one piece of work.
const PIECE: usize = 64;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

enum Task {
    Directory {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    Files {
        from: Vec<u8>,
        to: Vec<u8>,
        names: Vec<Vec<u8>>,
    },
}

#[derive(Default)]
struct Stack {
    tasks: Vec<Task>,
    busy: usize,
    failed: Option<anyhow::Error>,
}

/// A panic of another thread ends the copy anyway; its locks hold nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From where to where, and how.
#[derive(Clone, Copy)]
pub struct Route<'a> {
    pub src: &'a dyn Side,
    pub dst: &'a dyn Side,
    pub rules: &'a Rules,
    pub monitor: &'a Monitor,
}

/// A directory that is to get its attributes.
struct Made {
    from: Vec<u8>,
    to: Vec<u8>,
    meta: Meta,
}

struct Copy<'a> {
    route: Route<'a>,
    stack: Mutex<Stack>,
    changed: Condvar,
    /// Where the first name of a file with several went.
    first_names: Mutex<HashMap<(u64, u64), Vec<u8>>>,
    links: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    directories: Mutex<Vec<Made>>,
}

impl Route<'_> {
    /// Copies what is in directory `from` into directory `to`, which is made if it does not exist
    /// (only then it gets the attributes of `from`).
    pub fn tree(self, from: &[u8], to: &[u8]) -> Result<()> {
        let copy = Copy {
            route: self,
            stack: Mutex::default(),
            changed: Condvar::new(),
            first_names: Mutex::default(),
            links: Mutex::default(),
            directories: Mutex::default(),
        };
        let meta = existing(self.src, from)?;
        if meta.kind != FileType::Directory {
            return Err(anyhow!("{}: not a directory", self.src.show(from)));
        }
        copy.directory(from, to, meta, true)?;
        lock(&copy.stack).tasks.push(Task::Directory {
            from: from.to_vec(),
            to: to.to_vec(),
        });
        copy.run()?;
        copy.finish()
    }

    /// Copies one thing that is no directory; `follow`: what a last symbolic link leads to.
    pub fn file(self, from: &[u8], to: &[u8], follow: bool, existing: Existing) -> Result<()> {
        let meta = self
            .src
            .meta(from, follow)
            .and_then(|m| m.context("no such file or directory"))
            .with_context(|| self.src.show(from))?;
        self.transfer(from, to, &self.rules.adjust(meta), existing)
    }

    /// Copies one name that is no directory, with its attributes.
    fn transfer(self, from: &[u8], to: &[u8], meta: &Meta, existing: Existing) -> Result<()> {
        let Self {
            src, dst, monitor, ..
        } = self;
        let context = || dst.show(to);
        match meta.kind {
            FileType::Regular => return self.regular(from, to, meta, existing),
            FileType::Directory => return Err(anyhow!("{}: is a directory", src.show(from))),
            FileType::Symlink => {
                let target = src.read_link(from).with_context(|| src.show(from))?;
                make_way(dst, to)?;
                dst.make_symlink(&target, to).with_context(context)?;
            }
            _ => {
                make_way(dst, to)?;
                match dst.make_special(to, meta) {
                    Err(e) if is_refusal(&e) => {
                        monitor.warn("a device that only root can make is left out", &context());
                        return Ok(());
                    }
                    other => other.with_context(context)?,
                }
            }
        }
        self.keep(from, to, meta)?;
        monitor.made(meta.kind);
        Ok(())
    }

    fn regular(self, from: &[u8], to: &[u8], meta: &Meta, existing: Existing) -> Result<()> {
        let Self {
            src,
            dst,
            rules,
            monitor,
        } = self;
        let context = || dst.show(to);
        let source = src.open(from).with_context(|| src.show(from))?;
        let there = dst.meta(to, existing == Existing::Overwrite);
        if there
            .with_context(context)?
            .is_some_and(|t| t.kind == FileType::Directory)
        {
            return Err(anyhow!("{}: a directory is in the way", context()));
        }
        let sink = dst
            .make_file(to, meta.mode & 0o777, existing)
            .with_context(context)?;
        content(&*source, &*sink, meta, monitor).with_context(context)?;
        if rules.keep_xattrs {
            for xattr in src.xattrs(from).with_context(|| src.show(from))? {
                settle(sink.set_xattr(&xattr), &xattr.0, &context(), monitor)?;
            }
        }
        sink.apply(meta, rules).with_context(context)?;
        monitor.made(meta.kind);
        Ok(())
    }

    /// Attributes of something that is not open.
    fn keep(self, from: &[u8], to: &[u8], meta: &Meta) -> Result<()> {
        let Self {
            src,
            dst,
            rules,
            monitor,
        } = self;
        if rules.keep_xattrs {
            for xattr in src.xattrs(from).with_context(|| src.show(from))? {
                settle(dst.set_xattr(to, &xattr), &xattr.0, &dst.show(to), monitor)?;
            }
        }
        dst.apply(to, meta, rules).with_context(|| dst.show(to))
    }
}

fn existing(side: &dyn Side, path: &[u8]) -> Result<Meta> {
    side.meta(path, true)
        .and_then(|m| m.context("no such file or directory"))
        .with_context(|| side.show(path))
}

impl Copy<'_> {
    fn run(&self) -> Result<()> {
        std::thread::scope(|s| {
            for _ in 1..self.route.rules.threads {
                s.spawn(|| self.work());
            }
            self.work();
        });
        lock(&self.stack).failed.take().map_or(Ok(()), Err)
    }

    fn work(&self) {
        let mut stack = lock(&self.stack);
        loop {
            if stack.failed.is_some() {
                return;
            }
            let Some(task) = stack.tasks.pop() else {
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
            let done = self.task(task);
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

    fn task(&self, task: Task) -> Result<()> {
        match task {
            Task::Directory { from, to } => self.list(&from, &to),
            Task::Files { from, to, names } => names.iter().try_for_each(|name| {
                crate::interrupt::check()?;
                self.file(&below(&from, name)?, &below(&to, name)?)
            }),
        }
    }

    fn list(&self, from: &[u8], to: &[u8]) -> Result<()> {
        crate::interrupt::check()?;
        let names = self
            .route
            .src
            .list(from)
            .with_context(|| self.route.src.show(from))?;
        let mut tasks = Vec::new();
        let mut files = Vec::new();
        for (name, kind) in names {
            if kind != FileType::Directory {
                files.push(name);
                if files.len() == PIECE {
                    tasks.push(self.files(from, to, &mut files));
                }
                continue;
            }
            let (from, to) = (below(from, &name)?, below(to, &name)?);
            let meta = existing(self.route.src, &from)?;
            self.directory(&from, &to, meta, false)?;
            tasks.push(Task::Directory { from, to });
        }
        if !files.is_empty() {
            tasks.push(self.files(from, to, &mut files));
        }
        lock(&self.stack).tasks.append(&mut tasks);
        self.changed.notify_all();
        Ok(())
    }

    fn files(&self, from: &[u8], to: &[u8], names: &mut Vec<Vec<u8>>) -> Task {
        Task::Files {
            from: from.to_vec(),
            to: to.to_vec(),
            names: std::mem::take(names),
        }
    }

    /// Makes a directory; one that exists is used. The top one keeps its attributes if it exists.
    fn directory(&self, from: &[u8], to: &[u8], meta: Meta, top: bool) -> Result<()> {
        let meta = self.route.rules.adjust(meta);
        let context = || self.route.dst.show(to);
        let there = self.route.dst.meta(to, top).with_context(context)?;
        match &there {
            Some(there) if there.kind == FileType::Directory => {}
            Some(_) => return Err(anyhow!("{}: in the way of a directory", context())),
            None => self
                .route
                .dst
                .make_dir(to, meta.mode)
                .with_context(context)?,
        }
        if there.is_none() || !top {
            self.route.monitor.made(FileType::Directory);
            lock(&self.directories).push(Made {
                from: from.to_vec(),
                to: to.to_vec(),
                meta,
            });
        }
        Ok(())
    }

    fn file(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let meta = self
            .route
            .src
            .meta(from, false)
            .and_then(|m| m.context("gone while it was copied"));
        let meta = self
            .route
            .rules
            .adjust(meta.with_context(|| self.route.src.show(from))?);
        if self.route.rules.skip == Some(meta.id) {
            return Ok(());
        }
        if meta.links > 1 && self.route.rules.keep_links {
            use std::collections::hash_map::Entry;
            match lock(&self.first_names).entry(meta.id) {
                Entry::Occupied(first) => {
                    lock(&self.links).push((first.get().clone(), to.to_vec()));
                    return Ok(());
                }
                Entry::Vacant(entry) => {
                    entry.insert(to.to_vec());
                }
            }
        }
        self.route.transfer(from, to, &meta, Existing::Replace)
    }

    /// What had to wait for all else: other names of files, attributes of directories.
    fn finish(self) -> Result<()> {
        let links = self
            .links
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        for (first, to) in links {
            crate::interrupt::check()?;
            let context = || self.route.dst.show(&to);
            make_way(self.route.dst, &to)?;
            // The first may have been left out, with a warning.
            if self
                .route
                .dst
                .meta(&first, false)
                .with_context(context)?
                .is_some()
            {
                self.route
                    .dst
                    .make_link(&first, &to)
                    .with_context(context)?;
                self.route.monitor.linked();
            }
        }
        let mut directories = self
            .directories
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        // The inner ones first: an outer one may close the way to them.
        directories.sort_by(|a, b| b.to.cmp(&a.to));
        for made in directories {
            self.route.keep(&made.from, &made.to, &made.meta)?;
        }
        Ok(())
    }
}

/// Frees a name for something that is no regular file.
pub(super) fn make_way(dst: &dyn Side, to: &[u8]) -> Result<()> {
    let context = || dst.show(to);
    match dst.meta(to, false).with_context(context)? {
        None => Ok(()),
        Some(there) if there.kind == FileType::Directory => {
            Err(anyhow!("{}: a directory is in the way", context()))
        }
        Some(_) => dst.remove(to).with_context(context),
    }
}

/// The system of the host says that only root may do this, or that it cannot be done there.
fn is_refusal(e: &anyhow::Error) -> bool {
    use rustix::io::Errno as E;
    e.downcast_ref::<E>()
        .is_some_and(|e| [E::PERM, E::ACCESS, E::OPNOTSUPP].contains(e))
}

/// An attribute that the other side refuses is left out with a warning.
pub(super) fn settle(set: Result<()>, name: &[u8], place: &str, monitor: &Monitor) -> Result<()> {
    match set {
        Err(e) if is_refusal(&e) => {
            monitor.warn(
                &format!("attribute {} cannot be set here", crate::show::show(name)),
                place,
            );
            Ok(())
        }
        other => other.with_context(|| place.to_string()),
    }
}

fn content(source: &dyn Source, sink: &dyn Sink, meta: &Meta, monitor: &Monitor) -> Result<()> {
    let mut buf = vec![
        0;
        CHUNK
            .min(usize::try_from(meta.size).unwrap_or(CHUNK))
            .max(1)
    ];
    let mut at = 0;
    // What was data when it was asked; a file that shrinks meanwhile ends early.
    'stretches: while at < meta.size {
        let stretch = if meta.dense {
            Some((at, meta.size))
        } else {
            source.next_data(at, meta.size)?
        };
        let Some((start, end)) = stretch else { break };
        at = start;
        while at < end {
            crate::interrupt::check()?;
            let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let n = source.read_at(at, &mut buf[..want])?;
            sink.write_at(at, &buf[..n])?;
            monitor.moved(n as u64);
            at += n as u64;
            if n < want {
                break 'stretches;
            }
        }
    }
    if at < meta.size && !meta.dense {
        sink.set_size(meta.size)?;
    }
    Ok(())
}
