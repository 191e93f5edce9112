use super::*;
use crate::space::search::Request;
use ext4_format::layout::{Layout, LayoutParams};
use std::sync::Mutex as StdMutex;

/// Made-up groups, all alike but for some.
pub(crate) struct Fake {
    geometry: Geometry,
    free: u32,
    pub words: Vec<u64>,
    pub special: std::collections::BTreeMap<u32, Vec<u64>>,
    pub corrupt: Option<u32>,
    read: StdMutex<Vec<u32>>,
    lost: AtomicU32,
}

impl Fake {
    /// Makes this many groups of 1024 blocks with this bitmap.
    pub fn new(groups: u32, words: Vec<u64>) -> Self {
        let mut geometry = Layout::new(&LayoutParams::for_size(64 << 20))
            .unwrap()
            .geometry;
        let per_group = words.len() as u32 * 64;
        geometry.groups = groups;
        geometry.blocks_per_group = per_group;
        geometry.blocks_count =
            geometry.first_data_block + u64::from(groups) * u64::from(per_group);
        Self {
            geometry,
            free: words.iter().map(|w| w.count_zeros()).sum(),
            words,
            special: Default::default(),
            corrupt: None,
            read: Default::default(),
            lost: AtomicU32::new(0),
        }
    }

    pub fn alloc(&self, scan: BlockScan) -> BlockAlloc {
        BlockAlloc::new(&self.geometry, scan, u64::MAX, Default::default())
    }

    /// Makes an error after which nothing more is read.
    fn corruption(&self, group: GroupNr) -> FormatError {
        FormatError::Checksum {
            what: "block bitmap",
            at: Where::Group(group),
            stored: 1,
            computed: 2,
        }
    }

    pub fn block(&self, group: u32, bit: u32) -> BlockNr {
        BlockNr(self.geometry.group_first_block(GroupNr(group)).0 + u64::from(bit))
    }

    /// Returns the groups whose bitmaps were read.
    pub fn read(&self) -> Vec<u32> {
        self.read.lock().unwrap().clone()
    }
}

impl GroupSource for Fake {
    fn free_blocks(&self, group: GroupNr) -> Result<u32> {
        let special = self.special.get(&group.0);
        Ok(special.map_or(self.free, |w| w.iter().map(|w| w.count_zeros()).sum()))
    }

    fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
        if self.corrupt == Some(group.0) {
            return Err(self.corruption(group).into());
        }
        self.read.lock().unwrap().push(group.0);
        Ok(self.special.get(&group.0).unwrap_or(&self.words).clone())
    }

    fn lost(&self, blocks: u32) {
        self.lost.fetch_add(blocks, Ordering::Relaxed);
    }
}

pub(crate) const SCANS: [BlockScan; 2] = [BlockScan::Lists, BlockScan::Linear];

#[test]
fn a_million_groups_cost_what_is_used_of_them() {
    let fake = Fake::new(1_000_000, vec![0; 512]);
    for scan in SCANS {
        let alloc = fake.alloc(scan);
        for ino in 0..50 {
            let goal = fake.block(ino * 20_000, 7);
            let found = alloc.allocate(&Request::near(goal, 256), &fake).unwrap();
            assert_eq!(found, (goal, 256));
        }
        assert_eq!(alloc.in_memory(), 50 * 64);
        assert_eq!(fake.read().len(), 50);
        fake.read.lock().unwrap().clear();
    }
    // All groups but a far one are full, and no group is read: the last criterion finds the far one.
    let mut fake = Fake::new(100_000, vec![u64::MAX; 2]);
    fake.special.insert(77_777, vec![u64::MAX, !(1 << 5)]);
    for scan in SCANS {
        let alloc = fake.alloc(scan);
        let request = Request::near(fake.block(3, 0), 8);
        assert_eq!(
            alloc.allocate(&request, &fake).unwrap(),
            (fake.block(77_777, 69), 1)
        );
        assert!(matches!(
            alloc.allocate(&request, &fake),
            Err(Error::NoSpace(_))
        ));
        assert_eq!(fake.read(), [77_777], "no bitmap of a full group is read");
        fake.read.lock().unwrap().clear();
    }
}

/// 100,000 groups are in memory and full, but for one far from the goal. Linear scan considers each group up to it, and
/// list scan considers those near the goal.
#[test]
fn full_groups_cost_a_list_scan_nothing() {
    const GROUPS: u32 = 100_000;
    let mut fake = Fake::new(GROUPS, vec![u64::MAX]);
    fake.special.insert(77_777, vec![0]);
    let considered = SCANS.map(|scan| {
        let alloc = fake.alloc(scan);
        let goal = fake.block(3, 0);
        for group in 0..GROUPS {
            alloc.ensure_loaded(fake.block(group, 0), 1, &fake).unwrap();
        }
        let before = alloc.searches.read().considered;
        let found = alloc.allocate(&Request::near(goal, 8), &fake).unwrap();
        assert_eq!(found, (fake.block(77_777, 0), 8));
        let counts = alloc.searches.read();
        assert_eq!(counts.found, [0, 1, 0, 0, 0, 0], "{counts:?}");
        counts.considered - before
    });
    println!("groups considered by list scan and by linear scan: {considered:?}");
    assert_eq!(considered, [6, 77_777 - 3 + 2]);
}

