//! Images of objects in a directory.

use crate::support::Served;
use blockdev::{BlockDevice, conformance};
use extant_remote::{BeforeClaim, Image};
use std::io::Write;
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn address(dir: &Path) -> String {
    format!("file+objects://{}/store", dir.display())
}

#[test]
fn a_device_over_objects_conforms() {
    for fields in ["", "&compress", "&key-file=KEY", "&compress&key-file=KEY"] {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        std::fs::write(&key, [5; 32]).unwrap();
        let fields = fields.replace("KEY", &key.display().to_string());
        let address = format!("{}?size=16M{fields}", address(dir.path()));
        let served = Served::start(dir.path(), &address, &[]).unwrap();
        conformance::check(served.device(), 1).unwrap();
        served.end();
        // The image has the same bytes when it is opened again.
        let before = all(&address);
        let served = Served::start(dir.path(), &address, &[]).unwrap();
        served.end();
        assert!(all(&address) == before);
    }
}

/// Returns the ranges with data.
fn data(device: &dyn BlockDevice) -> Vec<Range<u64>> {
    let next = |at: &Range<u64>| device.next_data(at.end).unwrap();
    std::iter::successors(device.next_data(0).unwrap(), next).collect()
}

#[test]
fn the_client_is_told_which_ranges_are_holes() {
    const M: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let address = format!("{}?size=5G", address(dir.path()));
    let served = Served::start(dir.path(), &address, &[]).unwrap();
    let device = served.device();
    assert_eq!(data(device), []);
    device.write_at(M, &[1; 8 << 10]).unwrap();
    device.write_at(2 * M, &[2; 12 << 10]).unwrap();
    let (one, two) = (M..M + (8 << 10), 2 * M..2 * M + (12 << 10));
    assert_eq!(data(device), [one.clone(), two.clone()], "in memory");
    device.flush().unwrap();
    assert_eq!(data(device), [one.clone(), two.clone()], "in a segment");
    // Beyond the longest range of a request, beside blocks of a segment, and in the middle of them.
    device.write_at(5000 * M, &[3; 4096]).unwrap();
    device.write_at(two.end, &[4; 4096]).unwrap();
    device.discard(two.start + 4096, 4096).unwrap();
    let expected = [
        one,
        two.start..two.start + 4096,
        two.start + 8192..two.end + 4096,
        5000 * M..5000 * M + 4096,
    ];
    assert_eq!(data(device), expected);
    assert_eq!(
        device.next_data(2 * M + 5).unwrap(),
        Some(2 * M + 5..2 * M + 4096)
    );
    served.end();
    let image = Image::open(&address, true).unwrap();
    assert_eq!(data(image.device()), expected);
}

/// A process that may end at any time learns of a claim before it leaves one behind.
#[test]
fn a_claim_is_announced() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let announced = Arc::new(AtomicUsize::new(0));
    let open = |fields: &str, read_only| {
        let (announced, dir) = (Arc::clone(&announced), dir.path().to_owned());
        let found = dir.join("store").exists().then(|| objects(&dir));
        let before = BeforeClaim::new(move || {
            assert!(found.clone().unwrap_or_default() == objects(&dir));
            announced.fetch_add(1, Ordering::Relaxed);
        });
        Image::open_noting(&format!("{address}{fields}"), read_only, before)
    };
    open("?size=8M", false).unwrap().release().unwrap();
    assert_eq!(announced.load(Ordering::Relaxed), 1);
    drop(open("", true).unwrap());
    assert_eq!(announced.load(Ordering::Relaxed), 1);
    let image = open("", false).unwrap();
    assert_eq!(announced.load(Ordering::Relaxed), 2);
    image.release().unwrap();
}

/// Without a caller behind standard input, the program opens its image all the same.
#[test]
fn an_empty_standard_input_does_not_end_the_opening() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant-remote"))
        .arg("serve")
        .arg(dir.path().join("socket"))
        .arg(format!("http://{}/disk", listener.local_addr().unwrap()))
        .env("EXTANT_IO_TIMEOUT", "never")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    let mut request = listener.accept().unwrap().0;
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none());
    request
        .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    let ran = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(said.contains("no such object"), "{said}");
}

