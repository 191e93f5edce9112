//! Disks in compressed files: contents, damage, and size limits.

use crate::it::random;
use extant_disk::blockdev::{Access, BlockDevice, MemDevice};
use extant_disk::{Format, NewFormat, NewImage, Packing, Unpacking};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const LEN: usize = 5_000_000;

/// Makes bytes that compress somewhat, with a hole.
fn content() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..LEN as u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 27) as u8)
        .collect();
    bytes[1_000_000..3_500_000].fill(0);
    bytes
}

/// Returns the output of a tool with these bytes as input.
fn filter(tool: &str, args: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|s| {
        s.spawn(move || stdin.write_all(bytes).unwrap());
        child.wait_with_output().unwrap().stdout
    })
}

fn file(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("no ending");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn seekable(dir: &Path, content: &[u8]) -> Vec<u8> {
    let path = dir.join("seekable");
    let new = NewImage::create(&path, NewFormat::Zstd, content.len() as u64).unwrap();
    new.device().write_at(0, content).unwrap();
    let packing = Packing {
        threads: 2,
        step: &|_| Ok(()),
    };
    new.finish(&packing).unwrap();
    std::fs::read(&path).unwrap()
}

fn whole(disk: &dyn BlockDevice) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read_at(0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn disks_are_read_whatever_compressed_them() {
    needs::tools!("gzip", "zstd", "xz", "bzip2");
    let dir = tempfile::tempdir().unwrap();
    let content = content();
    for (tool, format) in [
        ("gzip", Format::Gzip),
        ("zstd", Format::Zstd),
        ("xz", Format::Xz),
        ("bzip2", Format::Bzip2),
    ] {
        let path = file(dir.path(), &filter(tool, &["-1", "-c"], &content));
        let disk = extant_disk::open(&path, Access::ReadOnly).unwrap();
        assert!(disk.read_only());
        assert!(whole(&disk).unwrap() == content, "{tool}");
        let mut part = [0; 1000];
        disk.read_at(999_500, &mut part).unwrap();
        assert_eq!(part[..], content[999_500..1_000_500]);
        let end = disk.read_at(LEN as u64 - 1, &mut part).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        let write = disk.write_at(0, b"x").unwrap_err();
        assert_eq!(write.kind(), io::ErrorKind::ReadOnlyFilesystem);
        // Opening for writing reports the reason why it fails.
        drop(disk);
        let e = extant_disk::open(&path, Access::ReadWrite).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::ReadOnlyFilesystem);
        let why = format.why_read_only().unwrap();
        assert_eq!(e.to_string(), format!("{}: {why}", path.display()));
        assert!(why.contains(&format!("{tool} -d")), "{why}");
    }
}

#[test]
fn a_seekable_file_is_decompressed_where_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let content = content();
    let mut bytes = seekable(dir.path(), &content);
    let good = file(dir.path(), &bytes);
    let disk = extant_disk::open(&good, Access::ReadOnly).unwrap();
    assert!(whole(&disk).unwrap() == content);
    // Reads come from several threads.
    std::thread::scope(|s| {
        for start in 0..4 {
            let (disk, content) = (&disk, &content);
            s.spawn(move || {
                for at in (start * 1000..LEN - 5000).step_by(77_777) {
                    let mut buf = [0; 5000];
                    disk.read_at(at as u64, &mut buf).unwrap();
                    assert_eq!(buf[..], content[at..at + 5000]);
                }
            });
        }
    });
    drop(disk);
    // Damage in a frame is an error of reads there, and nowhere else.
    bytes[1000] ^= 1;
    let disk = extant_disk::open(file(dir.path(), &bytes), Access::ReadOnly).unwrap();
    let mut buf = [0; 16];
    let e = disk.read_at(0, &mut buf).unwrap_err().to_string();
    assert!(e.contains("the zstd frame at 0 is damaged"), "{e}");
    disk.read_at(4 << 20, &mut buf).unwrap();
    assert_eq!(buf[..], content[4 << 20..(4 << 20) + 16]);
}

