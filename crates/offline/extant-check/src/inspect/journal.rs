//! The journal: its superblock, and its transactions with their tags and revokes.

use super::fields::{self, Part};
use super::record::{Record, Value};
use super::{Answered, InspectError, Inspector, Sink};
use crate::journal::runs;
use crate::mapping::Run;
use crate::mapping::block_of;
use ext4_format::jbd2::{self, BlockType, Checksums, Commit, FastChange, FastName, Format, Tid};
use ext4_format::{BlockNr, FormatError, InodeNr, Where};
use std::io;

/// The blocks of a journal.
struct Ring<'r, 'd> {
    inspector: &'r Inspector<'d>,
    runs: Vec<Run>,
    sb: jbd2::Superblock,
    format: Format,
}

impl Inspector<'_> {
    /// Sends the transactions that a mount would replay; with `all` every former block of the journal's own in the
    /// ring.
    pub(super) fn journal(&self, all: bool, sink: &mut Sink<'_>) -> Answered {
        let ino = InodeNr(self.volume.geo.journal_ino);
        if !self.volume.geo.features.has_journal() || ino.0 == 0 {
            return Ok(sink(Record::note("there is no journal in the volume"))?);
        }
        let missing = |e: FormatError| InspectError::Missing(e.to_string());
        let runs = runs(&self.volume, ino).map_err(missing)?;
        let Some(first) = block_of(&runs, 0) else {
            return Err(InspectError::Missing(
                "the journal's first block is a hole".into(),
            ));
        };
        let bytes = self.block(first)?;
        let part = Part::of(&bytes, 0).big_endian();
        part.send(fields::JOURNAL_SUPERBLOCK, sink)?;
        let sb = match jbd2::Superblock::parse(&bytes) {
            Ok(sb) if sb.block_size == self.volume.geo.block_size => sb,
            Ok(_) => {
                let text = "another block size than the volume's";
                return Ok(sink(Record::problem(text))?);
            }
            Err(e) => return Ok(sink(Record::problem(format!("block {first}: {e}")))?),
        };
        let ring = Ring {
            inspector: self,
            format: sb.format(),
            runs,
            sb,
        };
        if all {
            ring.whole(sink)
        } else if ring.sb.is_clean() {
            Ok(sink(Record::note("the journal is empty"))?)
        } else {
            ring.live(sink)
        }
    }
}

impl Ring<'_, '_> {
    fn read(&self, at: u32) -> Result<Option<(BlockNr, Vec<u8>)>, InspectError> {
        let Some(block) = block_of(&self.runs, at) else {
            return Ok(None);
        };
        Ok(Some((block, self.inspector.block(block)?)))
    }

    /// Sends every block of the ring that has the journal's mark.
    fn whole(&self, sink: &mut Sink<'_>) -> Answered {
        let log = self.sb.log_range();
        let last = self.runs.last();
        let end = last.map_or(0, |run| run.logical.saturating_add(run.len));
        for at in log.start..log.end.min(end) {
            if let Some((block, bytes)) = self.read(at)?
                && let Some((kind, tid)) = jbd2::header(&bytes)
            {
                self.send(at, block, kind, tid, &bytes, sink)?;
            }
        }
        Ok(())
    }

    /// Sends the consecutive transactions from the start on.
    fn live(&self, sink: &mut Sink<'_>) -> Answered {
        let (mut at, mut tid) = (self.sb.start, self.sb.sequence);
        let mut left = self.sb.log_range().len() as u64;
        while let Some(rest) = left.checked_sub(1) {
            left = rest;
            let Some((block, bytes)) = self.read(at)? else {
                break;
            };
            let Some((kind, found)) = jbd2::header(&bytes) else {
                break;
            };
            if found != tid {
                break;
            }
            let images = self.send(at, block, kind, tid, &bytes, sink)?;
            for _ in 0..=images {
                at = self.sb.next_block(at);
            }
            left = left.saturating_sub(images as u64);
            if kind == BlockType::Commit {
                tid = tid.next();
            }
        }
        self.fast_commits(tid, sink)?;
        let fields = vec![("at", at.into()), ("sequence", tid.0.into())];
        Ok(sink(Record::lines("end", fields))?)
    }

    /// Sends the committed changes of the fast commits that continue the log, whose next transaction would be `tid`.
    fn fast_commits(&self, tid: Tid, sink: &mut Sink<'_>) -> Answered {
        let read = |at| {
            let hole = || FormatError::corrupt("hole in the journal", Where::Journal(at));
            let block = block_of(&self.runs, at).ok_or_else(hole)?;
            let unreadable = |_| FormatError::corrupt("unreadable block", Where::Journal(at));
            self.inspector.block(block).map_err(unreadable)
        };
        match jbd2::fast_changes(&self.sb, tid, read) {
            Ok(changes) => {
                for change in &changes {
                    sink(fast_change(change))?;
                }
            }
            Err(e) => sink(Record::problem(format!("fast commits: {e}")))?,
        }
        Ok(())
    }

