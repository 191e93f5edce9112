//! A directory tree as a source: walked by several threads, read again for the data.
//!
//! Threads take directories from a common stack and collect their entries. Afterwards one thread joins them in the
//! order of names, so that the tree does not depend on the order of threads.

use super::error::{MkfsError, Result};
use super::inspect::{FileId, LONG_PATH, data_map, file_id, inode_of, open_dir, open_file};
use super::layers::KEPT_FLAGS;
use super::options::MkfsOptions;
use super::progress::{Monitor, Phase};
use super::source_attributes::AttributeRules;
use super::tree::{Body, Draft, DraftDir, Inode, XattrPool};
use crate::system;
use ext4_format::FileType;
use extant_sources::parts::show;
use extant_sources::parts::{RawXattrs, is_kept_xattr};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Room for the entries of one system call.
const DENTS: usize = 64 << 10;

/// A directory tree to fill a file system with.
///
/// ```
/// use extant_mkfs::TreeSource;
/// let source = TreeSource::new("/usr/share/doc");
/// assert!(!source.one_file_system);
/// ```
#[derive(Clone, Debug)]
pub struct TreeSource {
    /// The directory that becomes the root.
    pub path: PathBuf,
    /// Leave out file systems that are mounted below it (the mount points stay, empty).
    pub one_file_system: bool,
    /// Files and directories to leave out, wherever they are met: the image itself, if it is in the
    /// tree.
    pub exclude: Vec<PathBuf>,
}

impl TreeSource {
    /// Creates a source of a whole directory.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            one_file_system: false,
            exclude: Vec::new(),
        }
    }
}

/// Files up to this size are allocated where they are written.
const SMALL: u64 = 64 << 10;

/// Replaces the number of a directory that does not have one yet.
const UNREAD: u32 = 0;
/// Replaces the number of a directory whose contents are left out.
const EMPTY: u32 = u32::MAX;

/// A name and its inode.
struct ScannedEntry {
    name: Box<[u8]>,
    inode: Inode,
    /// The number of a directory; [`UNREAD`] before it has one.
    dir: Option<u32>,
    /// The inode's identity, if it has other names.
    id: Option<FileId>,
}

/// A directory to be read.
struct Task {
    number: u32,
    /// From the root, components joined by slashes.
    path: Vec<u8>,
}

/// Directories to read, and how many are being read.
struct Queue {
    tasks: Vec<Task>,
    busy: usize,
    next_number: u32,
    failed: Option<(Vec<u8>, MkfsError)>,
}

/// The state that threads share.
struct Scan<'a> {
    root: &'a OwnedFd,
    /// Absolute path of the root, for calls that know only paths.
    root_path: &'a [u8],
    root_dev: u64,
    source: &'a TreeSource,
    exclude: HashSet<FileId>,
    rules: AttributeRules<'a>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Reads a tree's names and attributes. Sets of extended attributes go into `pool`, which is returned with the tree.
