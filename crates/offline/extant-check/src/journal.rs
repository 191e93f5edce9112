//! The journal: its inode, its superblock, and the blocks that a replay would write.

use crate::error::Error;
use crate::mapping::{Run, Walker, block_of};
use crate::options::CheckOptions;
use crate::report::{FindingPlace, Findings, Rule};
use crate::volume::{Logged, Volume};
use ext4_format::group_desc::GroupDesc;
use ext4_format::jbd2::{self, Salvage};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where, inode};
use std::collections::BTreeMap;

/// Checks the journal. If it was not replayed, the volume is seen as it will be after that, unless the options say
/// otherwise.
pub(crate) fn check(
    volume: &mut Volume<'_>,
    options: &CheckOptions,
    findings: &Findings,
) -> Result<(), Error> {
    let ino = InodeNr(volume.geo.journal_ino);
    let other = volume.sb.journal_uuid != [0; 16];
    let place = FindingPlace::inode(ino);
    if !volume.geo.features.has_journal() {
        if ino.0 != 0 || other {
            findings.add(Rule::Journal, FindingPlace::default(), || {
                "one is named, without has_journal".into()
            });
        }
        return Ok(());
    }
    if ino.0 == 0 || other {
        if !options.external_journal {
            findings.add(Rule::Journal, FindingPlace::default(), || {
                "it is on another device, which is not here".into()
            });
        }
        return Ok(());
    }
    let runs = match runs(volume, ino) {
        Ok(runs) => runs,
        Err(e) => {
            findings.add_error(Rule::Journal, place, &e);
            return Ok(());
        }
    };
    let Some(sb) = unreplayed(volume, &runs, place, findings) else {
        return Ok(());
    };
    if !volume.geo.features.has_needs_recovery() {
        findings.add(Rule::Journal, place, || {
            "it holds transactions, and the superblock says that it does not".into()
        });
    }
    match replayed(volume, &sb, &runs) {
        Ok((logged, found)) => {
            findings.add(Rule::NeedsRecovery, place, || {
                let then = match found.plan.fast_commits {
                    Some(_) => ", and fast commits are to be replayed after it",
                    None => "",
                };
                format!("{} blocks are to be written{then}", logged.len())
            });
            for damage in &found.damage {
                findings.add_error(Rule::Journal, place, damage);
            }
            if options.replay {
                volume.pending_fast_commits = found.plan.fast_commits.is_some();
                volume.replay(logged)?;
            }
        }
        Err(e) => findings.add_error(Rule::Journal, place, &e),
    }
    Ok(())
}

/// Checks the journal's superblock, and returns it if it can be used and the log holds transactions.
fn unreplayed(
    volume: &Volume<'_>,
    runs: &[Run],
    place: FindingPlace,
    findings: &Findings,
) -> Option<jbd2::Superblock> {
    let mut first = vec![0; volume.block_size()];
    let Some(block) = block_of(runs, 0) else {
        findings.add(Rule::Journal, place, || "its first block is a hole".into());
        return None;
    };
    volume.read_or_tell(block, &mut first, place, findings);
    let sb = match jbd2::Superblock::parse(&first) {
        Ok(sb) => sb,
        Err(e) => {
            findings.add_error(Rule::Journal, place.block(block), &e);
            return None;
        }
    };
    let blocks: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    let wrong = [
        (
            sb.block_size != volume.geo.block_size,
            "another block size than the volume's",
        ),
        (u64::from(sb.max_len) > blocks, "longer than its inode"),
    ];
    for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
        findings.add(Rule::Journal, place.block(block), || what.into());
    }
    if jbd2::Superblock::has_foreign_fields(&first) {
        findings.add(Rule::Journal, place.block(block), || {
            "several users, or features of another version".into()
        });
    }
    if wrong.iter().any(|(wrong, _)| *wrong) {
        return None;
    }
    if sb.is_clean() && sb.errno != 0 && !volume.geo.features.has_needs_recovery() {
        findings.add(Rule::ErrorState, place.block(block), || {
            format!("number {} in the journal", sb.errno as i32)
        });
    }
    (!sb.is_clean()).then_some(sb)
}

/// Returns the runs of the journal. Its inode is read before all other parts of the volume.
pub(crate) fn runs(volume: &Volume<'_>, ino: InodeNr) -> Result<Vec<Run>, FormatError> {
    let geo = &volume.geo;
    let bad = |what| FormatError::corrupt(what, Where::Inode(ino));
    let unreadable = |_| bad("a block that cannot be read");
    let (group, index) = geo.group_of_inode(ino).ok_or(bad("number of the inode"))?;
    let bytes = volume.descriptor_bytes(group).map_err(unreadable)?;
    let desc = GroupDesc::decode_unchecked(&bytes).ok_or(bad("group descriptor"))?;
    desc.check_places(geo, group)?;
    let raw = volume.record_in(desc.inode_table, index);
    let raw = raw.map_err(unreadable)?;
    let core = inode::decode_core(&raw, geo, ino)?;
    let encrypted = core.flags & inode::flags::ENCRYPT != 0;
    if core.links == 0 || core.file_type() != Some(FileType::Regular) || encrypted {
        return Err(bad("not a regular file"));
    }
    let blocks = core.size / u64::from(geo.block_size);
    if blocks < u64::from(jbd2::MIN_BLOCKS) {
        return Err(bad("size"));
    }
    // Damage of the mapping is reported later, when the inode is checked like all others.
    let ignored = Findings::new(0);
    let seed = volume.seed(ino, core.generation);
    let walker = Walker::new(volume, &ignored, None, ino, seed).with_runs(true);
    let mapped = walker.walk(core.flags, inode::i_block(&raw)?);
    if mapped.damaged || mapped.end < blocks {
        Err(bad("mapping"))
    } else {
        Ok(mapped.runs)
    }
}

/// Returns the blocks that a replay would write, as far as they are sound.
fn replayed(
    volume: &Volume<'_>,
    sb: &jbd2::Superblock,
    runs: &[Run],
) -> Result<(BTreeMap<BlockNr, Logged>, Salvage), FormatError> {
    let at = |log_block| {
        let bad = FormatError::corrupt("hole in the journal", Where::Journal(log_block));
        block_of(runs, log_block).ok_or(bad)
    };
    let found = jbd2::salvage(sb, volume.geo.blocks_count, |log_block| {
        volume.read(at(log_block)?).map_err(|_| {
            FormatError::corrupt("block that cannot be read", Where::Journal(log_block))
        })
    })?;
    let images = found.plan.replay.iter().map(|image| {
        let logged = Logged {
            at: at(image.log_block)?,
            escaped: image.escaped,
        };
        Ok((image.home, logged))
    });
    let logged = images.collect::<Result<_, FormatError>>()?;
    Ok((logged, found))
}
