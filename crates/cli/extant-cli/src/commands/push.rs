//! `extant push` and `extant pull`.
//!
//! Both copy an image, piece by piece of 64 KiB, and leave out pieces that the destination has and pieces that have only free blocks.
//! The tree of checksums beside a remote image ([`extant_cli_core::image::sums`]) shows its contents; a local file is read.
//!
//! The tree of the destination marks pieces as unknown before they are written. Therefore the same command continues an interrupted
//! copy. The first piece, which has the superblock, is written last.

use anyhow::{Context, Result, bail, ensure};
use blockdev::{Access, BlockDevice};
use ext4_format::FormatError;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_cli_core::address::schemes;
use extant_cli_core::format::show::{ShowPath, human};
use extant_cli_core::image::identity::identity;
use extant_cli_core::image::new_file::check_raw_name;
use extant_cli_core::image::sums::{self, FREE, PIECE, PIECES, Sum, Tree, UNKNOWN};
use extant_cli_core::image::{in_place, remote, store, verified};
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use extant_tune::FreeSpace;
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copy an image to a server or store, only the blocks that differ
///
/// Blocks that the destination has already and free blocks are not sent, so that free blocks may differ afterwards (see --all). The
/// file DST.sums keeps a tree of checksums, so that the destination is not read. An interrupted copy is continued by the same command.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant push root.img s3://bucket/root\n  extant push root.img /srv/www/root.img"
)]
pub struct PushArgs {
    #[command(flatten)]
    both: Both,
}

/// Copy an image from a server or store, only the blocks that differ
///
/// The tree of checksums in SRC.sums shows which blocks of the destination differ, and each fetched block is compared with the tree.
/// If the tree is missing, the source is read. Free blocks are not fetched, so that they may differ afterwards. With --all they are
/// fetched, but not compared with the tree, which has no checksums of them. An
/// interrupted copy is continued by the same command.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant pull https://example.com/root.img root.img\n  extant pull s3://bucket/root@monday root.img"
)]
pub struct PullArgs {
    #[command(flatten)]
    both: Both,
}

#[derive(clap::Args, Debug)]
struct Both {
    /// Image to copy
    #[arg(value_name = "SRC")]
    src: PathBuf,
    /// Image to make equal to it; a file, objects or an image of a Ceph cluster are made if they do not exist
    #[arg(value_name = "DST")]
    dst: PathBuf,
    /// Overwrite another volume
    #[arg(short, long)]
    force: bool,
    /// Copy free blocks, too, so that all bytes are equal. Default for an image with a hash tree of dm-verity behind its file system,
    /// or an address with its root hash
    #[arg(short, long)]
    all: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn push(args: &PushArgs) -> Result<()> {
    run(&args.both)
}

pub fn pull(args: &PullArgs) -> Result<()> {
    run(&args.both)
}

/// Result of a copy.
#[derive(Serialize)]
struct Copied<'a> {
    src: &'a Path,
    dst: &'a Path,
    image_bytes: u64,
    /// Bytes of pieces that differed.
    copied_bytes: u64,
    /// Bytes of pieces with only free blocks.
    free_bytes: u64,
}

fn named(image: &Path) -> impl Fn() -> String {
    move || image.shown()
}

/// Opens the tree of an image; returns `None` if the image changed after the tree was written.
fn tree_of(image: &Path, device: &dyn BlockDevice, access: Access) -> Option<Tree> {
    if !schemes::is_remote(image) {
        // A file may have been changed by any program, and is read quickly.
        return None;
    }
    let beside = sums::beside(image)?;
    // A missing tree costs time only, whatever the reason.
    let device_of_tree = store::open(&beside, access).ok()?;
    let tree = Tree::open(device_of_tree, device.len()).ok()??;
    let first = *tree.page(0).ok()?.first()?;
    // Every change of a volume changes its superblock.
    let mut bytes = vec![0; PIECE.min(device.len()) as usize];
    device.read_at(0, &mut bytes).ok()?;
    let is_current = first == sums::sum(&bytes) || (first == UNKNOWN && !tree.complete);
    is_current.then_some(tree)
}

