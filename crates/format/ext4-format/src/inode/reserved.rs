//! Rules for reserved inodes: an inode may hold a file if the superblock names it, and almost nothing otherwise.

use crate::error::{FormatError, Result, Where};
use crate::features::Features;
use crate::inode::{self, InodeCore, flags};
use crate::superblock::RawSuperblock;
use crate::types::{FileType, InodeNr};

/// The inode of bad blocks, which has a mapping and nothing else.
pub const BAD_BLOCKS: InodeNr = InodeNr(1);
const USER_QUOTA: InodeNr = InodeNr(3);
const GROUP_QUOTA: InodeNr = InodeNr(4);
const BOOT_LOADER: InodeNr = InodeNr(5);

/// Returns whether the superblock names a reserved inode as the journal or as a quota file.
///
/// ```
/// use ext4_format::{InodeNr, inode::reserved, layout::{Layout, LayoutParams}};
/// let sb = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap().superblock;
/// assert!(!reserved::is_named(&sb, InodeNr(9)));
/// ```
pub fn is_named(sb: &RawSuperblock, ino: InodeNr) -> bool {
    match ino {
        InodeNr::JOURNAL => sb.journal_inum.get() == ino.0,
        USER_QUOTA | GROUP_QUOTA => {
            let quota = Features::of(sb).has_quota();
            let named = [sb.usr_quota_inum, sb.grp_quota_inum];
            quota && named.iter().any(|named| named.get() == ino.0)
        }
        _ => false,
    }
}

/// Returns whether a reserved inode is kept for the journal or for a quota file.
pub const fn can_be_named(ino: InodeNr) -> bool {
    matches!(ino, InodeNr::JOURNAL | USER_QUOTA | GROUP_QUOTA)
}

/// Checks the record of a reserved inode other than the root. The mapping is not looked at.
///
/// # Errors
/// [`FormatError::Corrupt`] at the inode, with the violated rule.
///
/// ```
/// use ext4_format::{InodeNr, inode::reserved, layout::{Layout, LayoutParams}};
/// let sb = Layout::new(&LayoutParams::for_size(1 << 30)).unwrap().superblock;
/// let mut record = [0; 256];
/// assert!(reserved::check(&record, &sb, InodeNr(9)).is_ok());
/// record[1] = 0x80; // a regular file
/// assert!(reserved::check(&record, &sb, InodeNr(9)).is_err());
/// ```
pub fn check(raw: &[u8], sb: &RawSuperblock, ino: InodeNr) -> Result<()> {
    let u16_at = |at| inode::u16_at(raw, at);
    let mode = u16_at(inode::at::MODE);
    let file_type = FileType::from_mode(mode);
    let regular = file_type == Some(FileType::Regular);
    let mapped = inode::i_block(raw).is_ok_and(|map| *map != [0; inode::I_BLOCK_SIZE]);
    let filled = is_filled(raw, sb);
    let wrong = match ino {
        BAD_BLOCKS => {
            let owner = u16_at(inode::at::UID) | u16_at(inode::at::GID);
            let inline = inode::u32_at(raw, inode::at::FLAGS) & flags::INLINE_DATA != 0;
            let other = owner | mode | u16_at(inode::at::LINKS);
            let attributes = inode::u32_at(raw, inode::at::FILE_ACL);
            (other != 0 || inline || attributes != 0)
                .then_some("inode of bad blocks with more than a mapping")
        }
        ino if is_named(sb, ino) => (!regular).then_some("named file that is not a regular file"),
        InodeNr::JOURNAL | USER_QUOTA | GROUP_QUOTA => {
            filled.then_some("file that the superblock does not name")
        }
        BOOT_LOADER => (mode != 0 && !regular).then_some("boot loader that is not a regular file"),
        InodeNr::RESIZE if !Features::of(sb).has_resize_inode() => {
            (mapped || mode != 0 && !regular).then_some("reserved descriptors without resize_inode")
        }
        InodeNr::RESIZE => (mode != 0 && !regular).then_some("reserved descriptors in no file"),
        _ => (mode != 0).then_some("reserved inode with a mode"),
    };
    match wrong {
        Some(what) => Err(FormatError::corrupt(what, Where::Inode(ino))),
        None => Ok(()),
    }
}

/// Returns inodes that the superblock names for features that the volume lacks, with the kind of file.
pub fn named_in_vain(sb: &RawSuperblock) -> impl Iterator<Item = (&'static str, InodeNr)> {
    let features = Features::of(sb);
    let projects = features.has_project() && features.has_quota();
    // tune2fs leaves the numbers of reserved inodes.
    let quota = |ino: u32| if ino >= sb.first_ino.get() { ino } else { 0 };
    let named = [
        (
            "the orphan file",
            sb.orphan_file_inum.get(),
            features.has_orphan_file(),
        ),
        ("the project quota", sb.prj_quota_inum.get(), projects),
        (
            "the user quota",
            quota(sb.usr_quota_inum.get()),
            features.has_quota(),
        ),
        (
            "the group quota",
            quota(sb.grp_quota_inum.get()),
            features.has_quota(),
        ),
    ];
    let vain = named.into_iter().filter(|(_, ino, has)| *ino != 0 && !has);
    vain.map(|(name, ino, _)| (name, InodeNr(ino)))
}

/// Returns whether a reserved inode has no sign of use.
pub fn is_unused(raw: &[u8], core: &InodeCore, ino: InodeNr) -> bool {
    let mapped = inode::i_block(raw).is_ok_and(|map| *map != [0; inode::I_BLOCK_SIZE]);
    let sectors = inode::u32_at(raw, inode::at::BLOCKS);
    let filled = core.links != 0 || core.size != 0 || sectors != 0;
    core.mode == 0 && !filled && !(ino == BAD_BLOCKS && mapped)
}

/// Returns whether an inode has links, a count of sectors or a first block: it is in use, regardless of its mode.
fn is_filled(raw: &[u8], sb: &RawSuperblock) -> bool {
    let low = inode::u32_at(raw, inode::at::BLOCKS) | inode::u32_at(raw, inode::at::BLOCK);
    let high = inode::u16_at(raw, inode::at::BLOCKS_HI);
    let links = inode::u16_at(raw, inode::at::LINKS);
    links != 0 || low != 0 || high != 0 && Features::of(sb).has_huge_file()
}
