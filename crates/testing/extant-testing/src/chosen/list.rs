//! The damage: for each rule of the format the ways to break it.

use super::Damage;
use super::Edit::{self, Add, Bits, Set};
use super::Target::{self, *};

macro_rules! damages {
    ($($name:literal $place:expr => $($edit:expr),+;)*) => {
        pub const DAMAGES: &[Damage] = &[$(Damage {
            name: $name,
            place: $place,
            edits: &[$($edit),+],
        }),*];
    };
}

/// Offsets in the superblock.
mod sb {
    pub const COMPAT: usize = 0x5c;
    pub const INCOMPAT: usize = 0x60;
    pub const RO_COMPAT: usize = 0x64;
}

const ONES: &[u8] = &[0xff; 4];
const ZEROS: &[u8] = &[0; 4];
const HALF_ONES: &[u8] = &[0xff; 2];
const HALF_ZEROS: &[u8] = &[0; 2];

const fn feature(word: usize, bit: u32) -> Edit {
    Bits(word, bit, 0)
}

const fn without(word: usize, bit: u32) -> Edit {
    Bits(word, 0, bit)
}

/// Offsets in an inode's record.
mod ino {
    pub const MODE: usize = 0;
    pub const SIZE: usize = 4;
    pub const DTIME: usize = 20;
    pub const LINKS: usize = 26;
    pub const BLOCKS: usize = 28;
    pub const FLAGS: usize = 32;
    pub const BLOCK: usize = 40;
    pub const FILE_ACL: usize = 104;
    pub const SIZE_HI: usize = 108;
    pub const FADDR: usize = 112;
    pub const BLOCKS_HI: usize = 116;
    pub const FILE_ACL_HI: usize = 118;
    pub const EXTRA_ISIZE: usize = 128;
}

const FILE: Target = Inode("/d1/f3");
const DIR: Target = Inode("/d1");
const INDEXED: Target = Inode("/big");
const ROOT: Target = Number(2);
const LEAF: Target = Block("/d1", 0);

