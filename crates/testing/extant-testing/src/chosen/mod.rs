//! Damage that is chosen: one rule of the format broken at one place, with checksums that fit, on each image that has the place.

mod list;

use crate::bases::{Base, KINDS};
use crate::common::on_all_cores;
use crate::walk;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::group_desc::GroupDesc;
use ext4_format::{GroupNr, InodeNr, dir_entry, inode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub use list::DAMAGES;

/// The structure to damage. Offsets of the edits are relative to it.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Superblock,
    /// The backup of the superblock in a group.
    Backup(u32),
    Descriptor(u32),
    BlockBitmap(u32),
    InodeBitmap(u32),
    /// The record of an inode.
    Number(u32),
    /// The record of a file.
    Inode(&'static str),
    /// A block of a file.
    Block(&'static str, usize),
    /// The first block of a file's mapping outside of its inode.
    Node(&'static str),
    /// The block of a file's attributes.
    Attributes(&'static str),
    /// The record of a name in a directory.
    Entry(&'static str, &'static str),
    JournalSuperblock,
}

/// How bytes are changed.
#[derive(Clone, Copy, Debug)]
pub enum Edit {
    Set(usize, &'static [u8]),
    /// Sets the bits of the first mask and clears those of the second in four bytes, least first.
    Bits(usize, u32, u32),
    /// Adds to four bytes, least first.
    Add(usize, u32),
}

pub struct Damage {
    /// The rule, and the edits that break it.
    pub name: &'static str,
    pub place: Target,
    pub edits: &'static [Edit],
}

/// Calls a function with the number of each base whose journal is empty, on all processors.
pub fn each_base(f: impl Fn(usize) + Sync) {
    on_all_cores(1, 0..KINDS.len() as u64, |n| {
        let n = n as usize;
        if !KINDS[n].dirty {
            f(n);
        }
    });
}

/// Damages an image; `None` if it lacks such a place, or the edits change nothing.
pub fn broken(base: &Base, places: &Places, damage: &Damage) -> Option<MemDevice> {
    let device = base.device.snapshot();
    let (block, within) = places.find(damage.place)?;
    let at = block * base.block as u64 + within as u64;
    let mut changed = false;
    for &edit in damage.edits {
        changed |= apply(&device, at, edit);
    }
    if !changed {
        return None;
    }
    base.map.seal(&device, &BTreeSet::from([block]));
    Some(device)
}

/// Applies the edit; returns whether any byte changed.
fn apply(device: &MemDevice, base: u64, edit: Edit) -> bool {
    let change = |at: usize, len: usize, change: &dyn Fn(&mut [u8])| {
        let mut bytes = vec![0; len];
        device.read_at(base + at as u64, &mut bytes).unwrap();
        let before = bytes.clone();
        change(&mut bytes);
        device.write_at(base + at as u64, &bytes).unwrap();
        bytes != before
    };
    let word = |bytes: &mut [u8], f: &dyn Fn(u32) -> u32| {
        let old = u32::from_le_bytes((&*bytes).try_into().unwrap());
        bytes.copy_from_slice(&f(old).to_le_bytes());
    };
    match edit {
        Edit::Set(at, new) => change(at, new.len(), &|bytes| bytes.copy_from_slice(new)),
        Edit::Bits(at, set, clear) => change(at, 4, &|b| word(b, &|n| n & !clear | set)),
        Edit::Add(at, n) => change(at, 4, &|b| word(b, &|old| old.wrapping_add(n))),
    }
}

/// An image in which places are looked up.
pub struct Places {
    volume: walk::Volume,
    files: BTreeMap<String, walk::Inode>,
}

impl Places {
    /// Opens a base; `path` is a temporary file for it.
    pub fn new(base: &Base, path: &Path) -> Self {
        crate::common::write_image(&base.device, path);
        let volume = walk::Volume::open(path);
        let files = volume.tree();
        Self { volume, files }
    }

    /// Returns a group's descriptor, with its block and the byte in it.
    fn desc(&self, group: u32) -> Option<(u64, usize, GroupDesc)> {
        let geo = &self.volume.geo;
        let group = GroupNr((group < geo.groups).then_some(group)?);
        let (block, at) = geo.desc_location(group);
        let bytes = self.volume.block(block);
        let desc = GroupDesc::decode(&bytes[at as usize..], geo, group).unwrap();
        Some((block.0, at as usize, desc))
    }

    fn record(&self, ino: InodeNr) -> Option<(u64, usize)> {
        let geo = &self.volume.geo;
        let (group, index) = geo.group_of_inode(ino)?;
        let (block, at) = geo.inode_place(self.desc(group.0)?.2.inode_table, index);
        Some((block.0, at))
    }

    /// Returns the record of a name; for the name "" any record but the dots.
    fn entry(&self, dir: &str, name: &str) -> Option<(u64, usize)> {
        let blocks = self.volume.dir_blocks(self.files.get(dir)?);
        blocks.into_iter().find_map(|block| {
            let bytes = self.volume.block(block);
            let fits = |found: &[u8]| match name {
                "" => found.len() > 2,
                name => found == name.as_bytes(),
            };
            let mut entries = dir_entry::entries(&bytes).map_while(Result::ok);
            let entry = entries.find(|entry| fits(entry.name))?;
            let at = entry.name.as_ptr() as usize - bytes.as_ptr() as usize - 8;
            Some((block.0, at))
        })
    }

    /// Returns the block of a place, and the byte in it.
    fn find(&self, place: Target) -> Option<(u64, usize)> {
        let (volume, geo) = (&self.volume, &self.volume.geo);
        let size = u64::from(geo.block_size);
        let file = |path| self.files.get(path);
        match place {
            Target::Superblock => Some((1024 / size, (1024 % size) as usize)),
            Target::Backup(group) => (group < geo.groups && geo.has_super(GroupNr(group)))
                .then(|| (geo.group_first_block(GroupNr(group)).0, 0)),
            Target::Descriptor(group) => self.desc(group).map(|(block, at, _)| (block, at)),
            Target::BlockBitmap(group) => self.desc(group).map(|d| (d.2.block_bitmap.0, 0)),
            Target::InodeBitmap(group) => self.desc(group).map(|d| (d.2.inode_bitmap.0, 0)),
            Target::Number(ino) => self.record(InodeNr(ino)),
            Target::Inode(path) => self.record(file(path)?.nr),
            Target::Block(path, nth) => {
                let blocks = volume.dir_blocks(file(path)?);
                blocks.get(nth).map(|block| (block.0, 0))
            }
            Target::Node(path) => volume.map(file(path)?).0.first().map(|node| (node.0, 0)),
            Target::Attributes(path) => {
                let block = inode::file_acl(&file(path)?.raw, geo).0;
                (block != 0).then_some((block, 0))
            }
            Target::Entry(dir, name) => self.entry(dir, name),
            Target::JournalSuperblock => {
                let journal = geo.features.has_journal().then_some(InodeNr::JOURNAL)?;
                let blocks = volume.dir_blocks(&volume.inode(journal));
                blocks.first().map(|block| (block.0, 0))
            }
        }
    }
}
