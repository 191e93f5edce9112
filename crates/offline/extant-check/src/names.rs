//! Checks the names of a directory's block as far as possible without their inodes.

use crate::dir::Directory;
use crate::index::{BlockUse, Index};
use crate::link::{Link, Role, shown};
use crate::report::{FindingPlace, Rule};
use crate::spread_names::{self, SpreadNames};
use crate::state::Check;
use crate::subject::rule_of;
use ext4_format::dir_entry::{self, Entry};
use ext4_format::fold::Comparison;
use ext4_format::inode::{encryption, flags};
use ext4_format::{BlockNr, htree};

/// The names that one thread looks at.
pub(crate) struct NameReader<'c> {
    check: &'c Check<'c>,
    /// Number of names, without "." and "..".
    pub(crate) count: u64,
    /// Hash and offset of each name of a block.
    hashes: Vec<(u32, u32)>,
    /// The names that may be in another block, too.
    pub(crate) spread: SpreadNames,
}

/// Rules for the names of one block.
struct BlockRules<'b> {
    directory: &'b Directory,
    place: FindingPlace,
    /// The block begins with "." and "..".
    first: bool,
    index: Option<&'b Index>,
    /// The hashes that the names may have.
    hashes: Option<(u32, u64)>,
    compared: Comparison,
}

impl<'c> NameReader<'c> {
    pub(crate) fn new(check: &'c Check<'c>) -> Self {
        Self {
            check,
            count: 0,
            hashes: Vec::new(),
            spread: SpreadNames::default(),
        }
    }

    /// Looks at a block, and adds where its names lead.
    pub(crate) fn block(
        &mut self,
        directory: &Directory,
        index: Option<&Index>,
        (logical, at): (u32, BlockNr),
        bytes: &[u8],
        links: &mut Vec<Link>,
    ) {
        let place = FindingPlace::inode(directory.ino)
            .logical(logical.into())
            .block(at);
        let usage = index.map_or(BlockUse::Linear, |index| index.usage(logical));
        if let Some(seed) = directory.seed(self.check) {
            let (rule, verified) = match usage {
                BlockUse::Unknown => (Rule::Index, Ok(())),
                BlockUse::Linear | BlockUse::Leaf(..) => {
                    (Rule::DirectoryChecksum, dir_entry::verify_tail(bytes, seed))
                }
                BlockUse::Index(kind) => (
                    Rule::IndexChecksum,
                    htree::verify_checksum(bytes, kind, seed),
                ),
            };
            let over = || match usage {
                BlockUse::Linear | BlockUse::Leaf(..) => dir_entry::space(bytes, true).map(drop),
                BlockUse::Unknown | BlockUse::Index(_) => Ok(()),
            };
            if let Err(e) = verified.and_then(|()| over()) {
                let rule = rule_of(&e, rule, Rule::Directory);
                self.check.findings.add_error(rule, place, &e);
            }
        }
        let rules = BlockRules {
            directory,
            place,
            first: logical == 0,
            index,
            hashes: match usage {
                BlockUse::Leaf(low, end) => Some((low, end)),
                _ => None,
            },
            compared: self.check.volume.geo.comparison(directory.flags),
        };
        self.entries(&rules, bytes, links);
    }

    /// Checks names inside an inode.
    pub(crate) fn part(&mut self, directory: &Directory, bytes: &[u8], links: &mut Vec<Link>) {
        let rules = BlockRules {
            directory,
            place: FindingPlace::inode(directory.ino),
            first: false,
            index: None,
            hashes: None,
            compared: self.check.volume.geo.comparison(directory.flags),
        };
        self.entries(&rules, bytes, links);
    }

