//! Disks in foreign formats: qemu-img, img2simg and simg2img judge.

use crate::it::random;
use extant_disk::blockdev::{Access, BlockDevice};
use extant_disk::{Format, NewFormat, NewImage, Packing};
use std::io;
use std::path::Path;
use std::process::Command;

const LEN: usize = 9 << 20;

/// Makes pieces of all kinds: an incompressible one, a repetitive one, holes.
fn content() -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    let mut next = random::numbers();
    bytes[1_000_000..2_500_000].fill_with(|| next(256) as u8);
    for four in bytes[3 << 20..4 << 20].chunks_exact_mut(4) {
        four.copy_from_slice(b"four");
    }
    bytes[LEN - 5000..].fill(7);
    bytes
}

/// Runs a tool in a directory, which must succeed.
fn tool(dir: &Path, program: &str, args: &[&str]) {
    let out = Command::new(program).current_dir(dir).args(args).output();
    let out = out.unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {said}");
}

fn whole(disk: &dyn BlockDevice) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Checks that the disk in a file has the content at all positions, and either its length or trailing zeros.
fn holds(path: &Path, content: &[u8]) {
    let disk = extant_disk::open(path, Access::ReadOnly).unwrap();
    let bytes = whole(&disk).unwrap();
    assert!(bytes[..content.len()] == *content, "{}", path.display());
    assert!(bytes[content.len()..].iter().all(|byte| *byte == 0));
    for at in (1..content.len() - 9000).step_by(333_333) {
        let mut part = [0; 9000];
        disk.read_at(at as u64, &mut part).unwrap();
        assert!(part == content[at..at + 9000], "{at}");
    }
    let end = disk.read_at(disk.len() - 1, &mut [0; 2]).unwrap_err();
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
}

/// Changes bytes of a file, most of them in its first or last KiB, and reads the disk if it opens.
fn damage(path: &Path, rounds: usize) {
    let good = std::fs::read(path).unwrap();
    let mut next = random::numbers();
    let damaged = path.with_extension("damaged");
    let mut opened = 0;
    for n in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..=next(4) {
            let edge = bytes.len().min(1024);
            let at = match n % 3 {
                0 => next(edge),
                1 => bytes.len() - 1 - next(edge),
                _ => next(bytes.len()),
            };
            bytes[at] = next(256) as u8;
        }
        if n % 11 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let Ok(disk) = extant_disk::open(&damaged, Access::ReadOnly) else {
            continue;
        };
        opened += 1;
        let mut buf = [0; 4096];
        for n in 0..64 {
            let _ = disk.read_at((disk.len() / 64).saturating_mul(n), &mut buf);
        }
    }
    assert!(opened > rounds / 20, "{opened} of {}", path.display());
}

fn refused(path: &Path, why: &str) {
    let e = extant_disk::open(path, Access::ReadWrite).err().unwrap();
    assert_eq!(e.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert!(e.to_string().contains(why), "{e}");
}

#[test]
fn vhd_and_vmdk_are_read() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let content = content();
    std::fs::write(dir.join("raw"), &content).unwrap();
    for (kind, options, format) in [
        ("vpc", "subformat=dynamic", Format::Vhd),
        ("vpc", "subformat=dynamic,force_size=on", Format::Vhd),
        ("vpc", "subformat=fixed", Format::VhdFixed),
        ("vmdk", "subformat=monolithicSparse", Format::Vmdk),
        ("vmdk", "subformat=streamOptimized", Format::Vmdk),
        ("vmdk", "subformat=monolithicFlat", Format::Vmdk),
    ] {
        let convert = ["convert", "-O", kind, "-o", options, "raw", "disk"];
        tool(dir, "qemu-img", &convert);
        let path = dir.join("disk");
        let file = extant_disk::blockdev::FileDevice::open(&path, Access::ReadOnly);
        assert_eq!(Format::of(&file.unwrap()), format, "{options}");
        holds(&path, &content);
        if format == Format::VhdFixed {
            // A raw disk except for its footer, so it can also be written.
            let disk = extant_disk::open(&path, Access::ReadWrite).unwrap();
            disk.write_at(0, b"new").unwrap();
            drop(disk);
            tool(
                dir,
                "qemu-img",
                &["convert", "-f", "vpc", "-O", "raw", "disk", "back"],
            );
            assert!(std::fs::read(dir.join("back")).unwrap().starts_with(b"new"));
        } else {
            refused(&path, "only read: qemu-img convert");
        }
        damage(&path, 150);
    }
}

