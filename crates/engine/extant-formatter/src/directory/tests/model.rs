//! Batches of all kinds against the model.

use super::*;
use proptest::prelude::*;

#[test]
fn grows_and_shrinks() {
    for kind in kinds() {
        let mut v = Volume::new(kind);
        v.apply(&[]);
        v.check();
        assert_eq!((v.blocks, v.indexed), (1, false));
        let mut next = 0;
        for count in [1, 20, 200, 3000] {
            let ops: Vec<_> = (next..next + count).map(add).collect();
            next += count;
            v.apply(&ops);
            v.check();
        }
        v.check_lookups();
        assert_eq!(v.indexed, kind.index);
        // A batch applied twice changes nothing.
        let ops: Vec<_> = (0..100).map(add).chain((5000..5100).map(remove)).collect();
        v.apply(&ops);
        assert_eq!(v.written, 0);
        // Removals and replacements in one batch with adds.
        let mut ops: Vec<_> = (0..next).filter(|i| i % 3 == 0).map(remove).collect();
        ops.extend((next..next + 500).map(add));
        ops.push(Op::Add(b"file-00000001".to_vec(), 7777, FileType::Symlink));
        v.apply(&ops);
        v.check();
        v.check_lookups();
        v.try_apply(&[], false, Some(InodeNr(99))).unwrap();
        assert_eq!(v.written, 1);
        v.check();
        v.try_apply(&[add(0)], false, Some(InodeNr(98))).unwrap();
        v.check();
        let blocks = v.blocks;
        let ops: Vec<_> = (0..next + 500).map(remove).collect();
        v.apply(&ops);
        v.check();
        assert!(v.model.is_empty());
        v.apply(&(0..next / 2).map(add).collect::<Vec<_>>());
        v.check();
        assert_eq!(v.blocks, blocks, "the room of removed names is used again");
    }
}

#[test]
fn bulk_into_a_new_directory() {
    for kind in kinds() {
        let mut v = Volume::new(kind);
        v.apply(&(0..5000).map(add).collect::<Vec<_>>());
        v.check();
        v.check_lookups();
        assert_eq!(v.indexed, kind.index);
    }
}

#[test]
fn one_by_one() {
    for kind in [
        PLAIN,
        DirectoryKind {
            csum: false,
            ..PLAIN
        },
    ] {
        let mut v = Volume::new(kind);
        for i in 0..4000 {
            v.apply(&[add(i)]);
            assert!(v.written <= 6);
            if i % 500 == 0 {
                v.check();
            }
        }
        assert_eq!(v.levels(), 1);
        v.check();
        v.check_lookups();
    }
}

/// A quarter of each leaf is free for names that come by fast commits. The price is at most 50 % more blocks.
#[test]
fn leaves_keep_room_for_names_to_come() {
    let grown = |keeps_room| {
        let mut v = Volume::new(PLAIN);
        v.keeps_room = keeps_room;
        for batch in 0..400 {
            v.apply(&(batch * 10..batch * 10 + 10).map(add).collect::<Vec<_>>());
        }
        v.check();
        v.check_lookups();
        v
    };
    let v = grown(true);
    let (usable, mut least) = (
        dir_entry::usable(PLAIN.block_size as usize, PLAIN.csum),
        u32::MAX,
    );
    v.with_reader(|reader| {
        for name in v.model.keys() {
            let leaf = reader.leaf(name, v.hasher.hash(name).0).unwrap().unwrap();
            least = least.min(reader.largest_gap(leaf).unwrap());
        }
    });
    assert!(least as usize >= usable / 4, "{least} of {usable}");
    let (more, fewer) = (v.blocks, grown(false).blocks);
    assert!(fewer < more && more * 2 <= fewer * 3, "{more}, {fewer}");
    // A removal and a replacement split no leaf.
    let mut v = grown(false);
    v.keeps_room = true;
    v.apply(&(0..100).map(remove).collect::<Vec<_>>());
    v.apply(&(100..200).map(add).collect::<Vec<_>>());
    assert_eq!(v.blocks, fewer);
    v.check();
}

#[test]
fn three_levels_and_the_end() {
    let long = |i: u32| Op::Add(format!("{i:0250}").into_bytes(), 100 + i, FileType::Regular);
    let large = DirectoryKind {
        large_dir: true,
        ..PLAIN
    };
    let mut v = Volume::new(large);
    // Three names a leaf, about 95 leaves a node, 123 nodes in the root: full at about 35,000.
    for start in [0, 30_000, 60_000] {
        v.apply(&(start..start + 30_000).map(long).collect::<Vec<_>>());
        v.check();
    }
    assert_eq!(v.levels(), 2);
    v.check_lookups();
    v.apply(&[add(1), add(2)]);
    v.check();
    let mut v = Volume::new(PLAIN);
    v.apply(&(0..20_000).map(long).collect::<Vec<_>>());
    v.check();
    let all: Vec<_> = (20_000..90_000).map(long).collect();
    let e = v.try_apply(&all, false, None).unwrap_err();
    assert!(matches!(e, Error::NoSpace(_)), "{e}");
}

/// Suffixes that have the same legacy hash after 211 bytes 'x', found by a brute-force search. The names have 220 bytes.
const COLLIDING: [&[u8; 9]; 14] = [
    b"0615da5\\3",
    b"061f6f3\\4",
    b"0630ab6x\x7f",
    b"0ad8c1etF",
    b"0d475a8pw",
    b"0f3664fRa",
    b"0f62c29dv",
    b"0f8b8adZ_",
    b"1152ca1W`",
    b"1261af0_Y",
    b"12b39a9\\N",
    b"1334587DH",
    b"172f742]6",
    b"17d3429vy",
];

