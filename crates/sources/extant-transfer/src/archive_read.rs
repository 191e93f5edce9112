//! Extracts an archive into a tree.
//!
//! One thread reads the archive. The reader makes directories, links and other small entries itself. Files up to a
//! megabyte are queued for worker threads. A path always goes to the same worker, so that a later entry for a path is
//! written after an earlier one. An entry that depends on an earlier file (a hard link, a file that becomes a
//! directory) waits for all queued files.

use crate::archive_files::{InFlight, Item, Job, JobGuard, close, write_file};
use crate::copy_steps::{clear_destination, set_attributes_with, write_data};
use crate::layers::{Touched, remove_all};
use crate::meta::Meta;
use crate::monitor::Monitor;
use crate::paths::{join, relative, show};
use crate::rules::Rules;
use crate::side::{Existing, Side};
use anyhow::{Context, Result, bail, ensure};
use ext4_format::FileType;
use ext4_format::inode::makedev;
use extant_sources::{
    ArchiveInput, ArchiveKind, ArchiveMember, AttributeChange, ReadTree, SourceError, WhiteOut,
};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::Builder;

/// Files up to this size are written by worker threads.
const SMALL: u64 = 1 << 20;
/// Files waiting for one thread.
const QUEUE: usize = 64;
/// Largest number of remembered paths of queued files; beyond it the reader waits for all queued files.
const REMEMBERED: usize = 1 << 16;

/// The source of members.
pub enum Feed {
    /// An archive.
    Archive(ArchiveInput),
    /// A tree that is read directly.
    Tree(Box<dyn ReadTree>),
}

/// Extracts an archive into directory `to`.
///
/// # Errors
/// Returns the first error of the archive, the side, the rules or the monitor.
pub fn read_archive(
    feed: Feed,
    dst: &dyn Side,
    to: &[u8],
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    let in_flight = InFlight::default();
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let mut queues: Vec<SyncSender<Job>> = Vec::new();
        for _ in 0..rules.threads {
            let (sender, jobs) = sync_channel::<Job>(QUEUE);
            let (in_flight, failed, stop) = (&in_flight, &failed, &stop);
            let write = move || {
                for job in jobs {
                    let _done = JobGuard(in_flight);
                    if !stop.load(Ordering::Relaxed)
                        && let Err(e) = write_file(dst, &job, rules, monitor)
                    {
                        stop.store(true, Ordering::Relaxed);
                        failed
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .get_or_insert(e);
                    }
                }
            };
            // The work needs at least one thread.
            match Builder::new().spawn_scoped(s, write) {
                Ok(_) => queues.push(sender),
                Err(e) if queues.is_empty() => return Err(e).context("cannot start a thread"),
                Err(_) => break,
            }
        }
        let mut reader = Reader {
            dst,
            to,
            rules,
            monitor,
            queues,
            in_flight: &in_flight,
            stop: &stop,
            hasher: RandomState::new(),
            directories: HashMap::new(),
            flags: HashMap::new(),
            touched: rules.layer.then(Touched::default),
            handed_out: HashSet::new(),
            changes: Vec::new(),
        };
        let read = reader.run(feed);
        drop(reader.queues.drain(..));
        in_flight.wait();
        // Stop the reader if another thread fails.
        if let Some(e) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        read?;
        reader.finish()
    })
}

struct Reader<'a> {
    dst: &'a dyn Side,
    to: &'a [u8],
    rules: &'a Rules,
    monitor: &'a dyn Monitor,
    queues: Vec<SyncSender<Job>>,
    in_flight: &'a InFlight,
    stop: &'a AtomicBool,
    hasher: RandomState,
    /// Attributes of directories, which are set last.
    directories: HashMap<Vec<u8>, Item>,
    /// Flags of files and directories, which are set after all else, because an immutable file cannot get links.
    flags: HashMap<Vec<u8>, u32>,
    /// Names that the current layer has created.
    touched: Option<Touched>,
    /// Hashes of the paths of files that may not be written yet.
    handed_out: HashSet<u64>,
    /// Changes of files that were there before, or that other lines have made.
    changes: Vec<AttributeChange>,
}

