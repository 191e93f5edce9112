//! Deleted files whose inodes are still in the journal, as they were before.

use crate::state::{DeletedSearch, Found, InodeKey, OldBlocks, OldImage, OldInode, Rescue};
use ext4_format::extent::Node;
use ext4_format::inode::{self, InodeCore};
use ext4_format::jbd2::descriptor::TagFlags;
use ext4_format::jbd2::{self, BlockType, Checksums, Superblock, Tid};
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap, dir_entry};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Old inodes that are kept at most, so that a broken journal cannot fill memory.
const MOST: usize = 1 << 20;

/// Generations of an inode number that are kept at most: the newest. A broken journal may have another in each block.
const GENERATIONS: usize = 16;

/// Longest name of a file, in bytes.
const LONGEST_NAME: usize = 255;

/// Inodes in old blocks of inode tables.
#[derive(Default)]
struct OldInodes {
    /// The newest image of each file that is gone.
    gone: BTreeMap<InodeKey, OldInode>,
    /// The first transaction that has an inode in use, also of files that are still there.
    firsts: BTreeMap<InodeKey, Tid>,
    /// Numbers that have more than [`GENERATIONS`].
    crowded: BTreeSet<u32>,
    /// Whether there are more than [`MOST`] inodes.
    is_full: bool,
}

impl OldInodes {
    /// Notes that a transaction has an inode in use. Returns whether the inode is kept; another one, which is older, may
    /// make room for it.
    fn note_use(&mut self, key: InodeKey, tid: Tid) -> bool {
        if let Some(first) = self.firsts.get_mut(&key) {
            if tid.is_before(*first) {
                *first = tid;
            }
            return true;
        }
        let same_number = self.firsts.range(generations_of(key.0));
        let oldest = same_number
            .clone()
            .reduce(|a, b| if b.1.is_before(*a.1) { b } else { a });
        if let Some((&oldest, &first)) = oldest
            && same_number.count() >= GENERATIONS
        {
            self.crowded.insert(key.0);
            if !first.is_before(tid) {
                return false;
            }
            self.firsts.remove(&oldest);
            self.gone.remove(&oldest);
        }
        if self.firsts.len() >= MOST {
            self.is_full = true;
            return false;
        }
        self.firsts.insert(key, tid);
        true
    }

    /// Removes the older images of files whose generation was changed while they were in use.
    fn remove_changed_generations(&mut self) {
        let mut older = Vec::new();
        for (key, inode) in &self.gone {
            let mut others = self.gone.range(generations_of(key.0));
            let is_newer = |other: &OldInode| {
                inode.tid.is_before(other.tid)
                    && is_same_file((&inode.raw, &inode.core), (&other.raw, &other.core))
            };
            if others.any(|(_, other)| is_newer(other)) {
                older.push(*key);
            }
        }
        for key in older {
            self.gone.remove(&key);
        }
    }

    /// Determines when the number of each inode was first used by the next file.
    fn set_ends(&mut self) {
        for (&(ino, _), inode) in &mut self.gone {
            let others = self.firsts.range(generations_of(ino)).map(|(_, &tid)| tid);
            let later = others.filter(|&tid| inode.tid.is_before(tid));
            inode.until = later.reduce(|a, b| if b.is_before(a) { b } else { a });
        }
    }
}

/// Returns the range of the keys of an inode number.
fn generations_of(ino: u32) -> RangeInclusive<InodeKey> {
    (ino, 0)..=(ino, u32::MAX)
}

/// Returns whether two records of an inode number are of the same file, although their generations differ: these can be
/// changed. Without a time of creation, nothing else distinguishes a newer file with the same blocks.
fn is_same_file(one: (&[u8], &InodeCore), other: (&[u8], &InodeCore)) -> bool {
    let mapping = |raw| inode::i_block(raw).ok();
    one.1.crtime != Timestamp::default()
        && one.1.crtime == other.1.crtime
        && mapping(one.0) == mapping(other.0)
}