#[test]
fn a_corrupt_group_is_passed_over_and_its_blocks_are_missed() {
    let mut fake = Fake::new(4, vec![0; 16]);
    fake.corrupt = Some(1);
    let alloc = fake.alloc(BlockScan::Lists);
    let mut found = 0;
    while let Ok((start, len)) = alloc.allocate(&Request::near(fake.block(1, 0), 100), &fake) {
        assert_ne!(fake.geometry.group_of_block(start).unwrap().0, GroupNr(1));
        found += len;
    }
    assert_eq!(found, 3 * 1024);
    assert_eq!(fake.lost.load(Ordering::Relaxed), 1024);
    assert!(alloc.ensure_loaded(fake.block(1, 5), 3, &fake).is_err());
}

#[test]
fn a_count_that_says_too_much_is_put_right() {
    struct Liar(Fake);
    impl GroupSource for Liar {
        fn free_blocks(&self, _: GroupNr) -> Result<u32> {
            Ok(1000)
        }
        fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u64>> {
            self.0.block_bitmap(group)
        }
        fn lost(&self, blocks: u32) {
            self.0.lost(blocks);
        }
    }
    let liar = Liar(Fake::new(2, vec![u64::MAX, 0]));
    let alloc = liar.0.alloc(BlockScan::Lists);
    let request = Request::near(liar.0.block(0, 0), 64);
    assert_eq!(alloc.allocate(&request, &liar).unwrap().1, 64);
    assert_eq!(alloc.allocate(&request, &liar).unwrap().1, 64);
    assert!(alloc.allocate(&request, &liar).is_err());
    assert_eq!(liar.0.lost.load(Ordering::Relaxed), 2 * (1000 - 64));
}

#[test]
fn blocks_freed_over_a_border_are_found_again() {
    let fake = Fake::new(3, vec![0; 16]);
    let alloc = fake.alloc(BlockScan::Lists);
    let whole = |alloc: &BlockAlloc| {
        let mut all = 0;
        while let Ok((_, len)) = alloc.allocate(&Request::near(fake.block(0, 0), 1024), &fake) {
            all += len;
        }
        all
    };
    assert_eq!(whole(&alloc), 3 * 1024);
    alloc.mark_free(fake.block(0, 1000), 100).unwrap();
    assert_eq!(whole(&alloc), 100);
    assert!(
        alloc.mark_free(fake.block(2, 1000), 100).is_err(),
        "past the end"
    );
}

/// Threads take from a count, then blocks, and free them, on a volume that is full nearly all the time. A thread that
/// has a number from the count finds that many blocks, no block has two owners, and the last block is found.
#[test]
fn nobody_who_was_promised_blocks_goes_without() {
    for scan in SCANS {
        let fake = Fake::new(9, vec![0; 2]);
        let alloc = fake.alloc(scan);
        let total = 9 * 128u32;
        let count = percpu::BoundedCounter::new(total.into(), 16);
        let owners: Vec<AtomicU32> = (0..total).map(|_| AtomicU32::new(0)).collect();
        let index = |b: BlockNr| (b.0 - fake.block(0, 0).0) as usize;
        std::thread::scope(|s| {
            for t in 0..6u32 {
                let (fake, alloc, count, owners) = (&fake, &alloc, &count, &owners);
                s.spawn(move || {
                    let mut mine: Vec<(BlockNr, u32)> = Vec::new();
                    let mut x = u64::from(t) + 1;
                    for _ in 0..4_000 {
                        x = x
                            .wrapping_mul(6364136223846793005)
                            .wrapping_add(1442695040888963407);
                        let want = 1 + (x >> 40) as u32 % 40;
                        let promised = count.take_up_to(want.into()) as u32;
                        let mut left = promised;
                        while left > 0 {
                            let goal = fake.block((x >> 50) as u32 % 9, (x >> 20) as u32 % 128);
                            let request = Request {
                                follows: x & 1 == 0,
                                stream: (x & 2 == 0).then_some(t),
                                ..Request::near(goal, left)
                            };
                            let (start, len) =
                                alloc.allocate(&request, fake).expect("it was promised");
                            for i in 0..len as usize {
                                assert_eq!(
                                    owners[index(start) + i].swap(t + 1, Ordering::Relaxed),
                                    0
                                );
                            }
                            left -= len;
                            mine.push((start, len));
                        }
                        while promised < want && !mine.is_empty() || mine.len() > 20 {
                            let (start, len) = mine.swap_remove((x >> 33) as usize % mine.len());
                            for i in 0..len as usize {
                                assert_eq!(
                                    owners[index(start) + i].swap(0, Ordering::Relaxed),
                                    t + 1
                                );
                            }
                            alloc.mark_free(start, len).unwrap();
                            count.give(len.into());
                            if x & 12 != 0 {
                                break;
                            }
                        }
                    }
                    for (start, len) in mine {
                        (0..len as usize)
                            .for_each(|i| owners[index(start) + i].store(0, Ordering::Relaxed));
                        alloc.mark_free(start, len).unwrap();
                    }
                });
            }
        });
        let mut all = 0;
        while let Ok((_, len)) = alloc.allocate(&Request::near(fake.block(4, 0), 50), &fake) {
            all += len;
        }
        assert_eq!(all, total, "every block is found at the end");
    }
}

