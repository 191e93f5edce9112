use super::*;
use proptest::prelude::*;

fn extent(logical: u32, len: u32, physical: u64) -> Extent {
    Extent {
        logical,
        len,
        physical: BlockNr(physical),
        unwritten: false,
    }
}

fn rule(bytes: &[u8], rules: &NodeRules) -> &'static str {
    match Node::parse(bytes, rules) {
        Err(FormatError::Corrupt { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_empty_root_is_a_leaf_of_no_extents() {
    let mut root = [7; ROOT_LEN];
    write_leaf(&mut root, 0, []).unwrap();
    assert_eq!(root, EMPTY_ROOT);
}

#[test]
fn room_for_the_checksum_at_every_block_size() {
    for size in (10..=16).map(|b| 1_usize << b) {
        assert!(HEADER_LEN + capacity(size) * ENTRY_LEN + 4 <= size);
    }
    assert_eq!((capacity(ROOT_LEN), capacity(4096)), (4, 340));
}

#[test]
fn rules_are_named() {
    let root = NodeRules::root(1000);
    let mut n = [0; ROOT_LEN];
    write_leaf(&mut n, 0, [extent(0, 4, 10), extent(3, 1, 20)]).unwrap();
    assert_eq!(rule(&n, &root), "extent order or overlap");
    write_leaf(&mut n, 0, [extent(0, 4, 997)]).unwrap();
    assert_eq!(rule(&n, &root), "extent beyond the volume");
    assert_eq!(
        rule(&n, &root.child(1, 0, None)),
        "extent node depth against its parent"
    );
    write_leaf(&mut n, 0, [extent(8, 4, 10)]).unwrap();
    assert_eq!(
        rule(&n, &root.child(0, 8, Some(10))),
        "extent beyond its node's range"
    );
    assert_eq!(
        rule(&n, &root.child(0, 7, None)),
        "extent node's first key against its parent"
    );
    write_index(
        &mut n,
        1,
        0,
        [ExtentIndex {
            logical: 0,
            child: BlockNr(1000),
        }],
    )
    .unwrap();
    assert_eq!(rule(&n, &root), "extent index beyond the volume");
    write_index(&mut n, 1, 0, []).unwrap();
    assert_eq!(rule(&n, &root), "extent index node without entries");
    n[6] = 6;
    assert_eq!(rule(&n, &root), "extent tree depth");
    assert!(write_leaf(&mut n, 0, (0..5).map(|i| extent(i * 9, 1, 10))).is_err());
    assert!(write_leaf(&mut n, 0, [extent(0, 32_769, 10)]).is_err());
    assert!(write_leaf(&mut n, 0, [extent(0, 1, 1 << 48)]).is_err());
}

fn tree_leaf() -> impl Strategy<Value = Vec<Extent>> {
    let one = (0..50_u32, 1..40_000_u32, 1..1_u64 << 40, any::<bool>());
    proptest::collection::vec(one, 0..80).prop_map(|parts| {
        let mut next = 0;
        let mut out = Vec::new();
        for (gap, len, physical, unwritten) in parts {
            let e = Extent {
                logical: next + gap,
                len: 1,
                physical: BlockNr(physical),
                unwritten,
            };
            let e = Extent {
                len: len.min(e.max_len()),
                ..e
            };
            next = e.end() as u32;
            out.push(e);
        }
        out
    })
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic: bool, at in 0..20_usize) {
        if let (true, Some(m)) = (magic, bytes.get_mut(..8)) {
            m.copy_from_slice(&[0x0a, 0xf3, m[2] & 7, 0, 12, 0, m[6] & 3, 0]);
        }
        let _ = Node::parse(&bytes, &NodeRules::root(1 << 40));
        let _ = verify_tail(&bytes, 1);
        let _ = remove_entry(&mut bytes.clone(), at);
        let _ = insert_extent(&mut bytes.clone(), at, &extent(1, 1, 1));
        let _ = set_extent(&mut bytes.clone(), at, &extent(1, 1, 1));
        let _ = set_tail(&mut bytes, 1);
    }

    #[test]
    fn leaf_round_trip(extents in tree_leaf(), probe in any::<u32>(), pick in any::<proptest::sample::Index>()) {
        let mut block = [0xff; 1024];
        prop_assert_eq!(write_leaf(&mut block, 7, extents.iter().copied()).unwrap(), extents.len());
        set_tail(&mut block, 3).unwrap();
        verify_tail(&block, 3).unwrap();
        let Node::Leaf(leaf) = Node::parse(&block, &NodeRules::root(1 << 48)).unwrap() else { panic!() };
        prop_assert_eq!(&leaf.iter().collect::<Vec<_>>(), &extents);
        for probe in extents.iter().flat_map(|e| [e.logical, e.end() as u32]).chain([probe]) {
            let slow = extents.iter().find(|e| e.map(probe).is_some()).copied();
            prop_assert_eq!(leaf.find(probe), slow);
        }
        if !extents.is_empty() {
            // Removing and inserting an entry restores the block.
            let (at, before) = (pick.index(extents.len()), block);
            remove_entry(&mut block, at).unwrap();
            prop_assert!(insert_extent(&mut block, at, &extents[at]).unwrap());
            prop_assert_eq!(block, before);
        }
    }
}
