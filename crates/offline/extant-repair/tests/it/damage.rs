//! Chosen damage that `e2fsck -fy` makes clean is mended, except the kinds that are listed here with reasons.

use crate::it::bases;
use crate::it::chosen;
use crate::it::common;
use crate::it::verdict;

use bases::Base;
use blockdev::{BlockDevice, MemDevice};
use chosen::{DAMAGES, Places};
use extant_repair::Plan;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Damage that e2fsck mends and a repair does not, with the reason.
const LEFT: &[(&str, &str)] = &[];

#[test]
fn chosen_damage_is_mended_as_by_e2fsck() {
    needs::tools!("mke2fs", "e2fsck");
    let dir = needs::memory_dir();
    bases::make(dir.path());
    let (left, mended) = (Mutex::new(BTreeSet::new()), Mutex::new(0));
    chosen::each_base(|n| {
        let (bad, good) = base(dir.path(), n);
        left.lock().unwrap().extend(bad);
        *mended.lock().unwrap() += good;
    });
    println!("{} images are mended", mended.into_inner().unwrap());
    let listed: BTreeSet<_> = LEFT.iter().map(|known| known.0).collect();
    assert_eq!(left.into_inner().unwrap(), listed, "damage that is left");
}

/// Returns the remaining damage of a base, and the number of mended images. Without `EXTANT_TORTURE` a base has an
/// eighth of the damage.
fn base(dir: &Path, n: usize) -> (BTreeSet<&'static str>, usize) {
    let base = Base::load(dir, n);
    let places = Places::new(&base, &dir.join(format!("places {n}")));
    let (mut left, mut mended) = (BTreeSet::new(), 0);
    let step = if common::torture() { 1 } else { 8 };
    for damage in DAMAGES.iter().skip(n % step).step_by(step) {
        let Some(device) = chosen::broken(&base, &places, damage) else {
            continue;
        };
        if verdict::judge(&device).0 || !e2fsck_mends(&device, dir, n) {
            continue;
        }
        if common::torture() || mended % 4 == 0 {
            expect_same_on_slow_device(&device);
        }
        match repaired(&device) {
            Ok(()) => mended += 1,
            Err(told) => {
                println!("{} [{}]\n{told}", damage.name, base.kind.name);
                left.insert(damage.name);
            }
        }
    }
    (left, mended)
}

/// Checks that a repair writes the same bytes if the device is slow, because a check then reads in another order.
fn expect_same_on_slow_device(device: &MemDevice) {
    let slow = plan(&verdict::Cold::new(device, false));
    let [fast, slow] = [plan(device), slow].map(|plan| {
        let image = device.snapshot();
        let plan = plan.map_err(|error| error.to_string())?;
        plan.apply(&image).unwrap();
        Ok::<_, String>((plan.mends, image.to_bytes().unwrap()))
    });
    assert!(fast == slow);
}

/// Returns the damage that remains after a repair.
fn repaired(device: &MemDevice) -> Result<(), String> {
    let plan = plan(device).map_err(|error| error.to_string())?;
    plan.apply(device).unwrap();
    let (clean, text) = verdict::judge(device);
    if clean {
        return Ok(());
    }
    Err(format!(
        "{:#?}\n{:#?}\ne2fsck: {text}",
        plan.mends, plan.after.findings
    ))
}

fn plan(device: &dyn BlockDevice) -> Result<Plan, extant_repair::Error> {
    extant_repair::plan(device, 1_700_000_000, &mut |_| true)
}

fn e2fsck_mends(device: &MemDevice, dir: &Path, n: usize) -> bool {
    let path = dir.join(format!("mended {n}"));
    common::write_image(device, &path);
    let run = |option: &str| {
        let out = verdict::run_limited(Command::new("e2fsck").arg(option).arg(&path), 20);
        out.status.code()
    };
    run("-fy");
    run("-fn") == Some(0)
}
