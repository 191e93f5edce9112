//! A tar archive into a tree: plain, gzip or zstd; pax and GNU extensions.
//!
//! One thread reads the archive. It makes directories, links and whatever else is small itself; files
//! up to a megabyte it hands to other threads, a path always to the same one, so that a later entry
//! for a path comes after an earlier one. What needs an earlier file in place (a hard link, a file
//! that becomes a directory) waits until all handed out is done.

use super::copy::{make_way, settle};
use super::{Existing, Meta, Monitor, Rules, Side, Xattr};
use crate::show::show;
use anyhow::{Context, Result, anyhow, bail};
use ext4_format::inode::makedev;
use extant::{FileType, Timestamp};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use tar::{Archive, Entry, EntryType};

/// Files up to this size are written by other threads.
const SMALL: u64 = 1 << 20;
/// Files waiting for one thread.
const QUEUE: usize = 64;

/// Opens an archive, whatever its packing: a file, or standard input if the path is `-`.
pub fn unpack(path: &Path) -> Result<Box<dyn Read>> {
    let raw: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(std::fs::File::open(path)?)
    };
    let mut raw = BufReader::with_capacity(1 << 18, raw);
    let head = raw.fill_buf()?;
    if head.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(flate2::bufread::MultiGzDecoder::new(raw)));
    }
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return Ok(Box::new(zstd::Decoder::with_buffer(raw)?));
    }
    Ok(Box::new(raw))
}

/// A file with its content, for another thread.
struct Job {
    path: Vec<u8>,
    item: Item,
    content: Vec<u8>,
    segments: Vec<(u64, u64)>,
}

/// What an entry says.
#[derive(Clone)]
struct Item {
    meta: Meta,
    xattrs: Vec<Xattr>,
}

/// Counts what was handed out and not yet done.
#[derive(Default)]
struct InFlight {
    count: Mutex<usize>,
    none: Condvar,
}

impl InFlight {
    fn change(&self, f: impl FnOnce(&mut usize)) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        f(&mut count);
        if *count == 0 {
            self.none.notify_all();
        }
    }

    fn wait(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self
                .none
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Puts what an archive holds into directory `to`.
pub fn read_tar(
    archive: impl Read,
    dst: &dyn Side,
    to: &[u8],
    rules: &Rules,
    monitor: &Monitor,
) -> Result<()> {
    let in_flight = InFlight::default();
    let failed: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let mut queues: Vec<SyncSender<Job>> = Vec::new();
        for _ in 0..rules.threads.max(1) {
            let (sender, jobs) = sync_channel::<Job>(QUEUE);
            queues.push(sender);
            let (in_flight, failed, stop) = (&in_flight, &failed, &stop);
            s.spawn(move || {
                for job in jobs {
                    if !stop.load(Ordering::Relaxed) {
                        if let Err(e) = write_file(dst, &job, rules, monitor) {
                            stop.store(true, Ordering::Relaxed);
                            failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(e);
                        }
                    }
                    in_flight.change(|n| *n -= 1);
                }
            });
        }
        let mut reader = Reader {
            dst,
            to,
            rules,
            monitor,
            queues,
            in_flight: &in_flight,
            stop: &stop,
            hasher: RandomState::new(),
            directories: HashMap::new(),
        };
        let read = reader.run(archive);
        drop(reader.queues.drain(..));
        in_flight.wait();
        // What stopped the others stopped the reader too.
        if let Some(e) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        read?;
        reader.finish()
    })
}

struct Reader<'a> {
    dst: &'a dyn Side,
    to: &'a [u8],
    rules: &'a Rules,
    monitor: &'a Monitor,
    queues: Vec<SyncSender<Job>>,
    in_flight: &'a InFlight,
    stop: &'a AtomicBool,
    hasher: RandomState,
    /// Attributes of directories, to be set last.
    directories: HashMap<Vec<u8>, Item>,
}

