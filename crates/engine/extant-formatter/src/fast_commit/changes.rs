//! A batch of items as the changes of a fast commit.
//!
//! Fast commits cannot express all items. Linux calls the other operations ineligible. [`changes`] returns `None` for them,
//! and their context is formatted:
//!
//! - directories that are created, moved or removed, and names for which a directory might grow
//! - symbolic links, devices and the orphan list
//! - extended attributes outside the inode, and files without extents
//!
//! The changes are replayed one by one in this order. The record of a new inode comes first, then its ranges and its names.
//! Names follow in the order of their stamps. The name that an operation adds comes before the name that it removes, so
//! that a file has a link at every moment. A name that is replaced is removed first, because Linux keeps an existing
//! name. Records are repeated at the end, because the replay counts links and blocks itself before.
//!
//! A file that is freed loses its blocks, size and attributes before its last name. The link count in its record is the
//! number of names that it loses. Linux frees the inode with the last name. e2fsck does not change link counts, and frees
//! the empty inode because it has no name.

use super::mappings::Mappings;
use super::records::{Records, WantedRecord};
use super::room::NameRoom;
use super::transaction_size::TransactionSize;
use crate::error::Result;
use crate::item::{
    InodeEvent, InodeItem, ItemList, MapItem, MiscEvent, NameEvent, NameItem, Stamp,
};
use ext4_format::geometry::Geometry;
use ext4_format::inode::flags;
use ext4_format::jbd2::{FastChange, FastName};
use ext4_format::xattr::XattrSet;
use ext4_format::{FileType, InodeNr};
use std::collections::{BTreeMap, BTreeSet};

/// The items of a batch that concern one inode.
#[derive(Default)]
struct Life<'i> {
    /// The item that begins its last life, if that begins here.
    born: Option<&'i InodeItem>,
    last: Option<&'i InodeItem>,
    maps: Vec<&'i MapItem>,
    xattrs: Option<(Stamp, &'i XattrSet)>,
    /// Number of names that the batch removes from the inode, minus the number of names that it adds.
    names_lost: i64,
    /// True if the batch has added a name to the inode.
    is_named: bool,
}

impl<'i> Life<'i> {
    fn is_freed(&self) -> bool {
        self.last.is_some_and(|item| item.event == InodeEvent::Free)
    }

    /// Returns true if the batch made the inode and freed it, so that no commit needs it.
    fn came_and_went(&self) -> bool {
        self.born.is_some() && self.is_freed()
    }

    /// Returns the stamp of the inode's birth. Items before it belong to an earlier life, which the batch began and
    /// ended.
    fn since(&self) -> Stamp {
        self.born.map_or(0, |item| item.stamp)
    }

    /// Returns true if a commit can omit a change of the inode with this stamp.
    fn is_silent(&self, stamp: Stamp) -> bool {
        self.came_and_went() || stamp < self.since()
    }

    fn is_mapped_by_extents(&self) -> bool {
        let by_extents = |item: &InodeItem| item.core.flags & flags::EXTENTS != 0;
        self.born.or(self.last).is_some_and(by_extents)
    }

    /// Returns the state that the record must express, or `None` if no item has the fields of the inode.
    fn wanted(&self) -> Option<WantedRecord<'i>> {
        let lost = u32::try_from(self.names_lost).unwrap_or(0);
        Some(WantedRecord {
            born: self.born,
            last: self.last?,
            xattrs: self.xattrs.map(|(_, set)| set),
            freed_names: self.is_freed().then_some(lost),
        })
    }
}

/// Mappings and directories that fast commits have changed since the last push.
#[derive(Default)]
pub struct SincePush {
    room: NameRoom,
    mappings: Mappings,
    /// Inodes whose extended attributes fast commits have set.
    attributed: BTreeSet<InodeNr>,
    size: TransactionSize,
}

impl SincePush {
    /// Returns the number of blocks that the next transaction changes at most, without the superblock.
    pub fn most_blocks(&self, geometry: &Geometry) -> u64 {
        self.size.blocks(&self.room, geometry)
    }
}

type Lives<'i> = BTreeMap<InodeNr, Life<'i>>;

