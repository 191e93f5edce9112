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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_changes_are_made_or_refused(changes in proptest::collection::vec(changes(), 0..12)) {
        thread_local! {
            static IMAGE: Option<Vec<u8>> = Fs::make(16 << 10, &["-t", "ext4"]).map(|fs| fs.bytes());
        }
        let Some(image) = IMAGE.with(Clone::clone) else { return Ok(()) };
        let mut fs = Fs::of(&image);
        let zone = Arc::clone(fs.formatter.zone());
        let groups = Groups::load(&fs.geometry, &fs.buffers).unwrap();
        let volume = Volume {
            geometry: &fs.geometry,
            images: &fs.buffers,
            groups: &groups,
            hasher: &fs.hasher,
            zone: &zone,
        };
        let Ok(items) = volume.items(&changes) else { return Ok(()) };
        let space = FreeSpace::new(&volume, &items);
        if let Ok(output) = fs.formatter.format(&items, &fs.buffers, &space, usize::MAX) {
            prop_assert!(output.is_some());
        }
    }
}
