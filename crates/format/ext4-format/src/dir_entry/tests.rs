use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, btree_map::Entry};

fn list(block: &[u8]) -> Vec<(Vec<u8>, u32)> {
    entries(block)
        .map(|e| e.map(|e| (e.name.to_vec(), e.inode.0)).unwrap())
        .collect()
}

#[test]
fn rec_len_of_large_blocks() {
    for block in [1024, 4096, 32_768, 65_536] {
        for len in (12..=block).step_by(4) {
            assert_eq!(decode_rec_len(encode_rec_len(len, block), block), len);
        }
    }
    let mut block = vec![0; 65_536];
    init_block(&mut block, false);
    assert_eq!(block[4..6], [0xff, 0xff]);
    assert!(insert(&mut block, false, b"x", InodeNr(9), None).unwrap());
    assert_eq!(list(&block), [(b"x".to_vec(), 9)]);
}

#[test]
fn malformed_records_are_named() {
    let mut good = [0; 1024];
    init_dir(&mut good, true, InodeNr(2), InodeNr(2), true);
    assert_eq!(list(&good), [(b".".to_vec(), 2), (b"..".to_vec(), 2)]);
    for (offset, value, rule) in [
        (4, 8, "directory record shorter than the minimum"),
        (4, 13, "directory record length alignment"),
        (17, 0xff, "directory record beyond its block"),
        (6, 200, "directory record shorter than its name"),
        (6, 0, "directory entry without a name"),
        (8, b'/', "directory entry name with NUL or slash"),
    ] {
        let mut bad = good;
        bad[offset] = value;
        match entries(&bad).find_map(Result::err) {
            Some(FormatError::Corrupt { what, .. }) => assert_eq!(what, rule),
            other => panic!("{rule}: {other:?}"),
        }
    }
}

#[test]
fn no_name_uses_the_tail() {
    let mut block = [0; 64];
    init_block(&mut block, true);
    let mut names = 0;
    while insert(&mut block, true, &[b'a' + names], InodeNr(5), None).unwrap() {
        names += 1;
    }
    assert_eq!(names, 4); // (64 - 12) / 12
    set_tail(&mut block, 77);
    verify_tail(&block, 77).unwrap();
    assert!(verify_tail(&block, 78).is_err());
    block[20] ^= 1;
    assert!(matches!(
        verify_tail(&block, 77),
        Err(FormatError::Checksum { .. })
    ));
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(b'0'..b'4', 1..12)
}

#[test]
fn a_bad_byte_is_found_wherever_it_stands() {
    for len in 1..=40 {
        for filler in [1, b'/' - 1, b'/' + 1, 0x7f, 0x80, 0xaf, 0xff] {
            let good = vec![filler; len];
            assert!(check_name(&good).is_ok());
            for at in 0..len {
                for bad in [0, b'/'] {
                    let mut name = good.clone();
                    name[at] = bad;
                    assert!(check_name(&name).is_err(), "{name:?}");
                }
            }
        }
    }
}

proptest! {
    /// Records are read as entries are, to the same end.
    #[test]
    fn records_are_the_entries(
        mut block in proptest::collection::vec(any::<u8>(), 0..300),
        names in proptest::collection::vec(name(), 0..20),
        harm in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        sound: bool,
    ) {
        if sound {
            block = vec![0; 256];
            let mut leaf = LeafBuilder::new(&mut block, true);
            for name in &names {
                leaf.push(name, InodeNr(12), Some(FileType::Regular)).unwrap();
            }
            leaf.finish();
            if let Some((at, byte)) = harm {
                block[at.index(256)] = byte;
            }
        }
        let entries: Vec<_> = entries(&block)
            .map(|e| e.map(|e| (e.offset as usize, e.rec_len as usize, e.inode, e.name)).map_err(|e| e.to_string()))
            .collect();
        let found: Vec<_> = records(&block, 0, false)
            .map(|r| r.map(|r| (r.offset, r.rec_len, r.inode, r.name)).map_err(|e| e.to_string()))
            .collect();
        prop_assert_eq!(&found, &entries);
        let stop = names.len() / 2;
        let goes_on = |name: &[u8]| names.get(stop).is_none_or(|last| last != name);
        let start = packed(&block, false, goes_on);
        let mut at = 0;
        let no_gap = |r: &&std::result::Result<(usize, usize, InodeNr, &[u8]), String>| {
            let Ok((offset, len, _, name)) = r else { return false };
            let goes = *offset == at && *len == rec_len_for(name.len()) && goes_on(name);
            at += len;
            goes
        };
        let expected: Vec<_> = found.iter().take_while(no_gap).flatten().collect();
        prop_assert_eq!(start.records, expected.len());
        prop_assert_eq!(start.last, expected.last().map_or(0, |r| r.0));
        prop_assert_eq!(start.bytes, expected.iter().map(|r| r.1).sum::<usize>());
    }

    #[test]
    fn random_bytes_never_panic(mut block in proptest::collection::vec(any::<u8>(), 0..300), csum: bool) {
        let _ = entries(&block).count();
        let _ = space(&block, csum);
        let _ = verify_tail(&block, 1);
        let _ = remove(&mut block.clone(), b"a");
        let _ = replace(&mut block.clone(), b"a", InodeNr(3), None);
        let _ = insert(&mut block, csum, b"abc", InodeNr(3), None);
    }

    #[test]
    fn acts_like_a_map(
        ops in proptest::collection::vec((any::<bool>(), name(), 1..1000_u32), 0..120),
        csum: bool,
    ) {
        let mut block = [0; 512];
        init_block(&mut block, csum);
        let mut model = BTreeMap::new();
        for (add, name, ino) in ops {
            if !add {
                let gone = remove(&mut block, &name).unwrap();
                prop_assert_eq!(gone.map(|i| i.0), model.remove(&name));
            } else if let Entry::Vacant(vacant) = model.entry(name.clone()) {
                let room = space(&block, csum).unwrap();
                let fits = room.largest as usize >= rec_len_for(name.len());
                let done = insert(&mut block, csum, &name, InodeNr(ino), Some(FileType::Fifo)).unwrap();
                prop_assert_eq!(done, fits);
                if done {
                    vacant.insert(ino);
                }
            }
            let used: usize = model.keys().map(|n| rec_len_for(n.len())).sum();
            let now = space(&block, csum).unwrap();
            prop_assert_eq!(now.names as usize, model.len());
            prop_assert_eq!(now.free as usize, usable(512, csum) - used);
        }
        let mut found = list(&block);
        found.sort();
        prop_assert_eq!(&found, &model.into_iter().collect::<Vec<_>>());
        // Rebuilt from its own names, the leaf has one gap.
        let mut again = [0xaa; 512];
        let mut names = found.iter().map(|(n, i)| (&n[..], InodeNr(*i), None)).peekable();
        prop_assert_eq!(build(&mut again, csum, 0, &mut names).unwrap(), found.len());
        prop_assert_eq!(list(&again), found);
        let room = space(&again, csum).unwrap();
        prop_assert_eq!(room.free, room.largest);
    }
}
