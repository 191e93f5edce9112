//! The objects of an image: read, and appended to under a condition.

use super::map::Map;
use super::segment::{self, CLAIMED, Head, SegmentKind};
use crate::address::Address;
use crate::disk_cache::DiskCache;
use crate::errors::{failed, wrong};
use crate::holder;
use crate::requests::{self, ATTEMPTS, io_timeout};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, PutMode, PutOptions, PutPayload};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// First bytes of a segment that are read for its head.
const FIRST: u64 = 64 << 10;

/// Result of an attempt to append.
#[derive(Debug, PartialEq, Eq)]
pub enum Append {
    Done,
    /// Another writer has made the segment of this number.
    Taken,
}

/// State of an image.
#[derive(Default)]
pub struct Loaded {
    /// The map. Its number is 0 if the image does not exist.
    pub map: Map,
    /// Last segment if it is torn, which only files in a directory can be. The next segment takes its number.
    pub torn: Option<Path>,
}

/// State of the log behind the segments that were applied.
enum Tail {
    Ended,
    /// A segment is missing, and those behind it were sent at the same time.
    Unconfirmed,
}

#[cfg(test)]
type ListHook = Box<dyn Fn(&str) + Send + Sync>;

/// The objects of an image.
pub struct Log {
    pub address: Address,
    pub runtime: Runtime,
    /// Hook that is called with the kind of objects after a list of them.
    #[cfg(test)]
    pub listed: Option<ListHook>,
    /// Whether the directory is taken for one of a file system without locks.
    #[cfg(test)]
    pub lacks_locks: bool,
}

/// Returns whether the time of the user for a request that began at `since` is over.
fn is_over(since: Instant) -> bool {
    let limit = io_timeout().ok().flatten();
    limit.is_some_and(|limit| since.elapsed() >= limit)
}

impl Log {
    pub fn new(address: Address, runtime: Runtime) -> Self {
        Self {
            address,
            runtime,
            #[cfg(test)]
            listed: None,
            #[cfg(test)]
            lacks_locks: false,
        }
    }

    pub fn path(&self, kind: &str, name: impl std::fmt::Display) -> Path {
        // Names of snapshots are checked, the others are numbers.
        self.address.path.child(kind).child(name.to_string())
    }

    pub fn segment(&self, number: u64) -> Path {
        self.path("log", format_args!("{number:020}"))
    }

    pub fn failed(&self, error: Error) -> io::Error {
        failed(&self.address.text, error)
    }

    pub fn wrong(&self, why: impl std::fmt::Display) -> io::Error {
        io::Error::other(wrong(&self.address.text, why).to_string())
    }

    /// Names the object whose content is not valid in the error. A missing or wrong key concerns all objects of the image.
    fn of_object(&self, path: &Path, error: io::Error) -> io::Error {
        let text = match error.kind() {
            io::ErrorKind::PermissionDenied => wrong(&self.address.text, &error),
            _ => wrong(&self.address.text, format_args!("{path}: {error}")),
        };
        io::Error::new(error.kind(), text.to_string())
    }

    fn repeat<T>(
        &self,
        request: impl AsyncFn() -> object_store::Result<T>,
    ) -> object_store::Result<T> {
        requests::repeat(&self.runtime, request)
    }

    pub fn get(&self, path: &Path) -> object_store::Result<Bytes> {
        self.repeat(async || self.address.store.get(path).await?.bytes().await)
    }

    pub fn get_range(&self, path: &Path, range: Range<u64>) -> io::Result<Bytes> {
        let got = self.repeat(async || self.address.store.get_range(path, range.clone()).await);
        got.map_err(|e| self.failed(e))
    }

