//! `journal_open`, `journal_write`, `journal_close` and `journal_run` of debugfs, which write transactions of the user.
//! Transactions are collected while the journal is open. Closing the journal writes them as one change in place.

use super::raw::{Bytes, change};
use super::words::number_of;
use crate::changes::replay;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ext4_format::BlockNr;
use ext4_format::features::Incompat;
use ext4_format::jbd2::{
    self, Checksums, Commit, DescriptorWriter, Format, RevokeWriter, Superblock, Tid,
};
use ext4_image::Image;
use extant_cli_core::address::host_path;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::show;
use std::path::Path;

/// A transaction to write.
pub(super) struct Transaction {
    blocks: Vec<u64>,
    revokes: Vec<u64>,
    content: Vec<u8>,
    commits: bool,
}

/// Runs a request. `open` has the transactions of the journal, if the journal is open.
pub(super) fn run(
    image: &Path,
    open: &mut Option<Vec<Transaction>>,
    name: &str,
    words: &[&[u8]],
) -> Result<()> {
    match (name, open.as_mut()) {
        ("journal_open", Some(_)) => bail!("Journal is already open."),
        ("journal_open", None) => {
            if let Some(word) = words.first() {
                bail!(
                    "{}: not supported: journal_open opens the journal of the image, and keeps its checksums",
                    show(word)
                );
            }
            *open = Some(Vec::new());
            Ok(())
        }
        ("journal_run", Some(_)) => bail!("Please close the journal before recovering it."),
        ("journal_run", None) => replay(image).map(drop),
        (_, None) => bail!("Journal not open."),
        ("journal_write", Some(all)) => {
            all.push(transaction(words)?);
            Ok(())
        }
        _ => close(image, open),
    }
}

/// Writes the transactions of an open journal, if there are any.
pub(super) fn close(image: &Path, open: &mut Option<Vec<Transaction>>) -> Result<()> {
    match open.take() {
        Some(all) if !all.is_empty() => change(image, |bytes| write(bytes, &all)),
        _ => Ok(()),
    }
}

/// Parses `journal_write [-b BLOCKS] [-r BLOCKS] [-c] FILE`.
fn transaction(words: &[&[u8]]) -> Result<Transaction> {
    let mut new = Transaction {
        blocks: Vec::new(),
        revokes: Vec::new(),
        content: Vec::new(),
        commits: true,
    };
    let mut file = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut list = || -> Result<Vec<u64>> {
            let value = words
                .next()
                .context("journal_write: an option needs a value")?;
            let numbers = value.split(|&byte| byte == b',').map(number_of);
            numbers.collect()
        };
        match *word {
            b"-b" => new.blocks = list()?,
            b"-r" => new.revokes = list()?,
            b"-c" => new.commits = false,
            word => file = Some(word),
        }
    }
    match file {
        Some(file) => {
            let path = host_path(file);
            let read = std::fs::read(&path);
            new.content = read.with_context(|| path.display().to_string())?;
        }
        None => ensure!(
            new.blocks.is_empty(),
            "usage: journal_write [-b blocks] [-r revoke] [-c] file"
        ),
    }
    Ok(new)
}

/// Log of an image: the superblock of the journal, and the physical block of each log block.
struct Log {
    sb: Superblock,
    first: Vec<u8>,
    places: Vec<BlockNr>,
    block_size: usize,
    /// Next block of the log to write, and number of blocks that are left.
    next: u32,
    left: u32,
}

impl Log {
    fn open(bytes: &Bytes<'_>) -> Result<Self> {
        let mut image = Image::new(bytes.dev, bytes.sb)?;
        image.read_descriptors()?;
        let journal = image.journal()?;
        let (sb, places) = journal.context("the file system has no journal")?;
        let first = places.first().context("the journal has no blocks")?;
        let first = image.read(*first)?;
        let range = sb.log_range();
        Ok(Self {
            next: range.start,
            left: range.end.saturating_sub(range.start),
            sb,
            first,
            places,
            block_size: bytes.geo.block_size as usize,
        })
    }

