//! A volume made by mke2fs in memory, batches made by hand, and e2fsck as the judge.

use crate::error::{Result, SpaceError};
use crate::formatter::{Formatter, Output};
use crate::groups::{Groups, count};
use crate::image::BlockImages;
use crate::item::*;
use crate::ledger::MetaSpace;
use crate::name::Name;
use crate::superblock_update::Moment;
use crate::system_zone::SystemZone;
use crate::tests::images::DeviceImages;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::inode::{InodeCore, flags};
use ext4_format::superblock::RawSuperblock;
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Bitmaps of all groups, as an allocator would keep them.
pub struct Space {
    geometry: Geometry,
    maps: Mutex<Vec<Vec<u8>>>,
    freed: Mutex<Vec<(BlockNr, u32)>>,
}

impl Space {
    /// Takes a run of exactly `len` blocks at or behind `goal`.
    pub fn take(&self, goal: BlockNr, len: u32) -> BlockNr {
        let mut maps = self.maps.lock().unwrap();
        let (first, bit) = self.geometry.group_of_block(goal).unwrap();
        for i in 0..self.geometry.groups {
            let group = GroupNr((first.0 + i) % self.geometry.groups);
            let from = if i == 0 { bit } else { 0 };
            let bits = self.geometry.bits_in_group(group);
            let map = &mut maps[group.0 as usize];
            if let Some(at) = bitmap::find_zero_run(map, from, bits, len) {
                bitmap::set_range(map, at, len);
                return BlockNr(self.geometry.group_first_block(group).0 + u64::from(at));
            }
        }
        panic!("no space in the test's volume");
    }

    /// Returns a copy of these bitmaps.
    fn twin(&self) -> Self {
        Self {
            geometry: self.geometry.clone(),
            maps: Mutex::new(self.maps.lock().unwrap().clone()),
            freed: Mutex::default(),
        }
    }

    pub fn give(&self, start: BlockNr, len: u32) {
        let (group, bit) = self.geometry.group_of_block(start).unwrap();
        let gone = bitmap::clear_range(&mut self.maps.lock().unwrap()[group.0 as usize], bit, len);
        assert_eq!(gone, len, "block {start} freed twice");
    }
}

impl MetaSpace for Space {
    fn alloc_meta(&self, goal: BlockNr) -> Result<BlockNr, SpaceError> {
        Ok(self.take(goal, 1))
    }
    fn free_meta(&self, start: BlockNr, len: u32) -> Result<(), SpaceError> {
        self.freed.lock().unwrap().push((start, len));
        Ok(())
    }
}

/// A volume under test.
pub struct Fs {
    pub dev: Arc<MemDevice>,
    pub buffers: DeviceImages,
    pub geometry: Geometry,
    pub groups: Groups,
    pub formatter: Formatter,
    pub space: Space,
    pub hasher: DirHasher,
    pub items: ItemList,
    pub stamp: Stamp,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

/// Returns true if the tools are there. Without them tests pass with a note, unless `CI` is set.
fn have_tools() -> bool {
    needs::have(&["mke2fs", "e2fsck", "debugfs"])
}

impl Fs {
    /// Makes a volume with mke2fs, these arguments and this size in KiB, every free block full of old bytes.
    pub fn make(kib: u64, args: &[&str]) -> Option<Self> {
        if !have_tools() {
            return None;
        }
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        let size = (kib * 1024) as usize;
        // Not zeros, because the formatter must not rely on the contents of unused blocks.
        std::fs::write(&path, vec![0xa5; size]).unwrap();
        let out = Command::new("mke2fs")
            .args(["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"])
            .args(args)
            .arg(&path)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "mke2fs: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        Some(Self::open(dir, path))
    }

    /// Returns the bytes of the image as it was made.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    /// Makes a volume of these bytes.
    pub fn of(image: &[u8]) -> Self {
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        std::fs::write(&path, image).unwrap();
        Self::open(dir, path)
    }

