//! A writer that ends between any two of its requests.

use blockdev::BlockDevice;
use bytes::Bytes;
use extant_remote::{Address, ImageKey, ObjectsDevice, runtime};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// A store that answers a number of requests, and denies the others. The last change may be made although its answer is lost.
#[derive(Debug)]
struct Ending {
    store: Arc<InMemory>,
    left: AtomicI64,
    last_is_made: bool,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ending")
    }
}

impl Ending {
    /// Counts a request.
    fn answered(&self, path: &Path) -> Result<()> {
        if self.left.fetch_sub(1, SeqCst) > 0 {
            return Ok(());
        }
        Err(Error::PermissionDenied {
            path: path.to_string(),
            source: "ended".into(),
        })
    }
}

#[async_trait::async_trait]
impl ObjectStore for Ending {
    async fn put_opts(&self, at: &Path, data: PutPayload, o: PutOptions) -> Result<PutResult> {
        let answered = self.answered(at);
        let is_last = self.left.load(SeqCst) == -1;
        if answered.is_ok() || (is_last && self.last_is_made) {
            let done = self.store.put_opts(at, data, o).await;
            return answered.and(done);
        }
        Err(answered.unwrap_err())
    }
    async fn put_multipart_opts(
        &self,
        at: &Path,
        o: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(at, o).await
    }
    async fn get_opts(&self, at: &Path, o: GetOptions) -> Result<GetResult> {
        self.answered(at)?;
        self.store.get_opts(at, o).await
    }
    async fn get_range(&self, at: &Path, range: Range<u64>) -> Result<Bytes> {
        self.answered(at)?;
        self.store.get_range(at, range).await
    }
    async fn delete(&self, at: &Path) -> Result<()> {
        self.answered(at)?;
        self.store.delete(at).await
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }
    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }
    async fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        self.store.copy(from, to).await
    }
    async fn copy_if_not_exists(&self, from: &Path, to: &Path) -> Result<()> {
        self.store.copy_if_not_exists(from, to).await
    }
}

const BLOCKS: u64 = 200;

fn open(store: Arc<dyn ObjectStore>, encoded: bool) -> std::io::Result<ObjectsDevice> {
    // An address of a store on the network makes its client, which reads the certificates of the system.
    let there = std::env::temp_dir();
    let address = format!("file+objects://{}?takeover", there.display());
    let mut address = Address::parse(&address).unwrap();
    (address.size, address.directory) = (Some(8 << 20), None);
    address.compress = encoded;
    address.key = encoded.then(|| ImageKey::new(&[9; 32]));
    address.store = store;
    ObjectsDevice::open(address, runtime().unwrap(), false)
}

/// Writes rounds of blocks, each flushed, and returns the last round whose flush returned, and the last one that began.
fn write(device: &ObjectsDevice, from: u64) -> (u64, u64) {
    let mut flushed = from;
    for round in from + 1..from + 150 {
        let block = vec![round as u8; 4096];
        let written = (0..3).try_for_each(|n| {
            // A block of each round, and blocks that are overwritten again and again.
            let at = if n == 0 {
                round % 100
            } else {
                100 + (round * n) % 50
            };
            device.write_at(at * 4096, &block)
        });
        let numbered = device.write_at((BLOCKS - 1) * 4096, &round.to_le_bytes());
        if written.and(numbered).and_then(|()| device.flush()).is_err() {
            return (flushed, round);
        }
        flushed = round;
    }
    (flushed, flushed)
}

fn state(device: &ObjectsDevice) -> (u64, Vec<u8>) {
    let mut bytes = vec![0; (BLOCKS * 4096) as usize];
    device.read_at(0, &mut bytes).unwrap();
    let number = &bytes[(BLOCKS as usize - 1) * 4096..][..8];
    (u64::from_le_bytes(number.try_into().unwrap()), bytes)
}

/// Returns the image after whole rounds.
fn expected(rounds: u64) -> Vec<u8> {
    let mut bytes = vec![0; (BLOCKS * 4096) as usize];
    // 100 rounds write every block.
    for round in rounds.saturating_sub(200) + 1..=rounds {
        for n in 0..3 {
            let at = if n == 0 {
                round % 100
            } else {
                100 + (round * n) % 50
            };
            bytes[at as usize * 4096..][..4096].fill(round as u8);
        }
        bytes[(BLOCKS as usize - 1) * 4096..][..8].copy_from_slice(&round.to_le_bytes());
    }
    bytes
}

#[test]
fn what_was_flushed_is_there_after_an_end_between_any_two_requests() {
    // The second image is compressed and encrypted.
    for last_is_made in [false, true] {
        // The image lives on from one end to the next, so that ends meet every step of the deletion of segments too.
        let store = Arc::new(InMemory::new());
        let mut rounds = 0;
        for requests in (0..60).chain((60..400).step_by(37)) {
            let ending = Arc::new(Ending {
                store: Arc::clone(&store),
                left: AtomicI64::new(requests),
                last_is_made,
            });
            let (flushed, begun) = match open(ending, last_is_made) {
                Ok(device) => write(&device, rounds),
                Err(_) => (rounds, rounds),
            };
            let device = open(Arc::clone(&store) as _, last_is_made).unwrap();
            let (found, bytes) = state(&device);
            assert!(
                (flushed..=begun).contains(&found),
                "{requests} requests: round {found}, flushed {flushed}, begun {begun}"
            );
            assert!(
                bytes == expected(found),
                "{requests} requests: round {found}"
            );
            device.release().unwrap();
            rounds = found;
        }
    }
}
