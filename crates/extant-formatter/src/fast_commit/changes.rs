//! A batch of items as the changes of a fast commit.
//!
//! Fast commits can express less than items. [`changes`] returns `None` for the others, which Linux calls ineligible
//! operations. They are directories made, moved, removed or changed, a file's end, attributes, names that replace
//! others, symbolic links, the orphan list, and files that are not mapped by extents. Such a context is formatted.
//!
//! The changes can be made one by one in this order. A new inode's record comes first, then its ranges and its names.
//! Names follow in the order of their stamps. The name that an operation adds comes before the name that it removes, so
//! that a file has a link at every moment. Records are repeated at the end, because readers count links and blocks
//! themselves before.

use super::REFUSED;
use crate::error::Result;
use crate::image::BlockImages;
use crate::inode_phase::{LARGE, first_core, next_core};
use crate::item::{InodeEvent, InodeItem, ItemList, MapItem, NameEvent, NameItem, Stamp};
use ext4_format::extent::Extent;
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2::{FastChange, FastName};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::{BTreeMap, BTreeSet};

/// The items of a batch that concern one inode.
#[derive(Default)]
struct Life<'i> {
    /// The item that begins its last life, if that begins here.
    born: Option<&'i InodeItem>,
    last: Option<&'i InodeItem>,
    maps: Vec<&'i MapItem>,
}

impl Life<'_> {
    /// Returns true if the batch made the inode and freed it, so that no commit needs it.
    fn came_and_went(&self) -> bool {
        self.born.is_some() && self.last.is_some_and(|item| item.event == InodeEvent::Free)
    }

    /// Returns the stamp of the inode's birth. Items before it belong to an earlier life, which the batch began and
    /// ended.
    fn since(&self) -> Stamp {
        self.born.map_or(0, |item| item.stamp)
    }
}

/// The images that records are read from.
pub struct Records<'a> {
    /// The volume's geometry.
    pub geometry: &'a Geometry,
    /// The volume's blocks as of the last batch that was formatted.
    pub images: &'a dyn BlockImages,
    /// The place of an inode's record.
    pub place: &'a dyn Fn(InodeNr) -> Result<(BlockNr, usize)>,
    /// Inodes that earlier fast commits made: the images do not have them.
    pub born: &'a BTreeSet<InodeNr>,
}

/// Returns the changes of a batch, and the inodes that it makes, or `None` if fast commits cannot express the batch.
///
/// # Errors
/// Those of reading records.
pub fn changes(
    items: &ItemList,
    records: &Records<'_>,
) -> Result<Option<(Vec<FastChange>, Vec<InodeNr>)>> {
    let features = &records.geometry.features;
    if !items.misc.is_empty() || features.has_bigalloc() || !features.has_extents() {
        return Ok(None);
    }
    let Some((lives, names)) = sorted(items) else {
        return Ok(None);
    };
    let mut out = Vec::new();
    let mut unnamed = BTreeSet::new();
    for (&ino, life) in lives.iter().filter(|(_, life)| !life.came_and_went()) {
        if life.born.is_some() {
            let Some(record) = record(ino, life, records)? else {
                return Ok(None);
            };
            out.push(FastChange::Inode(ino, record));
            unnamed.insert(ino);
        }
        if !ranges(ino, life, &mut out) {
            return Ok(None);
        }
    }
    let born: Vec<_> = unnamed.iter().copied().collect();
    for item in names {
        let life = lives.get(&item.ino);
        if life.is_some_and(|life| life.came_and_went() || item.stamp < life.since()) {
            continue;
        }
        let name = FastName {
            parent: item.dir,
            ino: item.ino,
            name: item.name.as_bytes().to_vec(),
        };
        out.push(match item.event {
            NameEvent::Removed => FastChange::Unlink(name),
            _ if unnamed.remove(&item.ino) => FastChange::Create(name),
            _ => FastChange::Link(name),
        });
    }
    if !unnamed.is_empty() {
        return Ok(None);
    }
    for (&ino, life) in lives.iter().filter(|(_, life)| !life.came_and_went()) {
        if life.last.is_some() {
            let Some(record) = record(ino, life, records)? else {
                return Ok(None);
            };
            out.push(FastChange::Inode(ino, record));
        }
    }
    Ok(Some((out, born)))
}

