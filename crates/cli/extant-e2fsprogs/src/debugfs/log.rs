//! `logdump` of debugfs: the transactions of the journal that wait to be replayed.

use super::queried_image::{QueriedImage, bytes, number};
use super::words::{number_of, options};
use anyhow::{Context, Result, anyhow, bail, ensure};
use extant_check::inspect::Record;
use extant_cli_core::format::show::show;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Answers `logdump [-a] [-b BLOCK]`: the blocks of the journal; with `-a`, the blocks that they log and revoke; with
/// `-b`, the places where a block is logged or revoked.
pub(super) fn list(asked: &QueriedImage<'_>, words: &[&[u8]]) -> Result<String> {
    let shown = Shown::parse(words)?;
    let records = asked.records(&[b"journal"])?;
    let of_superblock = |name: &str| {
        let is = |record: &&Record| bytes(record, "field") == name.as_bytes();
        let found = records.iter().find(is);
        found.map(|record| number(record, "value"))
    };
    let Some(start) = of_superblock("s_start") else {
        bail!("filesystem has no journal");
    };
    let first = of_superblock("s_sequence").unwrap_or(0);
    let mut text = format!("Journal starts at block {start}, transaction {first}\n");
    if start == 0 {
        return Ok(text);
    }
    let mut sequence = first;
    for record in &records {
        match record.kind {
            "journal-block" => {
                sequence = number(record, "sequence");
                shown.block(record, &mut text);
            }
            "tag" => shown.tag(record, sequence, &mut text),
            "revoke" => shown.revoke(record, sequence, &mut text),
            "end" => text += &end(asked, number(record, "at"), number(record, "sequence"))?,
            _ => {}
        }
    }
    Ok(text)
}

/// Options of a list.
struct Shown {
    /// The logged and revoked blocks.
    all: bool,
    /// The block whose places are listed.
    wanted: Option<u64>,
}

impl Shown {
    fn parse(words: &[&[u8]]) -> Result<Self> {
        let taken = options("acb:i:f:OsSn:", words)?;
        for (letter, _) in &taken.options {
            ensure!(
                matches!(letter, 'a' | 'b'),
                "-{letter} is not supported: logdump lists the transactions to replay"
            );
        }
        ensure!(
            taken.operands.is_empty(),
            "an output file is not supported: redirect the output"
        );
        let wanted = taken.value('b').map(|word| {
            let word = word.as_bytes();
            number_of(word).map_err(|_| anyhow!("Bad block number - {}", show(word)))
        });
        Ok(Self {
            all: taken.has('a'),
            wanted: wanted.transpose()?,
        })
    }

    fn block(&self, record: &Record, text: &mut String) {
        let (at, sequence) = (number(record, "at"), number(record, "sequence"));
        let kind = bytes(record, "kind");
        if self.wanted.is_none() {
            let of_type = type_of(kind);
            let _ = writeln!(
                text,
                "Found expected sequence {sequence}, type {of_type} at block {at}"
            );
        }
        if self.all && matches!(kind, b"descriptor" | b"revoke") {
            let kind = show(kind);
            let _ = writeln!(
                text,
                "Dumping {kind} block, sequence {sequence}, at block {at}:"
            );
        }
    }

    fn tag(&self, record: &Record, sequence: u64, text: &mut String) {
        let (at, home) = (number(record, "at"), number(record, "home"));
        let flags = number(record, "flags");
        if self.all {
            let _ = writeln!(
                text,
                "  FS block {home} logged at journal block {at} (flags 0x{flags:x})"
            );
        } else if self.wanted == Some(home) {
            let _ = writeln!(
                text,
                "  FS block {home} logged at sequence {sequence}, journal block {at} (flags 0x{flags:x})"
            );
        }
    }

    fn revoke(&self, record: &Record, sequence: u64, text: &mut String) {
        let (at, home) = (number(record, "at"), number(record, "home"));
        if self.all {
            let _ = writeln!(text, "  Revoke FS block {home}");
        } else if self.wanted == Some(home) {
            let _ = writeln!(
                text,
                "  Revoke FS block {home} at block {at}, sequence {sequence}"
            );
        }
    }
}

/// Returns the number and the name of a type of block.
fn type_of(kind: &[u8]) -> &'static str {
    match kind {
        b"descriptor" => "1 (descriptor block)",
        b"commit" => "2 (commit block)",
        b"revoke" => "5 (revoke table)",
        _ => "4 (V2 superblock)",
    }
}

/// Returns the line about the block behind the last transaction, whose transaction would be `next`.
fn end(asked: &QueriedImage<'_>, at: u64, next: u64) -> Result<String> {
    let journal = format!("<{}>", asked.sb.journal_inum.get());
    let (block, _) = asked.mapped(journal.as_bytes(), at)?;
    ensure!(block != 0, "block {at} of the journal is not mapped");
    let raw = asked.read_block(block);
    let raw = raw.with_context(|| format!("block {at} of the journal"))?;
    Ok(match ext4_format::jbd2::header(&raw) {
        Some((_, found)) => format!(
            "Found sequence {} (not {next}) at block {at}: end of journal.\n",
            found.0
        ),
        None => format!("No magic number at block {at}: end of journal.\n"),
    })
}
