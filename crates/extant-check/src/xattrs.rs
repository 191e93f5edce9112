//! Extended attributes: in inodes, in blocks that inodes share, in inodes of their own.

use crate::Check;
use crate::inode::{Subject, rule_of};
use crate::inode_table::InodeKind;
use crate::report::{FindingPlace, Rule};
use ext4_format::inode::{self, inline};
use ext4_format::xattr::{self, Stored};
use ext4_format::{BlockNr, InodeNr};
use std::collections::hash_map::Entry;

/// A block of attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBlock {
    /// Inodes that share it, as it says.
    stored: u32,
    /// Inodes that were found to share it.
    found: u32,
}

/// What the attributes of an inode mean for the rest of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// Blocks that its count of blocks includes.
    pub(crate) blocks: u64,
    /// Bytes of the attribute that holds the rest of the data of an inode with inline data, if there is one.
    pub(crate) inline_data: Option<usize>,
}

/// Checks the attributes of one inode.
pub(crate) fn check_inode(check: &Check<'_>, subject: &Subject<'_>) -> Attributes {
    let (geo, place) = (&check.volume.geo, subject.place());
    let mut attributes = Attributes::default();
    if let Some(area) = inode::xattr_area(subject.raw, geo).and_then(|range| subject.raw.get(range))
    {
        let walked = xattr::walk_inode_area(area, |index, rest, value| {
            match value {
                Stored::Here(value) if (index, rest) == inline::ATTRIBUTE => {
                    attributes.inline_data = Some(value.len());
                }
                Stored::Here(_) => {}
                Stored::Inode(ino) => note_value(check, ino),
            }
            Ok(())
        });
        if let Err(e) = walked {
            check.findings.add_error(Rule::Attributes, place, &e);
        }
    }
    let block = inode::file_acl(subject.raw, geo);
    if block.0 != 0 {
        attributes.blocks = 1;
        if !geo.features.has_ext_attr() {
            let findings = &check.findings;
            findings.add(Rule::Features, place, || {
                "a block of attributes, without ext_attr".into()
            });
        }
        if geo.is_valid_data_range(block, 1) {
            use_block(check, block, place);
        } else {
            let findings = &check.findings;
            findings.add(Rule::AttributeBlock, place.block(block), || {
                "its place cannot be".into()
            });
        }
    }
    attributes
}

fn note_value(check: &Check<'_>, ino: InodeNr) {
    *check.value_inodes.lock().entry(ino).or_default() += 1;
}

/// Counts an inode of a block of attributes; the first one has the block checked.
fn use_block(check: &Check<'_>, block: BlockNr, place: FindingPlace) {
    match check.attribute_blocks.lock().entry(block) {
        Entry::Occupied(mut seen) => {
            seen.get_mut().found += 1;
            return;
        }
        Entry::Vacant(new) => {
            new.insert(SharedBlock {
                stored: 0,
                found: 1,
            });
        }
    }
    let stored = check_block(check, block, place);
    if let Some(seen) = check.attribute_blocks.lock().get_mut(&block) {
        seen.stored = stored;
    }
}

/// Checks a block and returns how many inodes it says that share it; 0 if it says nothing that can be.
fn check_block(check: &Check<'_>, block: BlockNr, place: FindingPlace) -> u32 {
    let Check {
        volume,
        findings,
        claims,
        ..
    } = check;
    let geo = &volume.geo;
    let cluster = geo.cluster_of(block);
    claims.claim(cluster, cluster + 1, place, findings);
    let mut bytes = vec![0; volume.block_size()];
    if !volume.read_or_tell(block, &mut bytes, place, findings) {
        return 0;
    }
    let place = place.block(block);
    if geo.features.has_metadata_csum()
        && let Err(e) = xattr::verify_checksum(&bytes, geo.csum_seed, block)
    {
        findings.add_error(Rule::AttributeBlock, place, &e);
    }
    let walked = xattr::walk_block(&bytes, |_, _, value| {
        if let Stored::Inode(ino) = value {
            note_value(check, ino);
        }
        Ok(())
    });
    if let Err(e) = walked {
        let rule = rule_of(&e, Rule::Attributes, Rule::AttributeBlock);
        findings.add_error(rule, place, &e);
    }
    xattr::refcount(&bytes).unwrap_or(0)
}

/// Compares what blocks say of their inodes with those that were found, and looks for the inodes that hold values.
pub(crate) fn check_references(check: &Check<'_>) {
    for (&block, seen) in &*check.attribute_blocks.lock() {
        if seen.stored != 0 && seen.stored != seen.found {
            let place = FindingPlace::default().block(block);
            check.findings.add(Rule::AttributeCount, place, || {
                format!("stored {}, counted {}", seen.stored, seen.found)
            });
        }
    }
    for &ino in check.value_inodes.lock().keys() {
        let known = check.inodes.count_name(ino);
        if known.is_none_or(|known| known.kind != InodeKind::Value) {
            let place = FindingPlace::inode(ino);
            check.findings.add(Rule::AttributeInode, place, String::new);
        }
    }
}
