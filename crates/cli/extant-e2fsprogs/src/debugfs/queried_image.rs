//! An image that requests of debugfs are answered from, and the records that `extant inspect` answers with.

use anyhow::{Result, anyhow, bail};
use blockdev::BlockDevice;
use ext4_format::superblock::RawSuperblock;
use extant_check::inspect::{InspectError, Inspector, Record, Request, Value};
use extant_cli_core::address::request::path_from;
use extant_cli_core::format::show::show;
use std::path::Path;

/// An image to be queried.
pub(super) struct QueriedImage<'a> {
    pub inspector: Inspector<'a>,
    pub device: &'a dyn BlockDevice,
    pub image: &'a Path,
    pub sb: RawSuperblock,
    /// The current directory.
    pub at: &'a [u8],
}

/// Returns the value of a field of a record.
pub(super) fn value<'r>(record: &'r Record, name: &str) -> Option<&'r Value> {
    let field = record.fields.iter().find(|field| field.0 == name);
    field.map(|field| &field.1)
}

/// Returns a field of a record that is a number; 0 if the field is missing.
pub(super) fn number(record: &Record, name: &str) -> u64 {
    match value(record, name) {
        Some(Value::Number(n) | Value::Hex(n) | Value::Octal(n)) => *n,
        Some(Value::Time(secs)) => secs.cast_unsigned(),
        Some(Value::Is(yes)) => u64::from(*yes),
        _ => 0,
    }
}

/// Returns a field of a record that is a name or bytes.
pub(super) fn bytes<'r>(record: &'r Record, name: &str) -> &'r [u8] {
    match value(record, name) {
        Some(Value::Name(bytes) | Value::Bytes(bytes)) => bytes,
        Some(Value::Text(text)) => text.as_bytes(),
        _ => &[],
    }
}

/// The raw fields of an inode.
pub(super) struct Inode {
    pub ino: u32,
    fields: Vec<Record>,
}

impl Inode {
    pub fn number(&self, field: &str) -> u64 {
        let is = |record: &&Record| bytes(record, "field") == field.as_bytes();
        self.fields
            .iter()
            .find(is)
            .map_or(0, |record| number(record, "value"))
    }

    pub fn has(&self, field: &str) -> bool {
        let is = |record: &Record| bytes(record, "field") == field.as_bytes();
        self.fields.iter().any(is)
    }

    pub fn mode(&self) -> u64 {
        self.number("i_mode")
    }

    pub fn is_directory(&self) -> bool {
        self.mode() & 0o170_000 == 0o040_000
    }

    pub fn size(&self) -> u64 {
        self.number("i_size_lo") | self.number("i_size_high") << 32
    }

    pub fn user(&self) -> u64 {
        self.number("i_uid") | self.number("i_uid_high") << 16
    }

    pub fn group(&self) -> u64 {
        self.number("i_gid") | self.number("i_gid_high") << 16
    }
}

impl QueriedImage<'_> {
    /// Returns all records of the answer to a request of `extant inspect`.
    pub fn records(&self, words: &[&[u8]]) -> Result<Vec<Record>> {
        let request = Request::new(words.iter().map(|word| word.to_vec()).collect())?;
        let mut records = Vec::new();
        let done = self.inspector.answer(&request, &mut |record| {
            records.push(record);
            Ok(())
        });
        match done {
            Err(InspectError::Missing(_)) if words.len() > 1 => {
                let word = words.get(1).copied().unwrap_or_default();
                bail!("{}: File not found by ext2_lookup ", show(word))
            }
            done => done.map(|()| records).map_err(anyhow::Error::from),
        }
    }

    /// Returns the records of one kind.
    pub fn rows(&self, kind: &str, words: &[&[u8]]) -> Result<Vec<Record>> {
        let mut records = self.records(words)?;
        records.retain(|record| record.kind == kind);
        Ok(records)
    }

    /// Returns the inode that a word names: a path from the present directory, or a number.
    pub fn path(&self, word: &[u8]) -> Vec<u8> {
        path_from(self.at, word)
    }

    pub fn here(&self) -> &[u8] {
        self.at
    }

    pub fn inode(&self, word: &[u8]) -> Result<Inode> {
        let path = self.path(word);
        let place = self.rows("inode-place", &[b"imap", &path]);
        let place = place.map_err(|_| anyhow!("{}: File not found by ext2_lookup ", show(word)))?;
        let ino = place.first().map_or(0, |record| number(record, "inode"));
        self.numbered(u32::try_from(ino)?)
    }

    pub fn numbered(&self, ino: u32) -> Result<Inode> {
        let fields = self.rows("field", &[b"dump-inode", format!("<{ino}>").as_bytes()])?;
        Ok(Inode { ino, fields })
    }

    /// Returns the bytes of a block.
    pub fn read_block(&self, block: u64) -> Result<Vec<u8>> {
        let at = block.checked_mul(self.block_size());
        let at = at.ok_or_else(|| anyhow!("there is no such block"))?;
        let mut raw = vec![0; self.block_size() as usize];
        self.device.read_at(at, &mut raw)?;
        Ok(raw)
    }

    /// Returns the block of a logical block, or 0 for a hole, and its state.
    pub fn mapped(&self, word: &[u8], logical: u64) -> Result<(u64, Vec<u8>)> {
        let (path, wanted) = (self.path(word), logical.to_string());
        let rows = self.rows("mapping", &[b"bmap", &path, wanted.as_bytes()])?;
        let row = rows.first().ok_or_else(|| anyhow!("no mapping"))?;
        Ok((number(row, "block"), bytes(row, "state").to_vec()))
    }
}
