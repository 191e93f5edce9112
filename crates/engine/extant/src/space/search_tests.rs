use super::*;
use crate::space::block::tests::{Fake, SCANS};

/// Makes a bitmap of 1024 blocks with these runs free.
fn free(runs: &[(u32, u32)]) -> Vec<u64> {
    let mut words = vec![u64::MAX; 16];
    for at in runs.iter().flat_map(|&(start, len)| start..start + len) {
        words[(at / 64) as usize] &= !(1 << (at % 64));
    }
    words
}

fn groups(special: &[(u32, &[(u32, u32)])]) -> Fake {
    let mut fake = Fake::new(12, vec![u64::MAX; 16]);
    for (group, runs) in special {
        fake.special.insert(*group, free(runs));
    }
    fake
}

/// Returns the result of a request, with every bitmap in memory.
fn pick(fake: &Fake, scan: BlockScan, request: Request) -> (BlockNr, u32) {
    let alloc = fake.alloc(scan);
    for g in 0..12 {
        alloc.ensure_loaded(fake.block(g, 0), 1, fake).unwrap();
    }
    alloc.allocate(&request, fake).unwrap()
}

#[test]
fn a_power_of_two_goes_to_an_aligned_run() {
    // Group 9 has the run, but across a border of its size; group 10 has it aligned; 2 is before the goal.
    let fake = groups(&[(2, &[(64, 16)]), (9, &[(8, 17)]), (10, &[(48, 16)])]);
    for scan in SCANS {
        let found = pick(&fake, scan, Request::near(fake.block(8, 0), 16));
        assert_eq!(found, (fake.block(10, 48), 16), "past the goal first");
        let found = pick(&fake, scan, Request::near(fake.block(11, 0), 16));
        assert_eq!(found, (fake.block(2, 64), 16), "then before it");
    }
    // From the lists the smallest run that will do is split, wherever it lies past the goal.
    let fake = groups(&[(6, &[(0, 512)]), (11, &[(0, 16)])]);
    let found = pick(&fake, BlockScan::Lists, Request::near(fake.block(1, 0), 16));
    assert_eq!(found, (fake.block(11, 0), 16));
    let found = pick(
        &fake,
        BlockScan::Linear,
        Request::near(fake.block(1, 0), 16),
    );
    assert_eq!(found, (fake.block(6, 0), 16));
}

#[test]
fn the_goal_length_is_looked_for_where_runs_are_long() {
    // Group 7 has one run that is long enough among many that are not; group 11 has long ones.
    let short: Vec<(u32, u32)> = (0..60).map(|i| (i * 4, 2)).chain([(500, 25)]).collect();
    let fake = groups(&[(7, &short), (11, &[(300, 40), (400, 40)])]);
    for scan in SCANS {
        let found = pick(&fake, scan, Request::near(fake.block(6, 0), 25));
        assert_eq!(found, (fake.block(11, 300), 25));
    }
    // No group has long runs on average: the slow criterion finds the one.
    let fake = groups(&[(7, &short)]);
    for scan in SCANS {
        let found = pick(&fake, scan, Request::near(fake.block(2, 0), 25));
        assert_eq!(found, (fake.block(7, 500), 25));
    }
}

#[test]
fn the_best_available_length_is_at_least_an_eighth() {
    let fake = groups(&[(3, &[(0, 100)]), (5, &[(0, 300)]), (8, &[(0, 40)])]);
    for scan in SCANS {
        // No group has 1000; one has a run of the order of 512 / 8.
        let found = pick(&fake, scan, Request::near(fake.block(4, 0), 1000));
        assert_eq!(found, (fake.block(5, 0), 300));
    }
    // No group has even an eighth: the longest run is taken.
    let fake = groups(&[(3, &[(0, 5)]), (5, &[(7, 9), (100, 2)])]);
    let found = pick(
        &fake,
        BlockScan::Lists,
        Request::near(fake.block(1, 0), 1000),
    );
    assert_eq!(found, (fake.block(5, 7), 9));
}

#[test]
fn at_the_goal_fewer_will_do_for_a_file_that_goes_on() {
    let fake = groups(&[(4, &[(10, 3), (100, 50)])]);
    for scan in SCANS {
        let request = Request::near(fake.block(4, 10), 40);
        assert_eq!(pick(&fake, scan, request), (fake.block(4, 100), 40));
        let request = Request {
            follows: true,
            ..request
        };
        assert_eq!(pick(&fake, scan, request), (fake.block(4, 10), 3));
    }
}

#[test]
fn streams_go_on_where_the_last_one_went() {
    let fake = Fake::new(64, vec![0; 16]);
    let alloc = fake.alloc(BlockScan::Lists);
    // The goal is taken.
    let full = Request::near(fake.block(0, 0), 1024);
    alloc.allocate(&full, &fake).unwrap();
    let stream = Request {
        stream: Some(5),
        ..Request::near(fake.block(0, 0), 1000)
    };
    let (first, _) = alloc.allocate(&stream, &fake).unwrap();
    let group = |b: BlockNr| (b.0 - fake.block(0, 0).0) / 1024;
    assert_eq!(group(first), 1);
    alloc.goals.set(5, fake.block(40, 100));
    let (next, _) = alloc.allocate(&stream, &fake).unwrap();
    assert!((40..45).contains(&group(next)), "{}", group(next));
    assert_ne!(alloc.goals.get(5), Some(fake.block(40, 100)));
}

#[test]
fn long_runs_stay_whole_and_what_is_needed_is_not_cut() {
    // In a group that is rather full: a run that just holds the request, behind a longer one.
    let fake = groups(&[(4, &[(100, 150), (600, 45)])]);
    for scan in SCANS {
        let request = Request::near(fake.block(4, 0), 40);
        assert_eq!(pick(&fake, scan, request), (fake.block(4, 600), 40));
    }
    // No group has 128; 60 are needed now, the rest would be set aside.
    let fake = groups(&[(4, &[(0, 40), (100, 30)]), (9, &[(200, 70), (400, 30)])]);
    for scan in SCANS {
        let request = Request {
            need: 60,
            ..Request::near(fake.block(4, 50), 128)
        };
        assert_eq!(pick(&fake, scan, request), (fake.block(9, 200), 70));
        // All of it is needed now: the best run near the goal.
        let request = Request::near(fake.block(4, 50), 128);
        assert_eq!(pick(&fake, scan, request), (fake.block(4, 0), 40));
    }
}
