//! Makes an image of directory trees and tar archives and prints how long each step took: `mkfs_from IMAGE SOURCE...
//! [--threads N] [--size BYTES] [-O FEATURES] [-U]`. A source that is a directory is a tree. Any other source is an
//! archive, and `-` is an archive on standard input.

use blockdev::FileDevice;
use extant::mkfs::{self, ArchiveInput, MkfsOptions, Phase, Progress, Source, TreeSource};
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Prints when phases begin.
struct Clock(Mutex<(Instant, Option<Phase>)>);

impl Clock {
    fn lap(&self, next: Option<Phase>) {
        let mut state = self.0.lock().unwrap();
        if let Some(phase) = state.1 {
            println!("{phase:>9?}  {:8.3} s", state.0.elapsed().as_secs_f64());
        }
        *state = (Instant::now(), next);
    }
}

impl Progress for Clock {
    fn phase(&self, phase: Phase, _total: u64) {
        self.lap(Some(phase));
    }
    fn advance(&self, _done: u64) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(Clock(Mutex::new((Instant::now(), None))));
    let mut options = MkfsOptions {
        progress: Some(Arc::clone(&clock) as Arc<dyn Progress>),
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next()
                .and_then(|v| v.into_string().ok())
                .ok_or("value missing")
        };
        match arg.to_str() {
            Some("--threads") => options.threads = value()?.parse()?,
            Some("--size") => options.size = Some(value()?.parse()?),
            Some("-O") => options.features = value()?,
            Some("-U") => options.uuid = Some(*b"0123456789abcdef"),
            _ => paths.push(arg.into()),
        }
    }
    let [image, sources @ ..] = &paths[..] else {
        return Err("usage: mkfs_from IMAGE SOURCE...".into());
    };
    options.spool_dir = image.parent().map(Into::into);
    let start = Instant::now();
    let source = |path: &PathBuf| match path.to_str() {
        Some("-") => Source::Archive(ArchiveInput::Reader {
            name: "standard input".into(),
            reader: Box::new(std::io::stdin()),
        }),
        _ if path.is_dir() => Source::Tree(TreeSource::new(path)),
        _ => Source::Archive(ArchiveInput::File(path.clone())),
    };
    let prepared = match sources {
        [] => mkfs::prepare(&options)?,
        some => mkfs::prepare_from(&options, some.iter().map(source).collect::<Vec<_>>())?,
    };
    let device = FileDevice::create(image, prepared.size())?;
    let report = prepared.write(&device)?;
    clock.lap(None);
    println!("    total  {:8.3} s", start.elapsed().as_secs_f64());
    for warning in report.warnings.iter().take(20) {
        eprintln!("warning: {warning}");
    }
    println!(
        "{} files, {} directories, {} bytes of {}",
        report.files, report.directories, report.data_bytes, report.size
    );
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .filter(|l| l.starts_with("VmHWM"))
        .for_each(|l| println!("{l}"));
    Ok(())
}
