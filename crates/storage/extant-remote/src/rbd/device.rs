//! An image as a device.

use super::address::RbdAddress;
use super::ceph::{Cluster, Image, Operation, Pool};
use super::lock;
use crate::errors::wrong;
use crate::requests::check_range;
use blockdev::BlockDevice;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Bytes whose extents one call asks for.
const EXTENTS: u64 = 1 << 30;

/// The device. Requests of any number of threads are in flight at once, and each thread waits for its own.
pub struct RbdDevice {
    address: RbdAddress,
    image: Arc<Image>,
    size: AtomicU64,
    read_only: bool,
    /// Whether a request was not answered in time, so that it may still change the image at any time.
    is_lost: AtomicBool,
}

/// Returns an error of the cluster with the address, in one line.
fn failed(address: &RbdAddress, error: &io::Error) -> io::Error {
    let seconds = address.timeout.as_secs();
    let why = match error.raw_os_error() {
        Some(libc::ESHUTDOWN) => {
            "another client has broken the lock of this one, whose requests fail from now on"
                .to_owned()
        }
        Some(libc::ETIMEDOUT) => no_answer(seconds),
        None if error.kind() == io::ErrorKind::TimedOut => no_answer(seconds),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("{}: {why}", address.text))
}

fn no_answer(seconds: u64) -> String {
    format!("the cluster did not answer within {seconds} seconds (timeout=SECONDS in the address)")
}

/// Runs a function that waits for the cluster, at most as long as the address allows. The thread of one that takes longer is left
/// behind, so that the process ends by [`super::end_now`].
fn in_time<T: Send + 'static>(
    limit: Duration,
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::channel();
    let wait = move || {
        let _ = sender.send(run());
    };
    std::thread::Builder::new().spawn(wait)?;
    let done = receiver.recv_timeout(limit);
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn pool(address: &RbdAddress) -> io::Result<Pool> {
    let seconds = address.timeout.as_secs().to_string();
    let settings = [
        ("client_mount_timeout", seconds.as_str()),
        ("rados_mon_op_timeout", &seconds),
    ];
    let cluster = Cluster::connect(&address.user, address.conf.as_deref(), &settings);
    let cluster = cluster.map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::ENOENT) => {
            let user = &address.user;
            wrong(
                &address.text,
                format_args!(
                    "the cluster denies access to the user '{user}', or there is no key for it: check its keyring, and id= in the address"
                ),
            )
        }
        _ => failed(address, &e),
    })?;
    Pool::open(cluster, &address.pool, &address.namespace).map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT) => {
            let why = format!("there is no pool '{}'", address.pool);
            io::Error::new(e.kind(), format!("{}: {why}", address.text))
        }
        _ => failed(address, &e),
    })
}