type Sorted<'i> = (BTreeMap<InodeNr, Life<'i>>, Vec<&'i NameItem>);

/// Sorts the items by inode, and the names in their order. Returns `None` if an item rules a fast commit out.
fn sorted(items: &ItemList) -> Option<Sorted<'_>> {
    let mut lives: BTreeMap<InodeNr, Life<'_>> = BTreeMap::new();
    let mut inodes: Vec<_> = items.inodes.iter().collect();
    inodes.sort_by_key(|item| item.stamp);
    for item in inodes {
        let life = lives.entry(item.ino).or_default();
        match item.event {
            InodeEvent::Init => life.born = Some(item),
            // The end of an inode that existed before.
            InodeEvent::Free if life.born.is_none() => return None,
            _ => {}
        }
        life.last = Some(item);
    }
    for item in items.maps.iter().filter(|item| item.len > 0) {
        lives.entry(item.ino).or_default().maps.push(item);
    }
    for life in lives.values_mut() {
        let since = life.since();
        life.maps.retain(|item| item.stamp >= since);
        life.maps.sort_by_key(|item| item.stamp);
    }
    let mut names: Vec<_> = items.names.iter().collect();
    names.sort_by_key(|item| (item.stamp, item.event == NameEvent::Removed));
    let plain = |item: &&NameItem| {
        item.links == 0 && item.event != NameEvent::Set && item.ftype != FileType::Directory
    };
    names.iter().all(plain).then_some((lives, names))
}

/// Adds the ranges of an inode; false if its mapping is not one of extents.
fn ranges(ino: InodeNr, life: &Life<'_>, out: &mut Vec<FastChange>) -> bool {
    if life.maps.is_empty() {
        return true;
    }
    let by_extents = |item: &InodeItem| item.core.flags & flags::EXTENTS != 0;
    if !life.born.or(life.last).is_some_and(by_extents) {
        return false;
    }
    for item in &life.maps {
        if item.physical.0 == 0 {
            // The length of a hole up to the end exceeds the largest file.
            let len = item.len.min(u32::MAX - item.logical);
            out.push(FastChange::RemoveRange(ino, item.logical, len));
            continue;
        }
        let mut extent = Extent {
            logical: item.logical,
            len: item.len,
            physical: item.physical,
            unwritten: item.unwritten,
        };
        let end = extent.end();
        while u64::from(extent.logical) < end {
            extent.len = (end - u64::from(extent.logical)).min(extent.max_len().into()) as u32;
            out.push(FastChange::AddRange(ino, extent));
            extent.logical = extent.logical.saturating_add(extent.len);
            extent.physical.0 = extent.physical.0.saturating_add(extent.len.into());
        }
    }
    true
}

/// Returns the record that an inode gets, without its mapping, or `None` if fast commits cannot express such an inode.
fn record(ino: InodeNr, life: &Life<'_>, records: &Records<'_>) -> Result<Option<Vec<u8>>> {
    let geometry = records.geometry;
    let Some(last) = life.last else {
        return Ok(None);
    };
    if !speaks_of(&last.core, geometry) {
        return Ok(None);
    }
    let mut raw = vec![0; geometry.inode_size.into()];
    let core = if let Some(init) = life.born {
        inode::init_blank(&mut raw, geometry);
        first_core(last, init, false, true)
    } else if records.born.contains(&ino) {
        inode::init_blank(&mut raw, geometry);
        InodeCore {
            dtime: 0,
            ..last.core
        }
    } else {
        let (block, offset) = (records.place)(ino)?;
        let image = records.images.image(block)?;
        let Some(old) = image.get(offset..offset.saturating_add(raw.len())) else {
            return Ok(None);
        };
        raw.copy_from_slice(old);
        let old = inode::decode_core(&raw, geometry, ino)?;
        next_core(last, &old, geometry)?
    };
    inode::encode_core(&core, &mut raw, geometry);
    raw.truncate(inode::fixed_end(&raw));
    Ok(Some(raw))
}

