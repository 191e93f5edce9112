//! An Extant volume in this process.

use super::{Lister, Name, Open, Target, TaskDir, TaskFile};
use crate::runner::Counts;
use anyhow::{Context, Result};
use extant::unstable::OpenFlags;
use extant::unstable::{Node, NodeEntry};
use extant::{Dir, Fallocate, File, FileType, OpenOptions, PushStage, SetAttributes, Volume};

/// An Extant volume in this process.
pub struct LibTarget(pub Volume, &'static str);

struct LibDir {
    dir: Dir,
    volume: Volume,
}

struct LibFile(File);

/// Number of names read at once: about the number that fits the 32 KiB of libc's readdir.
const BATCH: usize = 1024;

/// Names of the counts of a push's stages; sorting has a separate count.
const STAGES: [(PushStage, &str); 6] = [
    (PushStage::Home, "home ns"),
    (PushStage::Gather, "gather ns"),
    (PushStage::Format, "format ns"),
    (PushStage::Wait, "wait ns"),
    (PushStage::Log, "log ns"),
    (PushStage::Flush, "flush ns"),
];

struct LibLister {
    dir: Node,
    batch: Vec<NodeEntry>,
    at: usize,
}

impl LibTarget {
    /// Makes a target from a volume, with the default name.
    pub fn new(volume: Volume) -> Self {
        Self::named(volume, "extant (in process)")
    }

    /// Makes a target from a volume, with another name.
    pub fn named(volume: Volume, name: &'static str) -> Self {
        Self(volume, name)
    }

    fn dir(&self, dir: Dir) -> Box<dyn TaskDir> {
        let volume = self.0.clone();
        Box::new(LibDir { dir, volume })
    }
}

impl Target for LibTarget {
    fn name(&self) -> String {
        self.1.into()
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let made = self.0.create_dir(path);
        Ok(self.dir(made.with_context(|| format!("mkdir {path}"))?))
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let opened = self.0.open_dir(path);
        Ok(self.dir(opened.with_context(|| path.to_string())?))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        let removed = self.0.remove_dir(path);
        removed.with_context(|| format!("rmdir {path}"))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync().context("sync")
    }

    fn extents(&self, paths: &[String]) -> Result<Vec<u64>> {
        let of = |path: &String| {
            let file = self
                .0
                .open_file_with(path, &OpenOptions::new().read(true))?;
            Ok(file.extents()?.len() as u64)
        };
        paths.iter().map(of).collect()
    }

    fn drop_caches(&self) -> Result<()> {
        self.0.drop_caches();
        Ok(())
    }

    fn counts(&self) -> Counts {
        let seen = self.0.statistics();
        let stages = self.0.log_state().stages;
        let stages = stages.iter().filter_map(|s| {
            let name = STAGES.iter().find(|(stage, _)| *stage == s.stage)?.1;
            Some((name, s.total.as_nanos() as f64))
        });
        let mut counts: Counts = stages.collect();
        counts.extend([
            ("commits", seen.commits as f64),
            ("pushes", seen.pushes as f64),
            ("log bytes", seen.log_bytes as f64),
            ("fast commits", seen.fast_commits as f64),
            ("sort ns", seen.sort_time.as_nanos() as f64),
            ("groups considered", seen.search.considered as f64),
            ("groups busy", seen.search.busy as f64),
            ("groups locked in vain", seen.search.failed as f64),
        ]);
        counts
    }
}

impl LibDir {
    fn to(&self, dir: Dir) -> Box<dyn TaskDir> {
        let volume = self.volume.clone();
        Box::new(Self { dir, volume })
    }
}

impl TaskDir for LibDir {
    fn create(&self, name: &str) -> Result<()> {
        let options = OpenOptions::new().write(true).create(true);
        let _flags = OpenFlags::WRITE | OpenFlags::CREATE;
        self.dir.open_file_with(name, &options)?;
        Ok(())
    }

    fn open_close(&self, name: &str) -> Result<()> {
        let options = OpenOptions::new().read(true).write(true);
        self.dir.open_file_with(name, &options)?;
        Ok(())
    }

    fn open(&self, name: &str, how: Open) -> Result<Box<dyn TaskFile>> {
        let options = OpenOptions::new().read(true).write(true);
        let options = match how {
            Open::Existing => options,
            Open::Create => options.create(true),
            Open::Truncate => options.create(true).truncate(true),
        };
        let file = self.dir.open_file_with(name, &options)?;
        Ok(Box::new(LibFile(file)))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(self.dir.remove_file(name)?)
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        Ok(self.dir.rename(old, new)?)
    }

    fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.dir.metadata(name)?.len())
    }

    fn set_mode(&self, name: &str, mode: u16) -> Result<()> {
        let set = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        Ok(self.dir.set_attributes(name, &set)?)
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(self.volume.statfs()?.free_blocks)
    }

    fn make_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        Ok(self.to(self.dir.create_dir(name)?))
    }

    fn open_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        Ok(self.to(self.dir.open_dir(name)?))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        Ok(self.dir.remove_dir(name)?)
    }

    fn lister(&self) -> Result<Box<dyn Lister>> {
        let node = Node::of_number(&self.volume, self.dir.ino())?;
        let batch = node.list(0, BATCH)?;
        Ok(Box::new(LibLister {
            dir: node,
            batch,
            at: 0,
        }))
    }

    fn again(&self) -> Result<Box<dyn TaskDir>> {
        Ok(self.to(self.dir.clone()))
    }
}

impl LibLister {
    fn next(&mut self) -> Result<Option<&NodeEntry>> {
        if self.at == self.batch.len() {
            let Some(last) = self.batch.last() else {
                return Ok(None);
            };
            self.batch = self.dir.list(last.cookie, BATCH)?;
            self.at = 0;
        }
        self.at += 1;
        Ok(self.batch.get(self.at - 1))
    }
}

impl Lister for LibLister {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.next()?.is_some())
    }

    fn rewind(&mut self) -> Result<()> {
        self.batch = self.dir.list(0, BATCH)?;
        self.at = 0;
        Ok(())
    }

    fn rest(&mut self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        while let Some(entry) = self.next()? {
            names.push(Name {
                name: String::from_utf8_lossy(&entry.name).into_owned(),
                is_dir: entry.file_type == FileType::Directory,
            });
        }
        Ok(names)
    }
}

impl TaskFile for LibFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.0.read_at(buf, offset)?)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }

    fn fallocate(&self, offset: u64, len: u64) -> Result<()> {
        let how = Fallocate::Allocate { keep_size: false };
        Ok(self.0.fallocate(how, offset, len)?)
    }

    fn fsync(&self) -> Result<()> {
        Ok(self.0.sync_all()?)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
