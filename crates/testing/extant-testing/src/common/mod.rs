//! Shared by the whole-image tests: images made by mke2fs, the judges, and a walk that sees everything.

use blockdev::MemDevice;
use extant::{Dir, FileType, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Returns true if a tool is available: see [`needs`].
#[track_caller]
pub fn have(tool: &str) -> bool {
    needs::have(&[tool])
}

/// Ends the other threads of a test, also when this thread panics.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns true if EXTANT_TORTURE=1 asks for long runs.
pub fn torture() -> bool {
    std::env::var_os("EXTANT_TORTURE").is_some()
}

/// Returns the amount of work of a test: `short`, or `long` in long runs.
pub fn amount(short: usize, long: usize) -> usize {
    if torture() { long } else { short }
}

/// Returns the seeds of a random test, from `first`: `short` seeds, or `long` seeds in long runs. EXTANT_SEEDS sets
/// another number, and EXTANT_FIRST_SEED the first seed, to continue a run. EXTANT_SEED selects a single seed, to
/// reproduce a failure.
pub fn seeds(first: u64, short: u64, long: u64) -> Range<u64> {
    let asked = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(
            value
                .parse::<u64>()
                .unwrap_or_else(|e| panic!("{name}={value}: {e}")),
        )
    };
    if let Some(only) = asked("EXTANT_SEED") {
        return only..only + 1;
    }
    let count = asked("EXTANT_SEEDS").unwrap_or(if torture() { long } else { short });
    let first = asked("EXTANT_FIRST_SEED").unwrap_or(first);
    first..first + count
}

/// Calls a function with each number, by some threads for each core. Returns the results in any order.
pub fn on_all_cores<T: Send>(
    per_core: usize,
    numbers: Range<u64>,
    each: impl Fn(u64) -> T + Sync,
) -> Vec<T> {
    let (next, results) = (AtomicU64::new(numbers.start), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..per_core * cores {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return;
                    }
                    let result = each(number);
                    results.lock().unwrap().push(result);
                }
            });
        }
    });
    results.into_inner().unwrap()
}

const UUID: &str = "6d1c2d3e-4f50-4172-8394-a5b6c7d8e9fa";

