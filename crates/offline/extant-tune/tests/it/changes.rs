//! Changes, made and judged.

use blockdev::MemDevice;
use extant_testing::verdict;
use extant_tune::{Error, TuneOptions};

/// Returns options that change features.
pub fn of_features(features: &str) -> TuneOptions {
    TuneOptions {
        features: features.into(),
        now: 1_700_000_000,
        ..TuneOptions::default()
    }
}

/// Plans and writes a change. Returns whether the plan changed anything.
pub fn changed(device: &MemDevice, options: &TuneOptions) -> Result<bool, Error> {
    let plan = extant_tune::plan(device, options)?;
    plan.writes.write(device, None, None)?;
    Ok(!plan.changes.is_empty())
}

/// Makes a change, after which e2fsck finds no errors. Returns whether the plan changed anything.
pub fn change_and_judge(device: &MemDevice, options: &TuneOptions) -> bool {
    let what = format!("{}{}", options.features, options.quota);
    let is_changed = changed(device, options).unwrap_or_else(|e| panic!("{what}: {e}"));
    let (clean, text) = verdict::judge(device);
    assert!(clean, "{what}: {text}");
    is_changed
}