impl Reader<'_> {
    fn run(&mut self, archive: impl Read) -> Result<()> {
        let mut archive = Archive::new(archive);
        for entry in archive.entries()? {
            crate::interrupt::check()?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut entry = entry.context("read the archive")?;
            let at = entry.raw_header_position();
            self.entry(&mut entry)
                .with_context(|| format!("archive, entry at byte {at}"))?;
        }
        Ok(())
    }

    fn entry(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<()> {
        if entry.header().entry_type() == EntryType::XGlobalHeader {
            // A comment of who made the archive.
            return Ok(());
        }
        let pax = pax_records(entry)?;
        let name = pax
            .get(&b"GNU.sparse.name"[..])
            .cloned()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let Some(name) = relative(&name)? else {
            // The top itself: it is there, and stays as it is.
            return Ok(());
        };
        let path = crate::address::join(self.to, &name);
        let mut item = item(entry, &pax)?;
        item.meta = self.rules.adjust(item.meta);
        if !self.rules.keep_xattrs {
            item.xattrs.clear();
        }
        self.put(entry, &pax, path, item)
            .with_context(|| show(&name))
    }

    fn put(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        pax: &PaxMap,
        path: Vec<u8>,
        item: Item,
    ) -> Result<()> {
        let kind = entry.header().entry_type();
        if kind.is_hard_link() {
            let old = pax.get(&b"linkpath"[..]).cloned();
            let old = old
                .or_else(|| entry.link_name_bytes().map(|l| l.into_owned()))
                .context("a link to nothing")?;
            let old = relative(&old)?.context("a link to a directory")?;
            self.in_flight.wait();
            self.parents(&path)?;
            make_way(self.dst, &path)?;
            self.dst
                .make_link(&crate::address::join(self.to, &old), &path)?;
            self.monitor.linked();
            return Ok(());
        }
        match item.meta.kind {
            FileType::Directory => self.directory(path, item),
            FileType::Regular => self.file(entry, pax, path, item),
            FileType::Symlink => {
                let target = pax.get(&b"linkpath"[..]).cloned();
                let target = target.or_else(|| entry.link_name_bytes().map(|l| l.into_owned()));
                self.prepare(&path)?;
                self.dst
                    .make_symlink(&target.context("a link to nothing")?, &path)?;
                self.attributes(&path, &item)
            }
            _ => {
                self.prepare(&path)?;
                self.dst.make_special(&path, &item.meta)?;
                self.attributes(&path, &item)
            }
        }
    }

    /// Makes room for something small at a path.
    fn prepare(&mut self, path: &[u8]) -> Result<()> {
        self.parents(path)?;
        if self.dst.meta(path, false)?.is_some() {
            self.in_flight.wait();
            make_way(self.dst, path)?;
        }
        Ok(())
    }

    fn attributes(&self, path: &[u8], item: &Item) -> Result<()> {
        for xattr in &item.xattrs {
            settle(
                self.dst.set_xattr(path, xattr),
                &xattr.0,
                &self.dst.show(path),
                self.monitor,
            )?;
        }
        self.dst.apply(path, &item.meta, self.rules)?;
        self.monitor.made(item.meta.kind);
        Ok(())
    }

    /// Makes the directories above a path that the archive did not mention (yet).
    fn parents(&mut self, path: &[u8]) -> Result<()> {
        let Some(slash) = path
            .iter()
            .rposition(|&b| b == b'/')
            .filter(|&at| at > self.to.len())
        else {
            return Ok(());
        };
        let parent = &path[..slash];
        if self.directories.contains_key(parent) || self.dst.meta(parent, true)?.is_some() {
            return Ok(());
        }
        self.parents(parent)?;
        self.dst
            .make_dir(parent, 0o755)
            .with_context(|| show(parent))
    }

    fn directory(&mut self, path: Vec<u8>, item: Item) -> Result<()> {
        self.parents(&path)?;
        let there = self.dst.meta(&path, false)?;
        if there.as_ref().is_none_or(|t| t.kind != FileType::Directory) {
            if there.is_some() {
                self.in_flight.wait();
                self.dst.remove(&path)?;
            }
            self.dst.make_dir(&path, item.meta.mode)?;
        }
        self.monitor.made(FileType::Directory);
        self.directories.insert(path, item);
        Ok(())
    }

    fn file(
        &mut self,
        entry: &mut Entry<'_, impl Read>,
        pax: &PaxMap,
        path: Vec<u8>,
        mut item: Item,
    ) -> Result<()> {
        self.parents(&path)?;
        let mut stored = entry.size();
        let mut segments = Vec::new();
        if pax.contains_key(&b"GNU.sparse.major"[..]) {
            let (map, read) = sparse_map(entry)?;
            segments = map;
            stored = stored
                .checked_sub(read)
                .context("a sparse map longer than its entry")?;
            item.meta.size =
                number(pax, b"GNU.sparse.realsize").context("a sparse file without its size")?;
        } else if let Some(map) = pax.get(&b"GNU.sparse.map"[..]) {
            segments = old_map(map)?;
            item.meta.size =
                number(pax, b"GNU.sparse.size").context("a sparse file without its size")?;
        } else if stored > 0 {
            segments.push((0, stored));
        }
        let mut end = 0;
        for &(start, len) in &segments {
            let stop = start
                .checked_add(len)
                .filter(|&stop| start >= end && stop <= item.meta.size);
            end = stop.context("a sparse map out of order, or past the end of its file")?;
        }
        let data: u64 = segments.iter().map(|(_, len)| len).sum();
        if data != stored {
            bail!("a sparse map of {data} bytes over {stored}");
        }
        if data > SMALL {
            // Too much to hand over; an earlier file of the path must be done.
            self.in_flight.wait();
            return self.large(entry, &path, &item, &segments);
        }
        let mut content = vec![0; data as usize];
        entry
            .read_exact(&mut content)
            .context("the archive ends early")?;
        let queue = self.hasher.hash_one(&path) as usize % self.queues.len().max(1);
        self.in_flight.change(|n| *n += 1);
        let sent = self.queues.get(queue).is_some_and(|q| {
            q.send(Job {
                path,
                item,
                content,
                segments,
            })
            .is_ok()
        });
        if !sent {
            self.in_flight.change(|n| *n -= 1);
            bail!("a thread ended early");
        }
        Ok(())
    }

    fn large(
        &self,
        entry: &mut impl Read,
        path: &[u8],
        item: &Item,
        segments: &[(u64, u64)],
    ) -> Result<()> {
        let sink = self
            .dst
            .make_file(path, item.meta.mode & 0o777, Existing::Replace)?;
        let mut buf = vec![0; SMALL as usize];
        for &(start, len) in segments {
            let (mut at, end) = (start, start + len);
            while at < end {
                crate::interrupt::check()?;
                let want = usize::try_from(end - at)
                    .unwrap_or(buf.len())
                    .min(buf.len());
                entry
                    .read_exact(&mut buf[..want])
                    .context("the archive ends early")?;
                sink.write_at(at, &buf[..want])?;
                self.monitor.moved(want as u64);
                at += want as u64;
            }
        }
        close(
            &*sink,
            self.dst,
            path,
            item,
            segments,
            self.rules,
            self.monitor,
        )
    }

    fn finish(self) -> Result<()> {
        let mut directories: Vec<_> = self.directories.into_iter().collect();
        directories.sort_by(|a, b| b.0.cmp(&a.0));
        for (path, item) in directories {
            for xattr in &item.xattrs {
                settle(
                    self.dst.set_xattr(&path, xattr),
                    &xattr.0,
                    &self.dst.show(&path),
                    self.monitor,
                )?;
            }
            self.dst
                .apply(&path, &item.meta, self.rules)
                .with_context(|| self.dst.show(&path))?;
        }
        Ok(())
    }
}

