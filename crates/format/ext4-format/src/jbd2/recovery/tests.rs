use super::super::{DescriptorWriter, Features, RevokeWriter, escape};
use super::*;
use proptest::prelude::*;

const SIZE: usize = 1024;
const LOG: u32 = 1100;

/// A journal in memory, written as the engine would.
struct Journal {
    sb: Superblock,
    blocks: Vec<Vec<u8>>,
    at: u32,
    tid: Tid,
    secs: u64,
}

impl Journal {
    fn new(incompat: Incompat, start: u32, tid: Tid) -> Self {
        let features = Features {
            incompat: Incompat::REVOKE | incompat,
            ..Features::default()
        };
        let mut sb = Superblock::new(SIZE as u32, LOG, features, [3; 16]);
        (sb.start, sb.sequence) = (start, tid);
        Self {
            sb,
            blocks: vec![vec![0; SIZE]; LOG as usize],
            at: start,
            tid,
            secs: 100,
        }
    }

    fn push(&mut self, block: Vec<u8>) -> u32 {
        let at = self.at;
        self.blocks[at as usize] = block;
        self.at = self.sb.next_block(at);
        at
    }

    /// Appends a transaction; returns the places of its images.
    fn transaction(&mut self, images: &[(u64, u8)], revokes: &[u64]) -> Vec<u32> {
        let (f, mut places) = (self.sb.format(), Vec::new());
        if !revokes.is_empty() {
            let mut block = vec![0; SIZE];
            let mut r = RevokeWriter::new(&f, &mut block, self.tid).unwrap();
            assert!(revokes.iter().all(|b| r.push(BlockNr(*b)).unwrap()));
            r.finish();
            self.push(block);
        }
        for part in images.chunks(f.tags_per_block()) {
            let mut descriptor = vec![0; SIZE];
            let mut d = DescriptorWriter::new(&f, &mut descriptor, self.tid).unwrap();
            let mut logged = Vec::new();
            for (home, fill) in part {
                let mut image = vec![*fill; SIZE];
                if *fill == 0xc0 {
                    image[..4].copy_from_slice(&super::super::MAGIC.to_be_bytes());
                }
                let escaped = escape(&mut image);
                assert!(
                    d.push(BlockNr(*home), f.image_checksum(self.tid, &image), escaped)
                        .unwrap()
                );
                logged.push(image);
            }
            d.finish();
            self.push(descriptor);
            places.extend(logged.into_iter().map(|image| self.push(image)));
        }
        let mut block = vec![0; SIZE];
        let commit = Commit {
            tid: self.tid,
            secs: self.secs,
            nanos: 0,
            transaction_crc: None,
        };
        commit.write(&f, &mut block).unwrap();
        self.push(block);
        self.tid = self.tid.next();
        self.secs += 1;
        places
    }

    fn plan(&self) -> Result<Plan> {
        plan(&self.sb, 1 << 40, |b| Ok(self.blocks[b as usize].clone()))
    }

    fn homes(&self) -> Vec<(u64, u32)> {
        self.plan()
            .unwrap()
            .replay
            .iter()
            .map(|r| (r.home.0, r.log_block))
            .collect()
    }
}

const V3: Incompat = Incompat::CSUM_V3.union(Incompat::BIT64);

#[test]
fn replays_in_order_over_the_wraps() {
    // The log's end and the sequence number's both pass by.
    for features in [Incompat::empty(), Incompat::BIT64, Incompat::CSUM_V2, V3] {
        let mut j = Journal::new(features, LOG - 3, Tid(u32::MAX - 1));
        let mut expected = Vec::new();
        for i in 0..4_u64 {
            let images = [(10, 1), (20 + i, 0xc0)];
            let places = j.transaction(&images, &[]);
            expected.extend(images.iter().map(|i| i.0).zip(places));
        }
        assert_eq!(j.homes(), expected);
        let plan = j.plan().unwrap();
        assert_eq!(
            (plan.transactions, plan.last, plan.next),
            (4, Some(Tid(1)), Tid(2 + LOG))
        );
        assert_eq!((plan.head, plan.end), (j.at, LogEnd::Other(j.at)));
        assert!(plan.replay.iter().all(|r| r.escaped == (r.home.0 != 10)));
    }
}