    fn entries(&mut self, rules: &BlockRules<'_>, bytes: &[u8], links: &mut Vec<Link>) {
        let findings = &self.check.findings;
        let entries = dir_entry::entries_of(bytes, rules.directory.has(flags::ENCRYPT));
        self.hashes.clear();
        let (mut dots, mut whole) = (0, true);
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(e) => {
                    findings.add_error(Rule::Directory, rules.place, &e);
                    whole = false;
                    break;
                }
            };
            if rules.first && dots < 2 {
                links.extend(self.dot(rules, bytes, &entry, dots));
                dots += 1;
            } else {
                self.entry(rules, &entry);
                links.push(Link::of(&entry, bytes, Role::Name));
            }
        }
        if whole && rules.first && dots < 2 {
            findings.add(Rule::DirectoryDots, rules.place, || {
                "they are missing".into()
            });
        }
        self.hash(rules, bytes);
        if whole {
            self.find_twice(rules, bytes);
        }
    }

    /// Checks "." or "..", the first two names of a directory.
    fn dot(&self, rules: &BlockRules<'_>, bytes: &[u8], entry: &Entry<'_>, n: u32) -> Option<Link> {
        let place = rules.place.offset(entry.offset);
        let findings = &self.check.findings;
        let tell = |what: String| findings.add(Rule::DirectoryDots, place, || what);
        let (name, offset, role) = match n {
            0 => (&b"."[..], 0, Role::Own),
            _ => (&b".."[..], dir_entry::MIN_REC_LEN as u32, Role::Parent),
        };
        if entry.name != name || entry.offset != offset {
            tell(format!("{} is missing", shown(name)));
            return None;
        }
        let behind = entry.offset as usize + 8 + name.len();
        if bytes.get(behind) != Some(&0) {
            tell(format!("{} does not end with NUL", shown(name)));
        }
        Some(Link::of(entry, bytes, role))
    }

    fn entry(&mut self, rules: &BlockRules<'_>, entry: &Entry<'_>) {
        self.count += 1;
        self.hashes.push((0, entry.offset));
        let findings = &self.check.findings;
        let place = rules.place.offset(entry.offset);
        if matches!(entry.name, b"." | b"..") {
            findings.add(Rule::EntryName, place, || shown(entry.name));
        }
        let encrypted = rules.directory.has(flags::ENCRYPT);
        if encrypted && entry.name.len() < encryption::MIN_NAME_LEN {
            let policies = self.check.policies.lock();
            if policies.contains_key(&rules.directory.ino) {
                findings.add(Rule::EntryName, place, || {
                    format!("{} is too short to be encrypted", shown(entry.name))
                });
            }
        }
        if !rules.compared.allows(entry.name) {
            findings.add(Rule::EntryName, place, || {
                format!("{} is not UTF-8", shown(entry.name))
            });
        }
    }

    /// Hashes the names, by the hash of the index if the directory has one.
    fn hash(&mut self, rules: &BlockRules<'_>, bytes: &[u8]) {
        let Some(hasher) = rules.index.and_then(Index::hasher) else {
            let spread = rules.directory.has_names_in_blocks();
            for (hash, offset) in &mut self.hashes {
                let name = name_at(bytes, *offset);
                let of_directory = spread_names::hash(
                    self.check.name_seed,
                    rules.directory,
                    &rules.compared.key(name),
                );
                *hash = of_directory as u32; // equal names of a block have equal halves, too
                if spread {
                    self.spread.push(of_directory);
                }
            }
            return;
        };
        hasher.hash_each(
            &mut self.hashes,
            |(_, offset)| name_at(bytes, *offset),
            |(hash, _), (major, _)| *hash = major,
        );
        let Some((low, end)) = rules.hashes else {
            return;
        };
        for (hash, offset) in &self.hashes {
            if *hash < low || u64::from(*hash) >= end {
                let place = rules.place.offset(*offset);
                self.check.findings.add(Rule::IndexHash, place, || {
                    let name = shown(name_at(bytes, *offset));
                    format!("{name}: {hash:#x}, and the block is for {low:#x} to {end:#x}")
                });
            }
        }
    }

    /// Looks for names that a block has twice.
    fn find_twice(&mut self, rules: &BlockRules<'_>, bytes: &[u8]) {
        self.hashes.sort_unstable();
        for (i, (hash, offset)) in self.hashes.iter().enumerate() {
            let others = self.hashes.get(i + 1..).unwrap_or(&[]).iter();
            let same_hash = others.take_while(|(other, _)| other == hash);
            for (_, other) in same_hash {
                let (one, two) = (name_at(bytes, *offset), name_at(bytes, *other));
                if rules.compared.same(one, two) {
                    let place = rules.place.offset(*other);
                    self.check.findings.add(Rule::EntryTwice, place, || {
                        if rules.compared.folds() {
                            format!("{} and {}", shown(one), shown(two))
                        } else {
                            shown(one)
                        }
                    });
                }
            }
        }
    }
}

/// Returns the name of the entry at an offset of a block; empty if the block ends before it.
pub(crate) fn name_at(bytes: &[u8], offset: u32) -> &[u8] {
    let name = || {
        let rest = bytes.get(offset as usize..)?;
        let len = usize::from(*rest.get(6)?);
        rest.get(8..8 + len)
    };
    name().unwrap_or(&[])
}
