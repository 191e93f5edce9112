//! A client: puts its own name in all paths, and has handles by the numbers of the loadfile.

use super::ClientResult;
use super::load::{Load, Op, Step};
use crate::target::{Open, TaskDir, TaskFile, empty, is_missing, is_taken};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::time::Instant;

/// The name of the recorded client.
const RECORDED: &str = "client1";
/// Number of operations between two checks whether to continue.
const LOOK: usize = 1024;

enum Handle {
    File(Box<dyn TaskFile>),
    Directory,
}

pub struct Client {
    base: Box<dyn TaskDir>,
    name: String,
    handles: HashMap<u32, Handle>,
    buffer: Vec<u8>,
}

impl Client {
    pub fn new(base: Box<dyn TaskDir>, number: usize) -> Self {
        Self {
            base,
            name: format!("client{number}"),
            handles: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Replays the whole file, with each operation timed.
    pub fn replay(
        &mut self,
        load: &Load,
        done: &mut ClientResult,
        between: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.buffer = vec![b'x'; load.longest];
        for (i, step) in load.steps.iter().enumerate() {
            if i % LOOK == 0 {
                between()?;
            }
            let start = Instant::now();
            let result = self.step(&step.op);
            let took = start.elapsed();
            done.latencies.entry(step.name).or_default().record(took);
            done.ops += 1;
            done.bytes += as_recorded(step, result)
                .with_context(|| format!("line {}: {}", step.line, step.name))?;
        }
        Ok(())
    }

    /// Returns the path with this client's own name.
    fn own(&self, path: &str) -> String {
        path.replacen(RECORDED, &self.name, 1)
    }

    fn file(&self, handle: u32) -> Result<Option<&dyn TaskFile>> {
        match self.handles.get(&handle) {
            Some(Handle::File(file)) => Ok(Some(&**file)),
            Some(Handle::Directory) => Ok(None),
            None => bail!("no file {handle} is open"),
        }
    }

    /// Opens or creates a file; only trying shows whether the path is a directory.
    fn create(&self, path: &str, directory: bool, make: bool) -> Result<Handle> {
        let path = self.own(path);
        if directory {
            match self.base.make_dir(&path) {
                Err(e) if !is_taken(&e) => return Err(e),
                _ => return Ok(Handle::Directory),
            }
        }
        let how = if make { Open::Create } else { Open::Existing };
        match self.base.open(&path, how) {
            Ok(file) => Ok(Handle::File(file)),
            Err(e) if is_missing(&e) => Err(e),
            // Directories are not opened for writing.
            Err(e) => match self.base.open_dir(&path) {
                Ok(_) => Ok(Handle::Directory),
                Err(_) => Err(e),
            },
        }
    }

    /// Runs an operation; returns the bytes read or written.
    fn step(&mut self, op: &Op) -> Result<u64> {
        match op {
            Op::Create {
                path,
                directory,
                make,
                handle,
            } => {
                let opened = self.create(path, *directory, *make)?;
                self.handles.insert(*handle, opened);
            }
            Op::Close(handle) => {
                let closed = self.handles.remove(handle);
                ensure!(closed.is_some(), "no file {handle} is open");
            }
            Op::Write {
                handle,
                offset,
                len,
            } => {
                let data = &self.buffer[..*len as usize];
                let file = self.file(*handle)?.context("a directory is written")?;
                file.write_at(*offset, data)?;
                return Ok((*len).into());
            }
            Op::Read {
                handle,
                offset,
                len,
            } => {
                let mut buffer = std::mem::take(&mut self.buffer);
                let file = self.file(*handle)?.context("a directory is read");
                let read = file.and_then(|f| f.read_at(*offset, &mut buffer[..*len as usize]));
                self.buffer = buffer;
                return Ok(read? as u64);
            }
            Op::Flush(handle) => {
                if let Some(file) = self.file(*handle)? {
                    file.fsync()?;
                }
            }
            Op::StatHandle(handle) => {
                if let Some(file) = self.file(*handle)? {
                    file.size()?;
                }
            }
            // Set the times, as the server did when the file was closed.
            Op::SetHandle(handle) => {
                self.file(*handle)?;
            }
            Op::Unlink(path) => self.base.unlink(&self.own(path))?,
            Op::Rename(old, new) => self.base.rename(&self.own(old), &self.own(new))?,
            Op::Mkdir(path) => match self.base.make_dir(&self.own(path)) {
                Err(e) if !is_taken(&e) => return Err(e),
                _ => {}
            },
            Op::Rmdir(path) => self.base.remove_dir(&self.own(path))?,
            Op::Deltree(path) => self.remove_tree(&self.own(path))?,
            Op::Stat(path) => {
                self.base.stat(&self.own(path))?;
            }
            Op::StatFs => {
                self.base.free_blocks()?;
            }
            Op::Find(dir) => {
                let dir = self.base.open_dir(&self.own(dir))?;
                let mut lister = dir.lister()?;
                while lister.advance()? {}
            }
            Op::Lock => {}
        }
        Ok(0)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        let dir = match self.base.open_dir(path) {
            Err(e) if is_missing(&e) => return Ok(()),
            dir => dir?,
        };
        empty(&*dir)?;
        drop(dir);
        self.base.remove_dir(path)
    }
}

/// Checks that the operation ended as in the recording. A listing without matching files is not an error.
fn as_recorded(step: &Step, result: Result<u64>) -> Result<u64> {
    match result {
        Ok(_) if !step.succeeds && !matches!(step.op, Op::Find(_)) => {
            bail!("succeeded, other than when it was recorded")
        }
        Err(e) if step.succeeds => Err(e),
        done => Ok(done.unwrap_or(0)),
    }
}
