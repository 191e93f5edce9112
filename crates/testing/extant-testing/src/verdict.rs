//! Two verdicts on an image.

use blockdev::{BlockDevice, MemDevice};
use extant_check::{CheckOptions, Report, Rule, Severity};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A device that seems to be slow, so that reads are announced to it. It may read large ranges past a cache.
pub struct Cold<'d> {
    inner: &'d MemDevice,
    uncached: bool,
    reads: AtomicU32,
}

impl<'d> Cold<'d> {
    pub const fn new(inner: &'d MemDevice, uncached: bool) -> Self {
        Self {
            inner,
            uncached,
            reads: AtomicU32::new(0),
        }
    }
}

impl BlockDevice for Cold<'_> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        // The first reads tell.
        if self.reads.fetch_add(1, Ordering::Relaxed) < 4 {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.inner.read_at(offset, buf)
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        if self.uncached {
            self.inner.read_at(offset, buf)?;
        }
        Ok(self.uncached)
    }

    blockdev::only_read!();
}

/// Returns our report, with the journal replayed or ignored. It is the same for a device in memory, for a slow one,
/// and for one that is read past a cache.
pub fn check(device: &MemDevice, replay: bool) -> Report {
    // Of two inodes with the same block the second is reported: with one thread always the same one.
    let warm = told(&check_of(device, replay, 1));
    for uncached in [false, true] {
        let cold = told(&check_of(&Cold::new(device, uncached), replay, 1));
        assert_eq!(warm, cold, "uncached: {uncached}");
    }
    check_of(device, replay, 2)
}

fn told(report: &Report) -> (u64, Vec<String>) {
    let findings = report.findings.iter().map(ToString::to_string);
    (report.faults, findings.collect())
}

fn check_of(device: &dyn BlockDevice, replay: bool, threads: usize) -> Report {
    let options = CheckOptions {
        threads,
        replay,
        ..CheckOptions::default()
    };
    // An unreadable image is not clean.
    extant_check::check(device, &options).unwrap_or_else(|_| {
        let mut report = Report::default();
        report.faults = 1;
        report
    })
}

/// Returns e2fsck's verdict: whether the image is clean, and its output.
pub fn judge(device: &MemDevice) -> (bool, String) {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    crate::common::write_image(device, &path);
    let out = run_limited(Command::new("e2fsck").arg("-fn").arg(&path), 20);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&out.stderr);
    (out.status.code() == Some(0), text)
}

/// Runs a program, and kills it after some seconds, because damage may make a checker loop or wait. A thread is cheaper than
/// the program `timeout` for thousands of checks.
pub fn run_limited(command: &mut Command, seconds: u64) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pid = Pid::from_child(&child);
    let (ended, end) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let timeout = end.recv_timeout(Duration::from_secs(seconds));
            if timeout == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let output = child.wait_with_output();
        drop(ended);
        output.expect("the end of a child")
    })
}

/// Returns whether e2fsck reported a fault; its exit code does not cover all faults.
pub fn tells(text: &str) -> bool {
    text.contains("? no") || text.contains("Clearing fields beyond")
}

/// Differences that are meant.
pub fn is_explained(report: &Report, clean: bool, text: &str) -> bool {
    if !clean {
        // e2fsck tries to write to an image that it opened for reading, and stops there.
        return text.contains("e2fsck: aborted");
    }
    let mut faults = report
        .findings
        .iter()
        .filter(|f| f.rule.severity() == Severity::Fault);
    let told = |what: &str| text.contains(what);
    // Counts and bitmaps do not agree where a mapping cannot be read.
    let depth = report
        .findings
        .iter()
        .any(|f| f.rule == Rule::Extents && f.detail.contains("depth"));
    faults.all(|fault| match fault.rule {
        // e2fsck reports invalid checksums, but its exit code does not.
        Rule::Descriptor => told("descriptor checksums are invalid"),
        // The exit code does not report a journal without has_journal, either.
        Rule::Journal if told("flag is clear, but a journal is present") => true,
        // e2fsck does not look at these fields; the kernel and the engine refuse the journal for them.
        Rule::Journal => {
            fault.detail.contains("journal's first block")
                || fault.detail.contains("journal length")
                || fault.detail.contains("journal start outside its log")
        }
        // e2fsck takes any place in the volume, also one where no backup is; resizing would write there.
        Rule::ResizeInode => true,
        // The hash covers whole words, and e2fsck ignores the bytes of the last word behind the value.
        Rule::Attributes => fault.detail.contains("checksum of the extended attribute"),
        // e2fsck does not look at the depth of a node below the root; the kernel and the engine refuse it.
        Rule::Extents | Rule::BlockBitmap | Rule::GroupCount | Rule::InodeBlocks => depth,
        _ => false,
    })
}