/// Makes a tree for the destination with all pieces unknown. Returns `None` for an address that cannot have a tree.
fn new_tree(image: &Path, len: u64) -> Result<Option<Tree>> {
    let Some(beside) = sums::beside(image) else {
        return Ok(None);
    };
    make(&beside, sums::tree_len(len), true)?;
    let device = store::open(&beside, Access::ReadWrite)?;
    Ok(Some(Tree::make(device, len)?))
}

/// Makes a file or objects of a length, or gives an existing file this length.
fn make(image: &Path, len: u64, ours: bool) -> Result<()> {
    if schemes::is_made(image) {
        return remote::make(image, len.next_multiple_of(4096));
    }
    if schemes::is_remote(image) || !store::is_plain(image) {
        return Ok(());
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(ours)
        .open(image);
    let meta = file.and_then(|file| {
        let meta = file.metadata()?;
        if meta.is_file() && meta.len() < len {
            file.set_len(len)?;
        }
        Ok(meta)
    });
    meta.map(drop).with_context(named(image))
}

/// Returns the UUID of the volume on a device.
fn uuid(device: &dyn BlockDevice) -> Option<[u8; 16]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    match RawSuperblock::parse(&bytes) {
        Ok(sb) => Some(sb.uuid),
        // The mark of a change keeps the UUID.
        Err(FormatError::Interrupted(_)) => {
            let uuid = bytes.get(offset_of!(RawSuperblock, uuid)..)?;
            uuid.first_chunk().copied()
        }
        Err(_) => None,
    }
}

/// Fails if the device of an image holds another volume than the source, unless it may be replaced.
fn check_volume(args: &Both, there: &dyn BlockDevice, source: &dyn BlockDevice) -> Result<()> {
    let there = uuid(there);
    ensure!(
        args.force || there.is_none() || there == uuid(source),
        "{}: holds another volume: use --force to replace it",
        args.dst.shown()
    );
    Ok(())
}

fn run(args: &Both) -> Result<()> {
    let (src, dst) = (&args.src, &args.dst);
    if let (Ok(one), Ok(other)) = (identity(src), identity(dst)) {
        let (src, dst) = (src.shown(), dst.shown());
        ensure!(!one.overlaps(&other), "{src} and {dst} are the same file");
    }
    let source = store::open(src, Access::ReadOnly)?;
    in_place::refuse_interrupted(src, &source)?;
    let len = source.len();
    ensure!(len > 0, "{}: is empty", src.shown());
    let fresh = !schemes::is_remote(dst) && !store::file(dst).exists();
    if fresh {
        check_raw_name(dst)?;
    }
    // Before `make` changes the length of an image. An image that cannot be read does not exist, or opening it to write says why.
    if let Ok(there) = store::open(dst, Access::ReadOnly) {
        check_volume(args, &there, &source)?;
    }
    make(dst, len, false)?;
    let target = store::open(dst, Access::ReadWrite)?;
    ensure!(
        target.len() >= len,
        "{}: has {} bytes, and the image {len}",
        dst.shown(),
        target.len()
    );
    check_volume(args, &target, &source)?;
    // A hash tree covers free blocks, too.
    let all = args.all
        || verified::split(src).is_some()
        || verified::has_tree_behind(&source).with_context(named(src))?;
    let known = tree_of(src, &source, Access::ReadOnly).filter(|tree| tree.complete);
    let free = if all || known.is_some() {
        Vec::new()
    } else {
        FreeSpace::of(&source).map_or(Vec::new(), |free| free.ranges().to_vec())
    };
    let old = tree_of(dst, &target, Access::ReadWrite);
    let trusted = old.is_some();
    let tree = match old {
        Some(tree) => Some(tree),
        None => new_tree(dst, len)?,
    };
    if let Some(tree) = &tree {
        tree.write_head(false).with_context(named(dst))?;
    }
    let copy = Copy {
        src,
        dst,
        source,
        target,
        known,
        free,
        all,
        // Zeros of a new file are known; other files are read.
        has: match (trusted, fresh) {
            (true, _) => Has::Tree,
            (_, true) => Has::Nothing,
            _ => Has::Bytes,
        },
        tree,
        len,
        copied: AtomicU64::new(0),
        free_bytes: AtomicU64::new(0),
        progress: Progress::bytes(&format!("{}: copying", dst.shown()), len),
    };
    let done = copy.pages();
    copy.progress.done();
    done?;
    print_copied(args, &copy)
}