#[test]
fn what_is_not_read_is_said_by_name() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let says = |file: &str, what: &str| {
        let e = extant_disk::open(dir.join(file), Access::ReadOnly).err();
        let e = e.unwrap().to_string();
        assert!(e.contains(what), "{e}");
    };
    tool(dir, "qemu-img", &["create", "-q", "-f", "vhdx", "a", "8M"]);
    says("a", "a VHDX, which is not read: qemu-img convert");
    let create = ["create", "-q", "-f", "vmdk"];
    tool(dir, "qemu-img", &[&create[..], &["base", "8M"]].concat());
    let over = ["-b", "base", "-F", "vmdk", "over"];
    tool(dir, "qemu-img", &[&create[..], &over].concat());
    says("over", "a VMDK over another one");
    let split = ["-o", "subformat=twoGbMaxExtentSparse", "split", "8M"];
    tool(dir, "qemu-img", &[&create[..], &split].concat());
    says("split", "Unsupported extent type");
    says("split-s001", "a part of a VMDK");
}

fn android(dir: &Path, content: &[u8]) -> std::path::PathBuf {
    let path = dir.join("own.simg");
    let new = NewImage::create(&path, NewFormat::AndroidSparse, content.len() as u64).unwrap();
    // Write in pieces, and skip those with only zeros.
    for (n, piece) in content.chunks(100_000).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            new.device().write_at(n as u64 * 100_000, piece).unwrap();
        }
    }
    let packing = Packing {
        threads: 1,
        step: &|_| Ok(()),
    };
    new.finish(&packing).unwrap();
    path
}

#[test]
fn android_sparse_images_are_written_and_read() {
    needs::tools!("simg2img", "img2simg");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let content = content();
    let path = android(dir, &content);
    tool(dir, "simg2img", &["own.simg", "back"]);
    assert!(std::fs::read(dir.join("back")).unwrap() == content);
    // Repetitions and zeros take no space.
    assert!(path.metadata().unwrap().len() < 1_520_000);
    holds(&path, &content);
    refused(&path, "an Android sparse image, and only read: simg2img");
    damage(&path, 200);
    tool(dir, "img2simg", &["back", "other"]);
    holds(&dir.join("other"), &content);
    // Blocks of 1 KiB if the size requires them.
    android(dir, &content[..LEN - 1024]);
    tool(dir, "simg2img", &["own.simg", "back"]);
    assert!(std::fs::read(dir.join("back")).unwrap() == content[..LEN - 1024]);
    let odd = NewImage::create(dir.join("odd"), NewFormat::AndroidSparse, 1000).unwrap();
    let packing = Packing {
        threads: 1,
        step: &|_| Ok(()),
    };
    assert!(
        odd.finish(&packing)
            .unwrap_err()
            .to_string()
            .contains("blocks of 512")
    );
}

/// Returns a chunk of a sparse image made by hand.
fn chunk(kind: u16, blocks: u32, data: &[u8]) -> Vec<u8> {
    let total = 12 + data.len() as u32;
    let mut bytes = [kind.to_le_bytes(), [0; 2]].concat();
    bytes.extend([blocks.to_le_bytes(), total.to_le_bytes()].concat());
    bytes.extend(data);
    bytes
}

/// Returns a sparse image of blocks of 1 KiB made by hand.
fn sparse(blocks: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    for half in [1_u16, 0, 28, 12] {
        bytes.extend(half.to_le_bytes());
    }
    for word in [1024, blocks, chunks.len() as u32, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(chunks.concat());
    bytes
}

#[test]
fn each_kind_of_chunk_is_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let raw = chunk(0xcac1, 2, &[5; 2048]);
    let fill = chunk(0xcac2, 3, b"abcd");
    let no_matter = chunk(0xcac3, 4, b"");
    let checksum = chunk(0xcac4, 0, &[9; 4]);
    let open = |bytes: Vec<u8>| {
        std::fs::write(&path, bytes).unwrap();
        extant_disk::open(&path, Access::ReadOnly)
    };
    let chunks = [no_matter, raw.clone(), checksum, fill, raw.clone()];
    let disk = open(sparse(11, &chunks)).unwrap();
    let expected = [
        vec![0; 4096],
        vec![5; 2048],
        b"abcd".repeat(768),
        vec![5; 2048],
    ];
    assert!(whole(&disk).unwrap() == expected.concat());
    let mut part = [0; 5];
    disk.read_at(6144 + 1022, &mut part).unwrap();
    assert_eq!(&part, b"cdabc");
    drop(disk);
    let says = |bytes: Vec<u8>, what: &str| {
        let e = open(bytes).err().expect(what).to_string();
        assert!(e.contains(what), "{e}");
    };
    says(
        sparse(10, &chunks),
        "its chunks have 11264 bytes, and its header says 10240",
    );
    says(sparse(2, &[raw[..900].to_vec()]), "is cut off");
    says(
        sparse(2, &[chunk(0xcac1, 2, &[5; 2047])]),
        "another length than its type",
    );
    says(sparse(2, &[chunk(0xcac9, 2, b"")]), "of no known type");
    let changed = |at: usize, byte: u8| {
        let mut bytes = sparse(2, std::slice::from_ref(&raw));
        bytes[at] = byte;
        bytes
    };
    says(changed(4, 2), "version 2.0");
    says(changed(12, 2), "blocks of 1026 bytes");
    says(changed(23, 0xff), "4278190081 chunks, and at most");
    says(changed(8, 27), "headers of 27 and 12 bytes");
}
