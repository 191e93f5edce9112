//! Bytes that break the rules.

use super::*;

/// A batch may fail on hostile bytes, it may not panic or run for ever.
#[test]
fn hostile_bytes() {
    use rand_like::Rng;
    for (seed, csum) in (0..400).map(|i| (i, i % 8 == 0)) {
        let mut rng = Rng(seed);
        let mut v = Volume::new(DirectoryKind {
            csum,
            large_dir: seed % 2 == 0,
            ..PLAIN
        });
        v.apply(&(0..4000).map(add).collect::<Vec<_>>());
        for _ in 0..1 + rng.below(20) {
            let logical = if rng.below(2) == 0 {
                0
            } else {
                rng.below(v.blocks)
            };
            let mut block = v.raw(logical);
            for _ in 0..1 + rng.below(8) {
                let at = if rng.below(2) == 0 {
                    rng.below(80)
                } else {
                    rng.below(1024)
                } as usize;
                block[at] = [0, 1, 2, 0xff, rng.below(256) as u8][rng.below(5) as usize];
            }
            v.write_raw(logical, &block);
        }
        v.indexed = rng.below(4) > 0;
        v.with_reader(|r| {
            for i in 0..100 {
                let name = format!("file-{:08}", i * 40).into_bytes();
                let _ = r.lookup(&name, v.hasher.hash(&name).0);
            }
        });
        let ops: Vec<_> = (3000..5000).map(add).chain((0..1000).map(remove)).collect();
        let _ = v.try_apply(&ops, false, Some(InodeNr(5)));
        let _ = v.try_apply(&ops, false, None);
    }
}

#[test]
fn checksums_are_verified_first() {
    for logical in [0, 1, 2] {
        let mut v = Volume::new(PLAIN);
        v.apply(&(0..200).map(add).collect::<Vec<_>>());
        let mut block = v.raw(logical);
        block[45] ^= 1;
        v.write_raw(logical, &block);
        let e = v
            .try_apply(&(0..200).map(remove).collect::<Vec<_>>(), false, None)
            .unwrap_err();
        let text = e.to_string();
        assert!(
            text.contains("checksum") && text.contains(&format!("block {}", physical(logical))),
            "{text}"
        );
    }
}

/// A small generator of numbers, the same on every run.
mod rand_like {
    pub struct Rng(pub u64);
    impl Rng {
        pub fn below(&mut self, n: u32) -> u32 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % u64::from(n.max(1))) as u32
        }
    }
}