    fn place(&self, number: u32) -> Result<BlockNr> {
        let place = self.places.get(number as usize).copied();
        place.context("the journal is too short")
    }

    /// Writes a block at the end of the log.
    fn push(&mut self, bytes: &Bytes<'_>, block: &[u8]) -> Result<()> {
        self.left = self.left.checked_sub(1).context("the journal is full")?;
        let place = self.place(self.next)?;
        self.next += 1;
        let at = place.offset(bytes.geo.block_size);
        Ok(bytes.dev.write_at(at, block)?)
    }
}

fn write(bytes: &mut Bytes<'_>, all: &[Transaction]) -> Result<()> {
    let mut log = Log::open(bytes)?;
    let format = log.sb.format();
    ensure!(
        format.checksums != Checksums::V1,
        "the journal has checksums of version 1, which cannot be written"
    );
    let (start, first) = (log.next, log.sb.sequence);
    let mut tid = first;
    for transaction in all {
        let (next, left) = (log.next, log.left);
        body(bytes, &mut log, &format, tid, transaction)?;
        if transaction.commits {
            let commit = Commit {
                tid,
                secs: clock::stamp()?.cast_unsigned(),
                nanos: 0,
                transaction_crc: None,
            };
            let mut block = vec![0; log.block_size];
            commit.write(&format, &mut block)?;
            log.push(bytes, &block)?;
            tid = tid.next();
        } else {
            // The next transaction overwrites a transaction without a commit block.
            (log.next, log.left) = (next, left);
        }
    }
    (log.sb.start, log.sb.sequence) = (start, first);
    let mut block = std::mem::take(&mut log.first);
    log.sb.write(&mut block)?;
    let at = log.place(0)?.offset(bytes.geo.block_size);
    bytes.dev.write_at(at, &block)?;
    let incompat = bytes.sb.feature_incompat.get() | Incompat::NEEDS_RECOVERY.bits();
    bytes.sb.feature_incompat.set(incompat);
    bytes.write_superblock(true)
}

/// Writes the block images and the revoke records of a transaction.
fn body(
    bytes: &Bytes<'_>,
    log: &mut Log,
    format: &Format,
    tid: Tid,
    transaction: &Transaction,
) -> Result<()> {
    let size = log.block_size;
    let mut images = transaction.content.chunks(size).map(|image| {
        let mut image = image.to_vec();
        image.resize(size, 0);
        image
    });
    for homes in transaction.blocks.chunks(format.tags_per_block().max(1)) {
        let mut block = vec![0; size];
        let mut writer = DescriptorWriter::new(format, &mut block, tid)?;
        let mut logged = Vec::with_capacity(homes.len());
        for &home in homes {
            ensure!(home < bytes.geo.blocks_count, "there is no block {home}");
            let image = images.next();
            let mut image = image.with_context(|| format!("the file ends before block {home}"))?;
            let escaped = jbd2::escape(&mut image);
            let sum = format.image_checksum(tid, &image);
            ensure!(
                writer.push(BlockNr(home), sum, escaped)?,
                "a descriptor block is full"
            );
            logged.push(image);
        }
        writer.finish();
        log.push(bytes, &block)?;
        for image in &logged {
            log.push(bytes, image)?;
        }
    }
    for revoked in transaction
        .revokes
        .chunks(format.revokes_per_block().max(1))
    {
        let mut block = vec![0; size];
        let mut writer = RevokeWriter::new(format, &mut block, tid)?;
        for &block in revoked {
            ensure!(writer.push(BlockNr(block))?, "a revoke block is full");
        }
        writer.finish();
        log.push(bytes, &block)?;
    }
    Ok(())
}

/// Closes a journal that the user left open, and names the request in an error.
pub(super) fn close_at_end(image: &Path, open: &mut Option<Vec<Transaction>>) -> Result<()> {
    close(image, open).map_err(|error| anyhow!("journal_close: {error}"))
}
