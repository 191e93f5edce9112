//! Extended attributes: in inodes, in blocks that inodes share, in separate inodes.

use crate::inode_table::InodeKind;
use crate::report::{FindingPlace, Rule};
use crate::state::{Check, SharedBlock};
use crate::subject::{Subject, rule_of};
use ext4_format::inode::{self, encryption, flags, inline, value};
use ext4_format::xattr::{self, Stored, ValueInode};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::hash_map::Entry;

/// Effects of an inode's attributes on its other checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attributes {
    /// Blocks (clusters, with `bigalloc`) that the inode's count of blocks includes for its attributes.
    pub(crate) blocks: u64,
    /// Number of its values that are in inodes.
    pub(crate) values: u64,
    /// Whether one of its values is damaged, so that `blocks` means nothing.
    pub(crate) damaged: bool,
    /// Bytes of the attribute that holds the rest of the data of an inode with inline data, if there is one.
    pub(crate) inline_data: Option<usize>,
}

/// Checks the attributes of one inode.
pub(crate) fn check_inode(check: &Check<'_>, subject: &Subject<'_>) -> Attributes {
    let (geo, place) = (&check.volume.geo, subject.place());
    let mut attributes = Attributes::default();
    let mut context = None;
    if let Some(area) = inode::xattr_area(subject.raw, geo).and_then(|range| subject.raw.get(range))
    {
        let walked = xattr::walk_inode_area(area, |index, rest, value| {
            match value {
                Stored::Here(value) if (index, rest) == inline::ATTRIBUTE => {
                    attributes.inline_data = Some(value.len());
                }
                Stored::Here(value) if (index, rest) == encryption::ATTRIBUTE => {
                    context = Some(value.to_vec());
                }
                Stored::Here(_) => {}
                Stored::Inode(value) => {
                    count_reference(check, value.ino);
                    account(check, subject, &mut attributes, rest, &value);
                }
            }
            Ok(())
        });
        if let Err(e) = walked {
            check.findings.add_error(Rule::Attributes, place, &e);
        }
    }
    let block = inode::file_acl(subject.raw, geo);
    check_context(check, subject, context, block);
    if block.0 != 0 {
        attributes.blocks += 1;
        if !geo.features.has_ext_attr() {
            let findings = &check.findings;
            findings.add(Rule::Features, place, || {
                "a block of attributes, without ext_attr".into()
            });
        }
        if geo.is_valid_data_range(block, 1) {
            use_block(check, block, place);
            if geo.features.has_ea_inode() {
                account_block(check, subject, &mut attributes, block);
            }
        } else {
            let findings = &check.findings;
            findings.add(Rule::AttributeBlock, place.block(block), || {
                "its place cannot be".into()
            });
        }
    }
    attributes
}

fn count_reference(check: &Check<'_>, ino: InodeNr) {
    *check.value_inodes.lock().entry(ino).or_default() += 1;
}

/// Checks the inode with a value of the subject, and accounts for it.
fn account(
    check: &Check<'_>,
    subject: &Subject<'_>,
    attributes: &mut Attributes,
    rest: &[u8],
    stored: &ValueInode,
) {
    let geo = &check.volume.geo;
    attributes.values += 1;
    let possible = stored.ino.0 >= geo.first_ino && stored.ino != subject.ino;
    let record = possible
        .then(|| crate::state::read_record(check, stored.ino))
        .flatten();
    let Some(raw) = record.filter(|raw| value::is_value(raw)) else {
        // `check_references` reports an inode that holds no value.
        attributes.damaged = true;
        return;
    };
    if value::could_hold(&raw, rest, stored) {
        attributes.blocks += value::value_clusters(geo, stored.size);
    } else if !value::is_of_owner(&raw, stored, subject.ino.0, subject.raw) {
        attributes.damaged = true;
        let place = subject.place();
        check.findings.add(Rule::AttributeInode, place, || {
            format!("inode {} has another size or hash", stored.ino)
        });
    }
}

/// Accounts for the values in inodes that the attributes of a block have. Each of the inodes that share the block accounts for
/// them, so the block is read again.
fn account_block(
    check: &Check<'_>,
    subject: &Subject<'_>,
    attributes: &mut Attributes,
    block: BlockNr,
) {
    let Ok(bytes) = check.volume.read(block) else {
        attributes.damaged = true;
        return;
    };
    let walked = xattr::walk_block(&bytes, |_, rest, value| {
        if let Stored::Inode(value) = value {
            account(check, subject, attributes, rest, &value);
        }
        Ok(())
    });
    attributes.damaged |= walked.is_err();
}

/// Checks the context of an encrypted inode, and keeps its policy.
fn check_context(
    check: &Check<'_>,
    subject: &Subject<'_>,
    inside: Option<Vec<u8>>,
    block: BlockNr,
) {
    let mapped = matches!(
        subject.core.file_type(),
        Some(FileType::Regular | FileType::Directory | FileType::Symlink)
    );
    if !subject.has(flags::ENCRYPT) || !check.volume.geo.features.has_encrypt() || !mapped {
        return;
    }
    let mut context = inside;
    if context.is_none()
        && check.volume.geo.is_valid_data_range(block, 1)
        && let Ok(bytes) = check.volume.read(block)
    {
        // `check_block` reports damage.
        let _ = xattr::walk_block(&bytes, |index, rest, value| {
            if let Stored::Here(value) = value
                && (index, rest) == encryption::ATTRIBUTE
            {
                context = Some(value.to_vec());
            }
            Ok(())
        });
    }
    let tell = |what: &str| {
        check
            .findings
            .add(Rule::Encryption, subject.place(), || what.into());
    };
    let Some(context) = context else {
        return tell("it has the flag, and no context");
    };
    match encryption::policy(&context) {
        Some(policy) => {
            let policy = policy.into();
            check.policies.lock().insert(subject.ino, policy);
        }
        None => tell("its context is damaged"),
    }
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

/// Checks a block and returns its stored number of inodes that share it; 0 if that is impossible.
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
        if let Stored::Inode(value) = value {
            count_reference(check, value.ino);
        }
        Ok(())
    });
    if let Err(e) = walked {
        let rule = rule_of(&e, Rule::Attributes, Rule::AttributeBlock);
        findings.add_error(rule, place, &e);
    }
    xattr::refcount(&bytes).unwrap_or(0)
}

/// Compares the reference counts of blocks with the inodes found, and checks the inodes that hold values.
pub(crate) fn check_references(check: &Check<'_>) {
    for (&block, seen) in &*check.attribute_blocks.lock() {
        if seen.stored != 0 && seen.stored != seen.found {
            let place = FindingPlace::default().block(block);
            check.findings.add(Rule::AttributeCount, place, || {
                format!("stored {}, counted {}", seen.stored, seen.found)
            });
        }
    }
    for (&ino, &found) in &*check.value_inodes.lock() {
        let known = check.inodes.count_name(ino);
        let place = FindingPlace::inode(ino);
        if known.is_none_or(|known| known.kind != InodeKind::Value) {
            check.findings.add(Rule::AttributeInode, place, String::new);
            continue;
        }
        let record = crate::state::read_record(check, ino);
        let Some(raw) = record.filter(|raw| value::counts_references(raw)) else {
            continue;
        };
        let stored = value::references(&raw);
        if stored != u64::from(found) {
            check.findings.add(Rule::AttributeCount, place, || {
                format!("stored {stored}, counted {found}")
            });
        }
    }
}