    fn open(dir: tempfile::TempDir, path: PathBuf) -> Self {
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let mut sb = vec![0; 1024];
        dev.read_at(1024, &mut sb).unwrap();
        let geometry = Geometry::new(&RawSuperblock::parse(&sb).unwrap()).unwrap();
        let buffers = DeviceImages::new(dev.clone(), geometry.block_size);
        let groups = Groups::load(&geometry, &buffers).unwrap();
        let maps = (0..geometry.groups).map(|g| {
            groups
                .block_bitmap(&geometry, &buffers, GroupNr(g))
                .unwrap()
                .0
        });
        let maps = Mutex::new(maps.collect());
        let hasher = DirHasher::new(
            geometry.def_hash_version,
            geometry.unsigned_hash,
            geometry.hash_seed,
        )
        .unwrap();
        let formatter = Formatter::new(
            &geometry,
            count(&geometry, &buffers).unwrap(),
            &buffers,
            hasher,
            Arc::new(SystemZone::new(&geometry, &[])),
            4,
        )
        .unwrap();
        let space = Space {
            geometry: geometry.clone(),
            maps,
            freed: Mutex::default(),
        };
        Self {
            dev,
            buffers,
            geometry,
            groups,
            formatter,
            space,
            hasher,
            items: ItemList {
                commits: 1,
                ..ItemList::default()
            },
            stamp: 10,
            path,
            _dir: dir,
        }
    }

    pub fn time(&self) -> Timestamp {
        Timestamp::new(1_700_000_000 + self.stamp as i64, 5)
    }

    /// Returns a core of a new inode.
    pub fn core(&self, mode: u16) -> InodeCore {
        let time = self.time();
        let extents = self.geometry.features.has_extents();
        InodeCore {
            mode,
            links: if mode & 0o170_000 == 0o040_000 { 2 } else { 1 },
            flags: if extents { flags::EXTENTS } else { 0 },
            generation: self.stamp as u32 * 77,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            ..InodeCore::default()
        }
    }

    pub fn inode(&mut self, ino: u32, event: InodeEvent, core: InodeCore) {
        self.stamp += 1;
        self.items.inodes.push(InodeItem {
            ino: InodeNr(ino),
            event,
            stamp: self.stamp,
            core,
        });
    }

    pub fn misc(&mut self, ino: u32, event: MiscEvent) {
        self.items.misc.push(MiscItem {
            ino: InodeNr(ino),
            stamp: self.stamp,
            event,
        });
    }

    /// Adds a name, or removes it with `ino` 0.
    pub fn name(&mut self, dir: u32, name: &[u8], ino: u32, ftype: FileType) {
        self.stamp += 1;
        let (hash, minor) = self.hasher.hash(name);
        self.items.names.push(NameItem {
            dir: InodeNr(dir),
            ino: InodeNr(ino),
            replaced: InodeNr(0),
            event: match ino {
                0 => NameEvent::Removed,
                _ => NameEvent::Set,
            },
            hash,
            minor,
            stamp: self.stamp,
            time: self.time(),
            ftype,
            links: match (ftype, ino) {
                (FileType::Directory, 0) => -1,
                (FileType::Directory, _) => 1,
                _ => 0,
            },
            name: Name::new(name).unwrap(),
        });
    }

    pub fn create(&mut self, dir: u32, name: &[u8], ino: u32) -> InodeCore {
        let core = self.core(0o100_644);
        self.inode(ino, InodeEvent::Init, core);
        self.name(dir, name, ino, FileType::Regular);
        if let Some(item) = self.items.names.last_position() {
            self.items.names[item].event = NameEvent::Added;
        }
        core
    }

    /// Returns the core of an inode on disk.
    pub fn on_disk(&self, ino: u32) -> InodeCore {
        ext4_format::inode::decode_core(&self.raw(ino), &self.geometry, InodeNr(ino)).unwrap()
    }

    pub fn raw(&self, ino: u32) -> Vec<u8> {
        let (block, offset) = self
            .groups
            .inode_location(&self.geometry, &self.buffers, InodeNr(ino))
            .unwrap();
        self.buffers.image(block).unwrap()[offset..offset + usize::from(self.geometry.inode_size)]
            .to_vec()
    }

    pub fn mkdir(&mut self, parent: u32, name: &[u8], ino: u32) {
        let core = self.core(0o040_755);
        self.inode(ino, InodeEvent::Init, core);
        self.misc(
            ino,
            MiscEvent::DirInit {
                parent: InodeNr(parent),
            },
        );
        self.name(parent, name, ino, FileType::Directory);
    }

    pub fn unlink(&mut self, dir: u32, name: &[u8], ino: u32, core: InodeCore) {
        self.name(dir, name, 0, FileType::Regular);
        self.inode(
            ino,
            InodeEvent::Free,
            InodeCore {
                links: 0,
                size: 0,
                dtime: 1_700_000_000,
                ..core
            },
        );
    }

