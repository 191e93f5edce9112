use super::*;
use ext4_format::layout::{Layout, LayoutParams};
use std::collections::BTreeMap;
use std::sync::Mutex as StdMutex;

/// Made-up groups of 1024 inodes, all empty except the ones with a separate image.
struct Fake {
    geometry: Geometry,
    images: StdMutex<BTreeMap<u32, Vec<u64>>>,
    read: StdMutex<Vec<u32>>,
    /// Free blocks of groups that have not very many.
    blocks: StdMutex<BTreeMap<u32, u32>>,
    /// Directories of groups that have some by their descriptors.
    dirs: StdMutex<BTreeMap<u32, u32>>,
}

const WORDS: usize = 16;

impl Fake {
    fn new(groups: u32) -> Self {
        let mut geometry = Layout::new(&LayoutParams::for_size(64 << 20))
            .unwrap()
            .geometry;
        geometry.groups = groups;
        geometry.inodes_per_group = WORDS as u32 * 64;
        let fake = Self {
            geometry,
            images: StdMutex::default(),
            read: StdMutex::default(),
            blocks: StdMutex::default(),
            dirs: StdMutex::default(),
        };
        fake.image(0, |words| words[0] = 0x7FF);
        fake
    }

    /// Makes an allocator with memory for this many bitmaps.
    fn alloc(&self, bitmaps: u64) -> InodeAlloc {
        let free = u64::from(self.geometry.groups) * 1024 - 11;
        InodeAlloc::new(
            &self.geometry,
            free,
            bitmaps * (WORDS as u64 * 8 + BESIDES),
            Default::default(),
        )
    }

    /// Changes a group's image.
    fn image(&self, group: u32, change: impl FnOnce(&mut Vec<u64>)) {
        let mut images = self.images.lock().unwrap();
        change(images.entry(group).or_insert_with(|| vec![0; WORDS]));
    }

    /// Publishes an image in which the number is in use, or free.
    fn publish(&self, ino: InodeNr, used: bool) {
        let (group, bit) = ((ino.0 - 1) / 1024, (ino.0 - 1) % 1024);
        self.image(group, |words| {
            let mask = 1 << (bit % 64);
            let word = &mut words[bit as usize / 64];
            *word = if used { *word | mask } else { *word & !mask };
        });
    }

    /// Returns any number of a group, as a parent.
    fn of(&self, group: u32) -> InodeNr {
        InodeNr(group * 1024 + 100)
    }

    fn taken_reads(&self) -> Vec<u32> {
        std::mem::take(&mut *self.read.lock().unwrap())
    }
}

impl InodeSource for Fake {
    fn directories(&self, group: GroupNr) -> Result<u32> {
        Ok(self
            .dirs
            .lock()
            .unwrap()
            .get(&group.0)
            .copied()
            .unwrap_or(0))
    }

    fn room_for_data(&self, group: GroupNr) -> Result<u32> {
        let blocks = self.blocks.lock().unwrap();
        Ok(blocks.get(&group.0).copied().unwrap_or(30_000))
    }

    fn free_inodes(&self, group: GroupNr) -> Result<u32> {
        let images = self.images.lock().unwrap();
        let words = images.get(&group.0);
        Ok(words.map_or(1024, |w| w.iter().map(|w| w.count_zeros()).sum()))
    }

    fn inode_bitmap(&self, group: GroupNr, _: bool) -> Result<Vec<u64>> {
        self.read.lock().unwrap().push(group.0);
        let images = self.images.lock().unwrap();
        Ok(images.get(&group.0).cloned().unwrap_or(vec![0; WORDS]))
    }
}

fn in_memory(alloc: &InodeAlloc, group: u32) -> bool {
    alloc.groups.get(group).is_some_and(InodeGroup::is_loaded)
}