fn write_file(dst: &dyn Side, job: &Job, rules: &Rules, monitor: &Monitor) -> Result<()> {
    let write = || -> Result<()> {
        let sink = dst.make_file(&job.path, job.item.meta.mode & 0o777, Existing::Replace)?;
        let mut rest = job.content.as_slice();
        for &(start, len) in &job.segments {
            // The content is as long as the segments together.
            let (now, later) = rest.split_at((len as usize).min(rest.len()));
            sink.write_at(start, now)?;
            rest = later;
        }
        monitor.moved(job.content.len() as u64);
        close(
            &*sink,
            dst,
            &job.path,
            &job.item,
            &job.segments,
            rules,
            monitor,
        )
    };
    write().with_context(|| dst.show(&job.path))
}

fn close(
    sink: &dyn super::Sink,
    dst: &dyn Side,
    path: &[u8],
    item: &Item,
    segments: &[(u64, u64)],
    rules: &Rules,
    monitor: &Monitor,
) -> Result<()> {
    if segments.last().map_or(0, |(start, len)| start + len) < item.meta.size {
        sink.set_size(item.meta.size)?;
    }
    for xattr in &item.xattrs {
        settle(sink.set_xattr(xattr), &xattr.0, &dst.show(path), monitor)?;
    }
    sink.apply(&item.meta, rules)?;
    monitor.made(FileType::Regular);
    Ok(())
}