/// Makes an image file with mke2fs, with blocks of 4 KiB unless other arguments ask for another size (mke2fs itself
/// takes 1 KiB for small images). Features that differ between distributions are set explicitly.
pub fn mke2fs(path: &Path, size: &str, args: &[&str]) {
    let block: &[&str] = if args.contains(&"-b") {
        &[]
    } else {
        &["-b", "4096"]
    };
    let out = Command::new("mke2fs")
        // Always the same image, because its hashes decide where names are placed.
        .args(["-q", "-F", "-U", UUID, "-E"])
        .arg(format!("lazy_itable_init=1,nodiscard,hash_seed={UUID}"))
        .args(block)
        .args(args)
        .arg(path)
        .arg(size)
        .output()
        .expect("mke2fs runs");
    assert!(
        out.status.success(),
        "mke2fs {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Makes the same image in memory.
pub fn mem_image(size: &str, args: &[&str]) -> Arc<MemDevice> {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    mke2fs(&path, size, args);
    Arc::new(load_image(&path))
}

/// Checks that e2fsck finds nothing to mend.
#[track_caller]
pub fn assert_clean_file(path: &Path, what: &str) {
    let out = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(path)
        .output()
        .expect("e2fsck runs");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success(),
        "{what}: e2fsck says\n{text}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Lets e2fsck repair an image file, and checks that e2fsck finds nothing to mend after that. Returns the output.
#[track_caller]
pub fn repair(path: &Path, what: &str) -> String {
    let out = Command::new("e2fsck")
        .arg("-fp")
        .arg(path)
        .output()
        .expect("e2fsck runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.code().is_some_and(|c| c <= 1),
        "{what}: e2fsck -p: {text}"
    );
    assert_clean_file(path, what);
    text
}

/// Checks that e2fsck finds nothing to mend in an image in memory.
#[track_caller]
pub fn assert_clean(device: &MemDevice, what: &str) {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    write_image(device, &path);
    assert_clean_file(&path, what);
}

/// Writes an image in memory to a file, holes left out.
pub fn write_image(device: &MemDevice, path: &Path) {
    let file = blockdev::FileDevice::create(path, blockdev::BlockDevice::len(device)).unwrap();
    device.copy_to(&file).unwrap();
}

/// Reads an image into memory, without its holes and blocks of zeros.
///
/// # Panics
/// The file cannot be read.
pub fn load_image(path: impl AsRef<Path>) -> MemDevice {
    use blockdev::BlockDevice;
    const ZEROS: [u8; 4096] = [0; 4096];
    let (len, pieces) = data_of(path);
    let device = MemDevice::new(len);
    for (at, bytes) in pieces {
        for (part, at) in bytes.chunks(ZEROS.len()).zip((at..).step_by(ZEROS.len())) {
            if part != &ZEROS[..part.len()] {
                device.write_at(at, part).unwrap();
            }
        }
    }
    device
}

/// Copies an image, holes left out: `std::fs::copy` fills them.
///
/// # Panics
/// A file cannot be read or written.
pub fn copy_image(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let (len, pieces) = data_of(from);
    let copy = std::fs::File::create(to).unwrap();
    copy.set_len(len).unwrap();
    for (at, bytes) in pieces {
        std::os::unix::fs::FileExt::write_all_at(&copy, &bytes, at).unwrap();
    }
}

/// Returns the length of a file, and its bytes outside of holes with their places.
///
/// # Panics
/// The file cannot be read.
pub fn data_of(path: impl AsRef<Path>) -> (u64, Vec<(u64, Vec<u8>)>) {
    let file = std::fs::File::open(path).unwrap();
    let pieces = data_ranges(&file).into_iter().map(|(start, end)| {
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, start).unwrap();
        (start, bytes)
    });
    (file.metadata().unwrap().len(), pieces.collect())
}

/// Returns where the data of a file begin and end, between its holes.
///
/// # Panics
/// The file cannot be searched.
pub fn data_ranges(file: &std::fs::File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let (mut at, mut ranges) = (0, Vec::new());
    loop {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return ranges,
            Err(error) => panic!("the data of a file: {error}"),
        };
        at = seek(file, SeekFrom::Hole(start)).unwrap();
        ranges.push((start, at));
    }
}

/// Opens an image without a background thread, so that the test decides when to commit.
pub fn open(device: &Arc<MemDevice>) -> Volume {
    options()
        .open_device(Arc::clone(device) as Arc<dyn blockdev::BlockDevice>)
        .unwrap()
}

/// Returns the options of [`open`].
pub fn options() -> VolumeOptions {
    let options = VolumeOptions::new().background(false);
    match IN_PARTS.get() {
        Some(blocks) => options.most_log_blocks(blocks),
        None => options,
    }
}

thread_local! {
    /// The number of blocks in a part, when this thread's volumes write contexts in parts.
    pub static IN_PARTS: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Contents of a tree, by path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    Dir,
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Other(FileType),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub name: Vec<u8>,
    pub ino: u32,
    pub file_type: FileType,
}

/// The names of a directory.
pub fn list(dir: &Dir, path: impl AsRef<Path>) -> extant::Result<Vec<Listed>> {
    let listed = |entry: extant::DirEntry| Listed {
        name: entry.file_name().as_bytes().to_vec(),
        ino: entry.ino(),
        file_type: entry.file_type(),
    };
    dir.read_dir(path)?.map(|entry| entry.map(listed)).collect()
}

/// Returns a path, for tests that keep names as bytes.
pub fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Walks a tree and reads everything in it; lost+found at the root is left out.
pub fn snapshot(root: &Dir) -> extant::Result<BTreeMap<String, Node>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![String::new()];
    while let Some(dir) = todo.pop() {
        for entry in list(root, format!("{dir}/"))? {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
            if path == "/lost+found" {
                continue;
            }
            let node = match entry.file_type {
                FileType::Directory => {
                    todo.push(path.clone());
                    Node::Dir
                }
                FileType::Regular => Node::File(root.read(&path)?),
                FileType::Symlink => {
                    Node::Symlink(root.read_link(&path)?.into_os_string().into_vec())
                }
                other => Node::Other(other),
            };
            all.insert(path, node);
        }
    }
    Ok(all)
}

/// Returns an ACL as its extended attribute shows it, from tags, permissions and ids.
pub fn acl_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// A small generator of numbers, the same in every run.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    #[allow(clippy::should_implement_trait, reason = "a generator has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n.max(1)
    }
}
