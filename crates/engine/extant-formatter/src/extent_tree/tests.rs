use super::*;
use crate::MetaSpace;
use crate::error::{Error, SpaceError};
use crate::image::{BlockImages, Image};
use crate::map_changes::Target;
use crate::system_zone::SystemZone;
use ext4_format::InodeNr;
use ext4_format::geometry::Geometry;
use ext4_format::layout::{Layout, LayoutParams};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A source without images.
struct Nothing;
impl BlockImages for Nothing {
    fn image(&self, _: BlockNr) -> Result<Arc<Image>> {
        Err(Error::Unsupported("no such image"))
    }
}

/// Counts up from a block that no data of the tests reaches.
struct Counter(Mutex<(u64, BTreeSet<u64>)>);
impl MetaSpace for Counter {
    fn alloc_meta(&self, _: BlockNr) -> Result<BlockNr, SpaceError> {
        let mut state = self.0.lock().unwrap();
        state.0 += 1;
        let block = state.0;
        state.1.insert(block);
        Ok(BlockNr(block))
    }
    fn free_meta(&self, start: BlockNr, len: u32) -> Result<(), SpaceError> {
        assert_eq!(len, 1);
        assert!(self.0.lock().unwrap().1.remove(&start.0));
        Ok(())
    }
}

fn geometry() -> (Geometry, SystemZone) {
    let mut params = LayoutParams::for_size(1 << 30);
    params.block_size = 1024; // 84 entries in a node
    let geometry = Geometry {
        blocks_count: 1 << 20,
        ..Layout::new(&params).unwrap().geometry
    };
    let zone = SystemZone::empty(&geometry);
    (geometry, zone)
}

const SIZE: usize = 700;

fn change() -> impl Strategy<Value = (u32, u32, u64, bool)> {
    (
        0..SIZE as u32,
        prop_oneof![4 => 1..4_u32, 1 => 1..400_u32],
        prop_oneof![1 => Just(0), 3 => 1..300_000_u64],
        any::<bool>(),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn agrees_with_an_array(batches in prop::collection::vec(prop::collection::vec(change(), 1..150), 1..12)) {
        let (geometry, zone) = geometry();
        let space = Counter(Mutex::new((900_000, BTreeSet::new())));
        let mut ws = Workspace::new(&geometry, &Nothing);
        let mut ledger = Ledger::new(&space, &zone);
        let owner = Owner { ino: InodeNr(12), generation: 0, csum_seed: 5, extents: true, goal: BlockNr(1) };
        let mut root = [0; 60];
        extent::write_leaf(&mut root, 0, []).unwrap();
        let mut model = [None; SIZE + 400];
        for batch in batches {
            let items: Vec<_> = batch.iter().map(|&(logical, len, physical, unwritten)| crate::item::MapItem {
                ino: owner.ino, stamp: 0, logical, len, physical: BlockNr(physical), unwritten,
            }).collect();
            let before = model.iter().flatten().count() as i64;
            for m in &items {
                for i in 0..m.len {
                    let block = (m.physical.0 != 0).then_some((m.physical.0 + u64::from(i), m.unwritten));
                    model[(m.logical + i) as usize] = block;
                }
            }
            let changes = crate::map_changes::net(items.iter());
            let delta = ExtentTree::new(&mut ws, &mut ledger, &owner).apply(&mut root, &changes).unwrap();
            prop_assert_eq!(delta, model.iter().flatten().count() as i64 - before);
            for (l, want) in model.iter().enumerate() {
                let got = ExtentTree::new(&mut ws, &mut ledger, &owner).find(&root, l as u32).unwrap();
                prop_assert_eq!(got.map(|e| (e.map(l as u32).unwrap().0, e.unwritten)), *want, "block {}", l);
            }
            prop_assert_eq!(ledger.balance as usize, space.0.lock().unwrap().1.len());
        }
        ExtentTree::new(&mut ws, &mut ledger, &owner).free(&root, false).unwrap();
        prop_assert!(space.0.lock().unwrap().1.is_empty());
    }

    #[test]
    fn any_root_is_an_error_or_a_tree(root in prop::collection::vec(any::<u8>(), 60), depth in 0..3_u8, n in 0..5_u8) {
        let (geometry, zone) = geometry();
        let space = Counter(Mutex::new((900_000, BTreeSet::new())));
        let mut root: [u8; 60] = root.try_into().unwrap();
        root[..8].copy_from_slice(&[0x0a, 0xf3, n, 0, 4, 0, depth, 0]);
        let mut ws = Workspace::new(&geometry, &Nothing);
        let mut ledger = Ledger::new(&space, &zone);
        let owner = Owner { ino: InodeNr(12), generation: 0, csum_seed: 5, extents: true, goal: BlockNr(1) };
        let target = Some(Target { physical: BlockNr(7), unwritten: false });
        let changes = [Change { start: 3, end: LOGICAL_END, target }];
        let _ = ExtentTree::new(&mut ws, &mut ledger, &owner).find(&root, 77);
        let _ = ExtentTree::new(&mut ws, &mut ledger, &owner).apply(&mut root, &changes[..usize::from(n.min(1))]);
        let _ = ExtentTree::new(&mut ws, &mut ledger, &owner).free(&root, depth == 0);
    }
}

#[test]
fn long_runs_are_cut_to_the_longest_extent() {
    let target = |unwritten| {
        Some(Target {
            physical: BlockNr(50),
            unwritten,
        })
    };
    let (list, delta) = merge(
        &[],
        &[Change {
            start: 5,
            end: 100_005,
            target: target(false),
        }],
    );
    assert_eq!(
        (list.len(), delta, list[3].len),
        (4, 100_000, 100_000 - 3 * 32_768)
    );
    let (list, _) = merge(
        &list,
        &[Change {
            start: 10,
            end: 65_545,
            target: target(true),
        }],
    );
    assert_eq!(
        list.iter()
            .map(|e| (e.len, e.unwritten))
            .collect::<Vec<_>>()[..4],
        [(5, false), (32_767, true), (32_767, true), (1, true)]
    );
}
