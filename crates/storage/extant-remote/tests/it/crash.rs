//! A writer that ends between any two of its requests.

use crate::watched::{Put, Watch, Watched};
use blockdev::BlockDevice;
use extant_remote::{Address, ImageKey, ObjectsDevice, runtime};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectStore, PutResult, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

/// Answers a number of requests, and denies the others. The last change may be made although its answer is lost.
#[derive(Debug)]
struct Ending {
    left: AtomicI64,
    last_is_made: bool,
}

#[async_trait::async_trait]
impl Watch for Ending {
    /// Counts a request.
    fn before(&self, path: &Path) -> Result<()> {
        if self.left.fetch_sub(1, SeqCst) > 0 {
            return Ok(());
        }
        Err(Error::PermissionDenied {
            path: path.to_string(),
            source: "ended".into(),
        })
    }

    async fn put(&self, put: Put<'_>) -> Result<PutResult> {
        let answered = self.before(put.at);
        let is_last = self.left.load(SeqCst) == -1;
        if answered.is_ok() || (is_last && self.last_is_made) {
            let done = put.make().await;
            return answered.and(done);
        }
        Err(answered.unwrap_err())
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
            let ending = Arc::new(Watched {
                store: Arc::clone(&store),
                watch: Ending {
                    left: AtomicI64::new(requests),
                    last_is_made,
                },
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