    /// Allocates data blocks and maps them.
    pub fn map(&mut self, ino: u32, logical: u32, len: u32, unwritten: bool) -> BlockNr {
        let physical = self
            .space
            .take(BlockNr(self.geometry.first_data_block), len);
        self.stamp += 1;
        self.items.bits.push(BitsItem {
            stamp: 0,
            start: physical,
            len,
            alloc: true,
        });
        self.items.maps.push(MapItem {
            ino: InodeNr(ino),
            stamp: self.stamp,
            logical,
            len,
            physical,
            unwritten,
        });
        physical
    }

    pub fn unmap(&mut self, ino: u32, logical: u32, len: u32, data: &[(BlockNr, u32)]) {
        self.stamp += 1;
        self.items
            .bits
            .extend(data.iter().map(|&(start, len)| BitsItem {
                stamp: 0,
                start,
                len,
                alloc: false,
            }));
        let item = MapItem {
            ino: InodeNr(ino),
            stamp: self.stamp,
            logical,
            len,
            physical: BlockNr(0),
            unwritten: false,
        };
        self.items.maps.push(item);
        self.space.freed.lock().unwrap().extend_from_slice(data);
    }

    /// Formats the items gathered until now and writes the images home.
    pub fn push(&mut self) -> Output {
        let items = std::mem::replace(
            &mut self.items,
            ItemList {
                commits: 1,
                ..ItemList::default()
            },
        );
        let start = std::time::Instant::now();
        let output = self
            .formatter
            .format(&items, &self.buffers, &self.space, usize::MAX)
            .unwrap()
            .unwrap();
        eprintln!("formatted in {:?}", start.elapsed());
        let bs = self.geometry.block_size;
        for block in &output.revoked {
            self.buffers.forget(*block);
        }
        for &(start, len) in &output.zeroed {
            self.dev
                .write_at(start.offset(bs), &vec![0; (len * bs) as usize])
                .unwrap();
            (0..u64::from(len)).for_each(|i| self.buffers.forget(BlockNr(start.0 + i)));
        }
        assert!(output.blocks.is_sorted_by_key(|(b, _)| *b));
        for (block, image) in &output.blocks {
            self.dev.write_at(block.offset(bs), image).unwrap();
            // Images are read back when needed, so that no test relies on images that were never on the device.
            self.buffers.forget(*block);
        }
        for (start, len) in std::mem::take(&mut *self.space.freed.lock().unwrap()) {
            self.space.give(start, len);
        }
        output
    }

    /// Formats the items over these bytes with a new formatter. Neither the volume nor `device` changes.
    pub fn format_over(
        &self,
        device: MemDevice,
        items: &ItemList,
        threads: usize,
    ) -> Result<Output> {
        let images = DeviceImages::new(Arc::new(device), self.geometry.block_size);
        let free = count(&self.geometry, &images)?;
        let zone = Arc::new(SystemZone::new(&self.geometry, &[]));
        let mut formatter =
            Formatter::new(&self.geometry, free, &images, self.hasher, zone, threads)?;
        let output = formatter.format(items, &images, &self.space.twin(), usize::MAX)?;
        formatter.superblock_update(&images, 1_700_009_999, Moment::Close, |_| ())?;
        Ok(output.unwrap())
    }

    fn close(&mut self) {
        let (block, image) = self
            .formatter
            .superblock_update(&self.buffers, 1_700_009_999, Moment::Close, |_| ())
            .unwrap();
        self.dev
            .write_at(block.offset(self.geometry.block_size), &image)
            .unwrap();
        self.buffers.forget(block);
        std::fs::write(&self.path, self.dev.to_bytes().unwrap()).unwrap();
    }

    /// Pushes, and checks the volume with e2fsck.
    pub fn check(&mut self) -> Output {
        let output = self.push();
        self.close();
        let out = Command::new("e2fsck")
            .args(["-f", "-n"])
            .arg(&self.path)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        output
    }

    /// Runs a request in debugfs, and returns the answer.
    pub fn debugfs(&self, request: &str) -> String {
        let out = Command::new("debugfs")
            .args(["-R", request])
            .arg(&self.path)
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Opens the same image again.
    pub fn reopen(mut self) -> Self {
        self.close();
        Self::open(self._dir, self.path)
    }
}