pub(super) fn scan(
    source: &TreeSource,
    options: &MkfsOptions,
    monitor: &Monitor,
    pool: XattrPool,
) -> Result<(Draft, OwnedFd)> {
    monitor.phase(Phase::Scan, 0);
    let io = |e: Errno| MkfsError::io(format!("opening {}", source.path.display()), e);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&source.path, flags, Mode::empty()).map_err(io)?;
    let stat = rustix::fs::fstat(&root).map_err(io)?;
    let path = std::path::absolute(&source.path)
        .map_err(|e| MkfsError::io(format!("finding {}", source.path.display()), e))?;
    let root_path = path.as_os_str().as_encoded_bytes();
    let scan = Scan {
        root: &root,
        root_path,
        root_dev: system::device_of(&stat),
        source,
        exclude: source.exclude.iter().filter_map(|p| file_id(p)).collect(),
        rules: AttributeRules {
            options,
            pool: &pool,
            monitor,
        },
        queue: Mutex::new(Queue {
            tasks: vec![Task {
                number: 0,
                path: Vec::new(),
            }],
            busy: 0,
            next_number: 1,
            failed: None,
        }),
        changed: Condvar::new(),
    };
    let mut worker = Worker::new(&scan);
    let xattrs = worker.xattrs(&root, b".", b"", system::device_of(&stat))?;
    let mut root_inode = inode_of(&stat, options).ok_or_else(|| io(Errno::NOTDIR))?;
    root_inode.flags = worker.flags(&root, system::device_of(&stat)) & KEPT_FLAGS;
    scan.rules.apply(&mut root_inode, &xattrs, b"/")?;
    let found = std::thread::scope(|scope| {
        let run = |_| Worker::new(&scan).run();
        let others = blockdev::start_threads(scope, 1..options.threads, run);
        let mut found = worker.run();
        for other in others {
            match other.join() {
                Ok(more) => found.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    let queue = scan.queue.into_inner();
    if let Some((_, e)) = queue.failed {
        return Err(e);
    }
    let draft = assemble(root_inode, found, queue.next_number, pool);
    Ok((draft, root))
}

/// Joins the results of the threads in the order of names.
fn assemble(
    root: Inode,
    found: Vec<(u32, Vec<ScannedEntry>)>,
    numbers: u32,
    pool: XattrPool,
) -> Draft {
    let mut by_number: Vec<Vec<ScannedEntry>> = Vec::new();
    by_number.resize_with(numbers as usize, Vec::new);
    let total: usize = found.iter().map(|(_, list)| list.len()).sum();
    for (number, list) in found {
        by_number[number as usize] = list; // every number comes from the queue
    }
    let mut draft = Draft {
        inodes: Vec::with_capacity(total + 1),
        dirs: Vec::with_capacity(numbers as usize),
        xattrs: pool,
    };
    draft.inodes.push(root);
    draft.dirs.push(DraftDir {
        inode: 0,
        names: Vec::new(),
    });
    let mut known: HashMap<FileId, u32> = HashMap::new();
    let mut stack = vec![(0, 0)];
    while let Some((number, dir)) = stack.pop() {
        let mut list = std::mem::take(&mut by_number[number]);
        list.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut names = Vec::with_capacity(list.len());
        for mut f in list {
            let fresh = draft.inodes.len() as u32;
            let inode = match f.id {
                Some(id) => *known.entry(id).or_insert(fresh),
                None => fresh,
            };
            if inode == fresh {
                if let Some(number) = f.dir {
                    let d = draft.dirs.len();
                    f.inode.body = Body::Directory(d as u32);
                    draft.dirs.push(DraftDir {
                        inode,
                        names: Vec::new(),
                    });
                    if number != EMPTY {
                        stack.push((number as usize, d));
                    }
                }
                draft.inodes.push(f.inode);
            }
            names.push((f.name, inode));
        }
        draft.dirs[dir].names = names;
    }
    draft
}

/// State of a scanning thread.
struct Worker<'a> {
    scan: &'a Scan<'a>,
    dents: Vec<u8>,
    list: Vec<u8>,
    value: Vec<u8>,
    /// Devices whose file system keeps no attributes.
    plain: HashSet<u64>,
    /// Devices whose file system keeps no flags.
    flagless: HashSet<u64>,
}

impl<'a> Worker<'a> {
    fn new(scan: &'a Scan<'a>) -> Self {
        Self {
            scan,
            dents: Vec::with_capacity(DENTS),
            list: vec![0; 64 << 10],
            value: vec![0; 64 << 10],
            plain: HashSet::new(),
            flagless: HashSet::new(),
        }
    }

    /// Processes directories until the stack is empty and no thread can find more.
    fn run(&mut self) -> Vec<(u32, Vec<ScannedEntry>)> {
        let mut all = Vec::new();
        let mut queue = self.scan.queue.lock();
        loop {
            if queue.failed.is_some() {
                break;
            }
            if let Some(task) = queue.tasks.pop() {
                queue.busy += 1;
                drop(queue);
                let result = self
                    .scan
                    .rules
                    .monitor
                    .check()
                    .and_then(|()| self.read(&task));
                queue = self.scan.queue.lock();
                queue.busy -= 1;
                match result {
                    Ok(mut found) => {
                        let prefix = if task.path.is_empty() {
                            task.path
                        } else {
                            [&task.path[..], b"/"].concat()
                        };
                        let subdirs = found.iter_mut().filter(|f| f.dir == Some(UNREAD));
                        for f in subdirs {
                            let number = queue.next_number;
                            queue.next_number += 1;
                            f.dir = Some(number);
                            let path = [&prefix, &*f.name].concat();
                            queue.tasks.push(Task { number, path });
                        }
                        all.push((task.number, found));
                    }
                    Err(e) => {
                        // If several errors occur, the one with the least path is reported.
                        if queue
                            .failed
                            .as_ref()
                            .is_none_or(|(path, _)| task.path < *path)
                        {
                            queue.failed = Some((task.path, e));
                        }
                    }
                }
                self.scan.changed.notify_all();
            } else if queue.busy > 0 {
                self.scan.changed.wait(&mut queue);
            } else {
                break;
            }
        }
        self.scan.changed.notify_all();
        all
    }

    /// Reads one directory.
    fn read(&mut self, task: &Task) -> Result<Vec<ScannedEntry>> {
        let scan = self.scan;
        let io =
            |what: &str, e: Errno| MkfsError::io(format!("{what} {}", scan.show(&task.path)), e);
        let fd = match open_dir(scan.root.as_fd(), &task.path) {
            Ok(fd) => fd,
            Err(Errno::ACCESS | Errno::PERM) if scan.rules.options.skip_unreadable => {
                let path = scan.show(&task.path);
                let left = format!("{path}: cannot be read: what is in it is left out");
                scan.rules.monitor.warn(left);
                return Ok(Vec::new());
            }
            Err(e) => return Err(io("opening", e)),
        };
        let mut names: Vec<(u64, Box<[u8]>)> = Vec::new();
        system::directory_names(&fd, &mut self.dents, |ino, name| {
            if name != b"." && name != b".." {
                names.push((ino, name.into()));
            }
        })
        .map_err(|e| io("reading", e))?;
        // Inodes in the order of their numbers: on a disk, forwards.
        names.sort_unstable_by_key(|(ino, _)| *ino);
        let mut found = Vec::with_capacity(names.len());
        for (_, name) in names {
            if let Some(f) = self.look(&fd, name, &task.path)? {
                found.push(f);
            }
        }
        scan.rules.monitor.advance(found.len() as u64);
        Ok(found)
    }

    /// Inspects a name; `None` if it is left out.
    fn look(
        &mut self,
        dir: &OwnedFd,
        name: Box<[u8]>,
        path: &[u8],
    ) -> Result<Option<ScannedEntry>> {
        let scan = self.scan;
        let full = || match path {
            [] => name.to_vec(),
            _ => [path, b"/", &name].concat(),
        };
        let io = |what: &str, e: Errno| MkfsError::io(format!("{what} {}", scan.show(&full())), e);
        let stat = match rustix::fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                let gone = format!("{}: vanished while it was looked at", scan.show(&full()));
                scan.rules.monitor.warn(gone);
                return Ok(None);
            }
            Err(e) => return Err(io("looking at", e)),
        };
        let device = system::device_of(&stat);
        let id = (device, stat.st_ino);
        if !scan.exclude.is_empty() && scan.exclude.contains(&id) {
            return Ok(None);
        }
        let Some(mut inode) = inode_of(&stat, scan.rules.options) else {
            return Err(MkfsError::source(
                scan.show(&full()),
                "a file of an unknown type",
            ));
        };
        let is_dir = inode.file_type() == FileType::Directory;
        let mut dir_number = None;
        match inode.file_type() {
            FileType::Directory => {
                let other = scan.source.one_file_system && device != scan.root_dev;
                dir_number = Some(if other { EMPTY } else { UNREAD });
                if !self.flagless.contains(&device)
                    && let Ok(fd) = open_dir(dir.as_fd(), &name)
                {
                    inode.flags = self.flags(&fd, device) & KEPT_FLAGS;
                }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, &*name, Vec::new());
                let target = target.map_err(|e| io("reading the link", e))?;
                inode.size = target.as_bytes().len() as u64;
                inode.body = Body::Symlink(target.into_bytes().into());
            }
            FileType::Regular => match self.open(dir, &name, &stat) {
                Ok(None) => {}
                Ok(Some(file)) => self
                    .look_into(&file, &stat, &mut inode)
                    .map_err(|e| io("finding holes of", e))?,
                Err(Errno::ACCESS | Errno::PERM) if inode.size == 0 => {}
                Err(Errno::ACCESS | Errno::PERM) if scan.rules.options.skip_unreadable => {
                    let left = format!("{}: cannot be read, and is left out", scan.show(&full()));
                    scan.rules.monitor.warn(left);
                    return Ok(None);
                }
                Err(e) => return Err(io("opening", e)),
            },
            _ => {}
        }
        let xattrs = if scan.rules.options.xattrs {
            self.xattrs(dir, &name, path, device)?
        } else {
            RawXattrs::new()
        };
        scan.rules
            .apply(&mut inode, &xattrs, &full_if(!xattrs.is_empty(), full))?;
        Ok(Some(ScannedEntry {
            name,
            inode,
            dir: dir_number,
            id: (stat.st_nlink > 1 && !is_dir).then_some(id),
        }))
    }

    /// Opens a regular file, if it has to be looked into: for its flags, or for holes.
    fn open(&self, dir: &OwnedFd, name: &[u8], stat: &Stat) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = !self.flagless.contains(&system::device_of(stat));
        let options = self.scan.rules.options;
        let unread = stat.st_size > 0 && options.skip_unreadable;
        if flags || unread || may_have_holes(stat, options.keep_zeros) {
            open_file(dir, name).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Reads the flags and the holes of a regular file.
    fn look_into(&mut self, file: &OwnedFd, stat: &Stat, inode: &mut Inode) -> Result<(), Errno> {
        inode.flags = self.flags(file, system::device_of(stat)) & KEPT_FLAGS;
        if may_have_holes(stat, self.scan.rules.options.keep_zeros) {
            let map = data_map(file, inode.size)?;
            inode.body = Body::File { origin: 0, map };
        }
        Ok(())
    }

    /// Flags of an open file as chattr sets them. A file system without flags is asked once.
    fn flags(&mut self, file: &OwnedFd, device: u64) -> u32 {
        if self.flagless.contains(&device) {
            return 0;
        }
        system::flags(file).unwrap_or_else(|| {
            self.flagless.insert(device);
            0
        })
    }

    /// Reads extended attributes, by a single call if the file is without any.
    fn xattrs(&mut self, dir: &OwnedFd, name: &[u8], path: &[u8], dev: u64) -> Result<RawXattrs> {
        if self.plain.contains(&dev) {
            return Ok(RawXattrs::new());
        }
        let mut full = [self.scan.root_path, b"/", path, b"/", name].concat();
        if full.len() > LONG_PATH {
            use std::os::fd::AsRawFd;
            full = format!("/proc/self/fd/{}/", dir.as_raw_fd()).into_bytes();
            full.extend_from_slice(name);
        }
        let io = |e: Errno| MkfsError::io(format!("attributes of {}", show(&full)), e);
        let len = match system::attribute_names(&full, &mut self.list) {
            Ok(len) => len,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.plain.insert(dev);
                0
            }
            Err(Errno::NOENT) => 0,
            Err(e) => return Err(io(e)),
        };
        let mut found = RawXattrs::new();
        let list = self.list.get(..len).unwrap_or(&[]);
        for attribute in list.split(|b| *b == 0).filter(|n| is_kept_xattr(n)) {
            // Gone meanwhile, or not for us.
            let Some(n) = system::attribute(&full, attribute, &mut self.value).map_err(io)? else {
                continue;
            };
            let value = self.value.get(..n).unwrap_or(&[]);
            found.push((attribute.to_vec(), value.to_vec()));
        }
        Ok(found)
    }
}

/// Returns whether parts of a file may be holes, or be allocated and never written.
fn may_have_holes(stat: &Stat, keep_zeros: bool) -> bool {
    let allocated = (stat.st_blocks as u64).saturating_mul(512);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    allocated < size || (!keep_zeros && size > SMALL)
}

/// Returns the path, if it is needed.
fn full_if(needed: bool, full: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    if needed { full() } else { Vec::new() }
}

impl Scan<'_> {
    /// Formats a path of the tree for messages.
    fn show(&self, path: &[u8]) -> String {
        show(&[self.root_path, b"/", path].concat())
    }
}