/// Returns the changes of a batch, and the inodes that it makes, or `None` if fast commits cannot express the batch.
/// `since` has the changes of earlier fast commits since the last push. After `None`, its content is not valid.
///
/// # Errors
/// The errors of reading records and directories.
pub fn changes(
    items: &ItemList,
    records: &Records<'_>,
    since: &mut SincePush,
) -> Result<Option<(Vec<FastChange>, Vec<InodeNr>)>> {
    let features = &records.geometry.features;
    if features.has_bigalloc() || !features.has_extents() {
        return Ok(None);
    }
    since.size.add(items, records.born, records.geometry);
    let Some((mut lives, names)) = sorted(items) else {
        return Ok(None);
    };
    let Some(names) = named(&mut lives, &names, records, &mut since.room) else {
        return Ok(None);
    };
    let said = || lives.iter().filter(|(_, life)| !life.came_and_went());
    let mut out = Vec::new();
    let put = |ino: InodeNr, life: &Life<'_>, out: &mut Vec<FastChange>| {
        life.wanted()
            .map_or(Ok(false), |wanted| records.put(ino, &wanted, out))
    };
    for (&ino, life) in said() {
        // The formatter drops an inode that one batch makes and frees, and its number would stay in use. The record of a
        // freed inode clears the attributes on the device, not those of earlier fast commits.
        let is_changed = records.born.contains(&ino) || since.attributed.contains(&ino);
        if life.is_freed() {
            if is_changed {
                return Ok(None);
            }
            let Some(extents) = since.mappings.end(ino, records, &mut out)? else {
                return Ok(None);
            };
            since.size.add_freed(extents);
        }
        if (life.born.is_some() || life.is_freed()) && !put(ino, life, &mut out)? {
            return Ok(None);
        }
        if life.is_freed() || life.maps.is_empty() {
            continue;
        }
        let items = (&life.maps[..], life.born.is_some());
        if !life.is_mapped_by_extents() || !since.mappings.change(ino, items, records, &mut out)? {
            return Ok(None);
        }
    }
    out.extend(names);
    for (&ino, life) in said().filter(|(_, life)| !life.is_freed()) {
        let changes = life.last.is_some() || life.xattrs.is_some();
        if changes && !put(ino, life, &mut out)? {
            return Ok(None);
        }
    }
    let set = said().filter(|(_, life)| life.xattrs.is_some());
    since.attributed.extend(set.map(|(&ino, _)| ino));
    let born = said().filter(|(_, life)| life.born.is_some());
    let born = born.map(|(&ino, _)| ino).collect();
    Ok(Some((out, born)))
}

/// Groups the items by inode, and sorts the names by stamp. Returns `None` if a fast commit cannot express an item.
fn sorted(items: &ItemList) -> Option<(Lives<'_>, Vec<&NameItem>)> {
    let mut lives = Lives::new();
    let mut inodes: Vec<_> = items.inodes.iter().collect();
    inodes.sort_by_key(|item| item.stamp);
    for item in inodes {
        let life = lives.entry(item.ino).or_default();
        if item.event == InodeEvent::Init {
            if life.born.is_none() && life.is_freed() {
                return None;
            }
            life.born = Some(item);
        }
        life.last = Some(item);
    }
    for item in items.maps.iter().filter(|item| item.len > 0) {
        lives.entry(item.ino).or_default().maps.push(item);
    }
    for item in items.misc.iter() {
        let MiscEvent::Xattrs(set) = &item.event else {
            return None;
        };
        let life = lives.entry(item.ino).or_default();
        let is_newer = life.xattrs.is_none_or(|(stamp, _)| stamp < item.stamp);
        if is_newer && item.stamp >= life.since() {
            life.xattrs = Some((item.stamp, set));
        }
    }
    for life in lives.values_mut() {
        let since = life.since();
        life.maps.retain(|item| item.stamp >= since);
        life.maps.sort_by_key(|item| item.stamp);
    }
    let mut names: Vec<_> = items.names.iter().collect();
    names.sort_by_key(|item| (item.stamp, item.event == NameEvent::Removed));
    let plain = |item: &&NameItem| {
        let replaces_unknown = item.event == NameEvent::Set && item.replaced.0 == 0;
        item.links == 0 && !replaces_unknown && item.ftype != FileType::Directory
    };
    let exchanges = |pair: &[&NameItem]| match pair {
        [a, b] => a.stamp == b.stamp && a.event == NameEvent::Set && b.event == NameEvent::Set,
        _ => false,
    };
    let fits = names.iter().all(plain) && !names.windows(2).any(exchanges);
    fits.then_some((lives, names))
}

