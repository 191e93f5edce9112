//! Requests and bytes that a file system costs at an object store, beside those of two other designs for the same writes and flushes.

use crate::watched::{Put, Watch, Watched};
use blockdev::BlockDevice;
use extant::mkfs::MkfsOptions;
use extant::{Volume, VolumeOptions};
use extant_remote::{Address, ObjectsDevice, runtime};
use object_store::{PutResult, Result};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Counts of requests, and of the bytes of objects.
#[derive(Debug, Default)]
struct Counts {
    puts: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    get_bytes: AtomicU64,
    lists: AtomicU64,
}

#[async_trait::async_trait]
impl Watch for Counts {
    async fn put(&self, put: Put<'_>) -> Result<PutResult> {
        self.puts.fetch_add(1, SeqCst);
        self.put_bytes
            .fetch_add(put.data.content_length() as u64, SeqCst);
        put.make().await
    }

    fn read(&self, bytes: u64) {
        self.gets.fetch_add(1, SeqCst);
        self.get_bytes.fetch_add(bytes, SeqCst);
    }

    fn list(&self) {
        self.lists.fetch_add(1, SeqCst);
    }
}

/// Bytes of an object of s3backer, whose manual (s3backer(1)) has an object for each block of the device. The user chooses the size.
const CHUNK: u64 = 128 << 10;
/// Bytes of a segment of ZeroFS, by its documentation ("Storage Engine"): a flush seals the open segment and flushes a merge tree of
/// metadata without a log, which makes a table and a manifest.
const SEGMENT: u64 = 256 << 20;
/// Bytes of a part of a segment, which is sent as a multipart upload. The documentation does not name the size.
const PART: u64 = 8 << 20;
/// Most bytes of a get of ZeroFS, which sequential reads reach.
const WINDOW: u64 = 8 << 20;
/// Tables that are merged into one, which makes a table and a manifest: SlateDB's `min_compaction_sources`.
const MERGED: u64 = 4;

/// Requests of the other designs for the same writes and flushes.
#[derive(Default)]
struct Others {
    /// Chunks that were written since the last flush.
    dirty: BTreeSet<u64>,
    /// Bytes that were written since the last flush.
    bytes: u64,
    /// Puts of s3backer: each dirty chunk at a flush.
    chunk_puts: u64,
    /// Chunks of s3backer that were read.
    read: BTreeSet<u64>,
    /// Windows of ZeroFS that were read.
    windows: BTreeSet<u64>,
    /// Flushes of ZeroFS with something to flush.
    flushes: u64,
    /// Puts of segments of ZeroFS.
    segment_puts: u64,
}

impl Others {
    fn flush(&mut self) {
        self.chunk_puts += self.dirty.len() as u64;
        self.flushes += u64::from(self.bytes > 0);
        self.segment_puts += match self.bytes {
            0 => 0,
            1..=PART => 1,
            // An upload has a request to begin and one to end.
            bytes => bytes.div_ceil(PART) + 2 * bytes.div_ceil(SEGMENT),
        };
        self.bytes = 0;
        self.dirty.clear();
    }

    /// Returns the puts of ZeroFS: of segments, of tables and manifests, and of merged ones.
    fn tree_puts(&self) -> u64 {
        self.segment_puts + 2 * self.flushes + 2 * self.flushes / MERGED
    }
}

/// A device whose writes and flushes are counted for the other designs, too.
struct Compared {
    device: ObjectsDevice,
    others: Mutex<Others>,
}

impl BlockDevice for Compared {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let last = offset + buf.len() as u64;
        let mut others = self.others.lock().unwrap();
        others.read.extend(offset / CHUNK..last.div_ceil(CHUNK));
        others
            .windows
            .extend(offset / WINDOW..last.div_ceil(WINDOW));
        drop(others);
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let end = offset + buf.len() as u64;
        let mut others = self.others.lock().unwrap();
        others.dirty.extend(offset / CHUNK..end.div_ceil(CHUNK));
        others.bytes += buf.len() as u64;
        drop(others);
        self.device.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.others.lock().unwrap().flush();
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.trim(offset, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.device.next_data(offset)
    }

    fn read_only(&self) -> bool {
        false
    }
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    puts: u64,
    lists: u64,
    gets: u64,
    put_bytes: u64,
    get_bytes: u64,
    chunk_puts: u64,
    chunk_gets: u64,
    tree_puts: u64,
    tree_gets: u64,
}