/// Returns the contents of all objects.
fn objects(dir: &Path) -> Vec<Vec<u8>> {
    let kinds = std::fs::read_dir(dir.join("store")).unwrap();
    let paths = kinds.flat_map(|kind| std::fs::read_dir(kind.unwrap().path()).unwrap());
    let mut paths: Vec<_> = paths.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

#[test]
fn compressed_objects_are_smaller_and_stay_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let text = b"a line of text that is repeated\n".repeat(8 << 10);
    let write = |fields: &str, offset: u64| {
        let image = Image::open(&format!("{address}{fields}"), false).unwrap();
        image.device().write_at(offset, &text).unwrap();
        image.release().unwrap();
        objects(dir.path()).iter().map(Vec::len).sum::<usize>()
    };
    let first = write("?size=8M&compress", 0);
    assert!(first < text.len() / 20, "{first} bytes");
    let second = write("", 1 << 20) - first;
    assert!(second < text.len() / 20, "{second} bytes");
    // A part of a record is replaced.
    let image = Image::open(&address, false).unwrap();
    image.device().write_at(5 * 4096, &[7; 4096]).unwrap();
    image.release().unwrap();
    let mut expected = text.clone();
    expected[5 * 4096..6 * 4096].fill(7);
    let all = all(&address);
    assert!(all[..text.len()] == expected);
    assert!(all[1 << 20..][..text.len()] == text);
}

#[test]
fn an_encrypted_image_opens_with_its_key_only() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let [right, wrong] = [1, 2].map(|byte| {
        let path = dir.path().join(format!("key{byte}"));
        std::fs::write(&path, [byte; 32]).unwrap();
        format!("?key-file={}", path.display())
    });
    let image = Image::open(&format!("{address}{right}&size=8M"), false).unwrap();
    image
        .device()
        .write_at(0, &b"a secret".repeat(1000))
        .unwrap();
    image.release().unwrap();
    let before = objects(dir.path());
    assert!(
        before
            .iter()
            .all(|bytes| !bytes.windows(6).any(|w| w == b"secret"))
    );
    for (fields, why) in [
        (wrong.as_str(), "the key is not the one of this image"),
        ("", "the image is encrypted: add '?key-file=FILE'"),
    ] {
        for read_only in [true, false] {
            let error = Image::open(&format!("{address}{fields}"), read_only).err();
            let said = error.unwrap().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
    assert!(
        objects(dir.path()) == before,
        "an open without the key changes nothing"
    );
    assert!(all(&format!("{address}{right}"))[..8] == *b"a secret");
    let plain = format!("file+objects://{}/plain", dir.path().display());
    let made = Image::open(&format!("{plain}?size=8M"), false).unwrap();
    made.release().unwrap();
    let error = Image::open(&format!("{plain}{right}"), true).err().unwrap();
    assert!(error.to_string().contains("is not encrypted"), "{error}");
}

#[test]
fn an_image_is_made_larger_but_not_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let image = Image::open(&format!("{address}?size=8M"), false).unwrap();
    image.device().write_at((8 << 20) - 4, b"last").unwrap();
    image.release().unwrap();
    let resize = |size: &str| {
        let image = Image::open(&format!("{address}?size={size}"), false)?;
        image.release()
    };
    for (size, why) in [
        ("4M", "cannot be made smaller"),
        ("9000001", "multiple of 4096"),
    ] {
        let said = resize(size).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(all(&address).len(), 8 << 20);
    resize("12M").unwrap();
    let bytes = all(&address);
    assert_eq!(bytes.len(), 12 << 20);
    assert!(bytes[(8 << 20) - 4..][..4] == *b"last" && bytes[8 << 20..].iter().all(|b| *b == 0));
}

/// Returns all bytes of an image.
fn all(address: &str) -> Vec<u8> {
    let image = Image::open(address, true).unwrap();
    let mut bytes = vec![0; image.device().len() as usize];
    image.device().read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_snapshot_keeps_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let write = |byte: u8, rounds: u64| {
        let image = Image::open(&format!("{address}?size=8M"), false).unwrap();
        for round in 0..rounds {
            let bytes = vec![byte; 64 << 10];
            image.device().write_at(round % 100 * 4096, &bytes).unwrap();
            image.device().flush().unwrap();
        }
        image.release().unwrap();
    };
    let snapshot = |name: &str| extant_remote::snapshot(&address, name);
    write(1, 10);
    let first = all(&address);
    snapshot("first").unwrap();
    assert!(
        snapshot("first")
            .unwrap_err()
            .to_string()
            .contains("exists")
    );
    assert!(
        snapshot("../x")
            .unwrap_err()
            .to_string()
            .contains("not a name")
    );
    // 300 segments make the device delete segments without blocks.
    write(2, 300);
    let segments = std::fs::read_dir(dir.path().join("store/log"))
        .unwrap()
        .count();
    assert!(segments < 150, "{segments} segments");
    assert!(all(&format!("{address}@first")) == first);
    assert!(all(&address) != first);
    let missing = Image::open(&format!("{address}@second"), true)
        .err()
        .unwrap();
    assert!(
        missing.to_string().contains("no snapshot 'second'"),
        "{missing}"
    );
    let refused = Image::open(&format!("{address}@first"), false).unwrap();
    assert!(refused.device().write_at(0, &[1]).is_err());
}

#[test]
fn a_writer_that_returns_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let old = Image::open(&format!("{address}?size=8M"), false).unwrap();
    old.device().write_at(0, b"flushed").unwrap();
    old.device().flush().unwrap();
    old.device().write_at(4096, b"not flushed").unwrap();
    let new = Image::open(&format!("{address}?takeover"), false).unwrap();
    let mut bytes = [0; 7];
    new.device().read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"flushed");
    new.device().write_at(8192, b"new").unwrap();
    new.device().flush().unwrap();
    for _ in 0..2 {
        let said = old.device().flush().unwrap_err().to_string();
        assert!(
            said.contains("another writer took the image over"),
            "{said}"
        );
    }
    assert!(old.device().write_at(0, b"x").is_err());
    old.release().unwrap_err();
    new.release().unwrap();
    let all = all(&address);
    assert!(all[..7] == *b"flushed" && all[8192..8195] == *b"new");
    assert!(
        all[4096..8192].iter().all(|b| *b == 0),
        "a block of the old writer"
    );
}