/// Prints the result of a copy.
fn print_copied(args: &Both, copy: &Copy<'_>) -> Result<()> {
    let copied = Copied {
        src: copy.src,
        dst: copy.dst,
        image_bytes: copy.len,
        copied_bytes: copy.copied.load(Relaxed),
        free_bytes: copy.free_bytes.load(Relaxed),
    };
    if args.json {
        return output::json(&copied);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: {} of {} copied",
        copy.dst.shown(),
        human(copied.copied_bytes),
        human(copy.len)
    )?;
    Ok(out.flush()?)
}

/// How the present contents of the destination are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    /// The tree shows them.
    Tree,
    /// The destination is new, and all zeros.
    Nothing,
    /// The destination is read.
    Bytes,
}

/// A copy under way.
struct Copy<'a> {
    src: &'a Path,
    dst: &'a Path,
    source: Arc<dyn BlockDevice>,
    target: Arc<dyn BlockDevice>,
    /// Tree of the source.
    known: Option<Tree>,
    /// Free ranges of the source, ascending. Empty if the source has a tree, or if free blocks are copied, too.
    free: Vec<(u64, u64)>,
    /// Whether free blocks are copied, too.
    all: bool,
    has: Has,
    /// Tree of the destination.
    tree: Option<Tree>,
    len: u64,
    copied: AtomicU64,
    free_bytes: AtomicU64,
    progress: Progress,
}

/// Pieces of a page of the source that differ, with their sums, and the sums of all pieces of the destination.
type Differing = (Vec<(u64, Sum)>, Vec<Sum>);

/// Pages that are copied at once.
const THREADS: usize = 4;