impl Reader<'_> {
    fn run(&mut self, feed: Feed) -> Result<()> {
        let monitor = self.monitor;
        let mut give = |member: ArchiveMember, data: &mut dyn Read| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Stop::Elsewhere);
            }
            let done = monitor.check().and_then(|()| self.member(member, data));
            monitor.step();
            done.map_err(Stop::Here)
        };
        let read = match feed {
            Feed::Archive(archive) => {
                extant_sources::read_archive(archive, monitor.cancel(), |member, data| {
                    give(member, data)
                })
            }
            Feed::Tree(tree) => {
                let read = extant_sources::read_tree(&*tree, monitor.cancel(), |member, data| {
                    give(member, data)
                });
                self.changes = tree.changes();
                read
            }
        };
        match read {
            Ok(()) | Err(Stop::Elsewhere) => Ok(()),
            Err(Stop::Reading(SourceError::Interrupted)) => {
                monitor.check()?;
                Err(SourceError::Interrupted.into())
            }
            Err(Stop::Reading(e)) => Err(e.into()),
            Err(Stop::Here(e)) => Err(e),
        }
    }

    fn member(&mut self, member: ArchiveMember, data: &mut dyn Read) -> Result<()> {
        let Some(name) = relative(&member.path)? else {
            // The top directory itself exists and stays unchanged.
            return Ok(());
        };
        let path = join(self.to, &name);
        if self.white_out(&path).with_context(|| show(&name))? {
            return Ok(());
        }
        if let Some(warning) = member.warning {
            self.monitor.warn(warning, &self.dst.show(&path));
        }
        self.put(member, data, path).with_context(|| show(&name))
    }

    fn put(&mut self, member: ArchiveMember, data: &mut dyn Read, path: Vec<u8>) -> Result<()> {
        let item = self.item(&member);
        if self.touched.is_some() {
            self.over(&member.kind, &path)?;
        }
        match (&member.kind, item.meta.flags) {
            (ArchiveKind::File { .. } | ArchiveKind::Directory, added) if added != 0 => {
                self.flags.insert(path.clone(), added);
            }
            // An earlier member of this path is replaced.
            _ => drop(self.flags.remove(&path)),
        }
        match member.kind {
            ArchiveKind::HardLink(old) => {
                let old = relative(&old)?.context("a link to a directory")?;
                let old = join(self.to, &old);
                self.wait();
                self.parents(&path)?;
                if old != path {
                    clear_destination(self.dst, &path, self.rules, self.monitor)?;
                    self.dst.make_link(&old, &path)?;
                    self.monitor.linked();
                }
                Ok(())
            }
            ArchiveKind::Directory => self.directory(path, item),
            ArchiveKind::File { stretches, .. } => self.file(data, path, item, stretches),
            ArchiveKind::Symlink(target) => {
                self.prepare(&path)?;
                self.dst.make_symlink(&target, &path)?;
                self.attributes(&path, &item)
            }
            ArchiveKind::CharDevice(..)
            | ArchiveKind::BlockDevice(..)
            | ArchiveKind::Fifo
            | ArchiveKind::Socket => {
                self.prepare(&path)?;
                self.dst.make_special(&path, &item.meta)?;
                self.attributes(&path, &item)
            }
        }
    }

    /// If a member of a layer is a white-out, removes the names that it covers and returns true.
    fn white_out(&mut self, path: &[u8]) -> Result<bool> {
        let (dir, name) = split(path);
        let Some(white_out) = WhiteOut::of(name) else {
            return Ok(false);
        };
        if self.touched.is_none() {
            return Ok(false);
        }
        self.wait();
        self.parents(path)?;
        if let Some(touched) = &mut self.touched {
            touched.directory(self.dst, dir)?;
            touched.apply(self.dst, dir, white_out, self.monitor)?;
        }
        Ok(true)
    }

    /// Removes a directory that a member of a layer replaces, and records that the layer has the member.
    fn over(&mut self, kind: &ArchiveKind, path: &[u8]) -> Result<()> {
        self.parents(path)?;
        let (dir, name) = split(path);
        if *kind == ArchiveKind::Directory {
            return Ok(()); // recorded when the directory is created
        }
        let there = self.dst.meta(path, false)?;
        if there.is_some_and(|t| t.kind == FileType::Directory) {
            self.wait();
            remove_all(self.dst, path, self.monitor)?;
            let below = join(path, b"");
            self.directories
                .retain(|p, _| p != path && !p.starts_with(&below));
            self.touched.iter_mut().for_each(Touched::forget_paths);
        }
        if let Some(touched) = &mut self.touched {
            touched.name(self.dst, dir, name)?;
        }
        Ok(())
    }

    fn item(&self, m: &ArchiveMember) -> Item {
        let (kind, size, rdev) = match m.kind {
            ArchiveKind::File { size, .. } => (FileType::Regular, size, 0),
            ArchiveKind::HardLink(_) => (FileType::Regular, 0, 0),
            ArchiveKind::Symlink(_) => (FileType::Symlink, 0, 0),
            ArchiveKind::Directory => (FileType::Directory, 0, 0),
            ArchiveKind::CharDevice(major, minor) => {
                (FileType::CharDevice, 0, makedev(major, minor))
            }
            ArchiveKind::BlockDevice(major, minor) => {
                (FileType::BlockDevice, 0, makedev(major, minor))
            }
            ArchiveKind::Fifo => (FileType::Fifo, 0, 0),
            ArchiveKind::Socket => (FileType::Socket, 0, 0),
        };
        let meta = Meta {
            kind,
            mode: m.mode,
            uid: m.uid,
            gid: m.gid,
            size,
            rdev,
            atime: m.atime,
            mtime: m.mtime,
            links: 1,
            id: (0, 0),
            dense: false,
            flags: m.flags,
        };
        let xattrs = if self.rules.keep_xattrs {
            m.xattrs.clone()
        } else {
            Vec::new()
        };
        Item {
            meta: self.rules.adjust(meta),
            xattrs,
        }
    }

    /// Waits for all queued files.
    fn wait(&mut self) {
        self.in_flight.wait();
        self.handed_out.clear();
    }

    /// Waits for the file at a path if it is queued, so that the path's state is known.
    fn wait_for(&mut self, path: &[u8]) {
        if self.handed_out.contains(&self.hasher.hash_one(path)) {
            self.wait();
        }
    }

    /// Removes an existing file at the path of a link, a device or another small entry.
    fn prepare(&mut self, path: &[u8]) -> Result<()> {
        self.wait_for(path);
        self.parents(path)?;
        if self.dst.meta(path, false)?.is_some() {
            self.wait();
            clear_destination(self.dst, path, self.rules, self.monitor)?;
        }
        Ok(())
    }

    fn attributes(&self, path: &[u8], item: &Item) -> Result<()> {
        self.keep(path, item)?;
        self.monitor.made(item.meta.kind);
        Ok(())
    }

    fn keep(&self, path: &[u8], item: &Item) -> Result<()> {
        let (set, place) = ((&item.meta, &item.xattrs[..]), self.dst.place(path));
        set_attributes_with(set, self.rules, &place, self.monitor, |keep| {
            self.dst.keep(path, keep)
        })
    }

    /// Creates the parent directories that have no member in the archive yet.
    fn parents(&mut self, path: &[u8]) -> Result<()> {
        let Some(slash) = path
            .iter()
            .rposition(|&b| b == b'/')
            .filter(|&at| at > self.to.len())
        else {
            return Ok(());
        };
        let parent = &path[..slash];
        self.wait_for(parent);
        if self.directories.contains_key(parent) || self.dst.meta(parent, true)?.is_some() {
            return Ok(());
        }
        self.parents(parent)?;
        self.dst
            .make_dir(parent, 0o755)
            .with_context(|| show(parent))
    }

    fn directory(&mut self, path: Vec<u8>, item: Item) -> Result<()> {
        self.parents(&path)?;
        self.wait_for(&path);
        let there = self.dst.meta(&path, false)?;
        if there.as_ref().is_none_or(|t| t.kind != FileType::Directory) {
            if there.is_some() {
                self.wait();
                self.dst.remove(&path)?;
            }
            self.dst.make_dir(&path, item.meta.mode)?;
        }
        self.monitor.made(FileType::Directory);
        if let Some(touched) = &mut self.touched {
            if there.is_none_or(|t| t.kind != FileType::Directory) {
                touched.forget_paths();
            }
            touched.directory(self.dst, &path)?;
        }
        self.directories.insert(path, item);
        Ok(())
    }

    fn file(
        &mut self,
        data: &mut dyn Read,
        path: Vec<u8>,
        item: Item,
        stretches: Vec<(u64, u64)>,
    ) -> Result<()> {
        self.parents(&path)?;
        let stored: u64 = stretches.iter().map(|(_, len)| len).sum();
        if stored > SMALL {
            // The file is too large to queue; an earlier file of the same path must be done.
            self.wait();
            return self.large(data, &path, &item, &stretches);
        }
        let mut content = vec![0; stored as usize];
        data.read_exact(&mut content)?;
        let job = Job {
            path,
            item,
            content,
            stretches,
        };
        if self.queues.is_empty() {
            return write_file(self.dst, &job, self.rules, self.monitor);
        }
        if self.handed_out.len() >= REMEMBERED {
            self.wait();
        }
        let hash = self.hasher.hash_one(&job.path[..]);
        self.handed_out.insert(hash);
        let queue = hash as usize % self.queues.len();
        self.in_flight.change(|n| *n += 1);
        let sent = self.queues.get(queue).is_some_and(|q| q.send(job).is_ok());
        if !sent {
            self.in_flight.change(|n| *n -= 1);
            bail!("a thread ended early");
        }
        Ok(())
    }

    fn large(
        &self,
        data: &mut dyn Read,
        path: &[u8],
        item: &Item,
        stretches: &[(u64, u64)],
    ) -> Result<()> {
        let sink = self
            .dst
            .make_file(path, item.meta.mode & 0o777, Existing::Replace)?;
        let (mut buf, mut written) = (vec![0; SMALL as usize], 0);
        for &(start, len) in stretches {
            let (mut at, end) = (start, start + len);
            while at < end {
                self.monitor.check()?;
                let want = usize::try_from(end - at)
                    .unwrap_or(buf.len())
                    .min(buf.len());
                data.read_exact(&mut buf[..want])?;
                written = write_data(&*sink, self.rules, at, &buf[..want])?.max(written);
                self.monitor.moved(want as u64);
                at += want as u64;
            }
        }
        close(
            &*sink,
            self.dst,
            path,
            item,
            written,
            self.rules,
            self.monitor,
        )
    }

    /// Changes attributes of a file.
    fn change(&self, change: &AttributeChange) -> Result<()> {
        let name = relative(&change.path)?.unwrap_or_default();
        let path = join(self.to, &name);
        let Some(mut meta) = self.dst.meta(&path, false)? else {
            ensure!(change.optional, "{}", change.missing());
            return Ok(());
        };
        ensure!(meta.kind == FileType::Regular, "{}", change.not_a_file());
        // The rules change new attributes, and keep the present ones.
        let new = self.rules.adjust(Meta {
            mode: change.mode.unwrap_or(meta.mode),
            uid: change.uid.unwrap_or(meta.uid),
            gid: change.gid.unwrap_or(meta.gid),
            atime: change.time.unwrap_or(meta.atime),
            mtime: change.time.unwrap_or(meta.mtime),
            ..meta.clone()
        });
        meta.mode = change.mode.map_or(meta.mode, |_| new.mode);
        meta.uid = change.uid.map_or(meta.uid, |_| new.uid);
        meta.gid = change.gid.map_or(meta.gid, |_| new.gid);
        if change.time.is_some() {
            (meta.atime, meta.mtime) = (new.atime, new.mtime);
        }
        let xattrs = Vec::new();
        self.keep(&path, &Item { meta, xattrs })
    }

    fn finish(mut self) -> Result<()> {
        for change in std::mem::take(&mut self.changes) {
            self.change(&change)?;
        }
        let directories = std::mem::take(&mut self.directories);
        let mut directories: Vec<_> = directories.into_iter().collect();
        directories.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, item) in directories {
            self.keep(&path, &item)?;
        }
        let mut flags: Vec<_> = self.flags.into_iter().collect();
        flags.sort();
        for (path, added) in flags {
            // A later layer may have removed the file.
            if self.dst.meta(&path, false)?.is_some() {
                let set = self.dst.add_flags(&path, added);
                set.with_context(|| self.dst.place(&path))?;
            }
        }
        Ok(())
    }
}

/// Splits a path in the image into its directory and last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

/// Reason for the end of a read.
enum Stop {
    /// A failure of the source.
    Reading(SourceError),
    /// A failure of the thread that reads.
    Here(anyhow::Error),
    /// Another thread failed and reports the reason itself.
    Elsewhere,
}

impl From<SourceError> for Stop {
    fn from(e: SourceError) -> Self {
        Self::Reading(e)
    }
}