fn speaks_of(core: &InodeCore, geometry: &Geometry) -> bool {
    let large = core.size >= LARGE && !geometry.features.has_large_file();
    core.file_type() == Some(FileType::Regular)
        && core.flags & (REFUSED | flags::VERITY) == 0
        && core.links > 0
        && !large
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::tests::harness::Fs;
    use ext4_format::timestamp::Timestamp;

    fn core(mode: u16) -> InodeCore {
        InodeCore {
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            flags: flags::EXTENTS,
            generation: 1,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
            crtime: Timestamp::default(),
            dtime: 0,
            rdev: 0,
            project: 0,
        }
    }

    fn inode(ino: u32, event: InodeEvent, stamp: Stamp) -> InodeItem {
        InodeItem {
            ino: InodeNr(ino),
            event,
            stamp,
            core: core(0o100644),
        }
    }

    fn name(ino: u32, event: NameEvent, stamp: Stamp, name: &str) -> NameItem {
        NameItem {
            dir: InodeNr::ROOT,
            ino: InodeNr(ino),
            event,
            hash: 0,
            minor: 0,
            stamp,
            time: Timestamp::default(),
            ftype: FileType::Regular,
            links: 0,
            name: Name::new(name.as_bytes()).unwrap(),
        }
    }

    /// Returns the names of the changes, as `+name`, `=name` for one more link, and `-name`.
    fn said(inodes: Vec<InodeItem>, names: Vec<NameItem>) -> Option<Vec<String>> {
        let geometry = Fs::make(65536, &["-t", "ext4"]).unwrap().geometry;
        let items = ItemList {
            inodes: inodes.into(),
            names: names.into(),
            ..ItemList::default()
        };
        let none = BTreeSet::from([InodeNr(12)]);
        let records = Records {
            geometry: &geometry,
            images: &NoImages,
            place: &|_| Ok((BlockNr(0), 0)),
            born: &none,
        };
        let (changes, _) = changes(&items, &records).unwrap()?;
        let text = |name: &FastName| String::from_utf8(name.name.clone()).unwrap();
        let said = changes.iter().filter_map(|change| match change {
            FastChange::Create(name) => Some("+".to_string() + &text(name)),
            FastChange::Link(name) => Some("=".to_string() + &text(name)),
            FastChange::Unlink(name) => Some("-".to_string() + &text(name)),
            _ => None,
        });
        Some(said.collect())
    }

    struct NoImages;

    impl BlockImages for NoImages {
        fn image(&self, _: BlockNr) -> Result<std::sync::Arc<crate::image::Image>> {
            unreachable!("every inode is born here")
        }
    }

    #[test]
    fn a_file_that_moves_always_has_a_link() {
        use InodeEvent::{Init, Update};
        use NameEvent::{Added, Removed};
        let moved = vec![name(12, Removed, 5, "a"), name(12, Added, 5, "b")];
        assert_eq!(
            said(vec![inode(12, Update, 5)], moved).unwrap(),
            ["=b", "-a"]
        );
        let written = vec![
            name(13, Added, 3, "tmp"),
            name(13, Removed, 6, "tmp"),
            name(13, Added, 6, "new"),
        ];
        let inodes = vec![inode(13, Init, 3), inode(13, Update, 6)];
        assert_eq!(said(inodes, written).unwrap(), ["+tmp", "=new", "-tmp"]);
    }

    #[test]
    fn what_comes_and_goes_is_not_said() {
        use InodeEvent::{Free, Init};
        use NameEvent::{Added, Removed};
        let names = vec![
            name(13, Added, 3, "lock"),
            name(13, Removed, 4, "lock"),
            name(13, Added, 7, "file"),
        ];
        let inodes = vec![inode(13, Init, 3), inode(13, Free, 4), inode(13, Init, 7)];
        assert_eq!(said(inodes, names).unwrap(), ["+file"]);
    }

    #[test]
    fn what_fast_commits_cannot_say_is_formatted() {
        use InodeEvent::{Free, Update};
        use NameEvent::{Removed, Set};
        let last = vec![name(12, Removed, 5, "a")];
        assert_eq!(said(vec![inode(12, Free, 5)], last), None);
        let replaces = vec![name(12, Set, 5, "a")];
        assert_eq!(said(vec![inode(12, Update, 5)], replaces), None);
        let mut directory = inode(12, Update, 5);
        directory.core.mode = 0o040755;
        assert_eq!(said(vec![directory], Vec::new()), None);
    }
}
