//! Directories that fold case: they are copied from a source to a volume with the feature, and become ordinary
//! directories in a volume without it.

use super::error::{MkfsError, Result};
use super::options::MkfsOptions;
use super::progress::Monitor;
use super::tree::{Draft, Tree};
use ext4_format::fold::Comparison;
use ext4_format::inode::flags;
use extant_sources::parts::show;
use std::collections::HashMap;

/// Returns the comparison of names in directories of the new volume that fold case.
pub(super) fn comparison(options: &MkfsOptions) -> Result<Comparison> {
    Ok(
        match (options.feature_set()?.has_casefold(), options.strict_names) {
            (false, _) => Comparison::Exact,
            (true, false) => Comparison::Folded,
            (true, true) => Comparison::Strict,
        },
    )
}

/// Removes the flag from all directories if the new volume does not fold names, and adds a warning.
pub(super) fn drop_flags(draft: &mut Draft, comparison: Comparison, monitor: &Monitor) {
    if comparison.folds() {
        return;
    }
    let mut count = 0u64;
    for inode in &mut draft.inodes {
        count += u64::from(inode.flags & flags::CASEFOLD != 0);
        inode.flags &= !flags::CASEFOLD;
    }
    let directories = match count {
        0 => return,
        1 => "1 directory folds".to_owned(),
        n => format!("{n} directories fold"),
    };
    monitor.warn(format!(
        "{directories} case in the source, and not in the new volume, which has not the feature casefold"
    ));
}

/// Refuses equal or invalid names in directories that fold case. A single sound source has no such names; overlaid
/// sources, and a strict volume, may have them.
pub(super) fn check(tree: &Tree, comparison: Comparison) -> Result<()> {
    for (number, dir) in (0..).zip(&tree.dirs) {
        let flags = tree.inodes[dir.inode as usize].flags; // an inode of the tree
        let compared = comparison.within(flags);
        if !compared.folds() {
            continue;
        }
        let mut seen = HashMap::new();
        for name in tree.names_of(number) {
            let name = tree.name(name);
            let refused = |what: String| {
                let mut path = tree.path_of(number);
                path.push(name);
                Err(MkfsError::source(show(&path.join(&b'/')), what))
            };
            if !compared.allows(name) {
                return refused("the name is not UTF-8, and its directory is strict".into());
            }
            if let Some(other) = seen.insert(compared.key(name), name) {
                let other = show(other);
                return refused(format!("the directory folds case, and has {other} already"));
            }
        }
    }
    Ok(())
}
