//! Damaged volumes: whatever their blocks hold, formatting returns an output or an error.

use super::Fs;
use crate::item::*;
use blockdev::BlockDevice;
use ext4_format::inode::InodeCore;
use ext4_format::xattr::XattrSet;
use ext4_format::{BlockNr, InodeNr};
use std::sync::Arc;

/// The directory of the files; the numbers before may be those of an orphan file and lost+found.
const DIR: u32 = 15;

/// A small generator of numbers, the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % n.max(1)
    }
}

fn attributes(byte: u8) -> MiscEvent {
    let mut set = XattrSet::default();
    set.set(b"user.large", &[byte; 700]).unwrap();
    MiscEvent::Xattrs(Arc::new(set))
}

/// Fills a volume with what the formatter reads again: a directory with an index, trees of extents or blocks, attribute
/// blocks, orphans. Returns the cores of its files, and the blocks that were written.
fn fill(fs: &mut Fs) -> (Vec<InodeCore>, Vec<BlockNr>) {
    fs.mkdir(2, b"d", DIR);
    let extents = fs.geometry.features.has_extents();
    let cores = (20..220).map(|n| {
        let core = fs.create(DIR, format!("a longer name of inode {n}").as_bytes(), n);
        match n % 5 {
            0 => fs.misc(n, attributes((n % 2) as u8)),
            1 if n < 100 => {
                for i in 0..40 {
                    fs.map(n, 3 * i, 1, extents && i % 2 == 0);
                }
            }
            2 if n < 60 => fs.misc(n, MiscEvent::OrphanAdd),
            _ => {}
        }
        core
    });
    let cores = cores.collect();
    let blocks = fs.push().blocks.iter().map(|(b, _)| *b).collect();
    (cores, blocks)
}

/// Makes a batch that changes all of the volume.
fn changes(fs: &mut Fs, cores: &[InodeCore]) -> ItemList {
    for (n, core) in (20..220).zip(cores) {
        let name = format!("a longer name of inode {n}").into_bytes();
        match n % 7 {
            0 => fs.unlink(DIR, &name, n, *core),
            1 => fs.misc(n, attributes(9)),
            2 => {
                fs.map(n, 50, 4, false);
            }
            3 => fs.unmap(n, 0, u32::MAX, &[]),
            4 => fs.misc(n, MiscEvent::OrphanRemove),
            5 => fs.inode(n, InodeEvent::Update, *core),
            _ => fs.misc(n, MiscEvent::OrphanAdd),
        }
    }
    for n in 300..500 {
        fs.create(DIR, format!("a new name of inode {n}").as_bytes(), n);
    }
    fs.mkdir(DIR, b"below", 501);
    fs.misc(
        DIR,
        MiscEvent::DirParent {
            parent: InodeNr(501),
        },
    );
    std::mem::take(&mut fs.items)
}

/// Damages a few of these blocks: numbers here and there, bytes of one block in another, a block of one byte.
fn damage(device: &dyn BlockDevice, block_size: u32, blocks: &[BlockNr], random: &mut Random) {
    let size = block_size as usize;
    let mut bytes = vec![0; size];
    for _ in 0..1 + random.below(4) {
        let block = blocks[random.below(blocks.len())];
        device
            .read_at(block.offset(block_size), &mut bytes)
            .unwrap();
        match random.below(8) {
            0 => bytes.fill([0, 1, 0xff][random.below(3)]),
            1 => {
                let other = blocks[random.below(blocks.len())];
                device
                    .read_at(other.offset(block_size), &mut bytes)
                    .unwrap();
            }
            _ => {
                for _ in 0..1 + random.below(12) {
                    let at = random.below(size / 4) * 4;
                    let near = blocks[random.below(blocks.len())].0 as u32;
                    let kinds = [
                        0,
                        1,
                        u32::MAX,
                        random.below(256) as u32,
                        near,
                        random.0 as u32,
                    ];
                    let number = kinds[random.below(kinds.len())];
                    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
                }
            }
        }
        device.write_at(block.offset(block_size), &bytes).unwrap();
    }
}

#[test]
fn damage_ends_in_an_error_at_worst() {
    for args in [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^orphan_file",
        ][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,orphan_file",
        ],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let Some(mut fs) = Fs::make(8 << 10, args) else {
            return;
        };
        let (cores, blocks) = fill(&mut fs);
        let items = changes(&mut fs, &cores);
        fs.format_over(fs.dev.snapshot(), &items, 1).unwrap();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let (mut refused, rounds) = (0, 1500);
        for _ in 0..rounds {
            let device = fs.dev.snapshot();
            damage(&device, fs.geometry.block_size, &blocks, &mut random);
            refused += usize::from(fs.format_over(device, &items, 1).is_err());
        }
        // Some damage must break a rule and some must not. Otherwise nothing was tested.
        assert!(
            (rounds / 10..rounds).contains(&refused),
            "{args:?}: {refused}"
        );
    }
}