    /// Sends a block of the journal's own; returns how many images come after it.
    fn send(
        &self,
        at: u32,
        block: BlockNr,
        kind: BlockType,
        tid: Tid,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> io::Result<usize> {
        let judged = judge(&self.format, kind, bytes);
        let (name, time) = match kind {
            BlockType::Descriptor => ("descriptor", None),
            BlockType::Commit => {
                let commit = Commit::parse(&self.format, bytes).ok();
                ("commit", commit.map(|c| c.secs.cast_signed()))
            }
            BlockType::Revoke => ("revoke", None),
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => ("superblock", None),
        };
        let fields = vec![
            ("at", at.into()),
            ("block", block.0.into()),
            ("kind", Value::text(name)),
            ("sequence", tid.0.into()),
            ("time", time.map_or(Value::Nothing, Value::Time)),
        ];
        sink(Record::row("journal-block", fields))?;
        if let Some(Err(e)) = judged {
            sink(Record::problem(format!("block {block}: {e}")))?;
        }
        let mut images = 0;
        match kind {
            BlockType::Descriptor => match self.format.tags(bytes) {
                Ok(tags) => {
                    let mut image_at = at;
                    images = tags.len();
                    for tag in tags {
                        image_at = self.sb.next_block(image_at);
                        self.send_tag(image_at, tid, &tag, sink)?;
                    }
                }
                Err(e) => sink(Record::problem(format!("block {block}: {e}")))?,
            },
            BlockType::Revoke => match self.format.revokes(bytes) {
                Ok(revokes) => {
                    for home in revokes {
                        let fields = vec![("at", at.into()), ("home", home.0.into())];
                        sink(Record::row("revoke", fields))?;
                    }
                }
                Err(e) => sink(Record::problem(format!("block {block}: {e}")))?,
            },
            _ => {}
        }
        Ok(images)
    }

    fn send_tag(&self, at: u32, tid: Tid, tag: &jbd2::Tag, sink: &mut Sink<'_>) -> io::Result<()> {
        let image = self.read(at).ok().flatten();
        let verdict = match (&image, self.format.checksums) {
            (None, _) => "unreadable",
            (_, Checksums::None | Checksums::V1) => "none",
            (Some((_, bytes)), _) => {
                if self.format.image_checksum(tid, bytes) == tag.checksum {
                    "right"
                } else {
                    "wrong"
                }
            }
        };
        let fields = vec![
            ("at", at.into()),
            ("block", Value::number(image.map(|i| i.0.0))),
            ("home", tag.home.0.into()),
            ("flags", Value::Hex(tag.flags.bits().into())),
            ("checksum", Value::text(verdict)),
        ];
        sink(Record::row("tag", fields))
    }
}

/// Returns the record of a change in a fast commit. The inode of a name is the one that the name leads to.
fn fast_change(change: &FastChange) -> Record {
    type Run = Option<(u32, u32)>;
    let nothing = Value::Nothing;
    let (kind, ino, name, run, physical): (_, InodeNr, Option<&FastName>, Run, _) = match change {
        FastChange::Inode(ino, _) => ("inode", *ino, None, None, nothing),
        FastChange::Create(name) => ("create", name.ino, Some(name), None, nothing),
        FastChange::Link(name) => ("link", name.ino, Some(name), None, nothing),
        FastChange::Unlink(name) => ("unlink", name.ino, Some(name), None, nothing),
        FastChange::AddRange(ino, extent) => {
            let run = Some((extent.logical, extent.len));
            ("add-range", *ino, None, run, extent.physical.0.into())
        }
        FastChange::RemoveRange(ino, first, len) => {
            ("remove-range", *ino, None, Some((*first, *len)), nothing)
        }
    };
    let fields = vec![
        ("kind", Value::text(kind)),
        ("inode", ino.0.into()),
        ("parent", Value::number(name.map(|name| name.parent.0))),
        (
            "name",
            name.map_or(Value::Nothing, |name| Value::Name(name.name.clone())),
        ),
        ("logical", Value::number(run.map(|(first, _)| first))),
        ("length", Value::number(run.map(|(_, len)| len))),
        ("physical", physical),
    ];
    Record::row("fast-commit", fields)
}

/// Verifies the checksum of a block of the journal's own; `None` if the journal does not have checksums in them.
pub(super) fn judge(
    format: &Format,
    kind: BlockType,
    bytes: &[u8],
) -> Option<Result<(), FormatError>> {
    let judged = match kind {
        BlockType::Commit => Commit::verify(format, bytes),
        BlockType::Descriptor | BlockType::Revoke => format.verify_tail(bytes),
        BlockType::SuperblockV1 | BlockType::SuperblockV2 => {
            jbd2::Superblock::parse(bytes).map(|_| ())
        }
    };
    format.checksums.in_blocks().then_some(judged)
}