/// Opens the image of an address. Makes one that does not exist if the address has a size and `read_only` is not set.
fn image(address: &RbdAddress, read_only: bool) -> io::Result<Image> {
    let (name, snapshot) = (address.image.as_str(), address.snapshot.as_deref());
    let is_missing = |e: &io::Error| e.raw_os_error() == Some(libc::ENOENT);
    let (pool, error) = match Image::open(pool(address)?, name, snapshot, read_only) {
        Ok(image) => return Ok(image),
        Err(refused) => refused,
    };
    if !is_missing(&error) {
        return Err(failed(address, &error));
    }
    let missing = |why: String| {
        let text = format!("{}: {why}", address.text);
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    if let Some(snapshot) = snapshot {
        return Err(match Image::open(pool, name, None, true) {
            Ok(_) => missing(format!("there is no snapshot '{snapshot}' of this image")),
            Err((_, e)) if is_missing(&e) => {
                missing(format!("there is no image '{name}' in the pool"))
            }
            Err((_, e)) => failed(address, &e),
        });
    }
    let Some(size) = address.size.filter(|_| !read_only) else {
        let why = format!("there is no image '{name}' in the pool: 'extant mkfs --size' makes one");
        return Err(missing(why));
    };
    pool.create(name, size).map_err(|e| failed(address, &e))?;
    Image::open(pool, name, None, false).map_err(|(_, e)| failed(address, &e))
}

/// Opens the image, and takes its lock for writing. Makes it as long as the address says.
fn open(address: &RbdAddress, read_only: bool) -> io::Result<(Image, u64)> {
    let image = image(address, read_only)?;
    let size = || image.size().map_err(|e| failed(address, &e));
    if read_only {
        let size = size()?;
        return Ok((image, size));
    }
    address.before_claim.call();
    lock::take(&image).map_err(|e| failed(address, &e))?;
    let mut len = size()?;
    if let Some(wanted) = address.size.filter(|&wanted| wanted != len) {
        if wanted < len {
            let why = format_args!(
                "has {len} bytes already, more than {wanted}: omit the size, or see 'rbd resize --allow-shrink'"
            );
            let _ = image.unlock();
            return Err(wrong(&address.text, why));
        }
        image.resize(wanted).map_err(|e| failed(address, &e))?;
        len = size()?;
    }
    Ok((image, len))
}

/// Makes a snapshot of the flushed state. Fails if the name is taken.
pub fn snapshot(address: RbdAddress, name: &str) -> io::Result<()> {
    let name = name.to_owned();
    in_time(address.timeout, move || {
        let image = image(&address, false)?;
        image
            .make_snapshot(&name)
            .map_err(|e| match e.raw_os_error() {
                Some(libc::EEXIST) => wrong(
                    &address.text,
                    format_args!("the snapshot '{name}' exists already"),
                ),
                _ => failed(&address, &e),
            })
    })
}

impl RbdDevice {
    /// Opens the image. A snapshot is only read.
    pub fn open(address: RbdAddress, read_only: bool) -> io::Result<Self> {
        let read_only = read_only || address.snapshot.is_some();
        let text = address.text.clone();
        let limit = address.timeout;
        // The cluster's own limits end most waits; this one ends the others.
        let device = in_time(limit + Duration::from_secs(2), move || {
            let (image, size) = open(&address, read_only)?;
            Ok(Self {
                address,
                image: Arc::new(image),
                size: AtomicU64::new(size),
                read_only,
                is_lost: AtomicBool::new(false),
            })
        });
        device.map_err(|e| {
            let is_told = e.to_string().starts_with(&text);
            if is_told {
                return e;
            }
            let why = match e.kind() {
                io::ErrorKind::TimedOut => no_answer(limit.as_secs()),
                _ => e.to_string(),
            };
            io::Error::new(e.kind(), format!("{text}: {why}"))
        })
    }

    /// Sends a request, and waits for its end.
    fn run(&self, offset: u64, operation: Operation) -> io::Result<Vec<u8>> {
        if self.is_lost.load(Ordering::Relaxed) && !matches!(operation, Operation::Read(_)) {
            let why = "an earlier request was not answered in time: open the image again";
            return Err(wrong(&self.address.text, why));
        }
        let request = self.image.submit(offset, operation);
        let done = request.and_then(|request| request.wait(self.address.timeout));
        done.map_err(|e| {
            self.note(&e);
            failed(&self.address, &e)
        })
    }

    /// Marks the image as lost if an error means that the cluster did not answer.
    fn note(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::TimedOut && !self.is_lost.swap(true, Ordering::Relaxed) {
            // Closing the image would wait for the cluster.
            std::mem::forget(Arc::clone(&self.image));
        }
    }

    /// Checks a range, and that a change is allowed.
    fn check(&self, offset: u64, len: u64, what: &str) -> io::Result<()> {
        check_range(self.len(), offset, len, what)?;
        if self.read_only && what != "read" {
            return Err(blockdev::refuse_read_only(what));
        }
        Ok(())
    }

    /// Flushes, and releases the lock.
    pub fn release(&self) -> io::Result<()> {
        if self.read_only || self.is_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.flush()?;
        let image = Arc::clone(&self.image);
        in_time(self.address.timeout, move || image.unlock()).map_err(|e| {
            self.note(&e);
            failed(&self.address, &e)
        })
    }
}

impl BlockDevice for RbdDevice {
    fn len(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "read")?;
        if buf.is_empty() {
            return Ok(());
        }
        let bytes = self.run(offset, Operation::Read(buf.len()))?;
        if bytes.len() != buf.len() {
            let why = "the image became shorter while it was in use";
            return Err(wrong(&self.address.text, why));
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "write")?;
        if buf.is_empty() {
            return Ok(());
        }
        self.run(offset, Operation::Write(buf.to_vec())).map(drop)
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.run(0, Operation::Flush).map(drop)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "discard")?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        if len == 0 {
            return Ok(());
        }
        self.run(offset, Operation::WriteZeroes(len)).map(drop)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "trim")?;
        if len == 0 {
            return Ok(());
        }
        self.run(offset, Operation::Discard(len)).map(drop)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        if len <= self.len() {
            return Ok(());
        }
        self.check(0, 0, "resize")?;
        let resized = self.image.resize(len);
        resized.map_err(|e| failed(&self.address, &e))?;
        self.size.store(len, Ordering::Relaxed);
        Ok(())
    }

    /// Asks librbd for whole objects, which its map of objects knows without a request to the OSDs.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.len();
        let mut at = offset;
        while at < size {
            let len = EXTENTS.min(size - at);
            let found = self
                .image
                .extents(at, len)
                .map_err(|e| failed(&self.address, &e))?;
            let mut extents = found.into_iter();
            if let Some((start, len)) = extents.next() {
                let mut data = start.max(at)..start.saturating_add(len).min(size);
                for (start, len) in extents {
                    if start > data.end {
                        break;
                    }
                    data.end = data.end.max(start.saturating_add(len).min(size));
                }
                return Ok(Some(data));
            }
            at += len;
        }
        Ok(None)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}