impl Copy<'_> {
    fn pages(&self) -> Result<()> {
        let pages = self.len.div_ceil(PIECE * PIECES);
        let next = AtomicU64::new(1);
        let work = || -> Result<()> {
            loop {
                let page = next.fetch_add(1, Relaxed);
                if page >= pages {
                    return Ok(());
                }
                interrupt::check()?;
                self.page(page)?;
            }
        };
        std::thread::scope(|scope| {
            let threads = blockdev::start_threads(scope, 1..THREADS, |_| work());
            let own = work();
            let ended = threads.into_iter().map(|thread| thread.join());
            let ended = ended.map(|end| end.unwrap_or_else(|e| std::panic::resume_unwind(e)));
            ended.fold(own, Result::and)
        })?;
        self.target.flush().with_context(named(self.dst))?;
        self.page(0)?;
        self.target.flush().with_context(named(self.dst))?;
        if let Some(tree) = &self.tree {
            tree.write_head(true).with_context(named(self.dst))?;
        }
        Ok(())
    }

    fn range(&self, page: u64, piece: u64) -> (u64, usize) {
        let at = (page * PIECES + piece) * PIECE;
        (at, PIECE.min(self.len.saturating_sub(at)) as usize)
    }

    /// Compares a page of the source with the destination.
    fn differing(&self, page: u64) -> Result<Differing> {
        let source = match &self.known {
            Some(tree) => Some(tree.page(page).with_context(named(self.src))?),
            None => None,
        };
        let mut target = match (&self.tree, self.has) {
            (Some(tree), Has::Tree) => tree.page(page).with_context(named(self.dst))?,
            _ => vec![UNKNOWN; PIECES as usize],
        };
        let mut differ = Vec::new();
        for piece in 0..PIECES {
            let (at, len) = self.range(page, piece);
            if len == 0 {
                break;
            }
            let known = source.as_ref().map(|sums| sums[piece as usize]);
            let wanted = match known.filter(|sum| !self.all || *sum != FREE) {
                Some(sum) => sum,
                None => self.read(at, len)?.map_or(FREE, |bytes| sums::sum(&bytes)),
            };
            let present = &mut target[piece as usize];
            if wanted == FREE {
                *present = FREE;
                self.free_bytes.fetch_add(len as u64, Relaxed);
                continue;
            }
            match self.has {
                Has::Tree => {}
                Has::Nothing => *present = sums::sum(&vec![0; len]),
                Has::Bytes => {
                    let mut bytes = vec![0; len];
                    self.target
                        .read_at(at, &mut bytes)
                        .with_context(named(self.dst))?;
                    *present = sums::sum(&bytes);
                }
            }
            if *present != wanted {
                differ.push((piece, wanted));
            }
        }
        Ok((differ, target))
    }

    /// Reads a piece of the source, with zeros in free blocks; `None` if all of it is free.
    fn read(&self, at: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let end = at + len as u64;
        let first = self.free.partition_point(|(start, n)| start + n <= at);
        let inside = self.free[first..]
            .iter()
            .take_while(|(start, _)| *start < end);
        let inside: Vec<(usize, usize)> = inside
            .map(|(start, n)| {
                let (from, to) = ((*start).max(at), (start + n).min(end));
                ((from - at) as usize, (to - at) as usize)
            })
            .collect();
        if inside == [(0, len)] {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        self.source
            .read_at(at, &mut bytes)
            .with_context(named(self.src))?;
        for (from, to) in inside {
            bytes[from..to].fill(0);
        }
        Ok(Some(bytes))
    }

    fn page(&self, page: u64) -> Result<()> {
        let (bytes, piece_len) = (self.range(page, 0).0, PIECE * PIECES);
        let whole = piece_len.min(self.len - bytes);
        if let (Some(tree), Some(known), Has::Tree) = (&self.tree, &self.known, self.has)
            // Equal pages may have free pieces.
            && !self.all
            && tree.page_sum(page) == known.page_sum(page)
        {
            self.progress.add(whole);
            return Ok(());
        }
        let (differ, mut sums) = self.differing(page)?;
        for (piece, _) in &differ {
            sums[*piece as usize] = UNKNOWN;
        }
        if let Some(tree) = self.tree.as_ref().filter(|_| !differ.is_empty()) {
            let marked = tree.write_page(page, &sums).and_then(|()| tree.flush());
            marked.with_context(named(self.dst))?;
        }
        // The first piece last.
        for (piece, wanted) in differ.iter().rev() {
            interrupt::check()?;
            let (at, len) = self.range(page, *piece);
            let bytes = self.read(at, len)?.unwrap_or_else(|| vec![0; len]);
            if sums::sum(&bytes) != *wanted {
                bail!(
                    "{}: the bytes at {at} do not match the checksums next to the image, or it is being changed",
                    self.src.shown()
                );
            }
            self.target
                .write_at(at, &bytes)
                .with_context(named(self.dst))?;
            self.copied.fetch_add(len as u64, Relaxed);
            sums[*piece as usize] = *wanted;
        }
        if let Some(tree) = &self.tree {
            if !differ.is_empty() {
                self.target.flush().with_context(named(self.dst))?;
            }
            tree.write_page(page, &sums).with_context(named(self.dst))?;
        }
        self.progress.add(whole);
        Ok(())
    }
}
