//! The superblock and the descriptors in words: `info`, `dumpe2fs -h`, `tune2fs -l` and the requests of debugfs show the same ones.

use super::show::show;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT, INODE_ZEROED};
use ext4_format::hash::HashVersion;
use ext4_format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use extant::Timestamp;
use uuid::Uuid;

/// Returns a time of the superblock: 32 bits and 8 more.
pub fn time(low: u32, high: u8) -> Timestamp {
    Timestamp::new(i64::from(low) | i64::from(high) << 32, 0)
}

/// Returns the text before the first NUL byte.
pub fn text(bytes: &[u8]) -> String {
    show(bytes.split(|&b| b == 0).next().unwrap_or_default())
}

/// Returns whether the volume was unmounted, and whether errors were found in it.
pub fn state(sb: &RawSuperblock) -> (&'static str, Option<&'static str>) {
    let bits = sb.state.get();
    let is_clean = bits & STATE_VALID != 0;
    (
        if is_clean { "clean" } else { "not clean" },
        (bits & STATE_ERROR != 0).then_some("with errors"),
    )
}

/// Returns the name of the hash of directories.
pub fn hash_name(sb: &RawSuperblock) -> &'static str {
    match HashVersion::from_raw(sb.def_hash_version, false) {
        Some(HashVersion::Legacy) => "legacy",
        Some(HashVersion::HalfMd4) => "half_md4",
        Some(HashVersion::Tea) => "tea",
        _ => "unknown",
    }
}

/// Returns the seed of the hash of directories.
pub fn hash_seed(sb: &RawSuperblock) -> Uuid {
    let mut bytes = [0; 16];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(sb.hash_seed) {
        *to = word.get().to_le_bytes();
    }
    Uuid::from_bytes(bytes)
}

/// An error that the superblock records.
pub struct RecordedError {
    /// Time of the error.
    pub time: Timestamp,
    /// Function of the driver that found the error.
    pub function: String,
    /// Line in the source of that function.
    pub line: u32,
    /// Inode of the error, or 0.
    pub inode: u32,
    /// Block of the error, or 0.
    pub block: u64,
}

/// Returns the first and the last error that the superblock records.
pub fn recorded_errors(sb: &RawSuperblock) -> [RecordedError; 2] {
    [
        RecordedError {
            time: time(sb.first_error_time.get(), sb.first_error_time_hi),
            function: text(&sb.first_error_func),
            line: sb.first_error_line.get(),
            inode: sb.first_error_ino.get(),
            block: sb.first_error_block.get(),
        },
        RecordedError {
            time: time(sb.last_error_time.get(), sb.last_error_time_hi),
            function: text(&sb.last_error_func),
            line: sb.last_error_line.get(),
            inode: sb.last_error_ino.get(),
            block: sb.last_error_block.get(),
        },
    ]
}

/// Returns the names of the flags of a group, in the order of dumpe2fs.
pub fn group_flags(desc: &GroupDesc) -> Vec<&'static str> {
    let flags = [
        (INODE_UNINIT, "INODE_UNINIT"),
        (BLOCK_UNINIT, "BLOCK_UNINIT"),
        (INODE_ZEROED, "ITABLE_ZEROED"),
    ];
    let set = flags.into_iter().filter(|(bit, _)| desc.flags & bit != 0);
    set.map(|(_, name)| name).collect()
}

/// Joins names with spaces; an empty list becomes `(none)`.
pub fn joined(names: &[impl AsRef<str>]) -> String {
    if names.is_empty() {
        return "(none)".into();
    }
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.join(" ")
}