/// Returns the changes of the names, and counts the names that each inode loses. Returns `None` if a directory might grow,
/// or if a new inode would stay without a name.
fn named(
    lives: &mut Lives<'_>,
    names: &[&NameItem],
    records: &Records<'_>,
    room: &mut NameRoom,
) -> Option<Vec<FastChange>> {
    let mut out = Vec::with_capacity(names.len());
    let said = |life: &&Life<'_>| life.born.is_some() && !life.came_and_went();
    let mut unnamed = lives.values().filter(said).count();
    for item in names {
        let of = |ino| FastName {
            parent: item.dir,
            ino,
            name: item.name.as_bytes().to_vec(),
        };
        let mut lose = |ino: InodeNr| {
            let life = lives.entry(ino).or_default();
            let loses = !life.is_silent(item.stamp);
            life.names_lost += i64::from(loses);
            loses.then(|| FastChange::Unlink(of(ino)))
        };
        if !room.can_express(item.dir, records) {
            return None;
        }
        if item.event == NameEvent::Removed {
            out.extend(lose(item.ino));
            continue;
        }
        if item.event == NameEvent::Set {
            out.extend(lose(item.replaced));
        }
        let life = lives.entry(item.ino).or_default();
        if life.is_silent(item.stamp) {
            continue;
        }
        if !room.take(item, records) {
            return None;
        }
        life.names_lost -= 1;
        let is_first = life.born.is_some() && !std::mem::replace(&mut life.is_named, true);
        unnamed -= usize::from(is_first);
        out.push(if is_first {
            FastChange::Create(of(item.ino))
        } else {
            FastChange::Link(of(item.ino))
        });
    }
    (unnamed == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use crate::tests::harness::Fs;
    use ext4_format::inode::InodeCore;
    use ext4_format::timestamp::Timestamp;
    use std::collections::BTreeSet;

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
            replaced: InodeNr(0),
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
        let fs = Fs::make(65536, &["-t", "ext4"]).unwrap();
        let (geometry, images) = (&fs.geometry, &fs.buffers);
        let items = ItemList {
            inodes: inodes.into(),
            names: names.into(),
            ..ItemList::default()
        };
        let records = Records {
            geometry,
            images,
            place: &|ino| fs.groups.inode_location(geometry, images, ino),
            born: &BTreeSet::from([InodeNr(12)]),
            hasher: &fs.hasher,
            zone: fs.formatter.zone(),
        };
        let (changes, _) = changes(&items, &records, &mut SincePush::default()).unwrap()?;
        let text = |name: &FastName| String::from_utf8(name.name.clone()).unwrap();
        let said = changes.iter().filter_map(|change| match change {
            FastChange::Create(name) => Some("+".to_string() + &text(name)),
            FastChange::Link(name) => Some("=".to_string() + &text(name)),
            FastChange::Unlink(name) => Some("-".to_string() + &text(name)),
            _ => None,
        });
        Some(said.collect())
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
    fn a_file_ends_with_its_last_name() {
        use InodeEvent::Free;
        use NameEvent::{Added, Removed};
        let freed = |ino| {
            let names = vec![
                name(ino, Removed, 5, "a"),
                name(ino, Added, 6, "b"),
                name(ino, Removed, 7, "b"),
            ];
            said(vec![inode(ino, Free, 7)], names)
        };
        // The journal's inode is a file on the device.
        assert_eq!(freed(8).unwrap(), ["-a", "=b", "-b"]);
        // An earlier fast commit made the inode.
        assert_eq!(freed(12), None);
    }

    #[test]
    fn a_name_that_is_replaced_goes_first() {
        use InodeEvent::{Free, Init, Update};
        use NameEvent::{Added, Removed, Set};
        let set = NameItem {
            replaced: InodeNr(8),
            ..name(13, Set, 5, "a")
        };
        let names = vec![
            name(13, Added, 3, "tmp"),
            name(13, Removed, 5, "tmp"),
            set.clone(),
        ];
        let inodes = vec![inode(13, Init, 3), inode(13, Update, 5), inode(8, Free, 5)];
        assert_eq!(said(inodes, names).unwrap(), ["+tmp", "-a", "=a", "-tmp"]);
        let exchanged = vec![
            set,
            NameItem {
                replaced: InodeNr(13),
                ..name(12, Set, 5, "b")
            },
        ];
        assert_eq!(said(vec![inode(12, Update, 5)], exchanged), None);
    }

    #[test]
    fn what_fast_commits_cannot_say_is_formatted() {
        use InodeEvent::Update;
        use NameEvent::Set;
        let replaces = vec![name(12, Set, 5, "a")];
        assert_eq!(said(vec![inode(12, Update, 5)], replaces), None);
        let mut symlink = inode(12, Update, 5);
        symlink.core.mode = 0o120777;
        assert_eq!(said(vec![symlink], Vec::new()), None);
        let mut orphan = inode(12, Update, 5);
        orphan.core.links = 0;
        assert_eq!(said(vec![orphan], Vec::new()), None);
    }

    /// The root of a new volume has one block. After ".", ".." and "lost+found", the gap has room for 60 entries of 16 bytes.
    #[test]
    fn a_directory_that_might_grow_is_formatted() {
        use InodeEvent::Init;
        use NameEvent::Added;
        let files = |count: u32| {
            let inodes = (0..count).map(|n| inode(20 + n, Init, n.into())).collect();
            let named = |n: u32| name(20 + n, Added, n.into(), &format!("name {n:03}"));
            said(inodes, (0..count).map(named).collect())
        };
        let room = (1024 - 12 - 24 - 20) / 16;
        assert_eq!(files(room).unwrap().len(), room as usize);
        assert_eq!(files(room + 1), None);
    }
}