/// Opens the image at `store`, does `work` on its volume, and closes it. Prints and returns what `work` and the close cost.
fn cost(name: &str, store: &Arc<Watched<Counts>>, work: impl FnOnce(&Volume)) -> Row {
    let device = Arc::new(Compared {
        device: open(store, None),
        others: Mutex::default(),
    });
    let volume = VolumeOptions::new()
        .open_device(Arc::clone(&device) as _)
        .unwrap();
    let counts = || {
        let counts = &store.watch;
        let all = [
            &counts.puts,
            &counts.lists,
            &counts.gets,
            &counts.put_bytes,
            &counts.get_bytes,
        ];
        all.map(|count| count.load(SeqCst))
    };
    let before = counts();
    *device.others.lock().unwrap() = Others::default();
    work(&volume);
    volume.close().unwrap();
    let after = counts();
    let [puts, lists, gets, put_bytes, get_bytes] = [0, 1, 2, 3, 4].map(|n| after[n] - before[n]);
    let mut others = device.others.lock().unwrap();
    others.flush();
    let row = Row {
        puts,
        lists,
        gets,
        put_bytes,
        get_bytes,
        chunk_puts: others.chunk_puts,
        chunk_gets: others.read.len() as u64,
        tree_puts: others.tree_puts(),
        tree_gets: others.windows.len() as u64,
    };
    drop(others);
    device.device.release().unwrap();
    // List prices of S3 Standard in us-east-1, for a thousand requests.
    let dollars = |puts: u64, gets: u64| (puts as f64 * 0.005 + gets as f64 * 0.0004) / 1000.0;
    println!(
        "{name}: {row:?}, ${:.5}; s3backer: ${:.5}; ZeroFS: ${:.5}",
        dollars(puts + lists, gets),
        dollars(row.chunk_puts, row.chunk_gets),
        dollars(row.tree_puts, row.tree_gets),
    );
    row
}

fn open(store: &Arc<Watched<Counts>>, size: Option<u64>) -> ObjectsDevice {
    let there = std::env::temp_dir();
    let mut address = Address::parse(&format!("file+objects://{}", there.display())).unwrap();
    (address.size, address.directory) = (size, None);
    address.store = Arc::clone(store) as _;
    ObjectsDevice::open(address, runtime().unwrap(), false).unwrap()
}

/// Returns the number before a word in the cell of Extant of a row of the documented table, 0 if it is not there.
fn documented(row: &str, word: &str) -> u64 {
    const PAGE: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/how-to/objects.md"
    );
    let page = std::fs::read_to_string(PAGE).unwrap();
    let begin = format!("| {row} | ");
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix(&begin));
    let cell = line.unwrap_or_else(|| panic!("no row {row}"));
    let cell = cell.split(" | ").next().unwrap();
    let words: Vec<&str> = cell.split([' ', ':']).collect();
    let at = words
        .iter()
        .position(|w| w.trim_end_matches([',', 's']) == word);
    at.map_or(0, |at| words[at - 1].replace(',', "").parse().unwrap())
}

/// Fails if a row has more requests than the documented row of that name, divided by `parts`, and a quarter more, rounded up.
fn check(row: &Row, name: &str, parts: u64) {
    for (word, count) in [("put", row.puts), ("list", row.lists), ("get", row.gets)] {
        let most = (documented(name, word).div_ceil(parts) * 5).div_ceil(4);
        assert!(count <= most, "{name}: more than {most} {word}s: {row:?}");
    }
}

#[test]
fn requests_of_a_file_system_stay_within_a_budget() {
    let store = Arc::new(Watched::<Counts>::default());
    let device = open(&store, Some(4 << 30));
    let options = MkfsOptions {
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    extant::mkfs::format(&device, &options).unwrap();
    device.release().unwrap();
    let row = cost("1,000 creates, then one sync", &store, |volume| {
        for n in 0..1000 {
            volume.create_new_file(format!("/new{n}")).unwrap();
        }
        volume.sync().unwrap();
    });
    check(&row, "1,000 creates, then one sync", 1);
    let row = cost("1,000 fsyncs of a small file", &store, |volume| {
        let file = volume.create_new_file("/synced").unwrap();
        for n in 0..1000_u64 {
            file.write_all_at(&[n as u8; 100], n * 100).unwrap();
            file.sync_all().unwrap();
        }
    });
    check(&row, "1,000 fsyncs of a small file", 1);
    assert!(row.chunk_puts > row.puts, "{row:?}");
    let mebibytes = 256_u64;
    let block = vec![7; 1 << 20];
    let row = cost("256 MiB written in sequence", &store, |volume| {
        let file = volume.create_new_file("/large").unwrap();
        for n in 0..mebibytes {
            file.write_all_at(&block, n << 20).unwrap();
        }
        file.sync_all().unwrap();
    });
    check(&row, "1 GiB written in sequence", 4);
    assert!(row.put_bytes < (mebibytes << 20) * 5 / 4, "{row:?}");
    let row = cost("256 MiB read in sequence", &store, |volume| {
        let file = volume.open_file("/large").unwrap();
        let mut bytes = vec![0; 1 << 20];
        for n in 0..mebibytes {
            assert_eq!(file.read_at(&mut bytes, n << 20).unwrap(), 1 << 20);
            assert!(bytes == block);
        }
    });
    check(&row, "1 GiB read in sequence", 4);
}
