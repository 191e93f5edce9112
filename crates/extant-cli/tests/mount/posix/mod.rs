//! POSIX by table: several hundred cases of good and bad uses of each call, done on the mount and on the kernel's
//! ext4, which have to answer alike, line by line.
//!
//! What a case does is a text of calls (`table/`, read by `script`); what each call did is a line. Numbers of inodes
//! and moments are not in them. Where the mount may differ stands in `accepted.txt`, with why; an entry there that no
//! longer is needed fails the test.

mod acl;
mod attributes;
mod data;
mod names;
mod script;
mod special;
mod sys;
mod world;

use super::support::{Kernel, Mounted, image, over_each, place};
use script::Case;
use std::collections::BTreeSet;
use std::path::Path;

const TABLE: &[&str] = &[
    include_str!("table/open.txt"),
    include_str!("table/names.txt"),
    include_str!("table/rename.txt"),
    include_str!("table/data.txt"),
    include_str!("table/attributes.txt"),
    include_str!("table/xattrs.txt"),
    include_str!("table/flags.txt"),
    include_str!("table/special.txt"),
];

/// The last call for a volume.
const SHUTDOWN: &[&str] = &[include_str!("table/shutdown.txt")];

const ACCEPTED: &str = include_str!("accepted.txt");

/// Where a line of the mount's is not the kernel's: as `accepted.txt` spells it.
fn differences(ours: &[String], kernels: &[String]) -> BTreeSet<String> {
    let pairs = ours.iter().zip(kernels);
    let different = pairs.filter(|(a, b)| a != b);
    different
        .map(|(ours, kernels)| {
            let outcome = ours.rsplit(" => ").next().unwrap();
            format!("{kernels} | {outcome}")
        })
        .collect()
}

/// The entries of `accepted.txt` for these cases.
fn accepted(cases: &[Case]) -> BTreeSet<String> {
    let lines = ACCEPTED.lines().map(str::trim);
    let entries = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    let ours = |l: &&str| {
        let name = l.split(": ").next().unwrap();
        cases.iter().any(|c| c.name == name)
    };
    entries.filter(ours).map(Into::into).collect()
}

fn play_all(dir: &Path, cases: &[Case]) -> Vec<String> {
    let lines = cases.iter().flat_map(|case| world::play(dir, case));
    let lines = lines.collect();
    std::env::set_current_dir("/").unwrap();
    lines
}

/// Cases of these texts; EXTANT_POSIX may name the beginning of those wanted.
fn cases(texts: &[&'static str]) -> Vec<Case> {
    let mut cases: Vec<_> = texts.iter().flat_map(|t| script::parse(t)).collect();
    let names: BTreeSet<_> = cases.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    if let Ok(wanted) = std::env::var("EXTANT_POSIX") {
        cases.retain(|c| c.name.starts_with(&wanted));
    }
    cases
}

fn compare(cases: &[Case], ours: &[String], kernels: &[String]) {
    assert_eq!(ours.len(), kernels.len());
    let (found, accepted) = (differences(ours, kernels), accepted(cases));
    let new: Vec<_> = found.difference(&accepted).cloned().collect();
    let stale: Vec<_> = accepted.difference(&found).cloned().collect();
    assert!(
        new.is_empty() && stale.is_empty(),
        "the kernel's | ours, {} of {} lines:\n{}\n\naccepted, but not so: {}\n{}",
        new.len(),
        ours.len(),
        new.join("\n"),
        stale.len(),
        stale.join("\n")
    );
}

const SIZE: &str = "512M";
const MAKE: &[&str] = &["-b", "4096", "-L", "table", "-E", "lazy_itable_init=0"];

#[test]
fn calls_answer_as_on_the_kernels_ext4() {
    let cases = cases(TABLE);
    let kernels = std::cell::OnceCell::new();
    over_each(|transport| {
        let kernels = kernels.get_or_init(|| {
            let place = place();
            let image = image(place.path(), SIZE, MAKE);
            let kernel = Kernel::new(&image, "rw");
            play_all(kernel.dir(), &cases)
        });
        if let Ok(path) = std::env::var("EXTANT_POSIX_SHOW") {
            std::fs::write(path, kernels.join("\n")).unwrap();
        }
        let place = place();
        let image = image(place.path(), SIZE, MAKE);
        let mounted = Mounted::new(&image, transport, &["allow_other"]);
        let ours = play_all(mounted.dir(), &cases);
        mounted.unmount();
        compare(&cases, &ours, kernels);
    });
}

#[test]
fn a_volume_that_is_shut_down_answers_as_the_kernels() {
    let cases = cases(SHUTDOWN);
    over_each(|transport| {
        let mut all = Vec::new();
        for case in &cases {
            let case = std::slice::from_ref(case);
            let place = place();
            let made = image(place.path(), "64M", MAKE);
            let kernels = {
                let kernel = Kernel::new(&made, "rw");
                play_all(kernel.dir(), case)
            };
            let made = image(place.path(), "64M", MAKE);
            let mounted = Mounted::new(&made, transport, &["allow_other"]);
            let ours = play_all(mounted.dir(), case);
            drop(mounted);
            all.push((ours, kernels));
        }
        let (ours, kernels): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        compare(&cases, &ours.concat(), &kernels.concat());
    });
}

#[test]
fn the_table_is_large() {
    let cases = cases(TABLE);
    let calls: usize = cases.iter().map(|c| c.steps.len()).sum();
    assert!(cases.len() > 100 && calls > 2000);
}
