//! Names: of directories, also removed ones, in their indexes, and of extended attributes.

use super::inode::Inode;
use super::record::{Record, Value, send_findings};
use super::{Answered, InspectError, Inspector, MAX_FINDINGS, Sink};
use crate::mapping::Step;
use crate::report::Findings;
use ext4_format::dir_entry::{self, Entry};
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::{self, flags};
use ext4_format::xattr::{self, Stored};
use ext4_format::{BlockNr, FormatError, InodeNr};
use std::collections::BTreeSet;
use std::io;

/// No path has more names than this, or it is one of a loop.
const DEEPEST: usize = 4096;

/// Returns the kind of a directory's index block by its bytes: a root or a node; `None` for a leaf.
pub(super) fn index_kind(directory: &Inode, logical: u64, bytes: &[u8]) -> Option<IndexBlockKind> {
    let is_indexed = directory.has(flags::INDEX) && !directory.has(flags::INLINE_DATA);
    is_indexed.then(|| IndexBlockKind::of(logical, bytes))?
}

impl Inspector<'_> {
    /// Verifies the checksum of a block of a directory.
    pub(super) fn judge_entries(
        &self,
        directory: &Inode,
        kind: Option<IndexBlockKind>,
        bytes: &[u8],
    ) -> Option<Result<(), FormatError>> {
        let seed = self.seed(directory)?;
        if directory.has(flags::INLINE_DATA) {
            return None;
        }
        Some(match kind {
            Some(kind) => htree::verify_checksum(bytes, kind, seed),
            None => dir_entry::verify_tail(bytes, seed),
        })
    }

    pub(super) fn dirents(&self, directory: &Inode, sink: &mut Sink<'_>) -> Answered {
        if !directory.is_directory() {
            let ino = directory.ino;
            return Err(InspectError::Missing(format!("<{ino}> is not a directory")));
        }
        let findings = Findings::new(MAX_FINDINGS);
        let mut sent = Ok(());
        self.each_entry_block(directory, &findings, &mut |logical, block, at, bytes| {
            sent = self.send_entries(directory, (logical, block, at), bytes, sink);
            sent.is_ok()
        });
        sent?;
        Ok(send_findings(findings, sink)?)
    }

    fn send_entries(
        &self,
        directory: &Inode,
        (logical, block, at): (u32, BlockNr, usize),
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let kind = index_kind(directory, logical.into(), bytes);
        let removed = match kind {
            // The index replaces the names of other blocks.
            Some(_) => Vec::new(),
            None => dir_entry::deleted(bytes),
        };
        let mut removed = removed.into_iter().peekable();
        let row = |entry: &Entry<'_>, is_removed| {
            let kind = entry
                .file_type
                .map_or(Value::Nothing, |t| Value::text(t.name()));
            let fields = vec![
                ("logical", logical.into()),
                ("block", block.0.into()),
                ("offset", Value::Number((at + entry.offset as usize) as u64)),
                ("length", entry.rec_len.into()),
                ("inode", entry.inode.0.into()),
                ("type", kind),
                ("deleted", Value::Is(is_removed)),
                ("name", Value::Name(entry.name.to_vec())),
            ];
            Record::row("entry", fields)
        };
        // Names of encrypted directories may be any bytes; invalid names of other directories are shown, too.
        for entry in dir_entry::entries_of(bytes, true) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    sink(Record::problem(format!("block {block}: {e}")))?;
                    break;
                }
            };
            while let Some(gone) = removed.next_if(|gone| gone.offset < entry.offset) {
                sink(row(&gone, true))?;
            }
            sink(row(&entry, false))?;
        }
        for gone in removed {
            sink(row(&gone, true))?;
        }
        match self.judge_entries(directory, kind, bytes) {
            Some(Err(e)) => sink(Record::problem(format!("block {block}: {e}"))),
            _ => Ok(()),
        }
    }

    pub(super) fn ncheck(&self, inodes: &[InodeNr], sink: &mut Sink<'_>) -> Answered {
        let wanted: BTreeSet<InodeNr> = inodes.iter().copied().collect();
        let mut found = BTreeSet::new();
        let mut sent = Ok(());
        let row = |ino: InodeNr, path: Option<Vec<u8>>, sink: &mut Sink<'_>| {
            let path = path.map_or(Value::Nothing, Value::Name);
            sink(Record::row(
                "path",
                vec![("inode", ino.0.into()), ("path", path)],
            ))
        };
        if wanted.contains(&InodeNr::ROOT) {
            found.insert(InodeNr::ROOT);
            row(InodeNr::ROOT, Some(b"/".to_vec()), sink)?;
        }
        self.each_inode(&mut |directory| {
            if !directory.is_directory() || directory.core.links == 0 {
                return true;
            }
            let mut above = None;
            self.each_entry_block(directory, &Findings::new(0), &mut |_, _, _, bytes| {
                for entry in dir_entry::entries_of(bytes, true).map_while(Result::ok) {
                    if !wanted.contains(&entry.inode) || matches!(entry.name, b"." | b"..") {
                        continue;
                    }
                    let above = above.get_or_insert_with(|| self.path(directory));
                    let path = [above, &b"/"[..], entry.name].concat();
                    found.insert(entry.inode);
                    sent = row(entry.inode, Some(path), sink);
                    if sent.is_err() {
                        return false;
                    }
                }
                true
            });
            sent.is_ok()
        });
        sent?;
        for ino in wanted.difference(&found) {
            row(*ino, None, sink)?;
        }
        Ok(())
    }

    /// Returns the path of a directory, without a slash at its end: from the root, or from the first directory
    /// without a name.
    fn path(&self, directory: &Inode) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), directory.ino);
        while at != InodeNr::ROOT && names.len() < DEEPEST {
            let Some((parent, name)) = self.name_of(at) else {
                names.push(format!("<{at}>").into_bytes());
                return join(&names);
            };
            let mut name = name;
            name.insert(0, b'/');
            names.push(name);
            at = parent;
        }
        join(&names)
    }

    /// Returns the parent of a directory, and its name there.
    fn name_of(&self, ino: InodeNr) -> Option<(InodeNr, Vec<u8>)> {
        let directory = self.inode(ino).ok()?;
        let mut parent = None;
        if directory.has(flags::INLINE_DATA) {
            let own = inode::i_block(&directory.raw).ok()?.first_chunk::<4>()?;
            parent = Some(InodeNr(u32::from_le_bytes(*own)));
        } else {
            self.each_entry_block(&directory, &Findings::new(0), &mut |_, _, _, bytes| {
                let entry = dir_entry::find(bytes, b"..").ok().flatten();
                parent = entry.map(|entry| entry.inode);
                false
            });
        }
        let parent = self.inode(parent?).ok()?;
        let mut name = None;
        self.each_entry_block(&parent, &Findings::new(0), &mut |_, _, _, bytes| {
            let mut entries = dir_entry::entries_of(bytes, true).map_while(Result::ok);
            let found = entries.find(|e| e.inode == ino && !matches!(e.name, b"." | b".."));
            name = found.map(|entry| entry.name.to_vec());
            name.is_none()
        });
        Some((parent.ino, name?))
    }

    pub(super) fn htree(&self, directory: &Inode, sink: &mut Sink<'_>) -> Answered {
        if !directory.is_directory() || !directory.has(flags::INDEX) {
            return Ok(sink(Record::note("there is no index"))?);
        }
        let blocks = directory.core.size / u64::from(self.volume.geo.block_size);
        let mut walk = IndexWalk {
            inspector: self,
            directory,
            count: u32::try_from(blocks).unwrap_or(u32::MAX),
            left: blocks,
        };
        let Some((block, bytes)) = walk.read(0)? else {
            return Ok(sink(Record::problem("the first block is a hole"))?);
        };
        walk.judge(IndexBlockKind::Root, block, &bytes, sink)?;
        let features = &self.volume.geo.features;
        let (has_csum, large) = (features.has_metadata_csum(), features.has_large_dir());
        match htree::parse_root(&bytes, has_csum, large, walk.count) {
            Ok(root) => {
                let fields = vec![
                    ("block", block.0.into()),
                    ("hash_version", u32::from(root.hash_version).into()),
                    ("levels", u32::from(root.levels).into()),
                    ("entries", Value::Number(root.index.len() as u64)),
                ];
                sink(Record::lines("index", fields))?;
                walk.entries(&root.index, root.levels, 0, sink)
            }
            Err(e) => Ok(sink(Record::problem(format!("block {block}: {e}")))?),
        }
    }

    pub(super) fn xattrs(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let area = inode::xattr_area(&inode.raw, geo).and_then(|range| inode.raw.get(range));
        let mut sent = Ok(());
        let mut damaged = Vec::new();
        let mut send = |of: &str, index: u8, rest: &[u8], value: Stored<'_>| {
            let prefix = xattr::name_prefix(index).unwrap_or(b"?.");
            let name = [prefix, rest].concat();
            let (value, ino) = match value {
                Stored::Here(bytes) => (Value::Bytes(bytes.to_vec()), None),
                Stored::Inode(value) => {
                    let read = self.value_in_inode(inode, &name, &value);
                    let read = read.map_err(|e| damaged.push(e.to_string()));
                    (read.map_or(Value::Nothing, Value::Bytes), Some(value.ino.0))
                }
            };
            let fields = vec![
                ("in", Value::text(of)),
                ("name", Value::Name(name)),
                ("inode", Value::number(ino)),
                ("value", value),
            ];
            if sent.is_ok() {
                sent = sink(Record::row("attribute", fields));
            }
            Ok(())
        };
        let own = xattr::walk_inode_area(area.unwrap_or(&[]), |index, rest, value| {
            send("inode", index, rest, value)
        });
        let mut problems = Vec::from_iter(own.err().map(|e| e.to_string()));
        let block = inode::file_acl(&inode.raw, geo);
        if block.0 != 0 {
            match self.block(block) {
                Ok(bytes) => {
                    let walked = xattr::walk_block(&bytes, |index, rest, value| {
                        send("block", index, rest, value)
                    });
                    let sum = geo.features.has_metadata_csum();
                    let sum = sum.then(|| xattr::verify_checksum(&bytes, geo.csum_seed, block));
                    let wrong = [walked.err(), sum.and_then(Result::err)];
                    let wrong = wrong.into_iter().flatten();
                    problems.extend(wrong.map(|e| format!("block {block}: {e}")));
                }
                Err(e) => problems.push(e.to_string()),
            }
        }
        sent?;
        problems.append(&mut damaged);
        for problem in problems {
            sink(Record::problem(problem))?;
        }
        Ok(())
    }

    /// Returns the physical block of a logical block of an inode.
    pub(super) fn mapped(&self, inode: &Inode, logical: u32) -> Option<BlockNr> {
        let mut found = None;
        self.walk(inode, &Findings::new(0), None, &mut |step| {
            if let Step::Run(run) = step {
                found = run.map(logical);
            }
            found.is_none()
        });
        found
    }
}

