//! Packs a tree as an archive, tar or cpio, with many threads.
//!
//! One thread walks the tree, finds hard links, and cuts the work into pieces: a few small files with their headers,
//! or a stretch of a large one. Other threads read the data of the pieces into buffers. The caller writes the buffers
//! in the order of the walk, so that the archive does not depend on the number of threads.

mod cpio;
#[cfg(feature = "compression")]
mod gzip;
mod header;
mod packing;

use crate::meta::Meta;
use crate::monitor::Monitor;
use crate::ordered::ordered;
use crate::paths::{Entered, base_name, below, join};
use crate::rules::Rules;
use crate::side::{Side, Source};
use anyhow::{Context, Result, anyhow};
use ext4_format::FileType;
use header::{Pax, header, pad};
pub use packing::Packing;
use packing::{Compression, Format};
use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tar::EntryType;

/// Members per piece of work, and bytes of their files.
const MEMBERS: usize = 64;
const BYTES: u64 = 512 << 10;
/// Files above this size are split into pieces of at most `STRETCH` bytes.
const LARGE: u64 = 256 << 10;
const STRETCH: u64 = 512 << 10;

/// A writer that is not called again after it has failed. A buffer writes its rest when it is dropped.
struct UntilFailure<W> {
    out: W,
    failed: bool,
}

impl<W: Write> Write for UntilFailure<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let written = self.out.write(bytes);
        self.failed = match &written {
            Ok(n) => *n == 0,
            Err(e) => e.kind() != io::ErrorKind::Interrupted,
        };
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.out.flush()
    }
}

/// Packs the contents of directory `from` (or one file) as an archive. The bytes do not depend on the number of threads.
///
/// # Errors
/// The first error of the source or of `out`, which is not called again then; and a compression that this build lacks.
pub fn pack(
    src: &dyn Side,
    from: &[u8],
    out: impl Write,
    packing: Packing,
    rules: &Rules,
    monitor: &dyn Monitor,
) -> Result<()> {
    let out = UntilFailure { out, failed: false };
    let out = io::BufWriter::with_capacity(1 << 18, out);
    let packer = Packer {
        src,
        rules,
        monitor,
        format: packing.format,
        buffers: Mutex::default(),
    };
    match packing.compression {
        Compression::None => packer.write(from, out)?.flush()?,
        #[cfg(feature = "compression")]
        Compression::Gzip => gzip::gzip(rules.threads, out, |blocks| {
            packer.write(from, blocks).map(drop)
        })?,
        #[cfg(feature = "compression")]
        Compression::Zstd => {
            let mut out = zstd::Encoder::new(out, 0)?;
            // Use the multithreaded format even with one thread, so that the output is the same for any number.
            out.multithread(u32::try_from(rules.threads.max(1))?)?;
            packer.write(from, out)?.finish()?.flush()?;
        }
        #[cfg(not(feature = "compression"))]
        _ => anyhow::bail!("this build writes archives without compression only"),
    }
    Ok(())
}

/// A member to be packed.
struct Member {
    /// The side that resolves its name.
    dir: Arc<dyn Side>,
    path: Vec<u8>,
    /// Whether to follow a symbolic link in the last component.
    follow: bool,
    /// Its name in the archive.
    name: Vec<u8>,
    meta: Meta,
    /// The earlier member that names the same file.
    first: Option<Vec<u8>>,
    /// Its inode number in a cpio archive.
    number: u32,
}

impl Member {
    fn context<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| self.dir.place(&self.path))
    }
}

/// The data ranges of a file, starts and ends.
type Stretches = Vec<(u64, u64)>;

/// A piece of work.
enum Piece {
    /// Whole members.
    Members(Vec<Member>),
    /// The header of a large file.
    Head(Arc<Member>, Arc<dyn Source>, Stretches),
    /// A stretch of a large file, and zeros after it.
    Data {
        member: Arc<Member>,
        source: Arc<dyn Source>,
        start: u64,
        end: u64,
        zeros: u64,
    },
}

/// A function that queues a piece of work.
type Give<'a> = &'a mut dyn FnMut(Piece) -> Result<()>;