    /// Lists the objects of a kind, those after `after` in order, with their numbers.
    fn list(&self, kind: &str, after: Option<u64>) -> io::Result<Vec<(u64, ObjectMeta)>> {
        let prefix = self.address.path.child(kind);
        let store = &self.address.store;
        let listed: Result<Vec<ObjectMeta>, Error> = self.repeat(async || match after {
            Some(after) => {
                let offset = self.path(kind, format_args!("{after:020}"));
                store
                    .list_with_offset(Some(&prefix), &offset)
                    .try_collect()
                    .await
            }
            None => store.list(Some(&prefix)).try_collect().await,
        });
        let number = |meta: ObjectMeta| Some((meta.location.filename()?.parse().ok()?, meta));
        let listed = listed.map_err(|e| self.failed(e))?;
        #[cfg(test)]
        self.listed.iter().for_each(|listed| listed(kind));
        let mut numbered: Vec<_> = listed.into_iter().filter_map(number).collect();
        numbered.sort_by_key(|(number, _)| *number);
        Ok(numbered)
    }

    /// Returns the numbers of the segments and of the maps.
    pub fn numbers(&self, kind: &str) -> io::Result<Vec<u64>> {
        Ok(self.list(kind, None)?.into_iter().map(|(n, _)| n).collect())
    }

    /// Returns the numbers of the segments, with their lengths.
    pub fn segments(&self) -> io::Result<Vec<(u64, u64)>> {
        let all = self.list("log", None)?.into_iter();
        Ok(all.map(|(number, meta)| (number, meta.size)).collect())
    }

    /// Reads the head of a segment.
    pub fn head(&self, number: u64, len: u64) -> io::Result<Head> {
        let path = self.segment(number);
        let named = |e| self.of_object(&path, e);
        if len == 0 {
            return Err(named(segment::torn("it is empty")));
        }
        let mut bytes = self.get_range(&path, 0..FIRST.min(len))?;
        let head = Head::len_of(&bytes).map_err(named)?;
        if head > len {
            return Err(named(segment::torn("it is cut short")));
        }
        if head > bytes.len() as u64 {
            bytes = self.get_range(&path, 0..head)?;
        }
        let head = Head::decode(&bytes, self.address.key.as_ref()).map_err(named)?;
        if head.segment_len() > len {
            return Err(named(segment::torn("it is cut short")));
        }
        if head.number != number || head.segment_len() != len {
            return Err(named(segment::damaged("its length or number is wrong")));
        }
        Ok(head)
    }

    /// Opens the cache on disk, if the address has one. The first segment is a claim, which is never deleted, so its writer is the identity
    /// of the image: another image that is made here later has another one.
    pub fn disk_cache(&self) -> io::Result<Option<DiskCache>> {
        if self.address.disk_cache.is_none() {
            return Ok(None);
        }
        let bytes = self.get(&self.segment(1)).map_err(|e| self.failed(e))?;
        let first = Head::decode(&bytes, self.address.key.as_ref());
        let first = first.map_err(|e| self.of_object(&self.segment(1), e))?;
        let writer = uuid::Uuid::from_bytes(first.writer);
        // A copy of the objects has the same first segment, and its later segments are others.
        let place = self.address.place();
        self.address
            .open_disk_cache(&format!("objects\n{place}\n{writer}"))
    }

    /// Returns the state of the image.
    pub fn load(&self) -> io::Result<Loaded> {
        loop {
            let newest = self.list("map", None)?.pop();
            let number = newest.as_ref().map(|(number, _)| *number);
            match self.load_after(newest) {
                Ok((loaded, Tail::Ended)) => return Ok(loaded),
                // A writer has replaced the map, and deleted objects that the new map does not need: retry.
                _ if self.numbers("map")?.last().copied() > number => {}
                loaded => return loaded.map(|(loaded, _)| loaded),
            }
        }
    }