#[test]
fn revokes_strike_out_older_images_only() {
    let mut j = Journal::new(V3, 1, Tid(u32::MAX));
    j.transaction(&[(10, 1), (11, 1)], &[]);
    j.transaction(&[(12, 1)], &[10, 12]);
    let later = j.transaction(&[(10, 2)], &[]);
    assert_eq!(j.homes(), [(11, 3), (10, later[0])]);
    assert_eq!(j.plan().unwrap().revoked, 2);
    // A revoke that was not committed strikes nothing.
    j.transaction(&[], &[11]);
    let commit = (j.at - 1) as usize;
    j.blocks[commit].fill(0);
    assert_eq!(j.homes().len(), 2);
}

#[test]
fn a_crash_ends_the_log_and_damage_is_an_error() {
    let mut j = Journal::new(V3, 1, Tid(7));
    j.transaction(&[(10, 1)], &[]); // 1 descriptor, 2 image, 3 commit
    j.transaction(&[(11, 1)], &[5]); // 4 revoke, 5 descriptor, 6 image, 7 commit
    let with = |block: usize, byte: usize| {
        let mut blocks = j.blocks.clone();
        blocks[block][byte] ^= 1;
        plan(&j.sb, 1 << 40, |b| {
            Ok::<_, FormatError>(blocks[b as usize].clone())
        })
    };
    let end = |p: Result<Plan>| p.map(|p| (p.transactions, p.end)).unwrap();
    assert_eq!(end(with(7, 100)), (1, LogEnd::BadCommit(7)));
    assert_eq!(end(with(7, 0)), (1, LogEnd::Other(7)));
    assert_eq!(end(with(5, 0)), (1, LogEnd::Other(5)));
    assert_eq!(end(with(3, 11)), (0, LogEnd::Other(3)));
    for (block, byte) in [(6, 9), (4, 30), (5, 500), (2, 0)] {
        let place = Where::Journal(block as u32);
        match with(block, byte) {
            Err(FormatError::Checksum { at, .. }) => assert_eq!(at, place),
            other => panic!("{other:?}"),
        }
    }
    let small = plan(&j.sb, 11, |b| {
        Ok::<_, FormatError>(j.blocks[b as usize].clone())
    });
    assert!(matches!(small, Err(FormatError::Corrupt { .. })));
    // With asynchronous commits, this is a torn tail.
    let mut j = Journal::new(V3 | Incompat::ASYNC_COMMIT, 1, Tid(7));
    j.transaction(&[(10, 1)], &[]);
    j.blocks[2][9] ^= 1;
    assert_eq!(end(j.plan()), (0, LogEnd::Torn(3)));
}

#[test]
fn leftovers_of_an_earlier_life_are_not_damage() {
    let mut j = Journal::new(V3, 1, Tid(7));
    j.transaction(&[(10, 1)], &[]);
    j.secs = 50;
    j.transaction(&[(11, 1)], &[]);
    j.blocks[5][0] ^= 1;
    assert_eq!(j.plan().unwrap().end, LogEnd::Stale(6));
}

#[test]
fn a_ring_without_commit_ends() {
    let mut j = Journal::new(Incompat::empty(), 1, Tid(7));
    let f = j.sb.format();
    for _ in 1..LOG {
        let mut block = vec![0; SIZE];
        let mut d = DescriptorWriter::new(&f, &mut block, Tid(7)).unwrap();
        d.push(BlockNr(1), 0, false).unwrap();
        d.finish();
        j.push(block);
    }
    let plan = j.plan().unwrap();
    assert_eq!((plan.transactions, plan.end), (0, LogEnd::Full));
}