type PaxMap = HashMap<Vec<u8>, Vec<u8>>;

fn pax_records(entry: &mut Entry<'_, impl Read>) -> Result<PaxMap> {
    let mut map = PaxMap::new();
    let Some(records) = entry.pax_extensions()? else {
        return Ok(map);
    };
    let mut offsets = Vec::new();
    for record in records {
        let record = record?;
        let (key, value) = (record.key_bytes(), record.value_bytes());
        // Sparse format 0.0 repeats two keys instead of a map.
        if key == b"GNU.sparse.offset" || key == b"GNU.sparse.numbytes" {
            offsets.push(String::from_utf8_lossy(value).into_owned());
            continue;
        }
        map.insert(key.to_vec(), value.to_vec());
    }
    if !offsets.is_empty() {
        map.insert(b"GNU.sparse.map".to_vec(), offsets.join(",").into_bytes());
    }
    Ok(map)
}

fn number(pax: &PaxMap, key: &[u8]) -> Option<u64> {
    std::str::from_utf8(pax.get(key)?).ok()?.parse().ok()
}

/// A time of a pax record: decimal seconds, perhaps negative.
fn pax_time(pax: &PaxMap, key: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(pax.get(key)?).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let (secs, nanos): (i64, u32) = (whole.parse().ok()?, digits.parse().ok()?);
    Some(match (whole.starts_with('-'), nanos) {
        (true, 1..) => Timestamp::new(secs.checked_sub(1)?, 1_000_000_000 - nanos),
        _ => Timestamp::new(secs, nanos),
    })
}

fn item(entry: &Entry<'_, impl Read>, pax: &PaxMap) -> Result<Item> {
    let header = entry.header();
    let kind = match header.entry_type() {
        EntryType::Directory => FileType::Directory,
        EntryType::Symlink => FileType::Symlink,
        EntryType::Char => FileType::CharDevice,
        EntryType::Block => FileType::BlockDevice,
        EntryType::Fifo => FileType::Fifo,
        // The old GNU format of sparse files is read as if it had no holes.
        EntryType::Regular | EntryType::Continuous | EntryType::Link | EntryType::GNUSparse => {
            FileType::Regular
        }
        other => bail!(
            "an entry of type {:?}, which is not known",
            char::from(other.as_byte())
        ),
    };
    // Old archives mark directories by their name only.
    let kind = match kind {
        FileType::Regular if entry.path_bytes().ends_with(b"/") => FileType::Directory,
        other => other,
    };
    let id = |key: &[u8], value: io::Result<u64>| -> Result<u32> {
        let value = number(pax, key).map_or(value, Ok)?;
        u32::try_from(value).map_err(|_| anyhow!("{value} is too large for an owner"))
    };
    let mtime = pax_time(pax, b"mtime");
    let mtime = match mtime {
        Some(t) => t,
        None => Timestamp::new(i64::try_from(header.mtime()?).unwrap_or(i64::MAX), 0),
    };
    let part = |n: io::Result<Option<u32>>| n.map(|n| n.unwrap_or(0));
    let meta = Meta {
        kind,
        mode: (header.mode()? & 0o7777) as u16,
        uid: id(b"uid", header.uid())?,
        gid: id(b"gid", header.gid())?,
        size: entry.size(),
        rdev: match kind {
            FileType::CharDevice | FileType::BlockDevice => {
                makedev(part(header.device_major())?, part(header.device_minor())?)
            }
            _ => 0,
        },
        atime: pax_time(pax, b"atime").unwrap_or(mtime),
        mtime,
        links: 1,
        id: (0, 0),
        dense: false,
    };
    let mut xattrs: Vec<Xattr> = pax
        .iter()
        .filter_map(|(key, value)| {
            Some((key.strip_prefix(b"SCHILY.xattr.")?.to_vec(), value.clone()))
        })
        .collect();
    xattrs.sort();
    Ok(Item { meta, xattrs })
}

