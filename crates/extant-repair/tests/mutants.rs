//! Images broken on purpose: what `e2fsck -fy` makes clean, a repair makes clean for `e2fsck -fn` too.

#[path = "../../extant-cli/tests/images/bases.rs"]
mod bases;
#[path = "../../extant/tests/common/mod.rs"]
mod common;
#[path = "../../extant/tests/hostile/image.rs"]
mod image;
#[allow(dead_code)] // each user has its own part
#[path = "../../extant-check/tests/verdicts/judge.rs"]
mod judge;
#[path = "../../extant/tests/hostile/map.rs"]
mod map;
#[path = "../../extant-check/tests/mutant/mod.rs"]
mod mutant;
#[path = "../../extant/tests/hostile/mutate.rs"]
mod mutate;
#[path = "../../ext4-format/tests/walk/mod.rs"]
mod walk;

use bases::{Base, KINDS};
use blockdev::MemDevice;
use common::Rng;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of the mutants that e2fsck mends so many are mended, in percent.
const LEAST: usize = 92;

#[derive(Debug, PartialEq)]
enum Outcome {
    /// e2fsck does not mend it either, or has nothing to mend.
    Uncounted,
    Mended,
    Left(String),
}

#[test]
fn mutants_are_mended_as_by_e2fsck() {
    needs::tools!("mke2fs", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    bases::make(dir.path());
    let bases: Vec<Base> = (0..KINDS.len())
        .map(|n| Base::load(dir.path(), n))
        .filter(|base| !base.kind.dirty)
        .collect();
    let seeds = common::seeds(0, 300, 10_000);
    let (next, outcomes) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = mutant(&bases, seed);
                    outcomes.lock().unwrap().push((seed, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap();
    outcomes.sort_by_key(|(seed, _)| *seed);
    let mut counted = 0;
    let mut mended = 0;
    for (seed, outcome) in &outcomes {
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
    assert!(mended * 100 >= counted * LEAST, "{mended} of {counted}");
}

fn mutant(bases: &[Base], seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let (base, device, _) = mutant::mutant(bases, &mut rng);
    if judge::judge(&device).0 || !e2fsck_mends(&device) {
        return Outcome::Uncounted;
    }
    let plan = match extant_repair::plan(&device, 1_700_000_000, &mut |_| true) {
        Ok(plan) => plan,
        Err(error) => return Outcome::Left(format!("{}: {error}", base.kind.name)),
    };
    let undo = plan.undo(&device).unwrap();
    let broken = device.to_bytes().unwrap();
    plan.apply(&device).unwrap();
    let (clean, text) = judge::judge(&device);
    undo.take_back(&device).unwrap();
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

/// Whether e2fsck makes the image clean.
fn e2fsck_mends(device: &MemDevice) -> bool {
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    let run = |option: &str| {
        let out = Command::new("timeout")
            .args(["-s", "KILL", "20", "e2fsck", option])
            .arg(&path)
            .output();
        out.expect("e2fsck runs").status.code()
    };
    run("-fy");
    run("-fn") == Some(0)
}
