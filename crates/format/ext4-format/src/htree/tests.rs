use super::*;
use crate::types::InodeNr;
use proptest::prelude::*;

const INIT: RootInit = RootInit {
    own: InodeNr(12),
    parent: InodeNr(2),
    filetype: true,
    hash_version: 1,
    levels: 1,
};

fn dx(hash: u32, block: u32) -> DxEntry {
    DxEntry { hash, block }
}

#[test]
fn a_root_is_also_a_linear_block() {
    let mut block = [0xee; 1024];
    write_root(&mut block, &INIT, true, [dx(0, 1)]).unwrap();
    let names: Vec<_> = crate::dir_entry::entries(&block)
        .map(|e| e.unwrap().name.to_vec())
        .collect();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
    write_node(&mut block, true, [dx(0, 1)]).unwrap();
    assert_eq!(crate::dir_entry::entries(&block).count(), 0);
}

#[test]
fn hash_versions_are_those_on_disk() {
    for version in 0..8 {
        let mut block = [0; 1024];
        let init = RootInit {
            hash_version: version,
            ..INIT
        };
        write_root(&mut block, &init, true, [dx(0, 1)]).unwrap();
        let parsed = parse_root(&block, true, false, 9);
        let good = match version {
            0..=2 => parsed.is_ok(),
            3..=5 => matches!(parsed, Err(FormatError::Corrupt { .. })),
            _ => matches!(parsed, Err(FormatError::Incompatible(_))),
        };
        assert!(good, "{version}");
    }
}

#[test]
fn rules_are_named() {
    let mut good = [0; 1024];
    write_root(&mut good, &INIT, true, [dx(0, 1), dx(8, 2), dx(6, 3)]).unwrap();
    let rule = |b: &[u8], blocks| match parse_root(b, true, false, blocks) {
        Err(FormatError::Corrupt { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(rule(&good, 9), "htree hash order");
    write_root(&mut good, &INIT, true, [dx(0, 1), dx(6, 2)]).unwrap();
    assert_eq!(rule(&good, 2), "htree block beyond the directory");
    for (offset, value, what) in [
        (0, 0, "htree root's \".\""),
        (17, 0, "htree root's \"..\""),
        (24, 1, "htree root info"),
        (30, 2, "htree depth"),
        (31, 1, "htree root flags"),
        (32, 1, "htree count against its limit"),
        (32, 100, "htree limit against block size"),
    ] {
        let mut bad = good;
        bad[offset] = value;
        assert_eq!(rule(&bad, 9), what);
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        mut block in proptest::collection::vec(any::<u8>(), 0..128),
        csum: bool, after in 0..20_usize, fix: bool,
    ) {
        if fix && block.len() == 127 {
            block.push(0);
            let _ = write_node(&mut block, csum, [dx(0, 1)]);
        }
        for kind in [IndexBlockKind::Root, IndexBlockKind::Node] {
            let _ = verify_checksum(&block, kind, 1);
            let _ = set_checksum(&mut block.clone(), kind, 1);
            let _ = insert_after(&mut block.clone(), kind, after, dx(5, 1));
        }
        let _ = parse_root(&block, csum, true, 100);
        let _ = parse_node(&block, csum, 100);
    }

    #[test]
    fn inserts_keep_order(
        hashes in proptest::collection::vec(any::<u32>(), 1..80),
        csum: bool, root: bool,
    ) {
        let mut block = [0; 512];
        let kind = if root { IndexBlockKind::Root } else { IndexBlockKind::Node };
        if root {
            write_root(&mut block, &INIT, csum, [dx(0, 1)]).unwrap();
        } else {
            write_node(&mut block, csum, [dx(0, 1)]).unwrap();
        }
        let view = |block: &[u8; 512]| -> Vec<DxEntry> {
            if root {
                parse_root(block, csum, false, 1000).unwrap().index.iter().collect()
            } else {
                parse_node(block, csum, 1000).unwrap().iter().collect()
            }
        };
        let mut model = vec![dx(0, 1)];
        for (i, hash) in hashes.into_iter().enumerate() {
            let after = model.iter().rposition(|e| e.hash <= hash).unwrap();
            let entry = dx(hash, i as u32 + 2);
            let done = insert_after(&mut block, kind, after, entry).unwrap();
            prop_assert_eq!(done, model.len() < kind.capacity(512, csum));
            if done {
                model.insert(after + 1, entry);
            }
            prop_assert_eq!(&view(&block), &model);
        }
        if csum {
            set_checksum(&mut block, kind, 5).unwrap();
            verify_checksum(&block, kind, 5).unwrap();
            prop_assert!(verify_checksum(&block, kind, 6).is_err());
        }
    }
}
