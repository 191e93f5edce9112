//! Directories in the layout of debugfs.

use super::queried_image::{QueriedImage, bytes, number};
use super::words::{operand, options};
use anyhow::{Result, bail};
use ext4_format::hash::{DirHasher, HashVersion};
use extant_check::inspect::Record;
use extant_cli_core::format::show::show;
use extant_cli_core::format::times::day_and_minute;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Columns of a line.
const WIDTH: usize = 80;

/// Offset of the entries in the root of an index.
const ROOT_ENTRIES: u64 = 0x20;

/// Returns the numbers of the types in directories, by their names in a record.
fn type_number(name: &[u8]) -> u32 {
    match name {
        b"regular file" => 1,
        b"directory" => 2,
        b"character device" => 3,
        b"block device" => 4,
        b"fifo" => 5,
        b"socket" => 6,
        b"symbolic link" => 7,
        _ => 0,
    }
}

/// An entry of a directory.
pub(super) struct Entry {
    pub ino: u32,
    pub name: Vec<u8>,
}

/// Returns the entries of a directory, also unused ones.
fn all_entries(asked: &QueriedImage<'_>, word: &[u8]) -> Result<Vec<Record>> {
    if !asked.inode(word)?.is_directory() {
        bail!("{}: not a directory", show(word));
    }
    asked.rows("entry", &[b"dirents", &asked.path(word)])
}

/// Returns whether an entry holds a name; with `removed`, also that of a deleted file.
fn is_name(row: &Record, removed: bool) -> bool {
    let is_name = number(row, "inode") != 0 && !bytes(row, "name").is_empty();
    is_name && (removed || number(row, "deleted") == 0)
}

/// Returns the entries of a directory that lead to other files.
pub(super) fn live_entries(asked: &QueriedImage<'_>, dir: u32) -> Result<Vec<Entry>> {
    let rows = all_entries(asked, format!("<{dir}>").as_bytes())?;
    let names = rows.iter().filter(|row| is_name(row, false));
    let others = names.filter(|row| !matches!(bytes(row, "name"), b"." | b".."));
    let entry = |row: &Record| {
        Ok(Entry {
            ino: u32::try_from(number(row, "inode"))?,
            name: bytes(row, "name").to_vec(),
        })
    };
    others.map(entry).collect()
}

/// Lines of a listing, with entries side by side in the short form.
#[derive(Default)]
struct Lines {
    text: String,
    column: usize,
}

impl Lines {
    fn short(&mut self, entry: &str) {
        if self.column + entry.len() > WIDTH {
            self.text.push('\n');
            self.column = 0;
        }
        self.column += entry.len();
        self.text.push_str(entry);
    }
}

/// Answers `ls [-l] [-p] [-d] [-c] [-r] [DIR]`.
pub(super) fn list(asked: &QueriedImage<'_>, words: &[&[u8]]) -> Result<String> {
    let taken = options("lpdcr", words)?;
    let dir = match &taken.operands[..] {
        [] => asked.here(),
        [dir] => operand(dir),
        _ => bail!("Usage: ls [-c] [-d] [-l] [-p] [-r] file"),
    };
    let mut lines = Lines::default();
    let all = all_entries(asked, dir)?;
    for leaf in all.chunk_by(|a, b| number(a, "block") == number(b, "block")) {
        for row in leaf.iter().filter(|row| is_name(row, taken.has('d'))) {
            match () {
                () if taken.has('p') => parsed(asked, row, &mut lines.text)?,
                () if taken.has('l') => long(asked, row, &mut lines.text)?,
                () => {
                    let (left, right) = brackets(row);
                    let (ino, len) = (number(row, "inode"), number(row, "length"));
                    let name = show(bytes(row, "name"));
                    lines.short(&format!("{left}{ino}{right} ({len}) {name}   "));
                }
            }
        }
        let sum = leaf.first().filter(|_| taken.has('c'));
        if let Some(sum) = sum
            .map(|row| leaf_checksum(asked, row))
            .transpose()?
            .flatten()
        {
            let shown = format!("(dirblock checksum: 0x{sum:08x})");
            match () {
                () if taken.has('p') => lines.text.push_str("/0/000000/0/0//0/\n"),
                () if taken.has('l') => {
                    let _ = writeln!(lines.text, " {:6}  {:6} {shown}", 0, 0);
                }
                () => lines.short(&format!(" 0  {shown}   ")),
            }
        }
    }
    lines.text.push('\n');
    Ok(lines.text)
}

/// Returns the checksum at the end of the block of an entry, if the block has one.
fn leaf_checksum(asked: &QueriedImage<'_>, row: &Record) -> Result<Option<u32>> {
    const TAIL: u64 = 12;
    let block = number(row, "block");
    if !asked.sums() || block == 0 {
        return Ok(None);
    }
    let mut tail = [0; TAIL as usize];
    let end = block.saturating_add(1).saturating_mul(asked.block_size());
    asked.device.read_at(end.saturating_sub(TAIL), &mut tail)?;
    let [entry @ .., a, b, c, d] = tail;
    let is_tail = entry == [0, 0, 0, 0, 12, 0, 0, 0xde];
    Ok(is_tail.then_some(u32::from_le_bytes([a, b, c, d])))
}

/// Returns the characters around an inode number: brackets mark removed names.
fn brackets(row: &Record) -> (char, char) {
    match number(row, "deleted") {
        0 => (' ', ' '),
        _ => ('<', '>'),
    }
}

