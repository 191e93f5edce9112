//! The blocks of an inode, claimed and counted.

use crate::mapping::{Mapped, Walker};
use crate::report::Rule;
use crate::state::Check;
use crate::subject::Subject;
use ext4_format::inode::{self, flags, reserved};

/// Walks the mapping of an inode and claims its blocks.
pub(crate) fn map(check: &Check<'_>, subject: &Subject<'_>, with_runs: bool) -> Mapped {
    let Ok(root) = inode::i_block(subject.raw) else {
        return Mapped::default();
    };
    let seed = subject.seed(&check.volume);
    let claims = Some(&check.claims);
    let walker = Walker::new(&check.volume, &check.findings, claims, subject.ino, seed);
    let mapped = walker.with_runs(with_runs).walk(subject.core.flags, root);
    let by_blocks = check.volume.geo.cluster_ratio > 1 && !subject.has(flags::EXTENTS);
    if by_blocks && mapped.data + mapped.nodes > 0 && subject.ino != reserved::BAD_BLOCKS {
        check.findings.add(Rule::BlockMap, subject.place(), || {
            "a file of a bigalloc volume needs extents".into()
        });
    }
    mapped
}

/// Compares the count of blocks with the blocks found.
pub(crate) fn check_space(
    check: &Check<'_>,
    subject: &Subject<'_>,
    mapped: &Mapped,
    attribute_blocks: u64,
) {
    if mapped.damaged {
        return;
    }
    let geo = &check.volume.geo;
    let clusters = mapped.clusters + mapped.nodes + attribute_blocks;
    let counted = clusters.saturating_mul(geo.sectors_per_cluster());
    let stored = inode::sectors(subject.raw, geo);
    if stored != counted {
        check.findings.add(Rule::InodeBlocks, subject.place(), || {
            format!("stored {stored}, counted {counted}, in units of 512 bytes")
        });
    }
}