/// Appends the number and the generation of an inode to a path that another file has. The name is cut if it would be
/// too long for a file.
fn distinct_path(
    taken: &BTreeSet<Vec<u8>>,
    mut path: Vec<u8>,
    (ino, generation): InodeKey,
) -> Vec<u8> {
    let mut end = format!("#{ino}.{generation}");
    let name_start = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    let whole = path.clone();
    // Names in the image may look like such an end.
    for n in 1_u64.. {
        if !taken.contains(&path) {
            break;
        }
        path.clone_from(&whole);
        path.truncate(name_start + LONGEST_NAME.saturating_sub(end.len()));
        path.extend_from_slice(end.as_bytes());
        end = format!("#{ino}.{generation}.{n}");
    }
    path
}

impl Rescue<'_> {
    /// Searches the journal for inodes that are deleted now, and adds them below `#deleted`, also if a newer file has the
    /// number. If their directory or their name is unknown, they are named by their numbers. Blocks that are in use
    /// again are reported by [`Found::problem`].
    pub fn find_deleted(&mut self) {
        let Some(old) = self.old_blocks() else {
            self.notes
                .add("there is no journal that can be read to find deleted files in".into());
            return;
        };
        let OldInodes {
            gone: mut inodes,
            crowded,
            is_full,
            ..
        } = self.old_inodes(&old);
        if !crowded.is_empty() {
            self.notes.add(format!(
                "inode numbers of more than {GENERATIONS} files each: {}: the older deleted files are left out",
                crowded.len()
            ));
        }
        if is_full {
            self.notes.add(format!(
                "the journal has more than {MOST} old inodes: the other deleted files are left out"
            ));
        }
        self.deleted_search = Some(self.searched(&old, inodes.len() as u64));
        self.old_names(&old, &mut inodes);
        self.old_blocks = Some(old);
        let paths: BTreeMap<u32, Vec<u8>> = self
            .found
            .iter()
            .filter(|found| found.file_type == FileType::Directory)
            .map(|found| (found.ino.0, found.path.clone()))
            .collect();
        let mut taken = BTreeSet::new();
        for ((ino, generation), old) in inodes {
            let mut path = b"#deleted/".to_vec();
            match &old.name {
                Some((_, dir, name)) => {
                    if let Some(above) = paths.get(dir) {
                        path.extend_from_slice(above);
                        path.push(b'/');
                    }
                    path.extend_from_slice(name);
                }
                None => path.extend_from_slice(format!("#{ino}").as_bytes()),
            }
            // Several files may have had the same number or the same name.
            let path = distinct_path(&taken, path, (ino, generation));
            taken.insert(path.clone());
            let (core, named) = (old.core, old.name.is_some());
            let again = self.is_used_again(&old);
            self.old_inodes.insert((ino, generation), old);
            self.found.push(Found {
                ino: InodeNr(ino),
                generation,
                path,
                named,
                deleted: true,
                file_type: core.file_type().unwrap_or(FileType::Regular),
                size: core.size,
                problem: again.then_some("some of its blocks are in use again"),
            });
        }
        self.found.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// Counts the blocks to search.
    fn searched(&self, old: &OldBlocks, files: u64) -> DeletedSearch {
        let length = u64::from(self.image.geo.itable_blocks());
        let in_table = |home: &BlockNr| {
            let mut firsts = self.tables.iter().filter_map(|table| table.first);
            firsts.any(|first| (first.0..first.0.saturating_add(length)).contains(&home.0))
        };
        let count = |wanted: &dyn Fn(&BlockNr) -> bool| {
            let images = old.images.iter().filter(|(home, _)| wanted(home));
            images.map(|(_, images)| images.len() as u64).sum()
        };
        let tids: BTreeSet<u32> = old.images.values().flatten().map(|i| i.tid.0).collect();
        DeletedSearch {
            transactions: tids.len() as u64,
            tables: count(&in_table),
            directories: count(&|home| self.directory_blocks.contains_key(home)),
            files,
        }
    }

    /// Lists all images in the journal, also images that were already written home.
    fn old_blocks(&self) -> Option<OldBlocks> {
        let place = |logical: u32| self.journal.at(logical);
        let sb = Superblock::parse(&self.block(place(0)?)?).ok()?;
        if sb.block_size != self.image.geo.block_size {
            return None;
        }
        let format = sb.format();
        let mut images: BTreeMap<BlockNr, Vec<OldImage>> = BTreeMap::new();
        // Each image has a block of the log, and an old descriptor may list what newer ones list again.
        let mut room = sb.log_range().len().saturating_mul(2);
        for at in sb.log_range() {
            let Some(block) = place(at) else {
                break;
            };
            let Some(bytes) = self.block(block) else {
                continue;
            };
            let Some((BlockType::Descriptor, tid)) = jbd2::header(&bytes) else {
                continue;
            };
            let mut next = at;
            for tag in format.tags(&bytes).unwrap_or_default() {
                next = sb.next_block(next);
                if let Some(place) = place(next)
                    && let Some(less) = room.checked_sub(1)
                {
                    room = less;
                    images.entry(tag.home).or_default().push(OldImage {
                        tid,
                        place,
                        escaped: tag.flags.contains(TagFlags::ESCAPE),
                        checksum: tag.checksum,
                    });
                }
            }
        }
        Some(OldBlocks { format, images })
    }

    /// Reads an image; `None` if another one has overwritten it.
    fn image(&self, old: &OldBlocks, image: &OldImage) -> Option<Vec<u8>> {
        let mut bytes = self.block(image.place)?;
        // A checksum is one of the block as it was logged.
        let computed = old.format.image_checksum(image.tid, &bytes);
        let right = match old.format.checksums {
            Checksums::V3 => computed == image.checksum,
            Checksums::V2 => computed as u16 == image.checksum as u16,
            _ => true,
        };
        if image.escaped {
            jbd2::unescape(&mut bytes);
        }
        right.then_some(bytes)
    }

    /// Returns the newest images of inodes that had links, and are free now or belong to another file.
    fn old_inodes(&self, old: &OldBlocks) -> OldInodes {
        let mut found = OldInodes::default();
        let length = u64::from(self.image.geo.itable_blocks());
        for (group, table) in (0..).map(GroupNr).zip(&self.tables) {
            let Some(first) = table.first else {
                continue;
            };
            let end = BlockNr(first.0.saturating_add(length));
            for (home, images) in old.images.range(first..end) {
                let index = (home.0 - first.0) as u32 * self.image.geo.inodes_per_block();
                for image in images {
                    let Some(bytes) = self.image(old, image) else {
                        continue;
                    };
                    let records = bytes.chunks_exact(self.image.geo.inode_size.into());
                    for (n, raw) in (index..self.image.geo.inodes_per_group).zip(records) {
                        let ino = self.image.geo.inode_nr(group, n);
                        self.note_old(&mut found, ino, raw, image.tid);
                    }
                }
            }
        }
        found.gone.retain(|&(ino, _), old| {
            let in_use = self.inodes.contains_key(&ino);
            let now = in_use.then(|| self.record(InodeNr(ino))).flatten();
            now.is_none_or(|(raw, core)| !is_same_file((&raw, &core), (&old.raw, &old.core)))
        });
        found.remove_changed_generations();
        found.set_ends();
        found
    }

    fn note_old(&self, found: &mut OldInodes, ino: InodeNr, raw: &[u8], tid: Tid) {
        if ino.0 < self.image.geo.first_ino || ino.0 == self.image.geo.orphan_file_ino {
            return;
        }
        let Ok(core) = inode::decode_core(raw, &self.image.geo, ino) else {
            return;
        };
        let key = (ino.0, core.generation);
        if core.links == 0 || !found.note_use(key, tid) {
            return;
        }
        let in_use = self.inodes.get(&ino.0);
        let is_gone = in_use.is_none_or(|inode| inode.generation != core.generation);
        let wanted = matches!(
            core.file_type(),
            Some(FileType::Regular | FileType::Symlink)
        );
        let known = found.gone.get(&key);
        let newer = known.is_none_or(|known| known.tid.is_before(tid));
        if is_gone && wanted && newer && core.size > 0 {
            let inode = OldInode {
                tid,
                until: None,
                raw: raw.to_vec(),
                core,
                name: None,
            };
            found.gone.insert(key, inode);
        }
    }

    /// Collects names of deleted inodes from the images of directories.
    fn old_names(&self, old: &OldBlocks, inodes: &mut BTreeMap<InodeKey, OldInode>) {
        for (home, images) in &old.images {
            let Some(&dir) = self.directory_blocks.get(home) else {
                continue;
            };
            for image in images {
                let Some(bytes) = self.image(old, image) else {
                    continue;
                };
                for record in dir_entry::records(&bytes, 0, true).map_while(Result::ok) {
                    if !crate::names::is_name(&record) {
                        continue;
                    }
                    let file_type = FileType::from_dir_byte(record.file_type);
                    for (_, inode) in inodes.range_mut(generations_of(record.inode.0)) {
                        let has_type = file_type.is_none_or(|t| Some(t) == inode.core.file_type());
                        // From then on, the name is that of another file.
                        let has_number = inode.until.is_none_or(|until| image.tid.is_before(until));
                        let known = inode.name.as_ref();
                        let newer = known.is_none_or(|(tid, ..)| tid.is_before(image.tid));
                        if has_type && has_number && newer {
                            inode.name = Some((image.tid, dir, record.name.to_vec()));
                        }
                    }
                }
            }
        }
    }

    /// Returns whether a block of a deleted inode is in use.
    fn is_used_again(&self, old: &OldInode) -> bool {
        let map = self.map(&old.raw, &old.core, true);
        let mut cached: Option<(GroupNr, Option<Vec<u8>>)> = None;
        let mut used = |block: BlockNr| {
            let Some((group, index)) = self.image.geo.group_of_block(block) else {
                return true;
            };
            if cached.as_ref().is_none_or(|(known, _)| *known != group) {
                let table = self.tables.get(group.0 as usize);
                let place = table.and_then(|table| table.block_bitmap);
                cached = Some((group, place.and_then(|place| self.block(place))));
            }
            let bits = cached.as_ref().and_then(|(_, bits)| bits.as_deref());
            // A group without a bitmap has only its own structures in use.
            bits.is_some_and(|bits| bitmap::test(bits, index))
        };
        map.extents.iter().any(|extent| {
            (0..u64::from(extent.len)).any(|i| used(BlockNr(extent.physical.0.saturating_add(i))))
        })
    }

    /// Returns the newest image of a node of a mapping that has entries.
    pub(crate) fn old_node(&self, block: BlockNr) -> Option<Vec<u8>> {
        let old = self.old_blocks.as_ref()?;
        let mut images = old.images.get(&block)?.clone();
        images.sort_by(|a, b| b.tid.order(a.tid));
        images.iter().find_map(|image| {
            let bytes = self.image(old, image)?;
            let filled = match Node::view(&bytes).ok()? {
                Node::Leaf(leaf) => !leaf.is_empty(),
                Node::Index(index) => !index.is_empty(),
            };
            filled.then_some(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_generations_of_a_number_are_kept() {
        let mut found = OldInodes::default();
        // Neither the order of the generations nor that of the images is that of the transactions.
        for n in (0..1000_u32).map(|n| n * 7 % 1000) {
            found.note_use((12, 1000 - n), Tid(n));
        }
        assert!(found.note_use((13, 0), Tid(1)));
        let kept: BTreeSet<u32> = found.firsts.values().map(|tid| tid.0).collect();
        assert_eq!(kept, (984..1000).chain([1]).collect());
        assert_eq!(found.crowded, BTreeSet::from([12]));
        assert!(!found.note_use((12, 5000), Tid(1)) && !found.is_full);
    }

    #[test]
    fn inodes_beyond_the_most_are_reported() {
        let known = (1..MOST as u32).map(|ino| ((ino, 0), Tid(1)));
        let mut found = OldInodes {
            firsts: known.collect(),
            ..OldInodes::default()
        };
        assert!(found.note_use((0, 0), Tid(1)) && !found.is_full);
        assert!(!found.note_use((u32::MAX, 0), Tid(1)) && found.is_full);
    }

    #[test]
    fn paths_of_files_with_equal_names_differ() {
        let mut taken = BTreeSet::new();
        for (path, key, expected) in [
            ("#deleted/a", (12, 7), "#deleted/a"),
            ("#deleted/a#13.8", (14, 7), "#deleted/a#13.8"),
            ("#deleted/a", (12, 8), "#deleted/a#12.8"),
            ("#deleted/a", (13, 8), "#deleted/a#13.8.1"),
        ] {
            let path = distinct_path(&taken, path.into(), key);
            assert_eq!(path, expected.as_bytes());
            assert!(taken.insert(path));
        }
        let long = [b"#deleted/", &[b'x'; LONGEST_NAME][..]].concat();
        for generation in 0..1000 {
            let path = distinct_path(&taken, long.clone(), (15, generation));
            assert_eq!(path.len(), long.len());
            assert!(taken.insert(path));
        }
    }
}
