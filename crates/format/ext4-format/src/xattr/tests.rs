use super::*;
use crate::types::BlockNr;
use proptest::prelude::*;

fn rule(area: Option<&[u8]>, block: Option<&[u8]>) -> &'static str {
    match XattrSet::parse(area, block) {
        Err(FormatError::Corrupt { what, .. } | FormatError::Checksum { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names() {
    assert_eq!(split_name(b"user.a").unwrap(), (1, &b"a"[..]));
    assert_eq!(split_name(ACL_ACCESS).unwrap(), (2, &b""[..]));
    assert_eq!(split_name(b"system.data").unwrap(), (7, &b"data"[..]));
    for bad in [
        &b"user."[..],
        b"bare",
        b"user.a\0",
        b"System.x",
        b"",
        &[b'u'; 256],
    ] {
        assert!(split_name(bad).is_err());
    }
    for (index, prefix) in PREFIXES {
        let full = if prefix.ends_with(b".") {
            [prefix, b"x"].concat()
        } else {
            prefix.to_vec()
        };
        let (i, rest) = split_name(&full).unwrap();
        assert_eq!(i, index);
        assert_eq!(full_name(i, rest, 0).unwrap(), full);
    }
}

#[test]
fn broken_rules_are_named() {
    let mut set = XattrSet::default();
    set.set(b"user.a", b"12345").unwrap();
    set.set(b"user.b", b"67890").unwrap();
    let (none, Some(good)) = place(&set, 0, 1024).unwrap() else {
        panic!()
    };
    assert!(none.is_none());
    let entry = HEADER_LEN;
    for (offset, value, what) in [
        (0, 1, "extended attribute block magic"),
        (4, 0, "extended attribute reference count"),
        (5, 5, "extended attribute reference count"),
        (8, 2, "extended attribute block count"),
        (entry, 0, "extended attribute name"),
        (entry + 2, 0xff, "extended attribute value out of bounds"),
        (entry + 9, 0xff, "extended attribute value out of bounds"),
        (entry + 12, 0, "extended attribute"),
    ] {
        let mut bad = good.clone();
        bad[offset] = value;
        assert_eq!(rule(None, Some(&bad)), what, "{offset}");
    }
    let mut inode = good.clone();
    inode[entry + 4] = 12;
    assert!(matches!(
        XattrSet::parse(None, Some(&inode)),
        Err(FormatError::Incompatible(_))
    ));
    let mut all = XattrSet::parse_all(None, Some(&inode)).unwrap();
    let value = all.value_inode(b"user.a").unwrap();
    assert_eq!((value.ino.0, value.size), (12, 5));
    assert_eq!((all.get(b"user.a"), all.len()), (None, 2));
    assert_eq!(all.names(), [b"user.a", b"user.b"]);
    assert!(all.contains(b"user.a") && !all.contains(b"user.c"));
    // The reference would be lost.
    assert!(all.set(b"user.a", b"1").is_err());
    assert!(place(&all, 100, 1024).is_err());
    let mut twice = inode.clone();
    twice[entry + 20 + 16] = b'a';
    assert!(matches!(
        XattrSet::parse_all(None, Some(&twice)),
        Err(FormatError::Corrupt {
            what: "extended attribute twice",
            ..
        })
    ));
    let (Some(area), None) = place(&set, 100, 1024).unwrap() else {
        panic!()
    };
    let mut bad = area.clone();
    bad[4 + 20 + 2] = bad[4 + 2];
    assert_eq!(rule(Some(&bad), None), "extended attribute values overlap");
    assert_eq!(rule(Some(&area), Some(&good)), "extended attribute twice");
}

#[test]
fn inode_first_rest_in_the_block() {
    let mut set = XattrSet::default();
    set.set(b"user.small", b"x").unwrap();
    set.set(b"user.large", &[7; 500]).unwrap();
    let (area, block) = place(&set, 96, 1024).unwrap();
    assert_eq!(XattrSet::parse(area.as_deref(), None).unwrap().len(), 1);
    let mut block = block.unwrap();
    assert_eq!(XattrSet::parse(area.as_deref(), Some(&block)).unwrap(), set);
    set_refcount(&mut block, 1024).unwrap();
    set_checksum(&mut block, 9, BlockNr(77));
    verify_checksum(&block, 9, BlockNr(77)).unwrap();
    assert!(verify_checksum(&block, 9, BlockNr(78)).is_err());
    assert_eq!(refcount(&block).unwrap(), 1024);
    assert!(set_refcount(&mut block, 1025).is_err());
    set.set(b"user.huge", &[7; 500]).unwrap();
    assert!(matches!(
        place(&set, 96, 1024),
        Err(FormatError::Unrepresentable(_))
    ));
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), nudge: bool) {
        if let (true, Some(m)) = (nudge, bytes.get_mut(..12)) {
            m.copy_from_slice(&[0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0]);
        }
        let _ = XattrSet::parse(Some(&bytes), None);
        let _ = XattrSet::parse_all(None, Some(&bytes));
        let _ = verify_checksum(&bytes, 1, BlockNr(1));
        set_checksum(&mut bytes, 1, BlockNr(1));
    }

    #[test]
    fn round_trip(
        pairs in proptest::collection::vec((0..PREFIXES.len(), "[a-zé]{1,12}", proptest::collection::vec(any::<u8>(), 0..60)), 0..14),
        area_len in 0..300_usize,
    ) {
        let mut set = XattrSet::default();
        for (p, rest, value) in &pairs {
            let prefix = PREFIXES[*p].1;
            let rest = if prefix.ends_with(b".") { rest.as_bytes() } else { b"" };
            set.set(&[prefix, rest].concat(), value).unwrap();
        }
        if let Ok((area, block)) = place(&set, area_len, 1024) {
            prop_assert_eq!(area.as_ref().map_or(area_len, Vec::len), area_len);
            prop_assert_eq!(XattrSet::parse(area.as_deref(), block.as_deref()).unwrap(), set);
        }
    }
}
