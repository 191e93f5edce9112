//! A file of a web server as a device that is only read.

use crate::address::Address;
use crate::cache::Cache;
use crate::disk_cache::DiskCache;
use crate::errors::{NO_RANGES, failed, wrong};
use crate::requests::repeat;
use blockdev::BlockDevice;
use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta};
use std::io;
use std::ops::Range;
use tokio::runtime::Runtime;

/// The device. The file must not change: its size, its entity tag and its time are compared at every request.
pub struct WebDevice {
    address: Address,
    runtime: Runtime,
    meta: ObjectMeta,
    cache: Cache,
}

fn get(runtime: &Runtime, address: &Address, range: Range<u64>) -> io::Result<(ObjectMeta, Bytes)> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        ..GetOptions::default()
    };
    let got = repeat(runtime, async || {
        let store = &address.store;
        let result = store.get_opts(&address.path, options.clone()).await?;
        let meta = result.meta.clone();
        Ok((meta, result.bytes().await?))
    });
    got.map_err(|e| failed(&address.text, e))
}

/// Opens the cache on disk. The identity has all that tells one version of the file from another.
fn disk_cache(address: &Address, meta: &ObjectMeta) -> io::Result<Option<DiskCache>> {
    let time = meta.last_modified.timestamp();
    if address.disk_cache.is_some() && meta.e_tag.is_none() && time == 0 {
        let why = "the server sends no ETag and no time of the last change, so that a cache on disk would miss a change";
        return Err(wrong(
            &address.text,
            format_args!("{why}: remove disk-cache from the address"),
        ));
    }
    let tag = meta.e_tag.as_deref().unwrap_or_default();
    let version = format!("web\n{}\n{}\n{time}\n{tag}", address.place(), meta.size);
    address.open_disk_cache(&version)
}

impl WebDevice {
    /// Opens the file. Fails if the server does not send ranges.
    pub fn open(address: Address, runtime: Runtime) -> io::Result<Self> {
        let (meta, first) = get(&runtime, &address, 0..1)?;
        if first.len() != 1 {
            return Err(io::Error::other(format!("{}: {NO_RANGES}", address.text)));
        }
        let cache = Cache::new(address.cache, disk_cache(&address, &meta)?);
        Ok(Self {
            address,
            runtime,
            meta,
            cache,
        })
    }

    fn fetch(&self, range: Range<u64>) -> io::Result<Bytes> {
        let (meta, bytes) = get(&self.runtime, &self.address, range)?;
        // A server without entity tags has only the time.
        let is_same = meta.size == self.meta.size
            && meta.e_tag == self.meta.e_tag
            && (meta.e_tag.is_some() || meta.last_modified == self.meta.last_modified);
        if is_same {
            return Ok(bytes);
        }
        let why = "the file changed on the server while it was read: open it again";
        Err(io::Error::other(format!("{}: {why}", self.address.text)))
    }
}

impl BlockDevice for WebDevice {
    fn len(&self) -> u64 {
        self.meta.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let fetch = |range| self.fetch(range);
        self.cache.read(0, self.meta.size, offset, buf, fetch)
    }

    blockdev::only_read!();
}
