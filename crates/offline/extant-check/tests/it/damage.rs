//! The verdict on chosen damage is e2fsck's, except for differences that are listed here with reasons.

use crate::it::bases;
use crate::it::chosen;
use crate::it::verdict;

use bases::Base;
use chosen::{DAMAGES, Places};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

/// Differences, by the damage: the check finds a fault that e2fsck does not tell of, for this reason.
const STRICTER: &[(&str, &str)] = &[
    (
        "features: bigalloc",
        "with clusters of 1 KiB the first block is 0 for us and the kernel, 1 for e2fsck",
    ),
    (
        "features: sparse_super2",
        "with resize_inode, the map of reserved descriptors leads to backups that are not there",
    ),
    (
        "flags: value of an attribute",
        "the kernel does not read such an inode by a name, with the feature or without",
    ),
    ("journal: first block 0", KERNEL_REFUSES),
    ("journal: first block beyond all", KERNEL_REFUSES),
    ("journal: short length", KERNEL_REFUSES),
    ("journal: no length", KERNEL_REFUSES),
    ("node: depth", "the kernel and the engine refuse the node"),
    ("superblock: orphan", ORPHANS),
    ("superblock: orphan beyond all", ORPHANS),
];

const KERNEL_REFUSES: &str = "the kernel and the engine refuse the journal";
const ORPHANS: &str = "e2fsck looks at the list of orphans only when it may write";

/// e2fsck finds a fault and the check does not.
const MILDER: &[(&str, &str)] = &[(
    "journal: error",
    "it is a note; e2fsck stops, as it tries to write to an image that it opened for reading",
)];

/// Verdicts on the damage of some images.
#[derive(Default)]
struct Verdicts {
    stricter: BTreeSet<&'static str>,
    milder: BTreeSet<&'static str>,
    /// Number of images that show each damage.
    judged: BTreeMap<&'static str, usize>,
    images: usize,
}

#[test]
fn chosen_damage_is_judged_as_by_e2fsck() {
    needs::tools!("mke2fs", "e2fsck");
    let dir = needs::memory_dir();
    bases::make(dir.path());
    let all = Mutex::new(Verdicts::default());
    chosen::each_base(|n| judge_base(dir.path(), n, &all));
    let all = all.into_inner().unwrap();
    println!(
        "{} kinds of damage, {} images",
        all.judged.len(),
        all.images
    );
    expect(&all.stricter, STRICTER, "faults that e2fsck does not find");
    expect(&all.milder, MILDER, "faults that the check does not find");
    let names = DAMAGES.iter().map(|damage| damage.name);
    let never: Vec<_> = names
        .filter(|name| !all.judged.contains_key(name))
        .collect();
    assert!(never.is_empty(), "damage that no image has: {never:?}");
}

/// Number of images that show each damage, unless `EXTANT_TORTURE` is set.
const SHORT: usize = 1;

fn is_torture() -> bool {
    std::env::var_os("EXTANT_TORTURE").is_some()
}

/// Checks that exactly the listed verdicts differ from those of e2fsck. The short form need not show all listed differences.
fn expect(found: &BTreeSet<&'static str>, list: &[(&'static str, &str)], what: &str) {
    let listed: BTreeSet<_> = list.iter().map(|known| known.0).collect();
    if is_torture() {
        assert_eq!(*found, listed, "{what}");
    }
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "{what}: {new:?}");
}

fn judge_base(dir: &Path, n: usize, all: &Mutex<Verdicts>) {
    let base = Base::load(dir, n);
    let places = Places::new(&base, &dir.join(format!("places {n}")));
    for damage in DAMAGES {
        let is_enough = |all: &Verdicts| {
            !is_torture() && all.judged.get(damage.name).is_some_and(|n| *n == SHORT)
        };
        if is_enough(&all.lock().unwrap()) {
            continue;
        }
        let Some(device) = chosen::broken(&base, &places, damage) else {
            continue;
        };
        {
            let mut all = all.lock().unwrap();
            if is_enough(&all) {
                continue;
            }
            *all.judged.entry(damage.name).or_default() += 1;
        }
        let report = verdict::check(&device, false);
        let (clean, text) = verdict::judge(&device);
        let mut all = all.lock().unwrap();
        all.images += 1;
        let unlike = match (report.is_clean(), clean) {
            (false, true) if !verdict::tells(&text) => &mut all.stricter,
            (true, false) => &mut all.milder,
            _ => continue,
        };
        unlike.insert(damage.name);
        let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        println!("{} [{}]\n{found:#?}\n{text}", damage.name, base.kind.name);
    }
}