/// Returns names of 220 bytes with the same legacy hash.
fn colliding() -> Vec<Vec<u8>> {
    let hasher = DirHasher::new(0, false, [0; 4]).unwrap();
    let names = COLLIDING.map(|end| [&[b'x'; 211][..], end].concat());
    for name in &names {
        assert_eq!(hasher.hash(name).0, 0x2345_6789 << 1);
    }
    names.into()
}

#[test]
fn collisions_over_many_leaves() {
    let mut v = Volume::new(PLAIN);
    v.hasher = DirHasher::new(0, false, v.geometry.hash_seed).unwrap();
    let names = colliding();
    let ops = |n: &[Vec<u8>], ino| -> Vec<Op> {
        n.iter()
            .map(|n| Op::Add(n.clone(), ino, FileType::Regular))
            .collect()
    };
    let long = |i: u32| Op::Add(format!("{i:0220}").into_bytes(), 100 + i, FileType::Regular);
    v.apply(&(0..300).map(long).collect::<Vec<_>>());
    v.apply(&ops(&names[..6], 50));
    v.check();
    v.check_lookups();
    // Add the rest one by one, so that a leaf in the middle of the hash is split.
    for name in &names[6..] {
        v.apply(&ops(std::slice::from_ref(name), 60));
        v.check();
    }
    v.check_lookups();
    // Names of leaves that continue the hash are found, not added again.
    v.apply(&ops(&names, 70));
    v.check();
    v.check_lookups();
    let gone: Vec<_> = names
        .iter()
        .step_by(2)
        .map(|n| Op::Remove(n.clone()))
        .collect();
    v.apply(&gone);
    v.check();
    v.apply(&(300..600).map(long).collect::<Vec<_>>());
    v.apply(&ops(&names, 80));
    v.check();
    v.check_lookups();
    let root = v.raw(0);
    let root = htree::parse_root(&root, true, false, v.blocks).unwrap();
    let odd = |b: u32| {
        htree::parse_node(&v.raw(b), true, v.blocks)
            .map_or(0, |n| n.iter().filter(|e| e.hash & 1 == 1).count())
    };
    let continued: usize = root
        .index
        .iter()
        .map(|e| odd(e.block) + (e.hash & 1) as usize)
        .sum();
    assert!(continued >= 2, "{continued}");
}

#[test]
fn an_index_of_another_hash_version() {
    let mut v = Volume::new(PLAIN);
    let default = v.hasher;
    v.hasher = DirHasher::new(2, v.geometry.unsigned_hash, v.geometry.hash_seed).unwrap();
    v.apply(&(0..2000).map(add).collect::<Vec<_>>());
    let tea = std::mem::replace(&mut v.hasher, default);
    v.apply(
        &(1000..4000)
            .map(add)
            .chain((0..500).map(remove))
            .collect::<Vec<_>>(),
    );
    v.check_lookups();
    v.hasher = tea;
    v.check();
}

#[test]
fn linear_blocks_stay_linear_with_dir_index() {
    let mut v = Volume::new(DirectoryKind {
        index: false,
        ..PLAIN
    });
    v.apply(&(0..200).map(add).collect::<Vec<_>>());
    v.geometry.features.compat.insert(Compat::DIR_INDEX);
    v.apply(
        &(200..400)
            .map(add)
            .chain((0..100).map(remove))
            .collect::<Vec<_>>(),
    );
    assert!(!v.indexed);
    v.check();
    v.check_lookups();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]
    #[test]
    fn agrees_with_a_model(
        bits in 0..32_u32,
        batches in proptest::collection::vec(
            (any::<bool>(), proptest::collection::btree_map(0..900_u32, (0..4_u32, 1..240_usize), 0..300)), 1..8),
    ) {
        let kind = DirectoryKind {
            block_size: if bits & 1 == 0 { 1024 } else { 4096 },
            csum: bits & 2 == 0,
            index: bits & 4 == 0,
            large_dir: bits & 8 == 0,
            filetype: bits & 16 == 0,
        };
        let mut v = Volume::new(kind);
        for (shrink, batch) in batches {
            let ops: Vec<_> = batch.into_iter().map(|(n, (what, _))| {
                // The length depends on the number, so that a name can be used again.
                let name = format!("{n:0width$}", width = 4 + (n as usize * 37) % 236).into_bytes();
                if (what == 0) != shrink {
                    Op::Remove(name)
                } else {
                    Op::Add(name, n + what * 1000 + 11, [FileType::Regular, FileType::Directory][n as usize % 2])
                }
            }).collect();
            v.apply(&ops);
            v.check();
        }
        v.check_lookups();
    }
}

/// The written blocks do not depend on the number of threads.
#[test]
fn threads_write_the_same() {
    for kind in kinds() {
        let volume = |threads| Volume {
            threads,
            ..Volume::new(kind)
        };
        let (mut alone, mut together) = (volume(1), volume(4));
        let batches = [
            (0..4000).map(add).collect::<Vec<_>>(),
            (4000..5000).map(add).collect(),
            (0..6000).step_by(3).map(remove).collect(),
            (5000..12_000)
                .map(add)
                .chain((1..900).step_by(3).map(remove))
                .collect(),
        ];
        for ops in &batches {
            alone.apply(ops);
            together.apply(ops);
            assert_eq!(alone.blocks, together.blocks);
            assert_eq!(alone.written, together.written);
            for logical in 0..alone.blocks {
                assert!(
                    alone.raw(logical) == together.raw(logical),
                    "{kind:?}: block {logical}"
                );
            }
        }
        together.check();
    }
}