#[test]
fn bitmaps_leave_that_are_as_in_the_image() {
    let fake = Fake::new(1000);
    let alloc = fake.alloc(10);
    let free = alloc.free();
    for g in 0..100 {
        alloc.ensure_loaded(fake.of(g), &fake).unwrap();
    }
    // Another stretch replaces that of the one bitmap that differs from its image.
    let taken = alloc
        .allocate(fake.of(50), InodePurpose::File, &fake)
        .unwrap()
        .ino;
    let other = alloc
        .allocate(fake.of(50 + 16), InodePurpose::File, &fake)
        .unwrap()
        .ino;
    fake.publish(other, true);
    assert_eq!((alloc.loaded(), alloc.has_shrunk()), (100, false));
    assert!(alloc.excess() > 8);
    alloc.shrink(1, &fake);
    assert_eq!((alloc.loaded(), alloc.excess()), (8, 0));
    assert!(alloc.has_shrunk());
    for g in 0..1000 {
        let stays = [50, 66].contains(&g);
        assert!(in_memory(&alloc, g) || !stays, "{g}");
    }
    fake.taken_reads();
    // The slot continues in its stretch, and in the group it has changed, without reading anything.
    assert_eq!(
        alloc
            .allocate(fake.of(66), InodePurpose::File, &fake)
            .unwrap()
            .ino
            .0,
        other.0 + 1
    );
    let second = alloc
        .allocate(fake.of(50), InodePurpose::File, &fake)
        .unwrap()
        .ino;
    assert_ne!(second, taken);
    assert!(fake.taken_reads().is_empty());
    // A number freed by an image stays in use until that image is on disk.
    fake.publish(taken, true);
    alloc.ensure_loaded(taken, &fake).unwrap();
    fake.publish(taken, false);
    for g in 100..200 {
        alloc.ensure_loaded(fake.of(g), &fake).unwrap();
    }
    alloc.shrink(2, &fake);
    assert!(in_memory(&alloc, 50));
    alloc.release(vec![taken], false);
    // An evicted bitmap is loaded as its image is by then, with numbers freed meanwhile.
    let away = (100..200).find(|&g| !in_memory(&alloc, g)).unwrap();
    fake.image(away, |words| words.fill(u64::MAX));
    fake.image(away, |words| words[3] = !(1 << 7));
    let found = alloc
        .allocate(fake.of(away), InodePurpose::File, &fake)
        .unwrap()
        .ino;
    assert_eq!(found.0, away * 1024 + 3 * 64 + 7 + 1);
    for ino in [found, second, other] {
        alloc.release(vec![ino], false);
    }
    alloc.release(vec![InodeNr(other.0 + 1)], false);
    assert_eq!(alloc.free(), free);
}

/// Numbers that were allocated and freed inside a context are kept for the slot's next file, but not for ever.
#[test]
fn what_a_slot_keeps_for_its_next_file_holds_no_bitmap() {
    let fake = Fake::new(200);
    let alloc = fake.alloc(4);
    let free = alloc.free();
    let other = (percpu::slot::current().index() + 1) % percpu::slot::count();
    let other = alloc.slots.iter().nth(other).unwrap();
    for g in 0..100 {
        let made = alloc
            .allocate(fake.of(g), InodePurpose::File, &fake)
            .unwrap();
        assert_eq!((made.ino.0 - 1) / 1024, g);
        // The numbers belong to a slot that makes no more files.
        other.lock().born_free.push(Allocated {
            ino: made.ino,
            after: u64::from(g) + 1,
            context: if g < 50 { 1 } else { 2 },
        });
    }
    assert_eq!(alloc.free(), free);
    alloc.shrink(1, &fake);
    // Numbers of the open context stay, and those of which the slot has a stretch.
    let left = alloc.loaded();
    assert!((50..=50 + KEPT as u32).contains(&left), "{left}");
    alloc.shrink(2, &fake);
    assert!(alloc.loaded() <= KEPT as u32, "{}", alloc.loaded());
    assert_eq!(alloc.free(), free);
}