struct Packer<'a> {
    src: &'a dyn Side,
    rules: &'a Rules,
    monitor: &'a dyn Monitor,
    format: Format,
    /// Buffers that were written out and can be filled again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl Packer<'_> {
    fn write<W: Write>(&self, top: &[u8], mut out: W) -> Result<W> {
        let mut written = 0;
        ordered(
            self.rules.threads,
            |give| Walk::new(self, give).tree(top),
            |piece| self.fill(piece),
            |mut bytes: Vec<u8>| {
                out.write_all(&bytes)?;
                written += bytes.len() as u64;
                bytes.clear();
                self.buffers().push(bytes);
                Ok(())
            },
        )?;
        let end = match self.format {
            // Two blocks of zeros end an archive, and a record of 20 blocks ends a tape.
            Format::Tar => vec![0; ((written + 1024).next_multiple_of(10_240) - written) as usize],
            Format::Cpio => cpio::trailer(written),
        };
        out.write_all(&end)?;
        Ok(out)
    }

    fn buffers(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, piece: Piece) -> Result<Vec<u8>> {
        self.monitor.check()?;
        let mut out = self.buffers().pop().unwrap_or_default();
        match piece {
            Piece::Members(members) => {
                for member in &members {
                    member.context(match self.format {
                        Format::Tar => self.member(&mut out, member),
                        Format::Cpio => cpio::member(self, &mut out, member),
                    })?;
                }
            }
            Piece::Head(member, source, stretches) => {
                member.context(match self.format {
                    Format::Tar => self.head(&mut out, &member, &*source, &stretches),
                    Format::Cpio => cpio::head(self, &mut out, &member, &*source),
                })?;
                self.monitor.made(FileType::Regular);
            }
            Piece::Data {
                member,
                source,
                start,
                end,
                zeros,
            } => {
                member.context(self.data(&mut out, &*source, start, end))?;
                out.resize(out.len() + zeros as usize, 0);
            }
        }
        self.monitor.step();
        Ok(out)
    }

    fn member(&self, out: &mut Vec<u8>, member: &Member) -> Result<()> {
        let Member {
            dir,
            path,
            name,
            meta,
            ..
        } = member;
        if let Some(first) = &member.first {
            header(out, meta, name, EntryType::Link, first, 0, Pax::default())?;
            self.monitor.linked();
            return Ok(());
        }
        if meta.kind == FileType::Regular {
            let source = dir.open(path, member.follow)?;
            let stretches = self.stretches(meta, &*source)?;
            self.head(out, member, &*source, &stretches)?;
            for (start, end) in stretches {
                self.data(out, &*source, start, end)?;
            }
            pad(out);
        } else {
            let mut pax = Pax::default();
            if self.rules.keep_xattrs {
                dir.xattrs(path)?.iter().for_each(|x| pax.xattr(x));
            }
            let (kind, target) = match meta.kind {
                FileType::Symlink => (EntryType::Symlink, dir.read_link(path)?),
                FileType::Directory => (EntryType::Directory, Vec::new()),
                FileType::CharDevice => (EntryType::Char, Vec::new()),
                FileType::BlockDevice => (EntryType::Block, Vec::new()),
                _ => (EntryType::Fifo, Vec::new()),
            };
            header(out, meta, name, kind, &target, 0, pax)?;
        }
        self.monitor.made(meta.kind);
        Ok(())
    }

    /// Appends the header of a regular file, and the map of a file with holes.
    fn head(
        &self,
        out: &mut Vec<u8>,
        member: &Member,
        source: &dyn Source,
        stretches: &Stretches,
    ) -> Result<()> {
        let Member { name, meta, .. } = member;
        let mut pax = Pax::default();
        if self.rules.keep_xattrs {
            source.xattrs()?.iter().for_each(|x| pax.xattr(x));
        }
        let data = length(stretches);
        if data >= meta.size {
            return header(out, meta, name, EntryType::Regular, b"", meta.size, pax);
        }
        // Sparse format 1.0: the map comes before the data, and a record holds the name that readers of this format
        // use. Other readers see an odd name rather than wrong bytes under the right name. A file that ends in a hole
        // has an empty stretch at its end: readers take the file's size from there.
        let end = (meta.size, meta.size);
        let ends_in_hole = stretches.last().is_none_or(|&(_, end)| end < meta.size);
        let listed: Vec<_> = stretches
            .iter()
            .copied()
            .chain(ends_in_hole.then_some(end))
            .collect();
        let mut map = format!("{}\n", listed.len());
        for (start, end) in listed {
            map += &format!("{start}\n{}\n", end - start);
        }
        let size = map.len().next_multiple_of(512) as u64 + data;
        pax.set("GNU.sparse.major", b"1");
        pax.set("GNU.sparse.minor", b"0");
        pax.set("GNU.sparse.name", name);
        pax.set("GNU.sparse.realsize", meta.size.to_string().as_bytes());
        let odd = join(b"GNUSparseFile.0", base_name(name));
        header(out, meta, &odd, EntryType::Regular, b"", size, pax)?;
        out.extend_from_slice(map.as_bytes());
        pad(out);
        Ok(())
    }

    /// Returns the data ranges of a file in the archive; cpio has no holes.
    fn stretches(&self, meta: &Meta, source: &dyn Source) -> Result<Stretches> {
        if meta.dense || self.format == Format::Cpio {
            return Ok(vec![(0, meta.size)]);
        }
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((start, end)) = source.next_data(at, meta.size)? {
            found.push((start, end));
            at = end;
        }
        Ok(found)
    }

    /// Reads exactly the range that the header announced.
    fn data(&self, out: &mut Vec<u8>, source: &dyn Source, start: u64, end: u64) -> Result<()> {
        let at = out.len();
        out.resize(at + usize::try_from(end - start)?, 0);
        let n = source.read_at(start, &mut out[at..])?;
        if at + n < out.len() {
            return Err(anyhow!("became shorter while it was read"));
        }
        self.monitor.moved(n as u64);
        Ok(())
    }
}

