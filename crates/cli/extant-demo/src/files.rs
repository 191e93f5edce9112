//! The files of the demo, which other programs on the same machine make, too.

use anyhow::{Result, anyhow};

/// Distance between files with content, whose neighbours are removed.
pub const WRITTEN: usize = 8;

/// Returns the content of a file.
pub fn content(task: usize, n: usize) -> Vec<u8> {
    format!("file {n} of thread {task}\n")
        .repeat(40)
        .into_bytes()
}

/// Returns the name of a file.
pub fn name(n: usize) -> String {
    format!("file{n:06}")
}

/// Runs one closure for each thread.
pub fn all(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|s| {
        let work = &work;
        let tasks: Vec<_> = (0..threads)
            .map(|task| s.spawn(move || work(task)))
            .collect();
        tasks
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}
