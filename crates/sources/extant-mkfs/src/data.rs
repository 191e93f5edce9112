//! Copying file data to its planned places: neighbouring small files are read one after the other
//! into one buffer and written at once, large files go piece by piece. Order of work and threads do
//! not matter to the result.

use super::error::Result;
use super::gather;
use super::plan::Plan;
use super::progress::{Monitor, Phase};
use super::tree::{Body, Tree};
use super::zeros::{self, Zeros};
use blockdev::BlockDevice;
use parking_lot::Mutex;

/// Bytes of one write.
const PIECE: u32 = 1 << 20;

/// A source of files' data.
pub(super) trait Content: Sync {
    /// Returns a reader for one thread.
    fn reader<'a>(&'a self, tree: &'a Tree) -> Box<dyn ContentReader + 'a>;
}

/// Reads file data.
pub(super) trait ContentReader {
    /// Fills `buf` with the bytes of a file from `offset` on, with zeros in holes and beyond the end.
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// No files, no data.
pub(super) struct NoContent;

impl Content for NoContent {
    fn reader<'a>(&'a self, _: &'a Tree) -> Box<dyn ContentReader + 'a> {
        Box::new(Self)
    }
}

impl ContentReader for NoContent {
    fn read(&mut self, _: u32, _: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        Ok(())
    }
}

/// Blocks of one file that are read together.
struct Item {
    inode: u32,
    logical: u32,
    len: u32,
}

/// Items on consecutive blocks.
struct Job {
    items: std::ops::Range<usize>,
    block: u64,
    bytes: usize,
}

/// Cuts all data into jobs of at most [`PIECE`] bytes.
fn jobs(plan: &Plan) -> (Vec<Item>, Vec<Job>) {
    let bs = plan.layout.geometry.block_size;
    let most = (PIECE / bs).max(1);
    let (mut items, mut jobs) = (Vec::with_capacity(plan.data.len()), Vec::<Job>::new());
    let mut next = 0;
    for &inode in &plan.data {
        for run in plan.runs[inode as usize].as_slice() {
            for at in (0..run.len).step_by(most as usize) {
                let len = (run.len - at).min(most);
                let block = run.physical + u64::from(at);
                let bytes = len as usize * bs as usize;
                items.push(Item {
                    inode,
                    logical: run.logical + at,
                    len,
                });
                match jobs.last_mut() {
                    Some(job) if block == next && job.bytes + bytes <= PIECE as usize => {
                        job.bytes += bytes;
                        job.items.end += 1;
                    }
                    _ => jobs.push(Job {
                        items: items.len() - 1..items.len(),
                        block,
                        bytes,
                    }),
                }
                next = block + u64::from(len);
            }
        }
    }
    (items, jobs)
}

/// The result of copying.
pub(super) struct Copied {
    /// Bytes written.
    pub bytes: u64,
    /// Blocks of zeros, which were not written.
    pub zeros: Vec<Zeros>,
}

/// Copies all data. Unless `keep_zeros`, blocks of zeros are left out.
pub(super) fn copy(
    device: &dyn BlockDevice,
    plan: &Plan,
    tree: &Tree,
    content: &dyn Content,
    (threads, keep_zeros): (usize, bool),
    monitor: &Monitor,
) -> Result<Copied> {
    let bs = plan.layout.geometry.block_size;
    let (items, jobs) = jobs(plan);
    let total: u64 = jobs.iter().map(|j| j.bytes as u64).sum();
    let all_zeros = Mutex::new(Vec::new());
    monitor.phase(Phase::Data, total);
    monitor.for_each(
        threads,
        jobs.len(),
        || (content.reader(tree), Vec::new()),
        |(reader, buf), i| {
            let job = &jobs[i];
            if buf.len() < job.bytes {
                buf.resize(job.bytes, 0);
            }
            // As long as the longest job until now; this one fills its part whole.
            let buf = &mut buf[..job.bytes];
            let mut rest = &mut *buf;
            // Blocks of the job that are not written: first and count.
            let (mut left_out, mut first) = (Vec::new(), 0);
            for item in &items[job.items.clone()] {
                let (part, after) = rest.split_at_mut(item.len as usize * bs as usize);
                match &tree.inodes[item.inode as usize].body {
                    Body::Symlink(target) => {
                        let (text, zeros) = part.split_at_mut(target.len());
                        text.copy_from_slice(target);
                        zeros.fill(0);
                    }
                    _ => {
                        let offset = u64::from(item.logical) * u64::from(bs);
                        reader.read(item.inode, offset, part)?;
                        if !keep_zeros {
                            let found = zeros::stretches(part, bs);
                            note(item, &found, first, &mut left_out, &all_zeros);
                        }
                    }
                }
                first += item.len;
                rest = after;
            }
            write_but(device, bs, job.block, buf, &left_out)?;
            monitor.advance(job.bytes as u64);
            Ok(())
        },
    )?;
    let zeros = all_zeros.into_inner();
    let blocks: u64 = zeros.iter().map(|z: &Zeros| u64::from(z.len)).sum();
    Ok(Copied {
        bytes: total - blocks * u64::from(bs),
        zeros,
    })
}

/// Notes the blocks of zeros that were found in an item, which begins at block `first` of its job.
fn note(
    item: &Item,
    found: &[(u32, u32)],
    first: u32,
    left_out: &mut Vec<(u32, u32)>,
    all: &Mutex<Vec<Zeros>>,
) {
    if found.is_empty() {
        return;
    }
    left_out.extend(found.iter().map(|&(at, len)| (first + at, len)));
    all.lock().extend(found.iter().map(|&(at, len)| Zeros {
        inode: item.inode,
        logical: item.logical + at,
        len,
    }));
}

/// Writes blocks except some ranges, which are in ascending order.
fn write_but(
    device: &dyn BlockDevice,
    block_size: u32,
    block: u64,
    bytes: &[u8],
    left_out: &[(u32, u32)],
) -> Result<()> {
    let blocks = (bytes.len() / block_size as usize) as u32; // not more than PIECE
    let mut at = 0;
    for &(hole, len) in left_out.iter().chain(&[(blocks, 0)]) {
        if at < hole {
            let part = at as usize * block_size as usize..hole as usize * block_size as usize;
            gather::write(device, block_size, block + u64::from(at), &bytes[part])?; // of the job
        }
        at = hole + len;
    }
    Ok(())
}