fn join(names: &[Vec<u8>]) -> Vec<u8> {
    names.iter().rev().flatten().copied().collect()
}

/// A walk through the index of a directory.
struct IndexWalk<'w, 'd> {
    inspector: &'w Inspector<'d>,
    directory: &'w Inode,
    /// Blocks of the directory.
    count: u32,
    /// Blocks of the index that may still come: not more than the directory has, so that a loop ends.
    left: u64,
}

impl IndexWalk<'_, '_> {
    fn read(&self, logical: u32) -> Result<Option<(BlockNr, Vec<u8>)>, InspectError> {
        let Some(block) = self.inspector.mapped(self.directory, logical) else {
            return Ok(None);
        };
        Ok(Some((block, self.inspector.block(block)?)))
    }

    fn judge(
        &self,
        kind: IndexBlockKind,
        block: BlockNr,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let judged = self
            .inspector
            .judge_entries(self.directory, Some(kind), bytes);
        match judged {
            Some(Err(e)) => sink(Record::problem(format!("block {block}: {e}"))),
            _ => Ok(()),
        }
    }

    /// Sends the entries of a root or node, each followed by its subtree.
    fn entries(
        &mut self,
        index: &htree::Index<'_>,
        levels: u8,
        depth: u32,
        sink: &mut Sink<'_>,
    ) -> Answered {
        for entry in index.iter() {
            let fields = vec![
                ("depth", depth.into()),
                ("hash", Value::Hex(entry.hash.into())),
                ("logical", entry.block.into()),
                (
                    "leads_to",
                    Value::text(if levels == 0 { "leaf" } else { "node" }),
                ),
            ];
            sink(Record::row("index-entry", fields))?;
            if levels == 0 {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                return Ok(sink(Record::problem(
                    "the index has more blocks than its directory",
                ))?);
            };
            self.left = left;
            let Some((block, bytes)) = self.read(entry.block)? else {
                sink(Record::problem(format!(
                    "logical block {} is a hole",
                    entry.block
                )))?;
                continue;
            };
            self.judge(IndexBlockKind::Node, block, &bytes, sink)?;
            let has_csum = self.inspector.volume.geo.features.has_metadata_csum();
            match htree::parse_node(&bytes, has_csum, self.count) {
                Ok(index) => self.entries(&index, levels - 1, depth + 1, sink)?,
                Err(e) => sink(Record::problem(format!("block {block}: {e}")))?,
            }
        }
        Ok(())
    }
}