#[test]
fn fast_commits_are_found() {
    let mut j = Journal::new(V3 | Incompat::FAST_COMMIT, 1, Tid(7));
    j.sb.num_fc_blks = 50;
    j.transaction(&[(10, 1)], &[]);
    assert_eq!(j.plan().unwrap().transactions, 1);
    let fc = j.sb.log_range().end as usize + 1;
    j.blocks[fc][..12].copy_from_slice(&[9, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(j.plan().unwrap().fast_commits, Some(Tid(8)));
    j.blocks[fc][8] = 7;
    assert_eq!(
        j.plan().unwrap().fast_commits,
        None,
        "of the last transaction"
    );
}

proptest! {
    #[test]
    fn any_damage_gives_a_prefix_or_an_error(
        hits in proptest::collection::vec((1..40_usize, 0..SIZE, 1..=255_u8), 0..4),
        features in 0..4_usize,
    ) {
        let features = [Incompat::empty(), Incompat::BIT64, Incompat::CSUM_V2, V3][features];
        let mut j = Journal::new(features, 1, Tid(7));
        for i in 0..10 {
            j.transaction(&[(10 + i, 1), (30, 2)], if i % 3 == 0 { &[30, 31] } else { &[] });
        }
        for (block, byte, flip) in hits {
            j.blocks[block][byte] ^= flip;
        }
        if let Ok(plan) = j.plan() {
            prop_assert!(plan.transactions <= 10);
            if features == V3 {
                // Blocks that the checksums accept hold the written bytes.
                let fill = |r: &Replay| j.blocks[r.log_block as usize].iter().all(|b| *b == 1 || *b == 2);
                prop_assert!(plan.replay.iter().all(fill));
            }
        }
    }

    #[test]
    fn random_logs_never_panic(seed in proptest::collection::vec((1..60_usize, 1..6_u8, any::<u64>()), 0..60), start in 1..60_u32) {
        let mut j = Journal::new(Incompat::empty(), start, Tid(0));
        for (at, kind, noise) in seed {
            let block = &mut j.blocks[at];
            for (i, chunk) in block.chunks_mut(8).enumerate() {
                chunk.copy_from_slice(&noise.rotate_left(i as u32 * 5).to_be_bytes());
            }
            block[..12].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind, 0, 0, 0, 0]);
        }
        let _ = j.plan();
    }
}

/// Three transactions whose commit blocks were written together, the first of which is lost; then recovery, and a new
/// transaction that ends where the last of them begins. It is not taken for the new one's successor, with checksums
/// or without: both are seeded by the same UUID, and it is as whole as ever.
#[test]
fn what_is_behind_a_lost_commit_block_never_continues_a_new_log() {
    for features in [Incompat::empty(), Incompat::BIT64, Incompat::CSUM_V2, V3] {
        for lost in 1..4 {
            let mut j = Journal::new(features, 1, Tid(5));
            let mut ends = Vec::new();
            for i in 0..5_u64 {
                j.transaction(&[(10 + i, i as u8 + 1), (20 + i, 7)], &[]);
                ends.push(j.at);
            }
            j.blocks[ends[lost] as usize - 1] = vec![0; SIZE];
            let found = j.plan().unwrap();
            assert_eq!(found.transactions as usize, lost);
            // Recovery empties the log; later transactions begin at its first block.
            for end in &ends[lost..4] {
                let mut next = Journal::new(features, 1, found.next);
                next.blocks = j.blocks.clone();
                let images: Vec<_> = (0..u64::from(end - 3)).map(|i| (100 + i, 9)).collect();
                next.transaction(&images, &[]);
                assert_eq!(next.at, *end, "it ends where an older one begins");
                assert_eq!(
                    next.plan().unwrap().transactions,
                    1,
                    "lost {lost}, end {end}"
                );
            }
        }
    }
}

/// A wrong commit block in front of a good one is damage. A missing one there, or a wrong one at the end, is left by
/// a cut.
#[test]
fn a_bad_commit_block_in_the_middle_is_damage() {
    for features in [Incompat::CSUM_V2, V3] {
        let mut j = Journal::new(features, 1, Tid(5));
        let ends: Vec<_> = (0..3_u64)
            .map(|i| {
                j.transaction(&[(10 + i, 1)], &[40 + i]);
                j.at
            })
            .collect();
        let commit = |n: usize| ends[n] as usize - 1;
        let whole = j.blocks.clone();
        for n in 0..2 {
            j.blocks[commit(n)][50] ^= 1;
            let error = j.plan().unwrap_err();
            let at = Where::Journal(commit(n) as u32);
            assert!(
                matches!(error, FormatError::Checksum { at: found, .. } if found == at),
                "{error}"
            );
            j.blocks[commit(n)] = vec![0; SIZE];
            let plan = j.plan().unwrap();
            assert_eq!(plan.end, LogEnd::Other(commit(n) as u32), "missing");
            j.blocks = whole.clone();
        }
        // Two bad ones, then a good one.
        j.blocks[commit(0)][50] ^= 1;
        j.blocks[commit(1)][50] ^= 1;
        assert!(j.plan().is_err());
        // No good commit block follows it.
        j.blocks[commit(2)][50] ^= 1;
        let plan = j.plan().unwrap();
        assert_eq!(
            (plan.transactions, plan.end),
            (0, LogEnd::BadCommit(commit(0) as u32))
        );
    }
}