damages! {
    // The superblock.
    "superblock: magic" Superblock => Set(0x38, &[0, 0]);
    "superblock: count of inodes" Superblock => Add(0, 8);
    "superblock: no inodes" Superblock => Set(0, ZEROS);
    "superblock: more blocks than the device" Superblock => Add(4, 0x10_0000);
    "superblock: no blocks" Superblock => Set(4, ZEROS);
    "superblock: all blocks reserved" Superblock => Set(8, ONES);
    "superblock: most blocks reserved" Superblock => Set(8, &[0, 0x0f, 0, 0]);
    "superblock: free blocks" Superblock => Add(12, 3);
    "superblock: free inodes" Superblock => Add(16, 3);
    "superblock: required extra fields of inodes" Superblock => Set(0x15c, &[200, 0]);
    "superblock: wanted extra fields of inodes" Superblock => Set(0x15e, &[33, 0]);
    "superblock: first data block" Superblock => Bits(20, 2, 0);
    "superblock: block size" Superblock => Set(24, &[9]);
    "superblock: cluster size" Superblock => Add(28, 1);
    "superblock: no blocks in a group" Superblock => Set(32, ZEROS);
    "superblock: blocks in a group" Superblock => Set(32, ONES);
    "superblock: clusters in a group" Superblock => Add(36, 8);
    "superblock: no inodes in a group" Superblock => Set(40, ZEROS);
    "superblock: inodes in a group" Superblock => Add(40, 8);
    "superblock: last mount in the future" Superblock => Set(0x2c, &[0, 0, 0, 0xf0]);
    "superblock: last write in the future" Superblock => Set(0x30, &[0, 0, 0, 0xf0]);
    "superblock: many mounts" Superblock => Set(0x34, &[0xff, 0x7f, 1, 0]);
    "superblock: errors in its state" Superblock => Set(0x3a, &[2, 0]);
    "superblock: not unmounted" Superblock => Set(0x3a, &[0, 0]);
    "superblock: behaviour at errors" Superblock => Set(0x3c, &[9, 0]);
    "superblock: last check in the future" Superblock => Set(0x40, &[0, 0, 0, 0xf0]);
    "superblock: interval of checks" Superblock => Set(0x44, &[1, 0, 0, 0]);
    "superblock: creator" Superblock => Set(0x48, &[77]);
    "superblock: revision" Superblock => Set(0x4c, &[2]);
    "superblock: revision 0" Superblock => Set(0x4c, &[0]);
    "superblock: first inode" Superblock => Set(0x54, &[5]);
    "superblock: later first inode" Superblock => Set(0x54, &[12]);
    "superblock: inode size" Superblock => Set(0x58, &[0x81, 0]);
    "superblock: half the inode size" Superblock => Set(0x58, &[0x80, 0]);
    "superblock: its group" Superblock => Set(0x5a, &[1, 0]);
    "superblock: UUID" Superblock => Add(0x68, 1);
    "superblock: label" Superblock => Set(0x78, ONES);
    "superblock: reserved descriptor blocks" Superblock => Add(0xcc, 0x1_0000);
    "superblock: many reserved descriptor blocks" Superblock => Set(0xce, HALF_ONES);
    "superblock: journal's UUID" Superblock => Set(0xd0, ONES);
    "superblock: journal's inode" Superblock => Set(0xe0, &[12]);
    "superblock: journal's inode beyond all" Superblock => Set(0xe0, ONES);
    "superblock: no journal's inode" Superblock => Set(0xe0, ZEROS);
    "superblock: journal's device" Superblock => Set(0xe4, &[8, 1]);
    "superblock: orphan" Superblock => Set(0xe8, &[13]);
    "superblock: orphan beyond all" Superblock => Set(0xe8, ONES);
    "superblock: seed of hashes" Superblock => Add(0xec, 1);
    "superblock: version of hashes" Superblock => Set(0xfc, &[99]);
    "superblock: backup of the journal's inode" Superblock => Add(0x10c, 1);
    "superblock: kind of that backup" Superblock => Set(0xfd, &[9]);
    "superblock: no such backup" Superblock => Set(0xfd, &[0]);
    "superblock: size of descriptors" Superblock => Set(0xfe, &[7, 0]);
    "superblock: mount options" Superblock => Set(0x100, ONES);
    "superblock: first meta group" Superblock => Set(0x104, ONES);
    "superblock: made in the future" Superblock => Set(0x108, &[0, 0, 0, 0xf0]);
    "superblock: least extra size" Superblock => Set(0x15c, &[33, 0]);
    "superblock: too much least extra size" Superblock => Set(0x15c, &[0, 4]);
    "superblock: wanted extra size" Superblock => Set(0x15e, &[33, 0]);
    "superblock: too much wanted extra size" Superblock => Set(0x15e, &[0, 4]);
    "superblock: no wanted extra size" Superblock => Set(0x15c, ZEROS);
    "superblock: kind of hash unset" Superblock => Bits(0x160, 0, 3);
    "superblock: both kinds of hash" Superblock => Bits(0x160, 3, 0);
    "superblock: stride" Superblock => Set(0x164, HALF_ONES);
    "superblock: mmp interval" Superblock => Set(0x166, HALF_ONES);
    "superblock: mmp block" Superblock => Set(0x168, ONES);
    "superblock: groups of a flex group" Superblock => Set(0x174, &[40]);
    "superblock: kind of checksum" Superblock => Set(0x175, &[9]);
    "superblock: snapshot" Superblock => Set(0x180, ONES);
    "superblock: count of errors" Superblock => Set(0x194, &[5]);
    "superblock: user quota" Superblock => Set(0x240, &[3]);
    "superblock: group quota beyond all" Superblock => Set(0x244, ONES);
    "superblock: overhead" Superblock => Set(0x248, ONES);
    "superblock: groups of backups" Superblock => Set(0x24c, ONES);
    "superblock: inode of lost+found" Superblock => Set(0x268, ONES);
    "superblock: project quota" Superblock => Set(0x26c, &[14]);
    "superblock: seed of checksums" Superblock => Add(0x270, 1);
    "superblock: encoding" Superblock => Set(0x27c, HALF_ONES);
    "superblock: orphan file" Superblock => Set(0x280, &[14]);
    "superblock: unknown compatible feature" Superblock => feature(sb::COMPAT, 0x100_0000);
    "superblock: unknown feature" Superblock => feature(sb::INCOMPAT, 0x100_0000);
    "superblock: unknown feature for writers" Superblock => feature(sb::RO_COMPAT, 0x100_0000);

    // Features.
    "features: has_journal" Superblock => feature(sb::COMPAT, 4);
    "features: without has_journal" Superblock => without(sb::COMPAT, 4);
    "features: without ext_attr" Superblock => without(sb::COMPAT, 8);
    "features: resize_inode" Superblock => feature(sb::COMPAT, 0x10);
    "features: without resize_inode" Superblock => without(sb::COMPAT, 0x10);
    "features: without dir_index" Superblock => without(sb::COMPAT, 0x20);
    "features: sparse_super2" Superblock => feature(sb::COMPAT, 0x200);
    "features: fast_commit" Superblock => feature(sb::COMPAT, 0x400);
    "features: orphan_file" Superblock => feature(sb::COMPAT, 0x1000);
    "features: without filetype" Superblock => without(sb::INCOMPAT, 2);
    "features: needs_recovery" Superblock => feature(sb::INCOMPAT, 4);
    "features: journal_dev" Superblock => feature(sb::INCOMPAT, 8);
    "features: meta_bg" Superblock => feature(sb::INCOMPAT, 0x10);
    "features: extents" Superblock => feature(sb::INCOMPAT, 0x40);
    "features: without extents" Superblock => without(sb::INCOMPAT, 0x40);
    "features: 64bit" Superblock => feature(sb::INCOMPAT, 0x80);
    "features: without 64bit" Superblock => without(sb::INCOMPAT, 0x80);
    "features: mmp" Superblock => feature(sb::INCOMPAT, 0x100);
    "features: flex_bg" Superblock => feature(sb::INCOMPAT, 0x200);
    "features: without flex_bg" Superblock => without(sb::INCOMPAT, 0x200);
    "features: ea_inode" Superblock => feature(sb::INCOMPAT, 0x400);
    "features: metadata_csum_seed" Superblock => feature(sb::INCOMPAT, 0x2000);
    "features: without metadata_csum_seed" Superblock => without(sb::INCOMPAT, 0x2000);
    "features: large_dir" Superblock => feature(sb::INCOMPAT, 0x4000);
    "features: inline_data" Superblock => feature(sb::INCOMPAT, 0x8000);
    "features: encrypt" Superblock => feature(sb::INCOMPAT, 0x1_0000);
    "features: casefold" Superblock => feature(sb::INCOMPAT, 0x2_0000);
    "features: without sparse_super" Superblock => without(sb::RO_COMPAT, 1);
    "features: without large_file" Superblock => without(sb::RO_COMPAT, 2);
    "features: without huge_file" Superblock => without(sb::RO_COMPAT, 8);
    "features: huge_file" Superblock => feature(sb::RO_COMPAT, 8);
    "features: uninit_bg" Superblock => feature(sb::RO_COMPAT, 0x10);
    "features: without uninit_bg" Superblock => without(sb::RO_COMPAT, 0x10);
    "features: without dir_nlink" Superblock => without(sb::RO_COMPAT, 0x20);
    "features: without extra_isize" Superblock => without(sb::RO_COMPAT, 0x40);
    "features: quota" Superblock => feature(sb::RO_COMPAT, 0x100);
    "features: bigalloc" Superblock => feature(sb::RO_COMPAT, 0x200);
    "features: metadata_csum" Superblock => feature(sb::RO_COMPAT, 0x400);
    "features: without metadata_csum" Superblock => without(sb::RO_COMPAT, 0x400);
    "features: read-only" Superblock => feature(sb::RO_COMPAT, 0x1000);
    "features: project" Superblock => feature(sb::RO_COMPAT, 0x2000);
    "features: verity" Superblock => feature(sb::RO_COMPAT, 0x8000);
    "features: orphan_present" Superblock => feature(sb::RO_COMPAT, 0x1_0000);

    // Backups.
    "backup: magic" Backup(1) => Set(0x38, &[0, 0]);
    "backup: count of inodes" Backup(1) => Add(0, 8);
    "backup: UUID" Backup(1) => Add(0x68, 1);
    "backup: features" Backup(1) => feature(sb::INCOMPAT, 0x100_0000);
    "backup: its group" Backup(1) => Set(0x5a, &[9]);

    // Descriptors.
    "descriptor: block bitmap beyond the volume" Descriptor(0) => Set(0, ONES);
    "descriptor: no block bitmap" Descriptor(0) => Set(0, ZEROS);
    "descriptor: block bitmap elsewhere" Descriptor(0) => Add(0, 40);
    "descriptor: inode bitmap beyond the volume" Descriptor(0) => Set(4, ONES);
    "descriptor: inode bitmap is the block bitmap" Descriptor(0) => Add(4, 0xffff_ffff);
    "descriptor: table beyond the volume" Descriptor(0) => Set(8, ONES);
    "descriptor: no table" Descriptor(0) => Set(8, ZEROS);
    "descriptor: table one block on" Descriptor(0) => Add(8, 1);
    "descriptor: table of another group" Descriptor(1) => Add(8, 1);
    "descriptor: free blocks" Descriptor(0) => Add(12, 1);
    "descriptor: free inodes" Descriptor(0) => Add(12, 0x1_0000);
    "descriptor: directories" Descriptor(0) => Add(16, 1);
    "descriptor: no initialized inodes" Descriptor(0) => Bits(18, 1, 0);
    "descriptor: no initialized blocks" Descriptor(0) => Bits(18, 2, 0);
    "descriptor: zeroed table" Descriptor(0) => Bits(18, 4, 0);
    "descriptor: unknown flag" Descriptor(0) => Bits(18, 0x80, 0);
    "descriptor: snapshot" Descriptor(0) => Set(20, ONES);
    "descriptor: unused inodes" Descriptor(0) => Set(28, &[0xff, 3]);
    "descriptor: more unused inodes than all" Descriptor(0) => Set(28, HALF_ONES);
    "descriptor: checksum" Descriptor(0) => Add(30, 1);

    // Bitmaps.
    "block bitmap: a block in use is free" BlockBitmap(0) => Set(0, &[0xfe]);
    "block bitmap: all are in use" BlockBitmap(0) => Set(64, &[0xff; 64]);
    "block bitmap: all are free" BlockBitmap(0) => Set(0, &[0; 64]);
    "block bitmap: padding" BlockBitmap(0) => Set(1020, ZEROS);
    "inode bitmap: an inode in use is free" InodeBitmap(0) => Set(1, &[0]);
    "inode bitmap: the reserved ones are free" InodeBitmap(0) => Set(0, &[0]);
    "inode bitmap: all are in use" InodeBitmap(0) => Set(0, &[0xff; 64]);
    "inode bitmap: padding" InodeBitmap(0) => Set(1020, ZEROS);

    // Reserved inodes.
    "reserved: a mode of the bad blocks" Number(1) => Set(ino::MODE, &[0xa4, 0x81]);
    "reserved: links of the bad blocks" Number(1) => Set(ino::LINKS, &[1]);
    "reserved: a bad block" Number(1) => Set(ino::BLOCK, &[0xf0, 7]);
    "reserved: a bad block beyond the volume" Number(1) => Set(ino::BLOCK, ONES);
    "reserved: blocks of the bad blocks" Number(1) => Set(ino::BLOCKS, &[2]);
    "reserved: a user quota" Number(3) => Set(ino::MODE, &[0xa4, 0x81]), Set(ino::LINKS, &[1]);
    "reserved: a mode of the user quota" Number(3) => Set(ino::MODE, &[0xa4, 0x81]);
    "reserved: a mode of the group quota" Number(4) => Set(ino::MODE, &[0xed, 0x41]);
    "reserved: blocks of the group quota" Number(4) => Set(ino::BLOCKS, &[2]);
    "reserved: a boot loader" Number(5) => Set(ino::MODE, &[0xa4, 0x81]), Set(ino::LINKS, &[1]);
    "reserved: a boot loader that is a directory" Number(5) => Set(ino::MODE, &[0xed, 0x41]);
    "reserved: undelete" Number(6) => Set(ino::MODE, &[0xed, 0x41]);
    "reserved: no mode of the resize inode" Number(7) => Set(ino::MODE, HALF_ZEROS);
    "reserved: the resize inode is a directory" Number(7) => Set(ino::MODE, &[0xed, 0x41]);
    "reserved: no links of the resize inode" Number(7) => Set(ino::LINKS, HALF_ZEROS);
    "reserved: no map of the resize inode" Number(7) => Set(ino::BLOCK + 52, ZEROS);
    "reserved: a block of the resize inode" Number(7) => Set(ino::BLOCK, &[0xf0, 7]);
    "reserved: size of the resize inode" Number(7) => Set(ino::SIZE, &[1, 2]);
    "reserved: extents of the resize inode" Number(7) => Bits(ino::FLAGS, 0x8_0000, 0);
    "reserved: blocks of the resize inode" Number(7) => Add(ino::BLOCKS, 2);
    "reserved: no mode of the journal" Number(8) => Set(ino::MODE, HALF_ZEROS);
    "reserved: the journal is a directory" Number(8) => Set(ino::MODE, &[0xed, 0x41]);
    "reserved: no links of the journal" Number(8) => Set(ino::LINKS, HALF_ZEROS);
    "reserved: size of the journal" Number(8) => Set(ino::SIZE, &[0, 4, 0, 0]);
    "reserved: mapping of the journal" Number(8) => Set(ino::BLOCK, &[0; 60]);
    "reserved: blocks of the journal" Number(8) => Add(ino::BLOCKS, 2);
    "reserved: the journal is encrypted" Number(8) => Bits(ino::FLAGS, 0x800, 0);
    "reserved: the journal is deleted" Number(8) => Set(ino::DTIME, &[0, 0, 0, 0x60]);
    "reserved: mode of inode 9" Number(9) => Set(ino::MODE, &[0xa4, 0x81]);
    "reserved: links of inode 9" Number(9) => Set(ino::LINKS, &[1]);
    "reserved: attributes of inode 9" Number(9) => Set(ino::FILE_ACL, ONES);
    "reserved: blocks of inode 9" Number(9) => Set(ino::BLOCKS, &[2]);
    "reserved: size of inode 9" Number(9) => Set(ino::SIZE, &[2]);
    "reserved: mode of inode 10" Number(10) => Set(ino::MODE, &[0xed, 0x41]);

    // The root.
    "root: it is a file" ROOT => Set(ino::MODE, &[0xa4, 0x81]);
    "root: it has no mode" ROOT => Set(ino::MODE, HALF_ZEROS);
    "root: it has no links" ROOT => Set(ino::LINKS, HALF_ZEROS);
    "root: its record is empty" ROOT => Set(0, &[0; 128]);
    "root: it is deleted" ROOT => Set(ino::DTIME, &[0, 0, 0, 0x60]);
    "root: its size" ROOT => Set(ino::SIZE, &[1]);
    "root: its mapping" ROOT => Set(ino::BLOCK, &[0; 60]);

    // Fields of inodes.
    "inode: mode" FILE => Set(ino::MODE, &[0xa4, 0x31]);
    "inode: no mode" FILE => Set(ino::MODE, HALF_ZEROS);
    "inode: a file is a directory" FILE => Set(ino::MODE, &[0xed, 0x41]);
    "inode: a file is a pipe" FILE => Set(ino::MODE, &[0xa4, 0x11]);
    "inode: a file is a link" FILE => Set(ino::MODE, &[0xff, 0xa1]);
    "inode: a file is a device" FILE => Set(ino::MODE, &[0xa4, 0x21]);
    "inode: a directory is a file" DIR => Set(ino::MODE, &[0xa4, 0x81]);
    "inode: a device is a file" Inode("/d1/dev") => Set(ino::MODE, &[0xa4, 0x81]);
    "inode: more links" FILE => Set(ino::LINKS, &[7]);
    "inode: no links" FILE => Set(ino::LINKS, HALF_ZEROS);
    "inode: links of a directory" DIR => Set(ino::LINKS, &[7]);
    "inode: one link of a directory" DIR => Set(ino::LINKS, &[1]);
    "inode: no links of a directory" DIR => Set(ino::LINKS, HALF_ZEROS);
    "inode: deleted" FILE => Set(ino::DTIME, &[0, 0, 0, 0x60]);
    "inode: an orphan" FILE => Set(ino::DTIME, &[14]);
    "inode: no links and deleted" FILE => Set(ino::LINKS, HALF_ZEROS), Set(ino::DTIME, &[0, 0, 0, 0x60]);
    "inode: size short of its blocks" FILE => Set(ino::SIZE, &[1, 0]);
    "inode: larger size" FILE => Add(ino::SIZE, 0x10_0000);
    "inode: size beyond any mapping" FILE => Set(ino::SIZE_HI, &[0, 0, 1]);
    "inode: negative size" FILE => Set(ino::SIZE_HI, ONES);
    "inode: size of a directory" DIR => Add(ino::SIZE, 1);
    "inode: shorter size of a directory" INDEXED => Set(ino::SIZE, &[0, 0x10, 0, 0]);
    "inode: longer size of a directory" DIR => Add(ino::SIZE, 0x1_0000);
    "inode: no size of a directory" DIR => Set(ino::SIZE, ZEROS);
    "inode: high half of a directory's size" DIR => Set(ino::SIZE_HI, &[1]);
    "inode: size of a device" Inode("/d1/dev") => Set(ino::SIZE, &[1]);
    "inode: high half of a device's size" Inode("/d1/dev") => Set(ino::SIZE_HI, &[1]);
    "inode: count of blocks" FILE => Add(ino::BLOCKS, 2);
    "inode: no blocks" FILE => Set(ino::BLOCKS, ZEROS);
    "inode: blocks of a directory" DIR => Add(ino::BLOCKS, 2);
    "inode: blocks of a device" Inode("/d1/dev") => Set(ino::BLOCKS, &[2]);
    "inode: high half of its blocks" FILE => Set(ino::BLOCKS_HI, &[1]);
    "inode: place of attributes beyond the volume" FILE => Set(ino::FILE_ACL, ONES);
    "inode: place of attributes in the superblock" FILE => Set(ino::FILE_ACL, &[1]);
    "inode: place of attributes in free space" FILE => Set(ino::FILE_ACL, &[0xe0, 7]);
    "inode: high half of the attributes' place" FILE => Set(ino::FILE_ACL_HI, &[1]);
    "inode: fragment" FILE => Set(ino::FADDR, &[1]);
    "inode: fragment of a directory" DIR => Set(ino::FADDR, &[1]);
    "inode: checksum" FILE => Set(124, &[0xab, 0xcd]);
    "inode: size of the extra part" FILE => Set(ino::EXTRA_ISIZE, &[33]);
    "inode: too large an extra part" FILE => Set(ino::EXTRA_ISIZE, HALF_ONES);
    "inode: no extra part" FILE => Set(ino::EXTRA_ISIZE, HALF_ZEROS);
    "inode: device has more numbers" Inode("/d1/dev") => Set(ino::BLOCK + 8, &[9]);

    // Flags.
    "flags: compressed" FILE => Bits(ino::FLAGS, 4, 0);
    "flags: immutable" FILE => Bits(ino::FLAGS, 0x10, 0);
    "flags: immutable device" Inode("/d1/dev") => Bits(ino::FLAGS, 0x10, 0);
    "flags: append-only device" Inode("/d1/dev") => Bits(ino::FLAGS, 0x20, 0);
    "flags: encrypted" FILE => Bits(ino::FLAGS, 0x800, 0);
    "flags: encrypted directory" DIR => Bits(ino::FLAGS, 0x800, 0);
    "flags: index of a file" FILE => Bits(ino::FLAGS, 0x1000, 0);
    "flags: index of a small directory" DIR => Bits(ino::FLAGS, 0x1000, 0);
    "flags: no index" INDEXED => Bits(ino::FLAGS, 0, 0x1000);
    "flags: magic" FILE => Bits(ino::FLAGS, 0x2000, 0);
    "flags: huge file" FILE => Bits(ino::FLAGS, 0x4_0000, 0);
    "flags: extents" FILE => Bits(ino::FLAGS, 0x8_0000, 0);
    "flags: no extents" FILE => Bits(ino::FLAGS, 0, 0x8_0000);
    "flags: extents of a directory" DIR => Bits(ino::FLAGS, 0x8_0000, 0);
    "flags: no extents of a directory" DIR => Bits(ino::FLAGS, 0, 0x8_0000);
    "flags: extents of a device" Inode("/d1/dev") => Bits(ino::FLAGS, 0x8_0000, 0);
    "flags: extents of a short link" Inode("/d1/fast") => Bits(ino::FLAGS, 0x8_0000, 0);
    "flags: verity" FILE => Bits(ino::FLAGS, 0x10_0000, 0);
    "flags: value of an attribute" FILE => Bits(ino::FLAGS, 0x20_0000, 0);
    "flags: blocks beyond the end" FILE => Bits(ino::FLAGS, 0x40_0000, 0);
    "flags: inline data" FILE => Bits(ino::FLAGS, 0x1000_0000, 0);
    "flags: inline data and no extents" FILE => Bits(ino::FLAGS, 0x1000_0000, 0x8_0000);
    "flags: project" FILE => Bits(ino::FLAGS, 0x2000_0000, 0);
    "flags: case folded file" FILE => Bits(ino::FLAGS, 0x4000_0000, 0);
    "flags: case folded directory" DIR => Bits(ino::FLAGS, 0x4000_0000, 0);
    "flags: unknown" FILE => Bits(ino::FLAGS, 0x8000_0000, 0);

    // Mappings. A record has extents or numbers of blocks there.
    "mapping: magic" Inode("/deep") => Set(ino::BLOCK, HALF_ZEROS);
    "mapping: entries" Inode("/deep") => Set(ino::BLOCK + 2, HALF_ONES);
    "mapping: no entries" Inode("/deep") => Set(ino::BLOCK + 2, HALF_ZEROS);
    "mapping: room for entries" Inode("/deep") => Set(ino::BLOCK + 4, HALF_ONES);
    "mapping: depth" Inode("/deep") => Set(ino::BLOCK + 6, &[9, 0]);
    "mapping: depth less" Inode("/deep") => Set(ino::BLOCK + 6, &[0, 0]);
    "mapping: generation" Inode("/deep") => Set(ino::BLOCK + 8, ONES);
    "mapping: first logical block of a node" Inode("/deep") => Set(ino::BLOCK + 12, &[3]);
    "mapping: node beyond the volume" Inode("/deep") => Set(ino::BLOCK + 16, ONES);
    "mapping: node in the superblock" Inode("/deep") => Set(ino::BLOCK + 16, &[1, 0, 0, 0]);
    "mapping: logical block of an extent" FILE => Set(ino::BLOCK + 12, &[9]);
    "mapping: length 0" FILE => Set(ino::BLOCK + 16, HALF_ZEROS);
    "mapping: length too large" FILE => Set(ino::BLOCK + 16, &[0xff, 0x7f]);
    "mapping: one block longer" FILE => Add(ino::BLOCK + 16, 1);
    "mapping: unwritten" FILE => Add(ino::BLOCK + 16, 0x8000);
    "mapping: high half of a block" FILE => Set(ino::BLOCK + 18, &[1]);
    "mapping: block beyond the volume" FILE => Set(ino::BLOCK + 20, ONES);
    "mapping: block 0" FILE => Set(ino::BLOCK + 20, ZEROS);
    "mapping: block in the superblock" FILE => Set(ino::BLOCK + 20, &[1, 0, 0, 0]);
    "mapping: block in a bitmap" FILE => Set(ino::BLOCK + 20, &[20, 0, 0, 0]);
    "mapping: next block" FILE => Add(ino::BLOCK + 20, 1);
    "mapping: first number" Inode("/d1/f4") => Set(ino::BLOCK, ONES);
    "mapping: first number 0" Inode("/d1/f4") => Set(ino::BLOCK, ZEROS);
    "mapping: one number is another's" Inode("/d1/f4") => Add(ino::BLOCK, 1);
    "mapping: number of one level" Inode("/deep") => Set(ino::BLOCK + 48, ONES);
    "mapping: number of two levels" Inode("/deep") => Set(ino::BLOCK + 52, ONES);
    "mapping: number of three levels" FILE => Set(ino::BLOCK + 56, ONES);
    "mapping: a directory's first block" DIR => Set(ino::BLOCK, ZEROS);
    "mapping: a directory has a hole" DIR => Set(ino::BLOCK + 12, &[1]);
    "mapping: a directory's block is unwritten" DIR => Add(ino::BLOCK + 16, 0x8000);
    "node: magic" Node("/deep") => Set(0, HALF_ZEROS);
    "node: entries" Node("/deep") => Set(2, HALF_ONES);
    "node: no entries" Node("/deep") => Set(2, HALF_ZEROS);
    "node: room for entries" Node("/deep") => Set(4, &[1, 0]);
    "node: depth" Node("/deep") => Set(6, &[3, 0]);
    "node: first logical block" Node("/deep") => Set(12, &[0xff]);
    "node: order of logical blocks" Node("/deep") => Set(24, ZEROS);
    "node: length 0" Node("/deep") => Set(16, HALF_ZEROS);
    "node: length" Node("/deep") => Set(16, &[9, 0]);
    "node: block beyond the volume" Node("/deep") => Set(20, ONES);
    "node: block 0" Node("/deep") => Set(20, ZEROS);
    "node: block twice" Node("/deep") => Add(20, 0xffff_fff0);
    "node: checksum" Node("/deep") => Set(1020, ONES);

    // Symbolic links.
    "symlink: longer size" Inode("/d1/slow") => Add(ino::SIZE, 1);
    "symlink: size 0" Inode("/d1/slow") => Set(ino::SIZE, ZEROS);
    "symlink: longer size of a short one" Inode("/d1/fast") => Add(ino::SIZE, 1);
    "symlink: size 0 of a short one" Inode("/d1/fast") => Set(ino::SIZE, ZEROS);
    "symlink: high half of its size" Inode("/d1/slow") => Set(ino::SIZE_HI, &[1]);
    "symlink: no target" Inode("/d1/fast") => Set(ino::BLOCK, &[0; 60]);
    "symlink: no end of its target" Inode("/d1/fast") => Set(ino::BLOCK, &[b'x'; 60]);
    "symlink: zero in the target" Inode("/d1/fast") => Set(ino::BLOCK + 1, &[0]);
    "symlink: zero in a target in a block" Block("/d1/slow", 0) => Set(7, &[0]);
    "symlink: empty target in a block" Block("/d1/slow", 0) => Set(0, &[0; 100]);
    "symlink: blocks of a short one" Inode("/d1/fast") => Set(ino::BLOCKS, &[2]);

    // Attributes.
    "attributes: magic" Attributes("/d1/f1") => Set(0, ZEROS);
    "attributes: count of inodes" Attributes("/d1/f1") => Add(4, 1);
    "attributes: too many inodes" Attributes("/d1/f1") => Set(4, ONES);
    "attributes: no inodes" Attributes("/d1/f1") => Set(4, ZEROS);
    "attributes: blocks" Attributes("/d1/f1") => Set(8, &[2]);
    "attributes: hash of the block" Attributes("/d1/f1") => Set(12, ONES);
    "attributes: length of a name" Attributes("/d1/f1") => Set(32, &[0xff]);
    "attributes: no name" Attributes("/d1/f1") => Set(32, &[0]);
    "attributes: index of a name" Attributes("/d1/f1") => Set(33, &[0]);
    "attributes: unknown index" Attributes("/d1/f1") => Set(33, &[99]);
    "attributes: place of a value" Attributes("/d1/f1") => Set(34, HALF_ONES);
    "attributes: value in its name" Attributes("/d1/f1") => Set(34, &[36, 0]);
    "attributes: inode of a value" Attributes("/d1/f1") => Set(36, &[14]);
    "attributes: size of a value" Attributes("/d1/f1") => Set(40, ONES);
    "attributes: no value" Attributes("/d1/f1") => Set(40, ZEROS);
    "attributes: hash" Attributes("/d1/f1") => Add(44, 1);
    "attributes: name" Attributes("/d1/f1") => Set(48, b"\0");
    "attributes: checksum" Attributes("/d1/f1") => Set(16, ONES);
    "attributes in an inode: magic" Inode("/d1/f2") => Set(160, ZEROS);
    "attributes in an inode: length of a name" Inode("/d1/f2") => Set(164, &[0xff]);
    "attributes in an inode: no name" Inode("/d1/f2") => Set(164, &[0]);
    "attributes in an inode: index" Inode("/d1/f2") => Set(165, &[0]);
    "attributes in an inode: place of a value" Inode("/d1/f2") => Set(166, HALF_ONES);
    "attributes in an inode: inode of a value" Inode("/d1/f2") => Set(168, &[14]);
    "attributes in an inode: size of a value" Inode("/d1/f2") => Set(172, ONES);
    "attributes in an inode: hash" Inode("/d1/f2") => Set(176, &[1, 2, 3, 4]);

    // Directories.
    "directory: no dot" LEAF => Set(8, b"x");
    "directory: inode of the dot" LEAF => Set(0, &[13]);
    "directory: the dot leads nowhere" LEAF => Set(0, ZEROS);
    "directory: type of the dot" LEAF => Set(7, &[1]);
    "directory: length of the dot's name" LEAF => Set(6, &[2]);
    "directory: length of the dot's record" LEAF => Set(4, &[24, 0]);
    "directory: the dot's name does not end" LEAF => Set(9, b"y");
    "directory: no dots" LEAF => Set(20, b"xy");
    "directory: inode of the dots" LEAF => Set(12, &[13]);
    "directory: the dots lead nowhere" LEAF => Set(12, ZEROS);
    "directory: the dots lead beyond all" LEAF => Set(12, ONES);
    "directory: type of the dots" LEAF => Set(19, &[1]);
    "directory: all zeros" LEAF => Set(0, &[0; 512]);
    "directory: checksum" LEAF => Set(1020, ONES);
    "directory: type of the tail" LEAF => Set(1019, &[0]);
    "entry: record too short" Entry("/d1", "f3") => Set(4, &[4, 0]);
    "entry: record not aligned" Entry("/d1", "f3") => Set(4, &[13, 0]);
    "entry: record too long" Entry("/d1", "f3") => Set(4, HALF_ONES);
    "entry: record of no length" Entry("/d1", "f3") => Set(4, HALF_ZEROS);
    "entry: length of the name" Entry("/d1", "f3") => Set(6, &[0xff]);
    "entry: no name" Entry("/d1", "f3") => Set(6, &[0]);
    "entry: a slash" Entry("/d1", "f3") => Set(8, b"/");
    "entry: a zero" Entry("/d1", "f3") => Set(8, b"\0");
    "entry: a dot" Entry("/d1", "f3") => Set(6, &[1]), Set(8, b".");
    "entry: dots" Entry("/d1", "f3") => Set(8, b"..");
    "entry: name twice" Entry("/d1", "f3") => Set(8, b"f4");
    "entry: another name" Entry("/d1", "f3") => Set(8, b"g");
    "entry: name in an index" Entry("/big", "") => Set(8, b"g");
    "entry: type" Entry("/d1", "f3") => Set(7, &[2]);
    "entry: unknown type" Entry("/d1", "f3") => Set(7, &[99]);
    "entry: no type" Entry("/d1", "f3") => Set(7, &[0]);
    "entry: leads nowhere" Entry("/d1", "f3") => Set(0, ZEROS);
    "entry: leads to a reserved inode" Entry("/d1", "f3") => Set(0, &[9, 0, 0, 0]);
    "entry: leads to the journal" Entry("/d1", "f3") => Set(0, &[8, 0, 0, 0]);
    "entry: leads to the root" Entry("/d1", "f3") => Set(0, &[2, 0, 0, 0]);
    "entry: leads beyond all" Entry("/d1", "f3") => Set(0, ONES);
    "entry: leads to another file" Entry("/d1", "f3") => Add(0, 1);
    "entry: leads to a free inode" Entry("/d1", "f3") => Add(0, 0x200);
    "entry: a directory leads to a file" Entry("", "d3") => Add(0, 1);
    "entry: a directory is gone" Entry("", "d3") => Set(0, ZEROS);
    "entry: two names of a directory" Entry("/d1", "f3") => Set(0, &[11, 0, 0, 0]), Set(7, &[2]);
    "entry: lost+found is gone" Entry("", "lost+found") => Set(0, ZEROS);

    // Indexes.
    "index: inode of the dot" Block("/big", 0) => Set(0, &[99]);
    "index: inode of the dots" Block("/big", 0) => Set(12, &[99]);
    "index: record of the dots" Block("/big", 0) => Set(16, &[12, 0]);
    "index: reserved word" Block("/big", 0) => Set(24, &[1]);
    "index: version of hashes" Block("/big", 0) => Set(28, &[77]);
    "index: another version of hashes" Block("/big", 0) => Set(28, &[2]);
    "index: length of its head" Block("/big", 0) => Set(29, &[9]);
    "index: depth" Block("/big", 0) => Set(30, &[9]);
    "index: another depth" Block("/big", 0) => Bits(28, 0x2_0000, 0x1_0000);
    "index: unused flags" Block("/big", 0) => Set(31, &[1]);
    "index: room for entries" Block("/big", 0) => Set(32, HALF_ONES);
    "index: less room for entries" Block("/big", 0) => Add(32, 0xffff_ffff);
    "index: entries" Block("/big", 0) => Set(34, HALF_ONES);
    "index: no entries" Block("/big", 0) => Set(34, HALF_ZEROS);
    "index: first block" Block("/big", 0) => Add(36, 1);
    "index: block beyond all" Block("/big", 0) => Set(36, ONES);
    "index: block 0" Block("/big", 0) => Set(36, ZEROS);
    "index: hash" Block("/big", 0) => Set(40, ONES);
    "index: hash 0" Block("/big", 0) => Set(40, ZEROS);
    "index: block of an entry" Block("/big", 0) => Set(44, &[1, 0, 0, 0]);
    "index: zeros" Block("/big", 0) => Set(24, &[0; 256]);

    // The journal's superblock, whose numbers have the most significant byte first.
    "journal: magic" JournalSuperblock => Set(0, ZEROS);
    "journal: kind of block" JournalSuperblock => Set(7, &[9]);
    "journal: version 1" JournalSuperblock => Set(7, &[3]);
    "journal: sequence in its head" JournalSuperblock => Set(8, ONES);
    "journal: block size" JournalSuperblock => Set(14, &[2]);
    "journal: length" JournalSuperblock => Set(16, &[0, 1, 0, 0]);
    "journal: short length" JournalSuperblock => Set(16, &[0, 0, 0, 9]);
    "journal: no length" JournalSuperblock => Set(16, ZEROS);
    "journal: first block 0" JournalSuperblock => Set(20, ZEROS);
    "journal: first block beyond all" JournalSuperblock => Set(20, ONES);
    "journal: sequence" JournalSuperblock => Set(24, ONES);
    "journal: sequence 0" JournalSuperblock => Set(24, ZEROS);
    "journal: start" JournalSuperblock => Set(28, &[0, 0, 0, 7]);
    "journal: start beyond all" JournalSuperblock => Set(28, ONES);
    "journal: error" JournalSuperblock => Set(32, &[0xff, 0xff, 0xff, 0xfb]);
    "journal: compatible feature" JournalSuperblock => Set(36, &[0, 0, 1, 0]);
    "journal: feature" JournalSuperblock => Set(40, &[0, 1, 0, 0]);
    "journal: feature for writers" JournalSuperblock => Set(44, &[0, 0, 0, 1]);
    "journal: two kinds of checksums" JournalSuperblock => Set(43, &[0x1b]);
    "journal: fast commits" JournalSuperblock => Set(43, &[0x21]);
    "journal: UUID" JournalSuperblock => Set(48, ONES);
    "journal: no users" JournalSuperblock => Set(64, ZEROS);
    "journal: two users" JournalSuperblock => Set(67, &[2]);
    "journal: copy of the superblock" JournalSuperblock => Set(68, ONES);
    "journal: largest transaction" JournalSuperblock => Set(72, ONES);
    "journal: kind of checksum" JournalSuperblock => Set(80, &[9]);
    "journal: blocks of fast commits" JournalSuperblock => Set(84, ONES);
    "journal: head" JournalSuperblock => Set(88, ONES);
    "journal: checksum" JournalSuperblock => Set(0xfc, ONES);
    "journal: list of users" JournalSuperblock => Set(0x100, ONES);
}