fn length(stretches: &Stretches) -> u64 {
    stretches.iter().map(|(start, end)| end - start).sum()
}

/// The walk through the tree.
struct Walk<'a> {
    packer: &'a Packer<'a>,
    give_away: Give<'a>,
    /// Small members to be queued together.
    members: Vec<Member>,
    bytes: u64,
    first_names: HashMap<(u64, u64), Vec<u8>>,
    /// Number of inodes in a cpio archive so far.
    numbers: u32,
    held: cpio::Held,
}

impl<'a> Walk<'a> {
    fn new(packer: &'a Packer<'a>, give: Give<'a>) -> Self {
        Self {
            packer,
            give_away: give,
            members: Vec::new(),
            bytes: 0,
            first_names: HashMap::new(),
            numbers: 0,
            held: cpio::Held::default(),
        }
    }

    fn tree(mut self, top: &[u8]) -> Result<()> {
        let src = self.packer.src;
        let meta = src
            .meta(top, true)
            .and_then(|m| m.context("no such file or directory"))
            .with_context(|| src.place(top))?;
        if meta.kind == FileType::Directory {
            self.below(top)?;
        } else {
            let outer = match top.iter().rposition(|&b| b == b'/') {
                Some(0) => b"/",
                Some(slash) => &top[..slash],
                None => b".",
            };
            let outer = src.directory(outer, true).with_context(|| src.place(top))?;
            self.member(&Arc::from(outer), base_name(top), base_name(top), true)?;
        }
        for names in self.held.rest() {
            self.linked(names)?;
        }
        self.flush()
    }

