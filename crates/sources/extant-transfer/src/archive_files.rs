//! Worker threads that write the regular files of an archive.

use crate::copy_steps::{set_attributes_with, write_data};
use crate::meta::{Meta, Xattr};
use crate::monitor::Monitor;
use crate::rules::Rules;
use crate::side::{Existing, Side, Sink};
use anyhow::{Context, Result};
use ext4_format::FileType;
use std::sync::{Condvar, Mutex, PoisonError};

/// A file with its content, queued for a worker thread.
pub(crate) struct Job {
    pub(crate) path: Vec<u8>,
    pub(crate) item: Item,
    pub(crate) content: Vec<u8>,
    pub(crate) stretches: Vec<(u64, u64)>,
}

/// The properties of an entry.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) meta: Meta,
    pub(crate) xattrs: Vec<Xattr>,
}

/// Counts jobs that are queued or running.
#[derive(Default)]
pub(crate) struct InFlight {
    count: Mutex<usize>,
    none: Condvar,
}

/// Guard of a queued or running job. Its drop marks the job as done, even during a panic.
pub(crate) struct JobGuard<'a>(pub(crate) &'a InFlight);

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        self.0.change(|n| *n -= 1);
    }
}

impl InFlight {
    pub(crate) fn change(&self, f: impl FnOnce(&mut usize)) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut count);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    pub(crate) fn wait(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self
                .none
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

pub(crate) fn write_file(
    dst: &dyn Side,
    job: &Job,
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    let write = || -> Result<()> {
        let sink = dst.make_file(&job.path, job.item.meta.mode & 0o777, Existing::Replace)?;
        let (mut rest, mut written) = (job.content.as_slice(), 0);
        for &(start, len) in &job.stretches {
            // The content is as long as all stretches together.
            let (now, later) = rest.split_at((len as usize).min(rest.len()));
            written = write_data(&*sink, rules, start, now)?.max(written);
            rest = later;
        }
        monitor.moved(job.content.len() as u64);
        close(&*sink, dst, &job.path, &job.item, written, rules, monitor)
    };
    write().with_context(|| dst.place(&job.path))
}

pub(crate) fn close(
    sink: &dyn Sink,
    dst: &dyn Side,
    path: &[u8],
    item: &Item,
    written: u64,
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    if written < item.meta.size {
        sink.set_size(item.meta.size)?;
    }
    let set = (&item.meta, &item.xattrs[..]);
    set_attributes_with(set, rules, &dst.place(path), monitor, |keep| {
        sink.keep(keep)
    })?;
    monitor.made(FileType::Regular);
    Ok(())
}
