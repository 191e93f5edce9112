//! Images broken on purpose: those that `e2fsck -fy` makes clean, a repair makes clean for `e2fsck -fn`, too.

use crate::it::bases;
use crate::it::common;
use crate::it::mutant;
use crate::it::verdict;
use crate::it::walk;
use bases::Base;
use blockdev::MemDevice;
use common::Rng;
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Least share of the mutants mended by e2fsck that must be mended, in percent.
const LEAST: usize = 99;

/// Files larger than this are not compared: almost all of each is a hole.
const LARGEST: u64 = 16 << 20;

/// Maximum time of a plan with its checks, even beside many others.
const LONGEST: Duration = Duration::from_secs(30);

/// Maximum memory of repairs on all cores.
const MOST_MEMORY: u64 = 1 << 30;

/// A file of a base.
struct Sound {
    ino: InodeNr,
    digest: u32,
    /// Blocks with its record, its mapping and its data.
    blocks: BTreeSet<u64>,
}

/// Number of sound files that no mutation touched, and of those that each repair kept.
#[derive(Clone, Copy, Debug, Default)]
struct Files {
    sound: usize,
    kept: usize,
    by_e2fsck: usize,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    /// e2fsck does not mend it either, or has nothing to mend.
    Uncounted,
    Mended,
    Left(String),
}

/// Returns the greatest memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

/// Result of a repair without a judge.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alone {
    /// Nothing was found, and nothing changed.
    WasClean,
    Mended,
    /// Faults are left.
    Left(u64),
    /// No plan can be made: too much is gone.
    Refused(u64),
}

impl Alone {
    /// Returns the seed of an image that is not mended.
    fn odd(&self) -> Option<u64> {
        match self {
            Self::Left(seed) | Self::Refused(seed) => Some(*seed),
            Self::WasClean | Self::Mended => None,
        }
    }
}

/// Repairs more mutants than e2fsck can judge. On none the check or a repair panics, or takes too long or too much
/// memory. A clean image stays unchanged. The plan's last check equals a check of the mended image, and no clean
/// image becomes faulty. Mutants that are not mended are judged by e2fsck.
#[test]
fn repairs_end_and_make_nothing_worse() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let bases = bases::without_pending_journals();
    let before = peak();
    let options = extant_check::CheckOptions {
        replay: false,
        ..Default::default()
    };
    let outcomes = common::on_all_cores(1, common::seeds(0, 150, 100_000), |seed| {
        let (_, device, _) = mutant::mutant(&bases, &mut Rng::new(seed));
        let begin = Instant::now();
        let outcome = match extant_repair::plan(&device, 1_700_000_000, &mut |_| true) {
            Ok(plan) if plan.before.inodes > 0 && plan.before.findings.is_empty() => {
                assert!(
                    plan.after.findings.is_empty() && plan.is_empty(),
                    "seed {seed}"
                );
                Alone::WasClean
            }
            Ok(plan) => {
                plan.apply(&device).unwrap();
                let found = extant_check::check(&device, &options).unwrap();
                assert_eq!(found.faults, plan.after.faults, "seed {seed}");
                match found.faults {
                    0 => Alone::Mended,
                    _ => Alone::Left(seed),
                }
            }
            Err(_) => Alone::Refused(seed),
        };
        assert!(
            begin.elapsed() < LONGEST,
            "seed {seed}: {:?}",
            begin.elapsed()
        );
        outcome
    });
    let count = |of: fn(&Alone) -> bool| outcomes.iter().filter(|outcome| of(outcome)).count();
    let mended = count(|outcome| *outcome == Alone::Mended);
    let left = count(|outcome| matches!(outcome, Alone::Left(_)));
    let more = peak() - before;
    println!(
        "{mended} mended, {left} left, {} refused, {} clean before; {} MB more at most",
        count(|outcome| matches!(outcome, Alone::Refused(_))),
        count(|outcome| *outcome == Alone::WasClean),
        more >> 20
    );
    let odd: Vec<u64> = outcomes.iter().filter_map(Alone::odd).collect();
    let kept = AtomicU64::new(0);
    common::on_all_cores(1, 0..odd.len() as u64, |n| {
        let seed = odd[n as usize];
        let (base, device, _) = mutant::mutant(&bases, &mut Rng::new(seed));
        if e2fsck_mends(&device, &[]).is_some() {
            let left = match extant_repair::plan(&device, 1_700_000_000, &mut |_| true) {
                Ok(plan) => plan
                    .after
                    .findings
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                Err(error) => vec![error.to_string()],
            };
            let name = base.kind.name;
            println!("seed {seed}, {name}: e2fsck makes it clean; left: {left:#?}");
            kept.fetch_add(1, Ordering::Relaxed);
        }
    });
    let kept = kept.into_inner() as usize;
    println!(
        "{kept} of the {} that are not mended are made clean by e2fsck",
        odd.len()
    );
    assert!(
        mended * 100 >= (mended + kept) * LEAST,
        "{kept} only by e2fsck"
    );
    assert!(more < MOST_MEMORY, "{more} bytes");
}