/// While a group's lock is held, threads use other groups, and wait only for the last block.
#[test]
fn a_busy_group_is_passed_over_but_not_overlooked() {
    for scan in SCANS {
        let fake = Fake::new(2, vec![0; 2]);
        let alloc = fake.alloc(scan);
        let goal = fake.block(0, 0);
        alloc.ensure_loaded(goal, 256, &fake).unwrap();
        let request = Request::near(goal, 128);
        let busy = alloc.group(0, &fake).unwrap().buddy.lock();
        for _ in 0..2 {
            // The allocation does not wait, and uses the other group.
            assert_eq!(
                alloc.allocate(&request, &fake).unwrap(),
                (fake.block(1, 0), 128)
            );
            alloc.mark_free(fake.block(1, 0), 128).unwrap();
        }
        alloc.allocate(&request, &fake).unwrap();
        let counts = alloc.searches.read();
        assert!(
            counts.busy >= 3 && counts.considered > counts.busy,
            "{counts:?}"
        );
        std::thread::scope(|s| {
            let waiting = s.spawn(|| alloc.allocate(&request, &fake).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(
                !waiting.is_finished(),
                "it waits for what only the busy group has"
            );
            drop(busy);
            assert_eq!(waiting.join().unwrap(), (goal, 128));
        });
    }
}

/// Bitmaps that equal their image are evicted and loaded again. Bitmaps that differ stay.
#[test]
fn bitmaps_leave_that_are_as_in_the_image() {
    let fake = Fake::new(1000, vec![0; 16]);
    // Memory for ten bitmaps of 256 bytes.
    let alloc = BlockAlloc::new(&fake.geometry, BlockScan::Lists, 2560, Default::default());
    for g in 0..100 {
        alloc.ensure_loaded(fake.block(g, 3), 1, &fake).unwrap();
    }
    let taken = Request::near(fake.block(50, 0), 8);
    assert_eq!(
        alloc.allocate(&taken, &fake).unwrap(),
        (fake.block(50, 0), 8)
    );
    assert_eq!((alloc.loaded(), alloc.has_shrunk()), (100, false));
    assert!(alloc.excess() > 8);
    alloc.shrink(&fake);
    assert_eq!((alloc.loaded(), alloc.has_shrunk()), (8, true));
    assert_eq!(alloc.excess(), 0);
    // The taken blocks are in no image yet.
    assert_eq!(
        alloc.allocate(&taken, &fake).unwrap(),
        (fake.block(50, 8), 8)
    );
    assert_eq!(alloc.loaded(), 8);
    // An evicted bitmap is loaded again with its contents.
    fake.read.lock().unwrap().clear();
    let (at, found) = (0..100)
        .map(|g| fake.block(g, 1))
        .find_map(|at| {
            let found = alloc.allocate(&Request::near(at, 16), &fake).unwrap();
            (!fake.read().is_empty()).then_some((at, found))
        })
        .unwrap();
    assert_eq!(found, (at, 16));
    assert_eq!(fake.lost.load(Ordering::Relaxed), 0);
    // When all bitmaps differ none can be dropped, and the next walk waits until there are many more.
    for g in 0..100 {
        let at = fake.block(g, 100);
        assert_eq!(
            alloc.allocate(&Request::near(at, 4), &fake).unwrap(),
            (at, 4)
        );
    }
    alloc.shrink(&fake);
    assert_eq!((alloc.loaded(), alloc.excess()), (100, 0));
    for g in 0..100 {
        alloc.mark_free(fake.block(g, 100), 4).unwrap();
    }
    alloc.shrink(&fake);
    // Bitmaps with blocks taken above stay.
    assert!(alloc.loaded() < 30, "{}", alloc.loaded());
}
