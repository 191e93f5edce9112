//! Tables written by sfdisk, damaged tables, and arbitrary bytes.

use extant_disk::blockdev::{BlockDevice, MemDevice};
use extant_disk::{Error, Part, Scheme, Table, part};
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};

const SIZE: u64 = 32 << 20;

/// Returns a disk that sfdisk partitioned.
fn sfdisk(script: &str) -> Option<Vec<u8>> {
    if !needs::have(&["sfdisk"]) {
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let mut child = Command::new("sfdisk")
        .arg("-q")
        .arg(file.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    Some(std::fs::read(file.path()).unwrap())
}

const GPT: &str = "label: gpt
label-id: 11111111-2222-3333-4444-555555555555
size=4M, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name=esp
start=16384, size=8M, type=L, name=root, uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE
type=L, name=data
";

fn table(bytes: &[u8]) -> Result<Option<Table>, Error> {
    Table::read(&MemDevice::from_bytes(bytes))
}

#[test]
fn a_gpt_is_read() {
    let Some(bytes) = sfdisk(GPT) else { return };
    let disk = MemDevice::from_bytes(&bytes);
    let table = Table::read(&disk).unwrap().unwrap();
    assert_eq!((table.scheme, table.sector), (Scheme::Gpt, 512));
    assert_eq!(table.id, "11111111-2222-3333-4444-555555555555");
    assert_eq!(table.note, None);
    assert_eq!(table.partitions.len(), 3);
    assert_eq!(table.partitions[0].type_name, "EFI system");
    let root = (8 << 20)..(16 << 20);
    for name in [
        Part::Number(2),
        Part::Label("root".into()),
        Part::Uuid("aaaaaaaa-BBBB-cccc-dddd-eeeeeeeeeeee".into()),
    ] {
        assert_eq!(part(&disk, &name).unwrap(), root, "{name}");
    }
    for name in [Part::Number(4), Part::Label("esp2".into())] {
        assert!(matches!(part(&disk, &name), Err(Error::NotFound(_))));
    }
}

#[test]
fn the_backup_stands_in() {
    let Some(good) = sfdisk(GPT) else { return };
    let sound = table(&good).unwrap().unwrap();
    // Damage in the header, in an entry, or in the headers of both copies.
    for at in [512 + 60, 1024 + 40] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        let read = table(&bytes).unwrap().unwrap();
        assert_eq!(read.partitions, sound.partitions);
        assert!(read.note.unwrap().contains("backup"), "{at}");
        let end = bytes.len() - 512 + 60;
        bytes[end] ^= 1;
        assert!(matches!(table(&bytes), Err(Error::Damaged { .. })));
    }
    let mut bytes = good.clone();
    bytes[512..1024].fill(0);
    assert_eq!(table(&bytes).unwrap().unwrap().partitions, sound.partitions);
    let end = bytes.len() - 512;
    bytes[end..].fill(0);
    assert!(matches!(table(&bytes), Err(Error::Damaged { .. })));
    // Another file system over the whole disk, which left the end unchanged.
    let mut bytes = good;
    bytes[..4096].fill(7);
    assert!(table(&bytes).unwrap().is_none());
}

#[test]
fn an_mbr_is_read_with_its_logical_partitions() {
    let script = "label: dos\nlabel-id: 0xdeadbeef\nsize=4M, type=83\nsize=16M, type=5\nsize=2M, type=82\n\
                  size=3M, type=83\nsize=4M, type=83\nsize=2M, type=83\n";
    let Some(bytes) = sfdisk(script) else { return };
    let disk = MemDevice::from_bytes(&bytes);
    let table = Table::read(&disk).unwrap().unwrap();
    assert_eq!((table.scheme, table.note.as_deref()), (Scheme::Mbr, None));
    let found: Vec<_> = table.partitions.iter().map(|p| (p.number, p.len)).collect();
    assert_eq!(found[..2], [(1, 4 << 20), (3, 2 << 20)]);
    assert_eq!(found[2..], [(4, 3 << 20), (5, 4 << 20), (6, 2 << 20)]);
    let six = part(&disk, &Part::Uuid("DEADBEEF-06".into())).unwrap();
    assert_eq!(six.end - six.start, 2 << 20);
    // A chain with a loop ends.
    let mut bytes = bytes;
    let second = (1..SIZE as usize / 512)
        .map(|n| n * 512)
        .find(|at| bytes[at + 510..at + 512] == [0x55, 0xaa])
        .unwrap();
    bytes[second + 462 + 8..second + 462 + 12].fill(0);
    let read = Table::read(&MemDevice::from_bytes(&bytes))
        .unwrap()
        .unwrap();
    assert!(read.note.unwrap().contains("leads back"));
}

#[test]
fn counts_of_a_hostile_header_are_not_believed() {
    let Some(good) = sfdisk(GPT) else { return };
    for (at, value) in [
        (80usize, u32::MAX),
        (80, 5000),
        (84, 64),
        (84, 0),
        (72, u32::MAX),
    ] {
        let mut bytes = good.clone();
        for header in [512, bytes.len() - 512] {
            bytes[header + at..header + at + 4].copy_from_slice(&value.to_le_bytes());
            bytes[header + 16..header + 20].fill(0);
            let sum = crc32(&bytes[header..header + 92]);
            bytes[header + 16..header + 20].copy_from_slice(&sum.to_le_bytes());
        }
        let error = table(&bytes).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{at} {error}");
    }
}

/// Returns the checksum of GPT, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn partitions_that_are_not_on_the_disk_are_not_opened() {
    let Some(bytes) = sfdisk(GPT) else { return };
    let cut = MemDevice::from_bytes(&bytes[..12 << 20]);
    let error = part(&cut, &Part::Number(2)).unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
    assert!(part(&cut, &Part::Number(1)).is_ok());
    let beyond = Part::Bytes {
        offset: 1 << 40,
        size: None,
    };
    assert!(matches!(part(&cut, &beyond), Err(Error::Outside(_))));
    let wraps = Part::Bytes {
        offset: 5,
        size: Some(u64::MAX),
    };
    assert!(matches!(part(&cut, &wraps), Err(Error::Outside(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Reading tables from arbitrary sectors ends, and all partitions found are on the disk.
    #[test]
    fn any_table_is_survived(
        seed in any::<u64>(),
        changes in prop::collection::vec((0usize..2048, any::<u8>()), 1..24),
        gpt in any::<bool>(),
    ) {
        let disk = MemDevice::new(4 << 20);
        let mut head = vec![0; 2048];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        for n in 0..4 {
            let at = 446 + 16 * n;
            head[at + 4] = [0x83, 0x05, 0x0f, 0xee][(seed >> (2 * n)) as usize & 3];
            head[at + 8..at + 12].copy_from_slice(&((seed >> n) as u32 & 0x1fff).to_le_bytes());
            head[at + 12..at + 16].copy_from_slice(&((seed >> (n + 8)) as u32).to_le_bytes());
        }
        if gpt {
            head[512..520].copy_from_slice(b"EFI PART");
        }
        for (at, byte) in changes {
            head[at] = byte;
        }
        disk.write_at(0, &head).unwrap();
        // Every sector may be part of a chain.
        for at in (2048..1 << 16).step_by(512) {
            disk.write_at(at, &head[..512]).unwrap();
        }
        if let Ok(Some(table)) = Table::read(&disk) {
            prop_assert!(table.partitions.len() < 300);
            for partition in &table.partitions {
                if let Ok(range) = partition.range(disk.len()) {
                    prop_assert!(range.start >= 512 && range.end <= disk.len());
                }
            }
        }
    }
}
