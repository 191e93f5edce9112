//! Comparison with other programs on the same machine: mke2fs, and as root the kernel's ext4.

use crate::files::{WRITTEN, all, content, name};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A kind of work, with times in seconds.
#[derive(Debug, Serialize)]
pub struct Beside {
    what: &'static str,
    whose: &'static str,
    theirs: f64,
    ours: f64,
}

impl Beside {
    /// Formats the times in one line.
    pub fn line(&self) -> String {
        let Self {
            what,
            whose,
            theirs,
            ours,
        } = self;
        let times = theirs / ours.max(1e-9);
        format!(
            "  {what:32} {ours:>8.3} s here, {theirs:>8.3} s by {whose}: {times:.1} times as fast"
        )
    }
}

/// The seconds of our steps.
pub struct Ours {
    pub make: f64,
    pub create: f64,
    pub write: f64,
}

/// A loop mount of an image, until it is dropped.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // The removal of its directory reports a failed unmount.
        let _ = quiet(Command::new("umount").arg(&self.0));
    }
}

/// Runs a program without its output; returns whether it succeeded.
fn quiet(command: &mut Command) -> bool {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Does the work of the demo with mke2fs and the kernel in an image of `size` bytes. Skips programs that are not
/// installed or not allowed.
pub fn measure(
    dir: &Path,
    (size, inodes): (u64, u32),
    (threads, files): (usize, usize),
    ours: &Ours,
) -> Result<Vec<Beside>> {
    let (image, at) = (dir.join("beside.img"), dir.join("beside"));
    let mut found = Vec::new();
    let mut made = false;
    let theirs = timed(|| {
        made = quiet(
            Command::new("mke2fs")
                .args([
                    "-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=256", "-N",
                ])
                .arg(inodes.to_string())
                .arg(&image)
                .arg(format!("{}k", size >> 10)),
        );
        Ok(())
    })?;
    if !made {
        return Ok(found);
    }
    found.push(Beside {
        what: "make the image",
        whose: "mke2fs",
        theirs,
        ours: ours.make,
    });
    std::fs::create_dir(&at)?;
    if !quiet(
        Command::new("mount")
            .args(["-o", "loop,noatime"])
            .arg(&image)
            .arg(&at),
    ) {
        return Ok(found);
    }
    let mount = Mount(at);
    let work = kernel(&mount.0, threads, files);
    drop(mount);
    let (create, write) = work.context("the kernel's ext4")?;
    for (what, theirs, ours) in [
        ("create files, make them durable", create, ours.create),
        ("write to each 8th", write, ours.write),
    ] {
        found.push(Beside {
            what,
            whose: "the kernel's ext4",
            theirs,
            ours,
        });
    }
    Ok(found)
}

/// Returns the seconds that the kernel takes to create files, with a sync, and to write to each 8th.
fn kernel(at: &Path, threads: usize, files: usize) -> Result<(f64, f64)> {
    let of = |task: usize| at.join(format!("thread{task}"));
    for task in 0..threads {
        std::fs::create_dir(of(task))?;
    }
    let each = |work: &(dyn Fn(&Path, usize, usize) -> Result<()> + Sync)| {
        all(threads, |task| {
            let dir = of(task);
            (0..files).try_for_each(|n| work(&dir, task, n))
        })
    };
    let create = timed(|| {
        each(&|dir, _, n| {
            let mut new = OpenOptions::new();
            new.write(true).create_new(true).open(dir.join(name(n)))?;
            Ok(())
        })?;
        quiet(Command::new("sync").arg("-f").arg(at));
        Ok(())
    })?;
    let write = timed(|| {
        each(&|dir, task, n| {
            if n % WRITTEN == 0 {
                let mut file = OpenOptions::new().write(true).open(dir.join(name(n)))?;
                file.write_all(&content(task, n))?;
            }
            Ok(())
        })
    })?;
    Ok((create, write))
}