    /// Packs a directory directly before its contents, because readers set its times when they leave it.
    fn below(&mut self, top: &[u8]) -> Result<()> {
        let src = self.packer.src;
        let top = src.directory(top, true).with_context(|| src.place(top))?;
        let mut todo: Vec<Vec<u8>> = vec![Vec::new()];
        let mut entered = Entered::default();
        while let Some(path) = todo.pop() {
            let dir: Arc<dyn Side> = top
                .directory(&path, false)
                .with_context(|| top.place(&path))?
                .into();
            entered
                .enter_side(&*dir)
                .with_context(|| top.place(&path))?;
            let shown = join(b".", &path);
            self.member(&dir, b".", &join(&shown, b""), false)?;
            let mut inner = Vec::new();
            for (name, kind) in dir.list().with_context(|| top.place(&path))? {
                self.packer.monitor.check()?;
                let path = below(&path, &name)?;
                if kind == FileType::Directory {
                    inner.push(path);
                } else {
                    self.member(&dir, &name, &join(&shown, &name), false)?;
                }
            }
            todo.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.bytes = 0;
        match std::mem::take(&mut self.members) {
            none if none.is_empty() => Ok(()),
            members => (self.give_away)(Piece::Members(members)),
        }
    }

    fn member(
        &mut self,
        dir: &Arc<dyn Side>,
        path: &[u8],
        name: &[u8],
        follow: bool,
    ) -> Result<()> {
        let Packer {
            rules,
            monitor,
            format,
            ..
        } = self.packer;
        let meta = dir
            .meta(path, follow)
            .and_then(|m| m.context("gone while it was read"));
        let meta = rules.adjust(meta.with_context(|| dir.place(path))?);
        if meta.kind == FileType::Socket && *format == Format::Tar {
            monitor.warn("a tar archive cannot hold a socket", &dir.show(path));
            return Ok(());
        }
        let linked = meta.links > 1 && meta.kind != FileType::Directory && rules.keep_links;
        let mut member = Member {
            dir: Arc::clone(dir),
            path: path.to_vec(),
            follow,
            name: name.to_vec(),
            meta,
            first: None,
            number: 0,
        };
        match format {
            Format::Tar if linked => {
                member.first = self.first_names.get(&member.meta.id).cloned();
                if member.first.is_none() {
                    self.first_names.insert(member.meta.id, name.to_vec());
                }
            }
            Format::Tar => {}
            Format::Cpio if linked => {
                let complete = self.held.hold(member);
                return complete.map_or(Ok(()), |names| self.linked(names));
            }
            Format::Cpio => {
                member.meta.links = 1;
                member.number = self.number()?;
            }
        }
        self.give(member)
    }

    /// Returns the next inode number of a cpio archive.
    fn number(&mut self) -> Result<u32> {
        let next = self.numbers.checked_add(1);
        self.numbers = next.context("more than 2^32 files in a cpio archive")?;
        Ok(self.numbers)
    }

    /// Packs all names of a file into a cpio archive; the last name has the data.
    fn linked(&mut self, names: Vec<Member>) -> Result<()> {
        let (number, links) = (self.number()?, names.len() as u64);
        let last = names.last().map(|m| m.name.clone()).unwrap_or_default();
        for mut member in names {
            (member.number, member.meta.links) = (number, links);
            member.first = (member.name != last).then(|| last.clone());
            self.give(member)?;
        }
        Ok(())
    }

    fn give(&mut self, member: Member) -> Result<()> {
        let is_file = member.meta.kind == FileType::Regular && member.first.is_none();
        if is_file && member.meta.size > LARGE {
            return self.large(Arc::new(member));
        }
        if is_file {
            self.bytes += member.meta.size;
        }
        self.members.push(member);
        if self.members.len() >= MEMBERS || self.bytes >= BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn large(&mut self, member: Arc<Member>) -> Result<()> {
        self.flush()?;
        let opened = member.dir.open(&member.path, member.follow);
        let source: Arc<dyn Source> = member.context(opened)?.into();
        let stretches = self.packer.stretches(&member.meta, &*source);
        let stretches = member.context(stretches)?;
        let data = length(&stretches);
        let head = Piece::Head(Arc::clone(&member), Arc::clone(&source), stretches.clone());
        (self.give_away)(head)?;
        let mut left = data;
        for (mut start, stop) in stretches {
            while start < stop {
                let end = stop.min(start + STRETCH);
                left -= end - start;
                (self.give_away)(Piece::Data {
                    member: Arc::clone(&member),
                    source: Arc::clone(&source),
                    start,
                    end,
                    zeros: match left {
                        0 => data.next_multiple_of(self.packer.format.unit()) - data,
                        _ => 0,
                    },
                })?;
                start = end;
            }
        }
        Ok(())
    }
}
