//! Other libraries that change ext4 images in this process, under the same operations as this engine: libext2fs of
//! e2fsprogs, and the crates rust-fs-ext4 and rsext4. Each has a separate image in a file in memory, made with the
//! same options. One task runs, because none of these libraries supports several. libext2fs keeps no journal, and rewrites a block in
//! its handle's own memory until it is flushed.

mod extant_library;
mod libext2fs;
mod rsext4_crate;
mod rust_fs_ext4;

use anyhow::{Context, Result};
use blockdev::FileDevice;
use clap::Parser;
use extant::mkfs::{self, MkfsOptions};
use extant_bench::runner::{self, Contender, Report, Shape, Task, Tasks};
use extant_bench::table;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// As in the command `extant`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare this engine with other libraries, in one process
#[derive(Parser, Debug)]
#[command(after_help = "Example:\n  extant-peers --seconds 1 --iterations 5")]
struct Args {
    /// Seconds of a round
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// As JSON, with every round
    #[arg(long)]
    json: bool,
}

/// An open image, as one library has it. Everything happens in its root directory.
trait Session: Send {
    /// Makes an empty file.
    fn create(&mut self, name: &str) -> Result<()>;
    /// Removes a file.
    fn unlink(&mut self, name: &str) -> Result<()>;
    /// Finds a name and reads its attributes; returns the size.
    fn stat(&mut self, name: &str) -> Result<u64>;
    /// Overwrites the first bytes of a file that was made before; a handle may be kept.
    fn write(&mut self, name: &str, data: &[u8]) -> Result<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> Result<()>;
}

/// Opens an image.
type Open = fn(&Path) -> Result<Box<dyn Session>>;

const LIBRARIES: [(&str, Open); 4] = [
    ("extant", extant_library::open),
    ("libext2fs", libext2fs::open),
    ("rust-fs-ext4", rust_fs_ext4::open),
    ("rsext4", rsext4_crate::open),
];

/// The repeated operation.
#[derive(Clone, Copy)]
enum Operation {
    CreateUnlink,
    Stat,
    Write,
}

const OPERATIONS: [(&str, Operation); 3] = [
    ("create + unlink", Operation::CreateUnlink),
    ("stat", Operation::Stat),
    ("write 4 KiB", Operation::Write),
];

type Shared = Arc<Mutex<Box<dyn Session>>>;

struct Repeat {
    session: Shared,
    operation: Operation,
    block: Box<[u8; 4096]>,
}

/// The file that is there all the time.
const FILE: &str = "file";

fn locked(session: &Shared) -> Result<std::sync::MutexGuard<'_, Box<dyn Session>>> {
    session.lock().ok().context("a task panicked")
}

impl Task for Repeat {
    fn op(&mut self) -> Result<bool> {
        let mut session = locked(&self.session)?;
        match self.operation {
            Operation::CreateUnlink => {
                session.create("other")?;
                session.unlink("other")?;
            }
            Operation::Stat => {
                session.stat(FILE)?;
            }
            Operation::Write => session.write(FILE, &self.block[..])?,
        }
        Ok(true)
    }
}

/// A library under an operation; every round has a new image.
struct Library<'a> {
    name: &'static str,
    open: Open,
    operation: Operation,
    dir: &'a Path,
    session: RefCell<Option<Shared>>,
}

const SIZE: u64 = 256 << 20;

fn image(path: &Path) -> Result<()> {
    let options = MkfsOptions {
        size: Some(SIZE),
        block_size: Some(4096),
        // The features that all of them know.
        features: "^orphan_file,^metadata_csum_seed,^resize_inode".into(),
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    let prepared = mkfs::prepare(&options)?;
    let device = FileDevice::create(path, prepared.size())?;
    prepared.write(&device)?;
    Ok(())
}

impl Library<'_> {
    fn path(&self) -> PathBuf {
        self.dir.join(format!("{}.img", self.name))
    }
}

impl Contender for Library<'_> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn prepare(&self, _shape: &Shape) -> Result<Tasks> {
        image(&self.path())?;
        let mut session = (self.open)(&self.path())?;
        session.create(FILE)?;
        session.write(FILE, &[b'a'; 4096])?;
        session.sync()?;
        let session = Arc::new(Mutex::new(session));
        *self.session.borrow_mut() = Some(Arc::clone(&session));
        Ok(vec![Box::new(Repeat {
            session,
            operation: self.operation,
            block: Box::new([b'x'; 4096]),
        })])
    }

    fn finish(&self, _tasks: &mut Tasks) -> Result<()> {
        let session = self.session.borrow();
        locked(session.as_ref().context("it was opened")?)?.sync()
    }

    fn clean(&self) -> Result<()> {
        drop(self.session.take());
        match std::fs::remove_file(self.path()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
    let shape = Shape {
        tasks: 1,
        seconds: args.seconds,
        files: u64::MAX,
        rounds: args.iterations,
    };
    let mut reports: Vec<Report> = Vec::new();
    for (name, operation) in OPERATIONS {
        let libraries = LIBRARIES.map(|(name, open)| Library {
            name,
            open,
            operation,
            dir: dir.path(),
            session: RefCell::default(),
        });
        let contenders: Vec<&dyn Contender> =
            libraries.iter().map(|l| l as &dyn Contender).collect();
        reports.extend(runner::run(name, &contenders, shape, || Ok(()))?);
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &reports)?;
        return Ok(());
    }
    Ok(table::write(&mut out, &reports)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_library_does_every_operation_and_leaves_an_image_that_opens() {
        let dir = tempfile::tempdir().unwrap();
        for (name, open) in LIBRARIES {
            let path = dir.path().join(name);
            image(&path).unwrap();
            let mut session = open(&path).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            let mut run = || -> Result<()> {
                session.create(FILE)?;
                session.write(FILE, &[7; 4096])?;
                assert_eq!(session.stat(FILE)?, 4096, "{name}");
                for _ in 0..3 {
                    session.create("other")?;
                    session.unlink("other")?;
                }
                assert!(session.stat("other").is_err(), "{name}");
                session.sync()
            };
            run().unwrap_or_else(|e| panic!("{name}: {e:#}"));
            drop(session);
            let volume = extant::VolumeOptions::new()
                .read_only(true)
                .open(&path)
                .unwrap();
            assert_eq!(volume.read_file("/file").unwrap(), [7; 4096], "{name}");
        }
    }
}
