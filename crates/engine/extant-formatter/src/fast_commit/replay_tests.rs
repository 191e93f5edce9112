//! Fast commits are hostile bytes: any changes give a batch that formats, or an error.

use super::*;
use crate::groups::Groups;
use crate::tests::harness::Fs;
use proptest::prelude::*;
use std::sync::Arc;

fn names() -> impl Strategy<Value = FastName> {
    let inodes = || prop_oneof![Just(2u32), 10..20u32, any::<u32>()].prop_map(InodeNr);
    let bytes = prop_oneof!["[a-c]", "[a-z./]{1,3}", Just("lost+found".into())];
    (inodes(), inodes(), bytes).prop_map(|(parent, ino, name): (_, _, String)| FastName {
        parent,
        ino,
        name: name.into_bytes(),
    })
}

/// Generates the record of an inode of one kind or another, with a byte changed.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let modes = prop_oneof![
        Just(0o100644u16),
        Just(0o040755),
        Just(0o120777),
        any::<u16>()
    ];
    let flags = prop_oneof![Just(flags::EXTENTS), Just(0), any::<u32>()];
    (
        modes,
        flags,
        0..3u8,
        0..160usize,
        any::<u8>(),
        any::<bool>(),
    )
        .prop_map(|(mode, flags, links, at, byte, change)| {
            let mut raw = vec![0; 160];
            raw[..2].copy_from_slice(&mode.to_le_bytes());
            raw[26] = links;
            raw[32..36].copy_from_slice(&flags.to_le_bytes());
            raw[128] = 32;
            if change {
                raw[at] = byte;
            }
            raw
        })
}

fn changes() -> impl Strategy<Value = FastChange> {
    let inodes = || prop_oneof![4 => 10..20u32, 1 => any::<u32>()].prop_map(InodeNr);
    let blocks = prop_oneof![0..20u32, any::<u32>()];
    let extents = (blocks, any::<u16>(), 0..20_000u64, any::<bool>()).prop_map(
        |(logical, len, physical, unwritten)| Extent {
            logical,
            len: u32::from(len % 40),
            physical: BlockNr(physical),
            unwritten,
        },
    );
    prop_oneof![
        3 => (inodes(), records()).prop_map(|(ino, raw)| FastChange::Inode(ino, raw)),
        2 => (inodes(), extents).prop_map(|(ino, extent)| FastChange::AddRange(ino, extent)),
        1 => (inodes(), any::<u32>(), any::<u32>())
            .prop_map(|(ino, first, len)| FastChange::RemoveRange(ino, first, len)),
        2 => names().prop_map(FastChange::Create),
        1 => names().prop_map(FastChange::Link),
        1 => names().prop_map(FastChange::Unlink),
    ]
}

/// Returns the batch of changes, and the output of formatting it.
fn replayed(
    fs: &mut Fs,
    changes: &[FastChange],
) -> Result<(ItemList, Result<Option<crate::Output>>)> {
    let zone = Arc::clone(fs.formatter.zone());
    let groups = Groups::load(&fs.geometry, &fs.buffers).unwrap();
    let volume = Volume {
        geometry: &fs.geometry,
        images: &fs.buffers,
        groups: &groups,
        hasher: &fs.hasher,
        zone: &zone,
    };
    let items = volume.items(changes)?;
    let space = FreeSpace::new(&volume, &items);
    let output = fs.formatter.format(&items, &fs.buffers, &space, usize::MAX);
    Ok((items, output))
}

/// Linux writes the records and ranges of open files that have lost their names, or that have never had one.
#[test]
fn open_files_without_names_end() {
    let Some(mut fs) = Fs::make(16 << 10, &["-t", "ext4"]) else {
        return;
    };
    let of_life = |ino: u32, links: u8, generation: u8| {
        let mut raw = vec![0; 160];
        raw[..2].copy_from_slice(&0o100_644u16.to_le_bytes());
        raw[26] = links;
        raw[32..36].copy_from_slice(&flags::EXTENTS.to_le_bytes());
        raw[100] = generation;
        raw[128] = 32;
        FastChange::Inode(InodeNr(ino), raw)
    };
    let record = |ino, links| of_life(ino, links, 0);
    let name = |ino: u32| FastName {
        parent: InodeNr::ROOT,
        ino: InodeNr(ino),
        name: format!("file {ino}").into_bytes(),
    };
    let range = |ino: u32| {
        let extent = Extent {
            logical: 0,
            len: 2,
            physical: BlockNr(15000 + u64::from(ino) * 2),
            unwritten: false,
        };
        FastChange::AddRange(InodeNr(ino), extent)
    };
    // The first file loses its name, the second one never had one, the third one gets a name that it keeps. Another file uses
    // the number of the fourth one.
    let changes = [
        record(12, 1),
        range(12),
        FastChange::Create(name(12)),
        FastChange::Unlink(name(12)),
        range(12),
        FastChange::RemoveRange(InodeNr(12), 1, 1),
        record(12, 0),
        record(13, 0),
        range(13),
        record(13, 0),
        record(14, 0),
        FastChange::Create(name(14)),
        range(14),
        record(14, 1),
        record(15, 0),
        range(15),
        of_life(15, 1, 7),
        FastChange::Create(name(15)),
    ];
    let (items, output) = replayed(&mut fs, &changes).unwrap();
    let bits: Vec<_> = items.bits.iter().map(|b| (b.start.0, b.len)).collect();
    assert_eq!(bits, [(15028, 2)]);
    assert!(output.unwrap().is_some());
    let is_freed = |ino| {
        let of_inode = items.inodes.iter().filter(|item| item.ino == InodeNr(ino));
        of_inode.last().unwrap().event == InodeEvent::Free
    };
    assert_eq!([12, 13, 14, 15].map(is_freed), [true, true, false, false]);
    // A file with names does not end with its record.
    let named = [record(14, 1), FastChange::Create(name(14)), record(14, 0)];
    assert!(replayed(&mut fs, &named).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_changes_are_made_or_refused(changes in proptest::collection::vec(changes(), 0..12)) {
        thread_local! {
            static IMAGE: Option<Vec<u8>> = Fs::make(16 << 10, &["-t", "ext4"]).map(|fs| fs.bytes());
        }
        let Some(image) = IMAGE.with(Clone::clone) else { return Ok(()) };
        if let Ok((_, Ok(output))) = replayed(&mut Fs::of(&image), &changes) {
            prop_assert!(output.is_some());
        }
    }
}
