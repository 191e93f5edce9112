//! Mutants of images with every feature: a repair makes clean every image that `e2fsck -fy` makes clean, and keeps at least the same
//! files. EXTANT_KEEP=DIR keeps the mutants, each under the number of its seed.

mod bases;
mod breaking;
mod e2fsprogs;
mod mixed;

use crate::it::common::{Rng, on_all_cores, seeds, write_image};
use crate::it::debugfs::{Image, NOW, files_in};
use crate::it::mounted::able;
use crate::it::verdict;
use bases::KINDS;
use blockdev::MemDevice;
use breaking::Parts;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Percentage of the mutants mended by e2fsck that a repair must mend without keeping fewer files.
const LEAST: u64 = 97;

struct Base {
    name: &'static str,
    device: MemDevice,
    parts: Parts,
    /// Its files, after a replay.
    files: Files,
}

/// Result for one mutant.
#[derive(Debug)]
struct Outcome {
    base: &'static str,
    /// Why it is not mended.
    left: Option<String>,
    /// Files that only e2fsck keeps.
    fewer: Vec<PathBuf>,
    /// Files that only the repair keeps.
    more: usize,
}

/// Content of files, by path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

#[test]
fn mutants_of_every_feature_are_mended_as_by_e2fsck() {
    if !able() || !needs::have(&["debugfs", "setfattr", "chattr"]) {
        return;
    }
    judge_mutants(seeds(0, 32, 100_000));
}

/// Makes the bases, and judges a mutant for each seed.
pub fn judge_mutants(seeds: std::ops::Range<u64>) {
    let mut bases = Vec::new();
    for kind in KINDS {
        match bases::make(kind) {
            Ok(image) => bases.push(base(kind.name, &image)),
            Err(why) => println!("{} cannot be made here: {why}", kind.name),
        }
    }
    assert!(bases.len() > 20, "{} bases", bases.len());
    let outcomes = judge_all(&bases, seeds);
    table(bases.iter().map(|base| base.name), &outcomes);
    least(&outcomes, LEAST);
}

/// Asserts that this percentage of the images is mended with all files that e2fsck keeps.
fn least(outcomes: &[Outcome], percentage: u64) {
    let bad = |o: &&Outcome| o.left.is_some() || !o.fewer.is_empty();
    let (all, bad) = (
        outcomes.len() as u64,
        outcomes.iter().filter(bad).count() as u64,
    );
    assert!((all - bad) * 100 >= all * percentage, "{bad} of {all}");
}

fn base(name: &'static str, image: &Image) -> Base {
    // The structures are those that a replay leaves.
    let replayed = Image::copy(image);
    replayed.run("e2fsck", &["-fy"]);
    Base {
        name,
        device: image.device(),
        parts: Parts::of(&replayed.device()),
        files: replayed.files(),
    }
}

/// Threads for each core, because e2fsck waits for seconds where another node might hold a volume with `mmp`.
const THREADS: usize = 20;

/// Judges mutants on all cores; those that e2fsck does not mend are left out.
fn judge_all(bases: &[Base], seeds: std::ops::Range<u64>) -> Vec<Outcome> {
    let judged = on_all_cores(THREADS, seeds, |seed| {
        judge_one(&bases[(seed % bases.len() as u64) as usize], seed)
    });
    judged.into_iter().flatten().collect()
}

fn judge_one(base: &Base, seed: u64) -> Option<Outcome> {
    let device = base.device.snapshot();
    let damage = base.parts.damage(&device, &mut Rng::new(seed));
    judge((base.name, Some(&base.files)), &device, seed, &damage)
}

/// Repairs a broken image of a base with these files, and e2fsck repairs a copy. If the files are not known, they are those that e2fsck
/// keeps. `None` if e2fsck does not mend the image.
fn judge(
    (base, files): (&'static str, Option<&Files>),
    device: &MemDevice,
    seed: u64,
    damage: &dyn Debug,
) -> Option<Outcome> {
    let dir = needs::memory_dir();
    let [ours, theirs] = ["ours", "theirs"].map(|name| dir.path().join(name));
    write_image(device, &theirs);
    if let Some(kept) = std::env::var_os("EXTANT_KEEP") {
        std::fs::copy(&theirs, Path::new(&kept).join(seed.to_string())).unwrap();
    }
    // The second run mends what the first one has left.
    let clean = (0..2).any(|_| {
        e2fsck(&theirs, "-fy");
        e2fsck(&theirs, "-fn").0
    });
    if !clean {
        return None;
    }
    let mut outcome = Outcome {
        base,
        left: None,
        fewer: Vec::new(),
        more: 0,
    };
    match extant_repair::plan(device, NOW, &mut |_| true) {
        Ok(plan) => {
            plan.apply(device).unwrap();
            write_image(device, &ours);
            let (clean, text) = e2fsck(&ours, "-fn");
            if !clean {
                outcome.left = Some(text);
            }
            if let (Some(by_us), Some(by_them)) = (files_in(&ours), files_in(&theirs)) {
                let files = files.unwrap_or(&by_them);
                outcome.fewer = only_in(files, &by_them, &by_us);
                outcome.more = only_in(files, &by_us, &by_them).len();
            }
        }
        // A refusal by name changes nothing.
        Err(error) => outcome.left = Some(error.to_string()),
    }
    if outcome.left.is_some() || !outcome.fewer.is_empty() {
        println!("seed {seed}, {base}: {damage:?}: {outcome:#?}");
    }
    Some(outcome)
}

/// Returns the files of a base that one image has still and the other has not: by path, or by content in lost+found or under another
/// name of the same directory. Two repairs give a damaged name different new names.
fn only_in(base: &Files, one: &Files, other: &Files) -> Vec<PathBuf> {
    let has = |files: &Files, path: &Path, content: &Vec<u8>| {
        let beside =
            |found: &Path| found.starts_with("lost+found") || found.parent() == path.parent();
        let mut lost = files.iter().filter(|(found, _)| beside(found));
        files.get(path) == Some(content) || lost.any(|(_, found)| found == content)
    };
    let kept = |files: &Files, path: &PathBuf| has(files, path, &base[path]);
    let missing = base
        .keys()
        .filter(|path| kept(one, path) && !kept(other, path));
    missing.cloned().collect()
}

fn e2fsck(path: &Path, option: &str) -> (bool, String) {
    let out = verdict::run_limited(Command::new("e2fsck").arg(option).arg(path), 60);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.code() == Some(0), text)
}

/// Prints where a repair keeps fewer files than e2fsck, by base.
fn table(bases: impl Iterator<Item = &'static str>, outcomes: &[Outcome]) {
    println!("| base | mutants | not mended | fewer files | more files |");
    println!("|---|---|---|---|---|");
    for base in bases {
        let of_base = || outcomes.iter().filter(|o| o.base == base);
        println!(
            "| {} | {} | {} | {} | {} |",
            base,
            of_base().count(),
            of_base().filter(|o| o.left.is_some()).count(),
            of_base().filter(|o| !o.fewer.is_empty()).count(),
            of_base().filter(|o| o.more > 0).count(),
        );
    }
}
