//! The read-only requests of debugfs, in its layout where scripts parse it.

use super::mapping::{deepest, shown};
use super::queried_image::{Inode, QueriedImage, bytes, number, value};
use super::words::{attribute, hash, hex_dump, number_of, operand, options, supported_feature};
use super::{dirs, fields, log, quota, runs};
use crate::listing::{self, Listed};
use crate::listing_groups::Manner;
use crate::mmp_block::MmpBlock;
use anyhow::{Result, anyhow, bail, ensure};
use ext4_format::features::Incompat;
use ext4_format::group_desc::{BLOCK_UNINIT, INODE_UNINIT};
use extant::Timestamp;
use extant_check::inspect::{Inspector, Record, Value};
use extant_cli_core::address::host_path;
use extant_cli_core::format::show::show;
use extant_cli_core::format::times::as_ctime;
use extant_cli_core::image::images;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes from which on a list of attributes does not show a value.
const LISTED_VALUE: usize = 40;

/// Size of an inode in the first version of ext2.
const FIRST_PART: usize = 128;

/// Requests by all their names, with the least and the largest number of arguments. Options count as arguments.
pub(super) const REQUESTS: &[(&[&str], usize, usize)] = &[
    (&["show_inode_info", "stat"], 1, 1),
    (&["list_directory", "ls"], 0, 6),
    (&["dump_extents", "extents", "ex"], 1, 4),
    (&["blocks"], 1, 1),
    (&["feature", "features"], 0, 0),
    (&["supported_features"], 0, usize::MAX),
    (&["testi"], 1, 1),
    (&["testb"], 1, 2),
    (&["find_free_block", "ffb"], 0, 2),
    (&["find_free_inode", "ffi"], 0, 2),
    (&["imap"], 1, 1),
    (&["bmap"], 2, 4),
    (&["dx_hash", "hash"], 1, 6),
    (&["icheck"], 1, usize::MAX),
    (&["ncheck"], 1, usize::MAX),
    (&["ea_list"], 1, 1),
    (&["ea_get"], 2, 5),
    (&["htree_dump", "htree"], 1, 1),
    (&["filefrag"], 0, 4),
    (&["freefrag", "e2freefrag"], 0, 3),
    (&["dirsearch"], 2, 2),
    (&["inode_dump", "idump", "id"], 1, 2),
    (&["block_dump", "bdump", "bd"], 1, 4),
    (&["show_super_stats", "stats"], 0, 1),
    (&["list_deleted_inodes", "lsdel"], 0, 1),
    (&["list_quota", "lq"], 1, 1),
    (&["get_quota", "gq"], 2, 2),
    (&["dump_mmp"], 0, 1),
    (&["logdump"], 0, usize::MAX),
    // Only with -l. Without it, these requests change the image.
    (&["set_block_group", "set_bg"], 1, 1),
    (&["set_inode_field", "sif"], 1, 1),
    (&["set_super_value", "ssv"], 1, 1),
];

/// Answers a request by the first of its names.
pub(super) fn answer(image: &Path, at: &[u8], name: &str, words: &[Vec<u8>]) -> Result<String> {
    let device = images::device(image)?;
    let inspector = Inspector::open(&device, !images::journals_are_left())?;
    let asked = QueriedImage {
        inspector,
        sb: listing::superblock(&device)?,
        device: &*device,
        image,
        at,
    };
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    asked.answer(name, &words)
}

/// Returns the type name of debugfs, by the upper bits of the mode.
const fn type_name(mode: u64) -> &'static str {
    match mode >> 12 {
        0o1 => "FIFO",
        0o2 => "character special",
        0o4 => "directory",
        0o6 => "block special",
        0o10 => "regular",
        0o12 => "symlink",
        0o14 => "socket",
        _ => "bad type",
    }
}