#[test]
fn a_killed_program_loses_only_what_was_not_flushed() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    for round in 1..6_u8 {
        let served = Served::start(dir.path(), &format!("{address}?size=8M"), &[]).unwrap();
        let mut found = [0; 3];
        let at = u64::from(round) * 4096;
        served.device().read_at(at - 4096, &mut found).unwrap();
        assert_eq!(found, [round - 1; 3]);
        served.device().write_at(at, &[round; 3]).unwrap();
        served.device().flush().unwrap();
        served.device().write_at(0, &[round]).unwrap();
        served.kill();
    }
    assert_eq!(all(&address)[0], 0);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let says = |address: &str, why: &str| {
        let said = Served::start(dir.path(), address, &[]).err().expect(why);
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
    };
    says(&address, "no image here");
    says(&format!("{address}?size=1000"), "multiple of 4096");
    Served::start(dir.path(), &format!("{address}?size=8M"), &[])
        .unwrap()
        .end();
    says(
        &format!("{address}?size=4M"),
        "has 8388608 bytes, and cannot be made smaller",
    );
    let log = dir.path().join("store/log");
    std::fs::write(log.join(format!("{:020}", 9)), "garbage").unwrap();
    says(&address, "segment 3 is missing");
    std::fs::remove_file(log.join(format!("{:020}", 9))).unwrap();
    std::fs::write(log.join(format!("{:020}", 1)), vec![7; 5000]).unwrap();
    says(&address, "not a valid segment");
}

#[test]
fn a_cache_on_disk_keeps_segments_of_one_image() {
    let dir = tempfile::tempdir().unwrap();
    let address = address(dir.path());
    let write = |byte: u8| {
        let image = Image::open(&format!("{address}?size=8M"), false).unwrap();
        let bytes = vec![byte; 4 << 20];
        image.device().write_at(0, &bytes).unwrap();
        image.release().unwrap();
    };
    let cached = format!("{address}?disk-cache={}/pieces", dir.path().display());
    write(1);
    let first = all(&cached);
    // Damage of the store shows that the next reader does not ask it.
    for entry in std::fs::read_dir(dir.path().join("store/log")).unwrap() {
        let path = entry.unwrap().path();
        let len = std::fs::metadata(&path).unwrap().len();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        if len > 1 << 20 {
            file.write_all_at(&[9; 100], len - 5000).unwrap();
        }
    }
    assert!(all(&cached) == first);
    let image = Image::open(&address, true).unwrap();
    assert!(image.device().read_at(0, &mut vec![0; 4 << 20]).is_err());
    // Another image of this place has segments of the same numbers.
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    write(2);
    assert!(all(&cached)[..4 << 20].iter().all(|byte| *byte == 2));
}