#[test]
fn mutants_are_mended_as_by_e2fsck() {
    needs::tools!("mke2fs", "e2fsck");
    let bases = bases::without_pending_journals();
    let sound: Vec<Vec<Sound>> = bases.iter().map(sound_files).collect();
    let mut outcomes = common::on_all_cores(1, common::seeds(0, 120, 10_000), |seed| {
        let (outcome, files) = mutant(&bases, &sound, seed);
        (seed, outcome, files)
    });
    outcomes.sort_by_key(|(seed, ..)| *seed);
    let mut counted = 0;
    let mut mended = 0;
    let mut total = Files::default();
    for (seed, outcome, files) in &outcomes {
        total.sound += files.sound;
        total.kept += files.kept;
        total.by_e2fsck += files.by_e2fsck;
        if files.kept < files.by_e2fsck {
            println!("seed {seed}: {files:?}");
        }
        match outcome {
            Outcome::Uncounted => continue,
            Outcome::Mended => mended += 1,
            Outcome::Left(told) => println!("seed {seed}: {told}"),
        }
        counted += 1;
    }
    println!(
        "{mended} of {counted} mutants that e2fsck mends are mended ({} in all)",
        outcomes.len()
    );
    println!(
        "of {} sound files {} are as they were, after e2fsck {}",
        total.sound, total.kept, total.by_e2fsck
    );
    assert!(mended * 100 >= counted * LEAST, "{mended} of {counted}");
    assert!(total.kept >= total.by_e2fsck, "{total:?}");
}

fn mutant(bases: &[Base], sound: &[Vec<Sound>], seed: u64) -> (Outcome, Files) {
    let mut rng = Rng::new(seed);
    let (base, device, touched) = mutant::mutant(bases, &mut rng);
    let of_base = bases.iter().position(|b| b.kind.name == base.kind.name);
    let untouched: Vec<&Sound> = sound[of_base.unwrap()]
        .iter()
        .filter(|file| file.blocks.is_disjoint(&touched))
        .collect();
    let mut files = Files {
        sound: untouched.len(),
        ..Files::default()
    };
    if verdict::judge(&device).0 {
        return (Outcome::Uncounted, Files::default());
    }
    let Some(kept) = e2fsck_mends(&device, &untouched) else {
        return (Outcome::Uncounted, Files::default());
    };
    files.by_e2fsck = kept;
    let outcome = repaired(base, &device, seed, |image| {
        files.kept = kept_files(image, &untouched);
    });
    (outcome, files)
}

/// Plans a repair, applies it, calls `look`, and reverts it.
fn repaired(base: &Base, device: &MemDevice, seed: u64, look: impl FnOnce(&Path)) -> Outcome {
    let plan = match extant_repair::plan(device, 1_700_000_000, &mut |_| true) {
        Ok(plan) => plan,
        Err(error) => return Outcome::Left(format!("{}: {error}", base.kind.name)),
    };
    let undo = plan.undo(device).unwrap();
    let broken = device.to_bytes().unwrap();
    plan.apply(device).unwrap();
    let (clean, text) = verdict::judge(device);
    with_image(device, look);
    undo.take_back(device).unwrap();
    assert!(
        device.to_bytes().unwrap() == broken,
        "seed {seed} is taken back"
    );
    if clean {
        return Outcome::Mended;
    }
    let left: Vec<_> = plan
        .after
        .findings
        .iter()
        .map(ToString::to_string)
        .take(4)
        .collect();
    let mends: Vec<_> = plan.mends.iter().map(ToString::to_string).take(8).collect();
    Outcome::Left(format!(
        "{}: mends {mends:#?}, left {left:#?}, e2fsck: {text}",
        base.kind.name
    ))
}

/// Returns the number of files that e2fsck leaves unchanged, if it makes the image clean.
fn e2fsck_mends(device: &MemDevice, untouched: &[&Sound]) -> Option<usize> {
    with_image(device, |path| {
        let run = |option: &str| {
            let out = verdict::run_limited(Command::new("e2fsck").arg(option).arg(path), 20);
            out.status.code()
        };
        run("-fy");
        (run("-fn") == Some(0)).then(|| kept_files(path, untouched))
    })
}

fn with_image<T>(device: &MemDevice, look: impl FnOnce(&Path) -> T) -> T {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    look(&path)
}

fn sound_files(base: &Base) -> Vec<Sound> {
    with_image(&base.device, |path| {
        let volume = walk::Volume::open(path);
        let records = volume.tree().into_values();
        let mut files: Vec<Sound> = records
            .filter(|inode| {
                inode.core.file_type() == Some(FileType::Regular)
                    && (1..=LARGEST).contains(&inode.core.size)
            })
            .map(|inode| {
                let (nodes, extents) = volume.map(&inode);
                let data = extents
                    .iter()
                    .flat_map(|e| e.physical.0..e.physical.0 + u64::from(e.len));
                let mut blocks: BTreeSet<u64> = data.chain(nodes.iter().map(|n| n.0)).collect();
                blocks.insert(volume.inode_block(inode.nr).0);
                Sound {
                    ino: inode.nr,
                    digest: digest(&volume, &inode),
                    blocks,
                }
            })
            .collect();
        files.sort_by_key(|file| file.ino);
        files.dedup_by_key(|file| file.ino);
        files
    })
}

/// Returns a digest of the size and of each data block other than zeros.
fn digest(volume: &walk::Volume, inode: &walk::Inode) -> u32 {
    let sum = ext4_format::checksum::crc32c;
    let mut digest = sum(!0, &inode.core.size.to_le_bytes());
    for extent in volume.map(inode).1.iter().filter(|e| !e.unwritten) {
        for i in 0..extent.len {
            let bytes = volume.block(BlockNr(extent.physical.0 + u64::from(i)));
            if bytes.iter().any(|&b| b != 0) {
                digest = sum(digest, &(extent.logical + i).to_le_bytes());
                digest = sum(digest, &bytes);
            }
        }
    }
    digest
}

/// Returns the number of files that still have their data.
fn kept_files(path: &Path, untouched: &[&Sound]) -> usize {
    let kept = |file: &Sound| {
        // Unreadable files panic there.
        catch_unwind(|| {
            let volume = walk::Volume::open(path);
            let inode = volume.inode(file.ino);
            inode.core.links > 0 && digest(&volume, &inode) == file.digest
        })
        .unwrap_or(false)
    };
    untouched.iter().filter(|file| kept(file)).count()
}