fn long(asked: &QueriedImage<'_>, row: &Record, text: &mut String) -> Result<()> {
    let (left, right) = brackets(row);
    let (ino, name) = (number(row, "inode"), show(bytes(row, "name")));
    let kind = type_number(bytes(row, "type"));
    if left == '<' {
        let _ = writeln!(
            text,
            "{left}{:6}{right} {:6o} ({kind})  {:5}  {:5}   {:5} {:17} {name}",
            0, 0, 0, 0, 0, ""
        );
        return Ok(());
    }
    let inode = asked.numbered(u32::try_from(ino)?)?;
    let seconds = (inode.number("i_mtime") as u32).cast_signed();
    let time = extant::Timestamp::new(seconds.into(), 0);
    let _ = writeln!(
        text,
        "{left}{ino:6}{right} {:6o} ({kind})  {:5}  {:5}   {:5} {} {name}",
        inode.mode(),
        inode.user(),
        inode.group(),
        inode.size(),
        day_and_minute(time)
    );
    Ok(())
}

fn parsed(asked: &QueriedImage<'_>, row: &Record, text: &mut String) -> Result<()> {
    let ino = number(row, "inode");
    let inode = asked.numbered(u32::try_from(ino)?)?;
    let size = if inode.is_directory() {
        String::new()
    } else {
        inode.size().to_string()
    };
    let _ = writeln!(
        text,
        "/{ino}/{:06o}/{}/{}/{}/{size}/",
        inode.mode(),
        inode.user(),
        inode.group(),
        show(bytes(row, "name"))
    );
    Ok(())
}

/// Answers `dirsearch DIR NAME`.
pub(super) fn search(asked: &QueriedImage<'_>, dir: &[u8], name: &[u8]) -> Result<String> {
    let all = all_entries(asked, dir)?;
    let mut names = all.iter().filter(|row| is_name(row, false));
    let found = names.find(|row| bytes(row, "name") == name);
    Ok(found.map_or(String::new(), |row| {
        let offset = number(row, "offset");
        format!(
            "Entry found at logical block {}, phys {}, offset {offset}\noffset {offset}\n",
            number(row, "logical"),
            number(row, "block")
        )
    }))
}

/// Answers `htree_dump DIR`: the index, and the names in each leaf with their hashes.
pub(super) fn index(asked: &QueriedImage<'_>, word: &[u8]) -> Result<String> {
    let path = asked.path(word);
    let inode = asked.inode(word)?;
    if !inode.is_directory() {
        bail!("Not a directory");
    }
    let records = asked.records(&[b"htree", &path])?;
    let Some(root) = records.iter().find(|record| record.kind == "index") else {
        bail!("Not a hash-indexed directory");
    };
    let version = number(root, "hash_version") as u8;
    let mut text = format!(
        "Root node dump:\n\t Reserved zero: 0\n\t Hash Version: {version}\n\t Info length: 8\n\t \
         Indirect levels: {}\n\t Flags: 0\nNumber of entries (count): {}\n",
        number(root, "levels"),
        number(root, "entries")
    );
    let block_size = asked.block_size();
    let word = |at: u64| -> Result<u32> {
        let mut bytes = [0; 4];
        asked.device.read_at(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let entries = number(root, "block") * block_size + ROOT_ENTRIES;
    let limit = u64::from(word(entries)? & 0xffff);
    let _ = writeln!(text, "Number of entries (limit): {limit}");
    if asked.sums() {
        // The checksum comes after the last entry and a reserved word.
        let sum = word(entries + limit * 8 + 4)?;
        let _ = writeln!(text, "Checksum: 0x{sum:08x}");
    }
    let rows: Vec<&Record> = records.iter().filter(|r| r.kind == "index-entry").collect();
    let top = rows.iter().filter(|row| number(row, "depth") == 0);
    for (nth, row) in top.enumerate() {
        let (hash, block) = (number(row, "hash"), number(row, "logical"));
        let _ = writeln!(text, "Entry #{nth}: Hash 0x{hash:08x}, block {block}");
    }
    text.push('\n');
    let unsigned = asked.sb.flags.get() & ext4_format::superblock::FLAG_UNSIGNED_HASH != 0;
    let version = HashVersion::from_raw(version, unsigned).unwrap_or(HashVersion::HalfMd4);
    let seed = asked.sb.hash_seed.map(|word| word.get());
    let hasher = DirHasher::with_version(version, seed);
    let mut leaves: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    let names = asked.rows(
        "entry",
        &[b"dirents", format!("<{}>", inode.ino).as_bytes()],
    )?;
    for row in names.into_iter().filter(|row| number(row, "deleted") == 0) {
        leaves.entry(number(&row, "logical")).or_default().push(row);
    }
    for (nth, row) in rows.iter().enumerate() {
        let (hash, block) = (number(row, "hash"), number(row, "logical"));
        let _ = writeln!(text, "Entry #{nth}: Hash 0x{hash:08x}, block {block}");
        if bytes(row, "leads_to") != b"leaf" {
            continue;
        }
        let leaf = leaves.get(&block).map_or(&[][..], |rows| rows);
        let place = leaf.first().map_or(0, |row| number(row, "block"));
        let _ = writeln!(text, "Reading directory block {block}, phys {place}");
        for row in leaf.iter().filter(|row| number(row, "inode") != 0) {
            let name = bytes(row, "name");
            let (major, minor) = hasher.hash(name);
            let (ino, len) = (number(row, "inode"), number(row, "length"));
            let _ = writeln!(
                text,
                "{ino} 0x{major:08x}-{minor:08x} ({len}) {}   ",
                show(name)
            );
        }
        if asked.sums() && place > 0 {
            let sum = word((place + 1) * block_size - 4)?;
            let _ = writeln!(text, "leaf block checksum: 0x{sum:08x}  ");
        }
    }
    text.push_str("---------------------\n");
    Ok(text)
}