    /// Builds the state of the image from a map and the segments after it, up to the first one that is missing.
    fn load_after(&self, map: Option<(u64, ObjectMeta)>) -> io::Result<(Loaded, Tail)> {
        let mut loaded = Loaded::default();
        if let Some((number, meta)) = map {
            loaded.map = self.map(&meta.location)?;
            if loaded.map.number != number {
                return Err(self.wrong(format_args!("{}: its number is wrong", meta.location)));
            }
        }
        let Loaded { map, torn } = &mut loaded;
        let after = self.list("log", Some(map.number))?;
        let last = after.last().map(|(number, _)| *number);
        for (at, (number, meta)) in after.iter().enumerate() {
            // The claim took the number of this segment, which the former writer was sending.
            if *number <= map.number {
                continue;
            }
            if *number - map.number > 1 {
                self.check_unconfirmed(map.number, &after[at..])?;
                return Ok((loaded, Tail::Unconfirmed));
            }
            let head = self.head(*number, meta.size);
            let may_be_torn = Some(*number) == last && self.address.directory.is_some();
            let head = head.and_then(|head| {
                if may_be_torn {
                    self.check_whole(&head, map)?;
                }
                Ok(head)
            });
            match head {
                Ok(head) => {
                    if let Some(why) = map.refusal(&head) {
                        return Err(self.wrong(format_args!("{}: {why}", meta.location)));
                    }
                    map.apply(&head);
                }
                // A crash of the machine while the file was made; no flush had returned for it.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && may_be_torn => {
                    *torn = Some(meta.location.clone());
                }
                Err(error) => return Err(error),
            }
        }
        Ok((loaded, Tail::Ended))
    }

    /// Checks that the segments behind a missing one were sent together with it, so that no flush had returned for any of them.
    fn check_unconfirmed(&self, last: u64, tail: &[(u64, ObjectMeta)]) -> io::Result<()> {
        use io::ErrorKind::{InvalidData, UnexpectedEof};
        let missing = last.saturating_add(1);
        for (number, meta) in tail {
            let behind = *number - missing;
            let is_unconfirmed = behind < CLAIMED
                && match self.head(*number, meta.size) {
                    Ok(head) => {
                        head.kind != SegmentKind::Claim && behind <= head.unconfirmed.into()
                    }
                    Err(e) if matches!(e.kind(), InvalidData | UnexpectedEof) => false,
                    Err(e) => return Err(e),
                };
            if !is_unconfirmed {
                return Err(self.wrong(format_args!("damaged: segment {missing} is missing")));
            }
        }
        Ok(())
    }

    /// Checks the records of the last segment in a directory if the machine has crashed since its writer claimed the image: a file may
    /// then have its length without all of its data.
    fn check_whole(&self, head: &Head, map: &Map) -> io::Result<()> {
        let Some(writer) = map.holder.as_deref() else {
            return Ok(());
        };
        if head.kind == SegmentKind::Claim || holder::is_of_this_boot(writer) {
            return Ok(());
        }
        let path = self.segment(head.number);
        let key = self.address.key.as_ref();
        let cipher = segment::cipher(key, &head.writer, head.number)?;
        let mut offset = head.len;
        for len in head.record_lens() {
            // Records are read in pieces, because a segment may be longer than the memory.
            let end = offset.saturating_add(len.into());
            let mut record = self.get_range(&path, offset..end)?.to_vec();
            if cipher.open(offset, &mut record).is_err() {
                let why = format_args!("the record at {offset} was not written");
                return Err(self.of_object(&path, segment::torn(why)));
            }
            offset = end;
        }
        Ok(())
    }

    fn decode_map(&self, bytes: &[u8], path: &Path) -> io::Result<Map> {
        Map::decode(bytes, self.address.key.as_ref()).map_err(|e| self.of_object(path, e))
    }

    pub fn map(&self, path: &Path) -> io::Result<Map> {
        let bytes = self.get(path).map_err(|e| self.failed(e))?;
        self.decode_map(&bytes, path)
    }

    /// Returns the state as of a snapshot.
    pub fn snapshot(&self, name: &str) -> io::Result<Map> {
        let path = self.path("snap", name);
        let bytes = self.get(&path).map_err(|e| match e {
            Error::NotFound { .. } => self.wrong(format_args!("no snapshot '{name}'")),
            e => self.failed(e),
        })?;
        self.decode_map(&bytes, &path)
    }

    /// Returns the segments that snapshots need.
    pub fn pinned(&self) -> io::Result<BTreeSet<u64>> {
        let prefix = self.address.path.child("snap");
        let listed: Result<Vec<ObjectMeta>, Error> =
            self.repeat(async || self.address.store.list(Some(&prefix)).try_collect().await);
        let listed = listed.map_err(|e| self.failed(e))?;
        #[cfg(test)]
        self.listed.iter().for_each(|listed| listed("snap"));
        let mut pinned = BTreeSet::new();
        for meta in listed {
            pinned.extend(self.map(&meta.location)?.segments());
        }
        Ok(pinned)
    }

    /// Makes an object under the condition that it does not exist. In a directory, the object is durable after [`sync`](Self::sync).
    fn create(&self, path: &Path, bytes: &Bytes) -> object_store::Result<()> {
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from(bytes.clone());
        self.runtime
            .block_on(self.address.store.put_opts(path, payload, options))
            .map(drop)
    }

    /// Checks that the store refuses to make an object that exists. Some stores ignore the condition, and two writers would overwrite
    /// each other's segments.
    pub fn check_conditions(&self) -> io::Result<()> {
        let path = self.path("probe", uuid::Uuid::new_v4());
        let bytes = Bytes::from_static(b"made under a condition");
        let first = self.create(&path, &bytes);
        let second = self.create(&path, &bytes);
        self.delete(&path)?;
        match (first, second) {
            (Err(e), _) => Err(self.failed(e)),
            (Ok(()), Err(Error::AlreadyExists { .. } | Error::Precondition { .. })) => Ok(()),
            (Ok(()), Err(e)) => Err(self.failed(e)),
            (Ok(()), Ok(())) => Err(self.wrong(
                "the store ignores the conditions of writes (If-None-Match), which keep two writers apart",
            )),
        }
    }

    /// Locks a directory, so that one process of this machine at a time removes a torn segment and claims its number. Waits for another
    /// process for `wait` at most. Returns `None` for other stores, and on file systems without locks of directories.
    pub fn lock(&self, wait: Duration) -> io::Result<Option<File>> {
        let Some(dir) = &self.address.directory else {
            return Ok(None);
        };
        #[cfg(test)]
        if self.lacks_locks {
            return Ok(None);
        }
        let named = |e: io::Error| io::Error::new(e.kind(), self.wrong(e).to_string());
        let dir = File::open(dir).map_err(named)?;
        let began = Instant::now();
        loop {
            match flock(&dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(dir)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if began.elapsed() < wait => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(self.wrong(
                        "another process holds the lock of the directory, to open the image for writing: try again, or end that process",
                    ));
                }
                Err(e) if has_no_locks(e) => return Ok(None),
                Err(e) => return Err(named(e.into())),
            }
        }
    }

    /// Makes files of a directory durable; a no-op for other stores.
    fn sync(&self) -> object_store::Result<()> {
        let Some(dir) = &self.address.directory else {
            return Ok(());
        };
        let synced = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
        synced.map_err(|source| Error::Generic {
            store: "directory",
            source: Box::new(source),
        })
    }

    /// Makes or replaces an object, durably.
    pub fn put(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let bytes = Bytes::from(bytes);
        let put = self.repeat(async || self.address.store.put(path, bytes.clone().into()).await);
        put.and_then(|_| self.sync()).map_err(|e| self.failed(e))
    }

    /// Makes an object that did not exist, durably; returns false if another writer has made it. After a request without an answer the object
    /// may exist, so it is compared.
    fn create_once(&self, path: &Path, bytes: &Bytes) -> io::Result<bool> {
        let (mut attempt, began) = (0, Instant::now());
        loop {
            match self.create(path, bytes) {
                Ok(()) => break,
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    match self.get(path) {
                        Ok(there) if there == bytes => break,
                        Ok(_) => return Ok(false),
                        // S3 answers a conflict (409) to requests that it gets at once, and may have made no object.
                        Err(Error::NotFound { .. }) if attempt < ATTEMPTS => {}
                        Err(error) => return Err(self.failed(error)),
                    }
                }
                Err(Error::Generic { .. }) if attempt < ATTEMPTS && !is_over(began) => {}
                Err(error) => return Err(self.failed(error)),
            }
            attempt += 1;
            std::thread::sleep(Duration::from_secs(attempt.into()));
        }
        // Not repeated: the host reports lost bytes once.
        self.sync().map_err(|e| self.failed(e))?;
        Ok(true)
    }

    /// Appends a segment.
    pub fn append(&self, number: u64, bytes: &Bytes) -> io::Result<Append> {
        Ok(if self.create_once(&self.segment(number), bytes)? {
            Append::Done
        } else {
            Append::Taken
        })
    }

    /// Deletes an object. Succeeds if the object does not exist.
    pub fn delete(&self, path: &Path) -> io::Result<()> {
        match self.repeat(async || self.address.store.delete(path).await) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Returns the claim of a writer with the number after that of the map. A claim sets the size of a new image, and whether
    /// segments are compressed from here on.
    pub fn claim(&self, map: &Map, writer: [u8; 16], size: u64) -> io::Result<(Head, Bytes)> {
        let compressed = map.compressed || self.address.compress;
        let mut head = Head {
            kind: SegmentKind::Claim,
            number: (map.number.checked_add(1))
                .ok_or_else(|| self.wrong("damaged: its last number is the greatest"))?,
            writer,
            previous: map.writer_of(map.number),
            size,
            unconfirmed: 0,
            runs: Vec::new(),
            records: compressed.then(Vec::new),
            encrypted: self.address.key.is_some(),
            holder: holder::this(),
            len: 0,
        };
        let bytes = head.encode_with(self.address.key.as_ref(), std::iter::empty())?;
        Ok((head, bytes.into()))
    }
}