impl QueriedImage<'_> {
    fn answer(&self, name: &str, words: &[&[u8]]) -> Result<String> {
        match (name, words) {
            ("show_inode_info", [word]) => self.stat(word),
            ("list_directory", words) => dirs::list(self, words),
            ("dump_extents", words) => self.extents(words),
            ("blocks", [word]) => self.blocks(word),
            ("feature", _) => Ok(format!("Filesystem features: {}\n", self.features())),
            ("supported_features", words) => supported_feature(words.first().copied()),
            ("testi", [word]) => self.test_inode(word),
            ("testb", [first, rest @ ..]) => self.test_blocks(first, rest.first().copied()),
            ("find_free_block", words) => self.free_blocks(words),
            ("find_free_inode", words) => self.free_inode(words),
            ("imap", [word]) => self.imap(word),
            ("bmap", [b"-a", ..] | [_, _, _, ..]) => {
                bail!("-a and a physical block are not supported: mappings cannot be edited")
            }
            ("bmap", [word, logical]) => self.bmap(word, logical),
            ("dx_hash", words) => hash(words),
            ("icheck", words) => self.owners(words),
            ("ncheck", words) => self.paths(words),
            ("ea_list", [word]) => {
                let list = self.attributes(word)?;
                Ok(if list.is_empty() {
                    list
                } else {
                    format!("Extended attributes:\n{list}")
                })
            }
            ("ea_get", words) => self.attribute(words),
            ("htree_dump", [word]) => dirs::index(self, word),
            ("filefrag", words) => runs::of_files(self, words),
            ("freefrag", words) => runs::of_free_blocks(self, words),
            ("dirsearch", [dir, name]) => dirs::search(self, dir, name),
            ("inode_dump", words) => self.dump_inode(words),
            ("block_dump", words) => self.dump_block(words),
            ("show_super_stats", []) => self.statistics(false),
            ("show_super_stats", [b"-h"]) => self.statistics(true),
            ("show_super_stats", _) => bail!("Usage: show_super_stats [-h]"),
            ("list_deleted_inodes", words) => {
                let seconds = words.first().map(|word| number_of(word)).transpose()?;
                super::deleted::list(self.image, seconds)
            }
            ("list_quota", [kind]) => quota::list(self, kind, None),
            ("get_quota", [kind, id]) => quota::list(self, kind, Some(id)),
            ("dump_mmp", words) => self.protection(words.first().copied()),
            ("logdump", words) => log::list(self, words),
            (name, [b"-l"]) => Ok(fields::list(name)),
            _ => bail!("wrong words"),
        }
    }

    fn features(&self) -> String {
        ext4_format::features::Features::of(&self.sb)
            .names()
            .join(" ")
    }

    fn stat(&self, word: &[u8]) -> Result<String> {
        let inode = self.inode(word)?;
        let large = inode.has("i_extra_isize");
        let (mode, kind) = (inode.mode(), type_name(inode.mode()));
        let mut text = String::new();
        let _ = writeln!(
            text,
            "Inode: {}   Type: {kind}    Mode:  {:04o}   Flags: 0x{:x}",
            inode.ino,
            mode & 0o7777,
            inode.number("i_flags")
        );
        let version = if inode.has("i_version_hi") {
            format!("0x{:08x}:", inode.number("i_version_hi"))
        } else {
            "0x".to_owned()
        };
        let _ = writeln!(
            text,
            "Generation: {}    Version: {version}{:08x}",
            inode.number("i_generation"),
            inode.number("i_version")
        );
        let _ = write!(
            text,
            "User: {:5}   Group: {:5}",
            inode.user(),
            inode.group()
        );
        if inode.has("i_projid") {
            let _ = write!(text, "   Project: {:5}", inode.number("i_projid"));
        }
        let acl = inode.number("i_file_acl_lo") | inode.number("i_file_acl_high") << 32;
        let _ = writeln!(text, "   Size: {}\nFile ACL: {acl}", inode.size());
        let sectors = self.rows("inode", &[b"stat", format!("<{}>", inode.ino).as_bytes()])?;
        let sectors = sectors
            .first()
            .map_or(0, |record| number(record, "sectors"));
        let _ = writeln!(
            text,
            "Links: {}   Blockcount: {sectors}",
            inode.number("i_links_count")
        );
        let _ = writeln!(
            text,
            "Fragment:  Address: {}    Number: 0    Size: 0",
            inode.number("i_obso_faddr")
        );
        self.times(&inode, &mut text);
        if large {
            let _ = writeln!(
                text,
                "Size of extra inode fields: {}",
                inode.number("i_extra_isize")
            );
        }
        let attributes = self.attributes(format!("<{}>", inode.ino).as_bytes())?;
        if !attributes.is_empty() {
            let _ = write!(text, "Extended attributes:\n{attributes}");
        }
        if self.sums() {
            let high = inode.number("i_checksum_hi") << 16;
            let _ = writeln!(
                text,
                "Inode checksum: 0x{:08x}",
                high | inode.number("i_checksum_lo")
            );
        }
        self.content(&inode, &mut text)?;
        Ok(text)
    }

    /// Returns the block size in bytes.
    pub fn block_size(&self) -> u64 {
        self.sb.block_size().unwrap_or(1024).into()
    }

    /// Returns whether metadata have checksums.
    pub fn sums(&self) -> bool {
        ext4_format::features::Features::of(&self.sb).has_metadata_csum()
    }

    fn times(&self, inode: &Inode, text: &mut String) {
        let mut line = |name: &str, field: &str, extra: &str, brackets: bool| {
            let low = inode.number(field) as u32;
            let high = inode.number(extra) as u32;
            let time = Timestamp::new(
                i64::from(low.cast_signed()) + (i64::from(high & 3) << 32),
                0,
            );
            let shown = as_ctime(time);
            let _ = match (inode.has(extra), brackets) {
                (true, false) => writeln!(text, "{name}: 0x{low:08x}:{high:08x} -- {shown}"),
                (true, true) => writeln!(text, "{name}: 0x{low:08x}:({high:08x}) -- {shown}"),
                _ => writeln!(text, "{}: 0x{low:08x} -- {shown}", name.trim_start()),
            };
        };
        line(" ctime", "i_ctime", "i_ctime_extra", false);
        line(" atime", "i_atime", "i_atime_extra", false);
        line(" mtime", "i_mtime", "i_mtime_extra", false);
        if inode.has("i_crtime") {
            line("crtime", "i_crtime", "i_crtime_extra", false);
        }
        if inode.number("i_dtime") != 0 {
            line(" dtime", "i_dtime", "i_ctime_extra", true);
        }
    }

    /// Adds the target, device or mapping of an inode.
    fn content(&self, inode: &Inode, text: &mut String) -> Result<()> {
        let word = format!("<{}>", inode.ino);
        let stat = self.rows("inode", &[b"stat", word.as_bytes()])?;
        let Some(stat) = stat.first() else {
            return Ok(());
        };
        if let Some(Value::Name(target)) = value(stat, "target") {
            let _ = writeln!(text, "Fast link dest: \"{}\"", show(target));
            return Ok(());
        }
        if value(stat, "major").is_some() {
            let (major, minor) = (number(stat, "major"), number(stat, "minor"));
            let _ = writeln!(
                text,
                "Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
            );
            return Ok(());
        }
        if inode.number("i_flags") & 0x1000_0000 != 0 {
            let _ = writeln!(text, "Size of inline data: {}", inode.size());
            return Ok(());
        }
        let steps = self.steps(word.as_bytes())?;
        let by_extents = inode.number("i_flags") & 0x80000 != 0;
        text.push_str(match (by_extents, steps.is_empty()) {
            (true, _) => "EXTENTS:\n",
            (false, false) => "BLOCKS:\n",
            (false, true) => "BLOCKS:\n\n",
        });
        if steps.is_empty() {
            return Ok(());
        }
        let deepest = by_extents.then(|| deepest(&steps));
        let _ = writeln!(text, "{}", shown(&steps, deepest));
        if !by_extents {
            let total: u64 = steps.iter().map(|step| step.len.max(1)).sum();
            let _ = writeln!(text, "TOTAL: {total}\n");
        }
        Ok(())
    }

    fn blocks(&self, word: &[u8]) -> Result<String> {
        let path = self.path(word);
        self.inode(word)?;
        let mut text = String::new();
        for row in self.rows("block", &[b"blocks", &path])? {
            let _ = write!(text, "{} ", number(&row, "block"));
        }
        text.push('\n');
        Ok(text)
    }

    fn imap(&self, word: &[u8]) -> Result<String> {
        let path = self.path(word);
        let rows = self.rows("inode-place", &[b"imap", &path])?;
        let row = rows.first().ok_or_else(|| anyhow!("no inode"))?;
        Ok(format!(
            "Inode {} is part of block group {}\n\tlocated at block {}, offset 0x{:04x}\n",
            number(row, "inode"),
            number(row, "group"),
            number(row, "block"),
            number(row, "offset")
        ))
    }

    fn bmap(&self, word: &[u8], logical: &[u8]) -> Result<String> {
        self.inode(word)?;
        let logical = number_of(logical)?;
        ensure!(
            logical < u64::from(u32::MAX),
            "Ext2 file too big while mapping logical block {logical}"
        );
        let (block, state) = self.mapped(word, logical)?;
        let uninit = if state == b"unwritten" {
            " (uninit)"
        } else {
            ""
        };
        Ok(format!("{block}{uninit}\n"))
    }

    fn test_inode(&self, word: &[u8]) -> Result<String> {
        let ino = self.inode(word)?.ino;
        let used = super::raw::inode_in_use(self.image, ino)?;
        let state = if used { "marked" } else { "not" };
        Ok(format!("Inode {ino} is {state} in use\n"))
    }

    fn test_blocks(&self, first: &[u8], count: Option<&[u8]>) -> Result<String> {
        let first = number_of(first)?;
        let count = count.map_or(Ok(1), number_of)?;
        let end = first.checked_add(count);
        let known = u64::from(self.sb.first_data_block.get())..self.sb.blocks_count();
        ensure!(
            known.contains(&first) && end.is_some_and(|end| end <= known.end),
            "Invalid block number {first}"
        );
        let (first, count) = (first.to_string(), count.to_string());
        let mut text = String::new();
        for row in self.rows("bit", &[b"testb", first.as_bytes(), count.as_bytes()])? {
            let state = if number(&row, "in_use") != 0 {
                "marked"
            } else {
                "not"
            };
            let _ = writeln!(text, "Block {} {state} in use", number(&row, "block"));
        }
        Ok(text)
    }

    fn free_blocks(&self, words: &[&[u8]]) -> Result<String> {
        let count = words.first().map_or(Ok(1), |word| number_of(word))?;
        let goal = words.get(1).map_or(Ok(0), |word| number_of(word))?;
        let found = super::raw::free_blocks(self.image, goal, count)?;
        if found.is_empty() && count > 0 {
            return Ok("No free blocks found\n".into());
        }
        let shown: Vec<String> = found.iter().map(|block| format!("{block} ")).collect();
        Ok(format!("Free blocks found: {}\n", shown.concat()))
    }

    /// Answers `find_free_inode [DIR [MODE]]`, where DIR is an inode number.
    fn free_inode(&self, words: &[&[u8]]) -> Result<String> {
        let dir = words.first().map_or(Ok(2), |word| {
            number_of(word).map_err(|_| anyhow!("Bad dir - {}", show(word)))
        })?;
        if let Some(mode) = words.get(1) {
            number_of(mode).map_err(|_| anyhow!("Bad mode - {}", show(mode)))?;
        }
        let found = super::raw::free_inode(self.image, u32::try_from(dir)?)?;
        let found = found.ok_or_else(|| anyhow!("no free inode"))?;
        Ok(format!("Free inode found: {found}\n"))
    }

    fn owners(&self, words: &[&[u8]]) -> Result<String> {
        let mut text = String::from("Block\tInode number\n");
        let mut all: Vec<&[u8]> = vec![b"icheck"];
        all.extend(words);
        let rows = self.rows("owner", &all)?;
        for word in words {
            let block = number_of(word)?;
            let row = rows.iter().find(|row| number(row, "block") == block);
            let _ = match row.map_or(0, |row| number(row, "inode")) {
                0 => writeln!(text, "{block}\t<block not found>"),
                ino => writeln!(text, "{block}\t{ino}"),
            };
        }
        Ok(text)
    }

    /// Answers `ncheck [-c] INODE...`. The root has no name.
    fn paths(&self, words: &[&[u8]]) -> Result<String> {
        let taken = options("c", words)?;
        let mut all: Vec<Vec<u8>> = vec![b"ncheck".to_vec()];
        for word in &taken.operands {
            let word = operand(word);
            let inside = word
                .strip_prefix(b"<")
                .and_then(|rest| rest.strip_suffix(b">"));
            let ino = number_of(inside.unwrap_or(word));
            let ino = ino.map_err(|_| anyhow!("Invalid inode number - '{}'", show(word)))?;
            let known = 1..=u64::from(self.sb.inodes_count.get());
            ensure!(
                known.contains(&ino),
                "Illegal inode number while reading inode {ino}"
            );
            all.push(ino.to_string().into_bytes());
        }
        ensure!(all.len() > 1, "Usage: ncheck [-c] <inode number> ...");
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let mut text = String::from("Inode\tPathname\n");
        for row in self.rows("path", &all)? {
            if let Some(Value::Name(path)) = value(&row, "path")
                && path != b"/"
            {
                // For names in the root, debugfs also writes the slash.
                let slash = if path.iter().filter(|&&b| b == b'/').count() == 1 {
                    "/"
                } else {
                    ""
                };
                let _ = writeln!(text, "{}\t{slash}{}", number(&row, "inode"), show(path));
            }
        }
        Ok(text)
    }

    /// Formats the extended attributes of an inode as lines.
    fn attributes(&self, word: &[u8]) -> Result<String> {
        let mut text = String::new();
        for (name, value) in self.all_attributes(word)? {
            // A list has the lengths of long values alone, as that of debugfs.
            let _ = if value.len() < LISTED_VALUE {
                writeln!(text, "  {}", attribute(&name, &value, false))
            } else {
                writeln!(text, "  {} ({})", show(&name), value.len())
            };
        }
        Ok(text)
    }

    /// Returns names and stored values of the extended attributes of an inode. Fails if a value is in an inode and damaged.
    fn all_attributes(&self, word: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.inode(word)?;
        let path = self.path(word);
        let records = self.records(&[b"xattrs", &path])?;
        let rows = records.iter().filter(|record| record.kind == "attribute");
        if rows
            .clone()
            .any(|row| value(row, "value") == Some(&Value::Nothing))
        {
            let problems = records.iter().filter(|record| record.kind == "problem");
            let said = problems.map(|problem| bytes(problem, "problem"));
            let said: Vec<_> = said.map(String::from_utf8_lossy).collect();
            bail!("{} while reading extended attributes", said.join(", "));
        }
        let both = |row: &Record| (bytes(row, "name").to_vec(), bytes(row, "value").to_vec());
        Ok(rows.map(both).collect())
    }

    /// Answers `ea_get [-f FILE] [-x] [-V] PATH NAME`; with `-V`, the value alone.
    fn attribute(&self, words: &[&[u8]]) -> Result<String> {
        let usage = "Usage: ea_get [-f outfile]|[-xV] [-r] <file> <attr>";
        let taken = options("f:xVrC", words)?;
        ensure!(
            !taken.has('C'),
            "-C is not supported: -x writes the value in hexadecimal"
        );
        let [path, wanted] = &taken.operands[..] else {
            bail!(usage);
        };
        let (path, wanted) = (operand(path), operand(wanted));
        let all = self.all_attributes(path)?;
        let found = all.iter().find(|(name, _)| name == wanted);
        let Some((name, value)) = found else {
            bail!("Extended attribute key not found while getting extended attribute");
        };
        if let Some(file) = taken.value('f') {
            let path = host_path(file.as_bytes());
            std::fs::write(&path, value).map_err(|e| anyhow!("{}: {e}", path.display()))?;
            return Ok(String::new());
        }
        if !taken.has('V') {
            return Ok(format!("{}\n\n", attribute(name, value, taken.has('x'))));
        }
        if taken.has('x') {
            let digits: String = value.iter().map(|byte| format!("{byte:02x} ")).collect();
            return Ok(digits + "\n");
        }
        // The bytes as they are, which need not be text.
        std::io::stdout().write_all(value)?;
        Ok("\n".into())
    }

    /// Answers `inode_dump [-b|-e] FILE`: an inode, its mapping, or its attributes.
    fn dump_inode(&self, words: &[&[u8]]) -> Result<String> {
        const MAPPING: std::ops::Range<usize> = 40..100;
        let taken = options("bex", words)?;
        ensure!(
            !taken.has('x'),
            "-x is not supported: ea_list lists the attributes"
        );
        let [word] = &taken.operands[..] else {
            bail!("Usage: inode_dump [-b]|[-e] <file>");
        };
        let (mapping, attributes) = (taken.has('b'), taken.has('e'));
        ensure!(
            !(mapping && attributes),
            "Usage: inode_dump [-b]|[-e] <file>"
        );
        let inode = self.inode(operand(word))?;
        let path = self.path(operand(word));
        let rows = self.rows("inode-place", &[b"imap", &path])?;
        let row = rows.first().ok_or_else(|| anyhow!("no inode"))?;
        let block_size = self.block_size();
        let start = number(row, "block").checked_mul(block_size);
        let at = start.and_then(|start| start.checked_add(number(row, "offset")));
        let at = at.ok_or_else(|| anyhow!("there is no such block"))?;
        let size = match self.sb.rev_level.get() {
            0 => FIRST_PART as u16,
            _ => self.sb.inode_size.get(),
        };
        let mut raw = vec![0; size.into()];
        self.device.read_at(at, &mut raw)?;
        let extra = FIRST_PART + inode.number("i_extra_isize") as usize;
        let part = match () {
            () if mapping => raw.get(MAPPING),
            () if attributes => raw.get(extra..).filter(|part| !part.is_empty()),
            () => Some(&raw[..]),
        };
        Ok(hex_dump(part.ok_or_else(|| {
            anyhow!("the inode has no room for attributes")
        })?))
    }

    /// Answers `block_dump [-f FILE] BLOCK`: a block of the volume or of a file. A hole has zeros.
    fn dump_block(&self, words: &[&[u8]]) -> Result<String> {
        let taken = options("f:x", words)?;
        ensure!(
            !taken.has('x'),
            "-x is not supported: ea_list lists the attributes"
        );
        let [block] = &taken.operands[..] else {
            bail!("Usage: block_dump [-f inode] block_num");
        };
        let mut block = number_of(operand(block))?;
        if let Some(file) = taken.value('f') {
            self.inode(file.as_bytes())?;
            block = self.mapped(file.as_bytes(), block)?.0;
            if block == 0 {
                return Ok(hex_dump(&vec![0; self.block_size() as usize]));
            }
        }
        Ok(hex_dump(&self.read_block(block)?))
    }

    /// Returns the output of `dump_mmp [BLOCK]`: the fields of the block of multiple mount protection (MMP).
    fn protection(&self, block: Option<&[u8]>) -> Result<String> {
        let features = ext4_format::features::Features::of(&self.sb);
        let on = features.incompat.contains(Incompat::MMP);
        if block.is_none() && !on {
            bail!("MMP: not active on this filesystem.");
        }
        let block = match block {
            Some(word) => number_of(word)?,
            None => self.sb.mmp_block.get(),
        };
        let mmp = MmpBlock::read(&self.device, block, self.block_size())?;
        let mut text = format!(
            "block_number: {block}\nupdate_interval: {}\ncheck_interval: {}\nsequence: {:08x}\n",
            self.sb.mmp_interval.get(),
            mmp.check_interval,
            mmp.sequence
        );
        let _ = writeln!(
            text,
            "time: {} -- {}\nnode_name: {}\ndevice_name: {}\nmagic: {:#x}",
            mmp.seconds,
            as_ctime(Timestamp::new(mmp.seconds, 0)),
            show(&mmp.node),
            show(&mmp.device),
            mmp.magic
        );
        if self.sums() {
            let _ = writeln!(text, "checksum: 0x{:08x}", mmp.checksum);
        }
        Ok(text)
    }

    fn statistics(&self, only_head: bool) -> Result<String> {
        let mut text = listing::lines(self.image, Listed::Superblock, Manner::default())?;
        let groups = self.rows("group", &[b"groups"])?;
        let directories: u64 = groups.iter().map(|row| number(row, "directories")).sum();
        let _ = writeln!(text, "Directories:              {directories}");
        let features = ext4_format::features::Features::of(&self.sb);
        let have_sums = features.has_metadata_csum() || features.has_gdt_csum();
        for row in groups.iter().filter(|_| !only_head) {
            let n = |name| number(row, name);
            let _ = write!(
                text,
                " Group {:2}: block bitmap at {}, inode bitmap at {}, inode table at {}\n           \
                 {} free blocks, {} free inodes, {} used directories",
                n("group"),
                n("block_bitmap"),
                n("inode_bitmap"),
                n("inode_table"),
                n("free_blocks"),
                n("free_inodes"),
                n("directories"),
            );
            if have_sums {
                let flags = n("flags");
                let state = |bit: u16, state| {
                    if flags & u64::from(bit) != 0 {
                        state
                    } else {
                        ""
                    }
                };
                let _ = write!(
                    text,
                    ", {} unused inodes\n           [{}{}Checksum 0x{:04x}]",
                    n("unused_inodes"),
                    state(INODE_UNINIT, "Inode not init, "),
                    state(BLOCK_UNINIT, "Block not init, "),
                    super::raw::descriptor_checksum(self.device, n("group"))?
                );
            }
            text.push('\n');
        }
        Ok(text)
    }
}