/// The search for the last free number reads no bitmap of a full group.
#[test]
fn a_full_volume_is_not_read() {
    let fake = Fake::new(3000);
    for g in 0..3000 {
        fake.image(g, |words| words.fill(u64::MAX));
    }
    fake.image(2000, |words| words[0] = !1);
    let alloc = fake.alloc(4);
    let found = alloc
        .allocate(fake.of(7), InodePurpose::File, &fake)
        .unwrap()
        .ino;
    assert_eq!(found.0, 2000 * 1024 + 1);
    for _ in 0..2 {
        assert!(matches!(
            alloc.allocate(fake.of(7), InodePurpose::File, &fake),
            Err(Error::NoSpace(_))
        ));
    }
    assert_eq!(fake.taken_reads(), [2000]);
}

/// Threads take and free numbers of groups whose bitmaps leave all the time. One thread at a time publishes an image,
/// and only that thread drops bitmaps.
#[test]
fn no_number_is_lost_or_given_twice() {
    const GROUPS: u32 = 40;
    let fake = Fake::new(GROUPS);
    let alloc = fake.alloc(4);
    let free = alloc.free();
    let in_use = StdMutex::new(std::collections::BTreeSet::new());
    let pushes = StdMutex::new(());
    std::thread::scope(|s| {
        for thread in 0..4u32 {
            let (fake, alloc, in_use, pushes) = (&fake, &alloc, &in_use, &pushes);
            s.spawn(move || {
                let mut x = thread + 1;
                for _ in 0..300 {
                    let mut mine = Vec::new();
                    for _ in 0..8 {
                        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let parent = fake.of((x >> 16) % GROUPS);
                        let ino = alloc
                            .allocate(parent, InodePurpose::File, fake)
                            .unwrap()
                            .ino;
                        assert!(in_use.lock().unwrap().insert(ino), "{ino:?} given twice");
                        mine.push(ino);
                    }
                    let push = |used| {
                        let _alone = pushes.lock().unwrap();
                        for &ino in &mine {
                            alloc.ensure_loaded(ino, fake).unwrap();
                        }
                        mine.iter().for_each(|&ino| fake.publish(ino, used));
                        alloc.shrink(0, fake);
                    };
                    push(true);
                    push(false);
                    let mut in_use = in_use.lock().unwrap();
                    mine.iter().for_each(|ino| assert!(in_use.remove(ino)));
                    drop(in_use);
                    alloc.release(mine, false);
                }
            });
        }
    });
    assert!(alloc.has_shrunk());
    assert_eq!(alloc.free(), free);
}

/// Returns how many new directories each group got.
fn spread(
    alloc: &InodeAlloc,
    fake: &Fake,
    parent: InodeNr,
    wanted: InodePurpose,
    count: u32,
) -> Vec<u32> {
    let mut groups = vec![0; fake.geometry.groups as usize];
    for _ in 0..count {
        let ino = alloc.allocate(parent, wanted, fake).unwrap().ino;
        groups[((ino.0 - 1) / 1024) as usize] += 1;
    }
    groups
}

/// 1,000 directories of the root are spread evenly over all groups, except groups with few free blocks or inodes.
#[test]
fn a_thousand_top_directories_are_spread() {
    let fake = Fake::new(40);
    for g in 0..4 {
        fake.blocks.lock().unwrap().insert(10 + g, 100);
        fake.image(20 + g, |words| words[..15].fill(u64::MAX));
    }
    let alloc = fake.alloc(1000);
    let groups = spread(&alloc, &fake, InodeNr::ROOT, InodePurpose::Directory, 1000);
    for (g, &n) in groups.iter().enumerate() {
        match g {
            10..14 | 20..24 => assert_eq!(n, 0, "group {g}: {groups:?}"),
            // A mean of 1000/32; group 0 has fewer free inodes than the others.
            0 => assert!(n <= 45, "{groups:?}"),
            _ => assert!((22..=45).contains(&n), "group {g}: {groups:?}"),
        }
    }
    // The directories of a directory with the flag are spread, too, wherever it is.
    let fake = Fake::new(40);
    let alloc = fake.alloc(1000);
    let groups = spread(&alloc, &fake, fake.of(3), InodePurpose::TopDirectory, 1000);
    assert!(
        groups[1..].iter().all(|n| (15..=40).contains(n)),
        "{groups:?}"
    );
}