/// Returns whether an error of flock(2) means that the file system does not lock directories.
fn has_no_locks(error: Errno) -> bool {
    // File systems that make an exclusive lock from one of fcntl(2) need a file that is open for writing (EBADF).
    const WITHOUT: [Errno; 5] = [
        Errno::OPNOTSUPP,
        Errno::NOLCK,
        Errno::NOSYS,
        Errno::INVAL,
        Errno::BADF,
    ];
    WITHOUT.contains(&error)
}

/// Makes a snapshot of the flushed state. Fails if the name is taken.
pub fn snapshot(log: &Log, name: &str) -> io::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(log.wrong(format_args!(
            "'{name}' is not a name of a snapshot (letters, digits, - _ .)"
        )));
    }
    let path = log.path("snap", name);
    match log.get(&path) {
        Ok(_) => return Err(log.wrong(format_args!("the snapshot '{name}' exists"))),
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(log.failed(error)),
    }
    loop {
        let map = log.load()?.map;
        if map.number == 0 {
            return Err(log.wrong("no image here"));
        }
        let bytes = map.encode(log.address.key.as_ref())?.into();
        if !log.create_once(&path, &bytes)? {
            return Err(log.wrong(format_args!("the snapshot '{name}' exists")));
        }
        // A writer creates a newer map, lists the snapshots, and then deletes segments. If no newer map exists yet, its list will
        // contain this snapshot. If a newer map exists, the writer may have listed the snapshots too early: retry.
        if log
            .numbers("map")?
            .last()
            .is_none_or(|newest| *newest <= map.number)
        {
            return Ok(());
        }
        log.delete(&path)?;
    }
}