/// A path of an archive without what is before and between its names; `None`: the top itself.
fn relative(path: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(path.len());
    for name in path
        .split(|&b| b == b'/')
        .filter(|n| !n.is_empty() && *n != b".")
    {
        if name == b".." {
            bail!("{}: a path that leaves its directory", show(path));
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(name);
    }
    Ok((!out.is_empty()).then_some(out))
}

/// The map of sparse format 1.0, before the data, and the bytes it takes.
fn sparse_map(data: &mut impl Read) -> Result<(Vec<(u64, u64)>, u64)> {
    let mut read = 0u64;
    let mut block = [0; 512];
    let mut at = block.len();
    let mut next = || -> Result<u64> {
        let mut value = 0u64;
        loop {
            if at == block.len() {
                data.read_exact(&mut block)
                    .context("a sparse map without an end")?;
                read += block.len() as u64;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            match byte {
                b'0'..=b'9' => {
                    let grown = value
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(u64::from(byte - b'0')));
                    value = grown.context("a number in a sparse map")?;
                }
                b'\n' => return Ok(value),
                _ => bail!("a sparse map that is none"),
            }
        }
    };
    let count = next()?;
    let mut map = Vec::new();
    for _ in 0..count {
        map.push((next()?, next()?));
    }
    map.retain(|&(_, len)| len > 0);
    Ok((map, read))
}

/// The map of sparse formats 0.0 and 0.1, in a record.
fn old_map(text: &[u8]) -> Result<Vec<(u64, u64)>> {
    let text = std::str::from_utf8(text).context("a sparse map that is none")?;
    let numbers: Vec<u64> = text
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .context("a sparse map")?;
    let (pairs, []) = numbers.as_chunks::<2>() else {
        bail!("a sparse map of an odd count")
    };
    Ok(pairs
        .iter()
        .map(|&[start, len]| (start, len))
        .filter(|&(_, len)| len > 0)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(relative(b"./a//b/").unwrap().unwrap(), b"a/b");
        assert_eq!(relative(b"/etc").unwrap().unwrap(), b"etc");
        assert_eq!(relative(b"./").unwrap(), None);
        assert!(relative(b"a/../../b").is_err());
    }

    #[test]
    fn times() {
        let t = |text: &str| {
            pax_time(&PaxMap::from([(b"mtime".to_vec(), text.into())]), b"mtime").unwrap()
        };
        assert_eq!(
            t("12.5"),
            Timestamp {
                secs: 12,
                nanos: 500_000_000
            }
        );
        assert_eq!(
            t("-0.5"),
            Timestamp {
                secs: -1,
                nanos: 500_000_000
            }
        );
        assert_eq!(t("-2"), Timestamp { secs: -2, nanos: 0 });
        assert_eq!(
            t("3.1234567891"),
            Timestamp {
                secs: 3,
                nanos: 123_456_789
            }
        );
    }

    #[test]
    fn sparse_maps() {
        let mut text = b"2\n0\n5\n4096\n10\n".to_vec();
        text.resize(512, 0);
        assert_eq!(
            sparse_map(&mut &text[..]).unwrap(),
            (vec![(0, 5), (4096, 10)], 512)
        );
        assert!(sparse_map(&mut &b"999"[..]).is_err());
        assert_eq!(old_map(b"0,5,9,0").unwrap(), vec![(0, 5)]);
    }
}