/// Directories that are not at the top stay in their parent's flex group, until its groups are in debt.
#[test]
fn directories_stay_near_their_parent_until_there_are_too_many() {
    let mut fake = Fake::new(64);
    fake.geometry.log_groups_per_flex = 3;
    let alloc = fake.alloc(1000);
    // The debt of a group is 1024/16 directories above the average.
    let near = spread(&alloc, &fake, fake.of(17), InodePurpose::Directory, 400);
    assert_eq!(near[16..24].iter().sum::<u32>(), 400, "{near:?}");
    assert!(
        near[16..24].iter().all(|n| (40..=60).contains(n)),
        "{near:?}"
    );
    let then = spread(&alloc, &fake, fake.of(17), InodePurpose::Directory, 1600);
    let there: u32 = near
        .iter()
        .zip(&then)
        .skip(16)
        .take(8)
        .map(|(a, b)| a + b)
        .sum();
    assert!(
        there < 1000 && then[24..].iter().sum::<u32>() > 900,
        "{then:?}"
    );
    // Directories that descriptors count are counted, and removed ones are not.
    let mut fake = Fake::new(64);
    fake.geometry.log_groups_per_flex = 3;
    for g in 16..24 {
        fake.dirs
            .lock()
            .unwrap()
            .insert(g, if g == 20 { 150 } else { 10 });
    }
    let alloc = fake.alloc(1000);
    let near = spread(&alloc, &fake, fake.of(17), InodePurpose::Directory, 70);
    assert_eq!(
        (near[20], near[16..24].iter().sum::<u32>()),
        (0, 70),
        "{near:?}"
    );
    (0..150).for_each(|_| alloc.count_directory(fake.of(20), -1));
    let near = spread(&alloc, &fake, fake.of(17), InodePurpose::Directory, 80);
    assert!(near[20] >= 8, "{near:?}");
}

/// Without a journal a number that was freed moments ago is not allocated to a file or a directory while another number
/// is free.
#[test]
fn a_freed_number_rests_for_five_seconds() {
    for wanted in [InodePurpose::File, InodePurpose::Directory] {
        let fake = Fake::new(1);
        // Twenty free numbers.
        fake.image(0, |words| {
            words[1..].fill(u64::MAX);
            words[0] = !(0xF_FFFF << 12);
        });
        let alloc = InodeAlloc::new(&fake.geometry, 20, 1 << 20, Default::default());
        let take = |wanted| alloc.allocate(fake.of(0), wanted, &fake);
        let file = take(InodePurpose::File).unwrap().ino;
        let dir = take(InodePurpose::Directory).unwrap().ino;
        alloc.count_directory(dir, -1);
        let since = Instant::now();
        alloc.release_at(vec![file, dir], true, since);
        let others: Vec<_> = (0..18).map(|_| take(wanted).unwrap().ino).collect();
        assert!(
            !others.contains(&file) && !others.contains(&dir),
            "{others:?}"
        );
        // When no other number is left, the one that rests longest is taken: no caller fails or spins.
        assert_eq!(take(wanted).unwrap().ino, file);
        // Numbers that have rested are free.
        alloc.release_at(vec![file], true, since);
        alloc.wake_resting(since + RECENTLY_DELETED - Duration::from_millis(1));
        assert_eq!(alloc.resting.lock().len(), 2);
        alloc.wake_resting(since + RECENTLY_DELETED);
        assert_eq!(alloc.resting.lock().len(), 0);
        let mut woken = [take(wanted).unwrap().ino, take(wanted).unwrap().ino];
        woken.sort();
        assert_eq!(woken, [file.min(dir), file.max(dir)]);
        assert!(matches!(take(wanted), Err(Error::NoSpace(_))));
    }
}