#[test]
fn frames_that_differ_from_the_table_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = seekable(dir.path(), &content());
    // The entries start after the eight bytes of the last frame's header, before the foot of nine bytes; there are
    // five.
    let first = bytes.len() - 9 - 5 * 8;
    let with = |at: usize, value: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let disk = extant_disk::open(file(dir.path(), &bytes), Access::ReadOnly)?;
        let mut buf = [0; 16];
        disk.read_at(0, &mut buf)
    };
    let said = |e: io::Result<()>| e.unwrap_err().to_string();
    // The first frame contains a MiB.
    let e = said(with(first + 4, (1 << 20) + 1));
    assert!(
        e.contains("it has 1048576 bytes, and the seek table says 1048577"),
        "{e}"
    );
    let e = said(with(first + 4, (1 << 20) - 1));
    assert!(e.contains("is damaged"), "{e}");
    let e = said(with(first, 17));
    assert!(
        e.contains("the seek table of the zstd file is damaged"),
        "{e}"
    );
    // A frame claims to be longer than the limit for a single read: the file is decompressed as a whole, and is
    // intact.
    with(first + 4, 3 << 30).unwrap();
}

#[test]
fn what_is_too_large_is_refused_by_the_limit() {
    needs::tools!("zstd");
    let dir = tempfile::tempdir().unwrap();
    // 64 MiB of zeros, compressed to about two thousand bytes.
    let bomb = filter("zstd", &["-c"], &vec![0; 64 << 20]);
    assert!(bomb.len() < 10_000);
    let path = file(dir.path(), &bomb);
    let open = |most| {
        let unpacking = Unpacking {
            dir: dir.path().into(),
            most,
            ..Unpacking::default()
        };
        extant_disk::open_with(&path, Access::ReadOnly, unpacking).unwrap()
    };
    let disk = open(10 << 20);
    let e = whole(&disk)
        .map(drop)
        .and(disk.read_at(0, &mut []))
        .unwrap_err();
    assert!(e.to_string().contains("only up to 10485760 bytes"), "{e}");
    assert_eq!(disk.len(), 0);
    assert_eq!(open(64 << 20).len(), 64 << 20);
}

#[test]
fn the_work_ends_when_a_step_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut packed = Vec::new();
    packed.write_all(&zstd_of(&[1; 3 << 20])).unwrap();
    let unpacking = Unpacking {
        step: Arc::new(|| Err(io::Error::other("enough"))),
        ..Unpacking::default()
    };
    let disk = extant_disk::open_with(file(dir.path(), &packed), Access::ReadOnly, unpacking);
    let e = disk.unwrap().read_at(0, &mut [0]).unwrap_err();
    assert!(e.to_string().ends_with(": enough"), "{e}");
}

/// Returns a zstd file without a table: the frames of a file with a table.
fn zstd_of(content: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = seekable(dir.path(), content);
    let table = 8 + content.len().div_ceil(1 << 20) * 8 + 9;
    bytes.truncate(bytes.len() - table);
    bytes
}

#[test]
fn damage_is_an_error_or_goes_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let good = seekable(dir.path(), &content()[..2_500_000]);
    let mut next = random::numbers();
    let (mut opened, mut failed) = (0, 0);
    for n in 0..300 {
        let mut bytes = good.clone();
        // Change the table, or anything.
        let from = [0, bytes.len() - 60][n % 2];
        for _ in 0..=next(3) {
            let at = from + next(bytes.len() - from);
            bytes[at] = next(256) as u8;
        }
        if n % 7 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        match extant_disk::open(file(dir.path(), &bytes), Access::ReadOnly) {
            Ok(disk) => {
                opened += 1;
                assert!(disk.len() < 1 << 40);
                let mut buf = [0; 4096];
                for n in 0..16 {
                    let at = (disk.len() / 16).saturating_mul(n);
                    let _ = disk.read_at(at, &mut buf);
                }
            }
            Err(_) => failed += 1,
        }
    }
    assert!(opened > 50 && failed > 50, "{opened} {failed}");
}

#[test]
fn the_head_is_that_of_what_is_compressed() {
    let packed = zstd_of(b"#mtree and more");
    let head = extant_disk::decompressed_head(MemDevice::from_bytes(&packed), 6).unwrap();
    assert_eq!(head, b"#mtree");
}
