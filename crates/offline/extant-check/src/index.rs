//! The index of a directory: read whole before its leaves, which must hold the hashes that it says.

use crate::dir::{Directory, DirectoryRun};
use crate::report::{FindingPlace, Rule};
use crate::state::Check;
use ext4_format::BlockNr;
use ext4_format::hash::DirHasher;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::flags;

/// Use of a block according to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockUse {
    /// The directory has no index.
    Linear,
    /// The index is damaged, or does not lead to the block.
    Unknown,
    /// A block of the index.
    Index(IndexBlockKind),
    /// Names with hashes from the first one to below the second.
    Leaf(u32, u64),
}

/// An index.
#[derive(Debug)]
pub(crate) struct Index {
    /// By block.
    blocks: Vec<(u32, BlockUse)>,
    /// `None` if the hash is not known, or damage leaves nothing to compare with.
    hasher: Option<DirHasher>,
}

impl Index {
    /// Returns the use of the block.
    pub(crate) fn usage(&self, logical: u32) -> BlockUse {
        let found = self.blocks.binary_search_by_key(&logical, |b| b.0).ok();
        found
            .and_then(|i| self.blocks.get(i))
            .map_or(BlockUse::Unknown, |b| b.1)
    }

    pub(crate) const fn hasher(&self) -> Option<&DirHasher> {
        self.hasher.as_ref()
    }
}

/// A walk through one index.
struct Reader<'r> {
    check: &'r Check<'r>,
    directory: &'r Directory,
    runs: &'r [DirectoryRun],
    /// Blocks of the directory.
    count: u32,
    blocks: Vec<(u32, BlockUse)>,
}

/// Reads the index of a directory.
pub(crate) fn read(check: &Check<'_>, directory: &Directory, runs: &[DirectoryRun]) -> Index {
    let end = runs
        .last()
        .map_or(0, |r| r.run.logical.saturating_add(r.run.len));
    let mut reader = Reader {
        check,
        directory,
        runs,
        count: end,
        blocks: Vec::new(),
    };
    let hasher = reader.root();
    let mut blocks = reader.blocks;
    blocks.sort_by_key(|b| b.0);
    let twice = blocks.windows(2).find_map(|pair| match pair {
        [a, b] if a.0 == b.0 => Some(a.0),
        _ => None,
    });
    let place = FindingPlace::inode(directory.ino);
    if let Some(twice) = twice {
        let place = place.logical(twice.into());
        check.findings.add(Rule::IndexLeaf, place, || {
            "it leads to the block more than once".into()
        });
    } else if hasher.is_some() && blocks.len() < directory.blocks as usize {
        let missing = directory.blocks as usize - blocks.len();
        check.findings.add(Rule::IndexLeaf, place, || {
            format!("it does not lead to {missing} blocks")
        });
    }
    blocks.dedup_by_key(|b| b.0);
    // Where encrypted names are folded, too, the key decides over their order.
    let keyed = directory.has(flags::CASEFOLD) && directory.has(flags::ENCRYPT);
    let compared = check.volume.geo.comparison(directory.flags);
    let hasher = hasher.filter(|_| !keyed);
    Index {
        blocks,
        hasher: hasher.map(|hasher| hasher.comparing(compared)),
    }
}

impl Reader<'_> {
    /// Reads a block of the directory.
    fn block(&self, logical: u32) -> Option<(BlockNr, Vec<u8>)> {
        let i = self.runs.partition_point(|r| r.run.logical <= logical);
        let at = self.runs.get(i.checked_sub(1)?)?.run.map(logical)?;
        // A block that cannot be read is reported with the directory's names.
        Some((at, self.check.volume.read(at).ok()?))
    }

    fn place(&self, logical: u32) -> FindingPlace {
        FindingPlace::inode(self.directory.ino).logical(logical.into())
    }

    /// Reads the root and all below it; returns how names are hashed, if the root can be read.
    fn root(&mut self) -> Option<DirHasher> {
        let geo = &self.check.volume.geo;
        let (at, bytes) = self.block(0)?;
        let has_csum = geo.features.has_metadata_csum();
        let large = geo.features.has_large_dir();
        let root = match htree::parse_root(&bytes, has_csum, large, self.count) {
            Ok(root) => root,
            Err(e) => {
                let place = self.place(0).block(at);
                self.check.findings.add_error(Rule::Index, place, &e);
                return None;
            }
        };
        self.blocks.push((0, BlockUse::Index(IndexBlockKind::Root)));
        self.entries(
            &root.index,
            root.levels,
            (0, 1 << 32),
            self.place(0).block(at),
        );
        DirHasher::new(root.hash_version, geo.unsigned_hash, geo.hash_seed).ok()
    }

    /// Checks the entries of a block of the index for the hashes from `low` to below `end`.
    fn entries(
        &mut self,
        index: &htree::Index<'_>,
        levels: u8,
        (low, end): (u32, u64),
        place: FindingPlace,
    ) {
        for (entry, from, to) in index.ranges(low, end) {
            if from < low || to > end {
                self.check.findings.add(Rule::Index, place, || {
                    format!("hash {from:#x} in a block for {low:#x} to {end:#x}")
                });
            }
            if levels == 0 {
                // Names of an even hash may go on in the block of the odd hash after it.
                let usage = BlockUse::Leaf(from & !1, to);
                self.blocks.push((entry.block, usage));
            } else if self.blocks.len() <= self.count as usize {
                self.node(entry.block, levels - 1, (from, to));
            }
        }
    }

    fn node(&mut self, logical: u32, levels: u8, hashes: (u32, u64)) {
        let usage = BlockUse::Index(IndexBlockKind::Node);
        self.blocks.push((logical, usage));
        let Some((at, bytes)) = self.block(logical) else {
            return;
        };
        let place = self.place(logical).block(at);
        let has_csum = self.check.volume.geo.features.has_metadata_csum();
        match htree::parse_node(&bytes, has_csum, self.count) {
            Ok(index) => self.entries(&index, levels, hashes, place),
            Err(e) => self.check.findings.add_error(Rule::Index, place, &e),
        }
    }
}
