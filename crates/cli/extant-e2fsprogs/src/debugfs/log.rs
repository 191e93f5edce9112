//! `logdump` of debugfs: the transactions of the journal that wait to be replayed.

use super::queried_image::{QueriedImage, bytes, number};
use super::words::{number_of, options};
use anyhow::{Result, anyhow, bail, ensure};
use extant_check::inspect::Record;
use extant_cli_core::format::show::show;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Answers `logdump [-a] [-b BLOCK]`: the blocks of the journal; with `-a`, the blocks that they log and revoke; with
/// `-b`, the places where a block is logged or revoked.
pub(super) fn list(asked: &QueriedImage<'_>, words: &[&[u8]]) -> Result<String> {
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
    let wanted = wanted.transpose()?;
    let shows_all = taken.has('a');
    let records = asked.records(&[b"journal"])?;
    let of_superblock = |name: &str| {
        let is = |record: &&Record| bytes(record, "field") == name.as_bytes();
        records
            .iter()
            .find(is)
            .map(|record| number(record, "value"))
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
        let at = number(record, "at");
        match record.kind {
            "journal-block" => {
                sequence = number(record, "sequence");
                let kind = bytes(record, "kind");
                if wanted.is_none() {
                    let _ = writeln!(
                        text,
                        "Found expected sequence {sequence}, type {} at block {at}",
                        type_of(kind)
                    );
                }
                if shows_all && matches!(kind, b"descriptor" | b"revoke") {
                    let kind = show(kind);
                    let _ = writeln!(
                        text,
                        "Dumping {kind} block, sequence {sequence}, at block {at}:"
                    );
                }
            }
            "tag" => {
                let (home, flags) = (number(record, "home"), number(record, "flags"));
                if shows_all {
                    let _ = writeln!(
                        text,
                        "  FS block {home} logged at journal block {at} (flags 0x{flags:x})"
                    );
                } else if wanted == Some(home) {
                    let _ = writeln!(
                        text,
                        "  FS block {home} logged at sequence {sequence}, journal block {at} (flags 0x{flags:x})"
                    );
                }
            }
            "revoke" => {
                let home = number(record, "home");
                if shows_all {
                    let _ = writeln!(text, "  Revoke FS block {home}");
                } else if wanted == Some(home) {
                    let _ = writeln!(
                        text,
                        "  Revoke FS block {home} at block {at}, sequence {sequence}"
                    );
                }
            }
            "end" => text += &end(asked, at, number(record, "sequence")),
            _ => {}
        }
    }
    Ok(text)
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
fn end(asked: &QueriedImage<'_>, at: u64, next: u64) -> String {
    let word = at.to_string();
    let place = asked.rows("mapping", &[b"bmap", b"<8>", word.as_bytes()]);
    let block = place
        .ok()
        .and_then(|rows| rows.first().map(|row| number(row, "block")));
    let mut raw = vec![0; asked.block_size() as usize];
    let offset = block.and_then(|block| block.checked_mul(asked.block_size()));
    let read = offset.map(|offset| asked.device.read_at(offset, &mut raw));
    match ext4_format::jbd2::header(&raw).filter(|_| matches!(read, Some(Ok(())))) {
        Some((_, found)) => format!(
            "Found sequence {} (not {next}) at block {at}: end of journal.\n",
            found.0
        ),
        None => format!("No magic number at block {at}: end of journal.\n"),
    }
}
