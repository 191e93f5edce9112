//! The fields of the structures on the device: names in their order, each with its size in bytes.
//!
//! A description is words `NAME:BYTES`, with a letter for fields other than decimal numbers: `x` hexadecimal, `o`
//! octal, `t` time, `s` text, `b` bytes. `NAME*COUNT:BYTES` is an array. The names are those of the kernel's
//! documentation of the format.

use super::record::{Record, Value};

pub(super) const SUPERBLOCK: &str = "s_inodes_count:4 s_blocks_count_lo:4 s_r_blocks_count_lo:4 s_free_blocks_count_lo:4 \
s_free_inodes_count:4 s_first_data_block:4 s_log_block_size:4 s_log_cluster_size:4 s_blocks_per_group:4 s_clusters_per_group:4 \
s_inodes_per_group:4 s_mtime:4t s_wtime:4t s_mnt_count:2 s_max_mnt_count:2 s_magic:2x s_state:2x s_errors:2 s_minor_rev_level:2 \
s_lastcheck:4t s_checkinterval:4 s_creator_os:4 s_rev_level:4 s_def_resuid:2 s_def_resgid:2 s_first_ino:4 s_inode_size:2 \
s_block_group_nr:2 s_feature_compat:4x s_feature_incompat:4x s_feature_ro_compat:4x s_uuid:16b s_volume_name:16s \
s_last_mounted:64s s_algorithm_usage_bitmap:4x s_prealloc_blocks:1 s_prealloc_dir_blocks:1 s_reserved_gdt_blocks:2 \
s_journal_uuid:16b s_journal_inum:4 s_journal_dev:4 s_last_orphan:4 s_hash_seed*4:4x s_def_hash_version:1 s_jnl_backup_type:1 \
s_desc_size:2 s_default_mount_opts:4x s_first_meta_bg:4 s_mkfs_time:4t s_jnl_blocks*17:4x s_blocks_count_hi:4 \
s_r_blocks_count_hi:4 s_free_blocks_count_hi:4 s_min_extra_isize:2 s_want_extra_isize:2 s_flags:4x s_raid_stride:2 \
s_mmp_interval:2 s_mmp_block:8 s_raid_stripe_width:4 s_log_groups_per_flex:1 s_checksum_type:1 s_encryption_level:1 \
s_reserved_pad:1 s_kbytes_written:8 s_snapshot_inum:4 s_snapshot_id:4 s_snapshot_r_blocks_count:8 s_snapshot_list:4 \
s_error_count:4 s_first_error_time:4t s_first_error_ino:4 s_first_error_block:8 s_first_error_func:32s s_first_error_line:4 \
s_last_error_time:4t s_last_error_ino:4 s_last_error_line:4 s_last_error_block:8 s_last_error_func:32s s_mount_opts:64s \
s_usr_quota_inum:4 s_grp_quota_inum:4 s_overhead_blocks:4 s_backup_bgs*2:4 s_encrypt_algos:4b s_encrypt_pw_salt:16b s_lpf_ino:4 \
s_prj_quota_inum:4 s_checksum_seed:4x s_wtime_hi:1 s_mtime_hi:1 s_mkfs_time_hi:1 s_lastcheck_hi:1 s_first_error_time_hi:1 \
s_last_error_time_hi:1 s_first_error_errcode:1 s_last_error_errcode:1 s_encoding:2 s_encoding_flags:2x s_orphan_file_inum:4 \
s_reserved:376b s_checksum:4x";

pub(super) const DESCRIPTOR: &str = "bg_block_bitmap_lo:4 bg_inode_bitmap_lo:4 bg_inode_table_lo:4 bg_free_blocks_count_lo:2 \
bg_free_inodes_count_lo:2 bg_used_dirs_count_lo:2 bg_flags:2x bg_exclude_bitmap_lo:4 bg_block_bitmap_csum_lo:2x \
bg_inode_bitmap_csum_lo:2x bg_itable_unused_lo:2 bg_checksum:2x bg_block_bitmap_hi:4 bg_inode_bitmap_hi:4 bg_inode_table_hi:4 \
bg_free_blocks_count_hi:2 bg_free_inodes_count_hi:2 bg_used_dirs_count_hi:2 bg_itable_unused_hi:2 bg_exclude_bitmap_hi:4 \
bg_block_bitmap_csum_hi:2x bg_inode_bitmap_csum_hi:2x bg_reserved:4x";

pub(super) const INODE: &str = "i_mode:2o i_uid:2 i_size_lo:4 i_atime:4t i_ctime:4t i_mtime:4t i_dtime:4t i_gid:2 \
i_links_count:2 i_blocks_lo:4 i_flags:4x i_version:4 i_block:60b i_generation:4x i_file_acl_lo:4 i_size_high:4 i_obso_faddr:4x \
i_blocks_high:2 i_file_acl_high:2 i_uid_high:2 i_gid_high:2 i_checksum_lo:2x i_reserved:2x";

pub(super) const INODE_EXTRA: &str = "i_extra_isize:2 i_checksum_hi:2x i_ctime_extra:4x i_mtime_extra:4x i_atime_extra:4x \
i_crtime:4t i_crtime_extra:4x i_version_hi:4 i_projid:4";

pub(super) const EXTENT_HEADER: &str =
    "eh_magic:2x eh_entries:2 eh_max:2 eh_depth:2 eh_generation:4";
pub(super) const EXTENT: &str = "ee_block:4 ee_len:2 ee_start_hi:2 ee_start_lo:4";
pub(super) const EXTENT_INDEX: &str = "ei_block:4 ei_leaf_lo:4 ei_leaf_hi:2 ei_unused:2";
pub(super) const EXTENT_TAIL: &str = "et_checksum:4x";

pub(super) const ENTRY: &str = "inode:4 rec_len:2 name_len:1 file_type:1";
pub(super) const ENTRY_TAIL: &str =
    "det_reserved_zero1:4 det_rec_len:2 det_reserved_zero2:1 det_reserved_ft:1x det_checksum:4x";

pub(super) const INDEX_ROOT: &str = "dot.inode:4 dot.rec_len:2 dot.name_len:1 dot.file_type:1 dot.name:4s dotdot.inode:4 \
dotdot.rec_len:2 dotdot.name_len:1 dotdot.file_type:1 dotdot.name:4s reserved_zero:4 hash_version:1 info_length:1 \
indirect_levels:1 unused_flags:1x";
pub(super) const INDEX_FIRST: &str = "limit:2 count:2 block:4";
pub(super) const INDEX_ENTRY: &str = "hash:4x block:4";
pub(super) const INDEX_TAIL: &str = "dt_reserved:4 dt_checksum:4x";

pub(super) const ATTRIBUTES: &str =
    "h_magic:4x h_refcount:4 h_blocks:4 h_hash:4x h_checksum:4x h_reserved*3:4x";
pub(super) const ATTRIBUTE: &str =
    "e_name_len:1 e_name_index:1 e_value_offs:2 e_value_inum:4 e_value_size:4 e_hash:4x";

pub(super) const ORPHAN_TAIL: &str = "ob_magic:4x ob_checksum:4x";

pub(super) const MMP: &str = "mmp_magic:4x mmp_seq:4x mmp_time:8t mmp_nodename:64s mmp_bdevname:32s mmp_check_interval:2 \
mmp_pad1:2 mmp_pad2:904b mmp_checksum:4x";

pub(super) const JOURNAL_HEADER: &str = "h_magic:4x h_blocktype:4 h_sequence:4";
pub(super) const JOURNAL_SUPERBLOCK: &str = "h_magic:4x h_blocktype:4 h_sequence:4 s_blocksize:4 s_maxlen:4 s_first:4 \
s_sequence:4 s_start:4 s_errno:4 s_feature_compat:4x s_feature_incompat:4x s_feature_ro_compat:4x s_uuid:16b s_nr_users:4 \
s_dynsuper:4 s_max_transaction:4 s_max_trans_data:4 s_checksum_type:1 s_padding2:3b s_num_fc_blks:4 s_head:4 s_padding:160b \
s_checksum:4x s_users:768b";
pub(super) const JOURNAL_COMMIT: &str = "h_magic:4x h_blocktype:4 h_sequence:4 h_chksum_type:1 h_chksum_size:1 h_padding:2b \
h_chksum*8:4x h_commit_sec:8t h_commit_nsec:4";
pub(super) const JOURNAL_REVOKE: &str = "h_magic:4x h_blocktype:4 h_sequence:4 r_count:4";

/// A structure whose fields have places.
///
/// ```
/// use extant_check::inspect::{Structure, field_place};
/// assert_eq!(field_place(Structure::Superblock, "s_wtime").unwrap().offset, 0x30);
/// assert_eq!(field_place(Structure::Inode, "i_crtime").unwrap().offset, 0x90);
/// assert!(field_place(Structure::Descriptor, "bg_none").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Structure {
    /// The superblock.
    Superblock,
    /// An inode with its extra part.
    Inode,
    /// The descriptor of a group.
    Descriptor,
}

/// Place of a field in its structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    /// Number of bytes in front of the field.
    pub offset: usize,
    /// Its bytes.
    pub len: usize,
    /// Whether it is a number of seconds.
    pub is_time: bool,
    /// Whether it is a text.
    pub is_text: bool,
}

/// Returns the place of a field by its name in the kernel's documentation of the format; `NAME[1]` is an element of an array.
pub fn field_place(structure: Structure, name: &str) -> Option<FieldPlace> {
    let (wanted, nth) = match name.split_once('[') {
        Some((name, nth)) => (name, nth.strip_suffix(']')?.parse().ok()?),
        None => (name, 0_usize),
    };
    let (_, count, place) = fields_of(structure).find(|(name, ..)| *name == wanted)?;
    (nth < count).then_some(FieldPlace {
        offset: place.offset + nth * place.len,
        ..place
    })
}

/// Returns the fields of a structure in their order: each with its name, the number of its elements, and the place of
/// the first element.
///
/// ```
/// use extant_check::inspect::{Structure, fields_of};
/// let mut arrays = fields_of(Structure::Superblock).filter(|(_, count, _)| *count > 1);
/// assert_eq!(arrays.next().unwrap().0, "s_hash_seed");
/// ```
pub fn fields_of(structure: Structure) -> impl Iterator<Item = (&'static str, usize, FieldPlace)> {
    let descriptions: &[&'static str] = match structure {
        Structure::Superblock => &[SUPERBLOCK],
        Structure::Inode => &[INODE, INODE_EXTRA],
        Structure::Descriptor => &[DESCRIPTOR],
    };
    let words = descriptions
        .iter()
        .flat_map(|words| words.split_ascii_whitespace());
    let mut offset = 0;
    words.filter_map(move |word| {
        let (field, kind) = word.split_once(':')?;
        let digits = kind.trim_end_matches(|c: char| !c.is_ascii_digit());
        let len: usize = digits.parse().ok()?;
        let (field, count) = match field.split_once('*') {
            Some((field, count)) => (field, count.parse().ok()?),
            None => (field, 1_usize),
        };
        let place = FieldPlace {
            offset,
            len,
            is_time: kind.ends_with('t'),
            is_text: kind.ends_with('s'),
        };
        offset += len * count;
        Some((field, count, place))
    })
}

/// Bytes to decode, and their offset in the block.
#[derive(Clone, Copy)]
pub(super) struct Part<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
    /// Whether numbers are big-endian, as in the journal's own blocks.
    pub(super) big_endian: bool,
}

impl<'b> Part<'b> {
    /// Returns the part of `block` from `at` on.
    pub(super) fn of(block: &'b [u8], at: usize) -> Self {
        Self {
            bytes: block.get(at..).unwrap_or(&[]),
            at,
            big_endian: false,
        }
    }

    pub(super) fn big_endian(self) -> Self {
        Self {
            big_endian: true,
            ..self
        }
    }

    /// Sends the fields of a description, as far as there are bytes; returns how many they have.
    pub(super) fn send(
        &self,
        description: &str,
        sink: &mut super::Sink<'_>,
    ) -> std::io::Result<usize> {
        let mut at = 0;
        for word in description.split_ascii_whitespace() {
            let Some((name, kind)) = word.split_once(':') else {
                continue;
            };
            let digits = kind.trim_end_matches(|c: char| !c.is_ascii_digit());
            let len: usize = digits.parse().unwrap_or(0);
            let show = kind.as_bytes().get(digits.len()).copied();
            let (name, count) = match name.split_once('*') {
                Some((name, count)) => (name, count.parse().ok()),
                None => (name, None),
            };
            for i in 0..count.unwrap_or(1) {
                let Some(bytes) = self.bytes.get(at..at + len) else {
                    return Ok(at);
                };
                let name = match count {
                    Some(_) => format!("{name}[{i}]"),
                    None => name.to_owned(),
                };
                sink(field(self.at + at, len, name, self.value(bytes, show)))?;
                at += len;
            }
        }
        Ok(at)
    }

    fn value(&self, bytes: &[u8], show: Option<u8>) -> Value {
        match show {
            Some(b's') => {
                let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
                return Value::Name(bytes.get(..end).unwrap_or(&[]).to_vec());
            }
            Some(b'b') => return Value::Bytes(bytes.to_vec()),
            _ => {}
        }
        let join = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        let number = if self.big_endian {
            bytes.iter().fold(0, join)
        } else {
            bytes.iter().rev().fold(0, join)
        };
        match (show, bytes.len()) {
            (Some(b'x'), _) => Value::Hex(number),
            (Some(b'o'), _) => Value::Octal(number),
            (Some(b't'), 4) => Value::Time(i64::from((number as u32).cast_signed())),
            (Some(b't'), _) => Value::Time(number.cast_signed()),
            _ => Value::Number(number),
        }
    }
}

/// Formats a field of a structure.
pub(super) fn field(at: usize, len: usize, name: impl Into<String>, value: Value) -> Record {
    let fields = vec![
        ("offset", Value::Number(at as u64)),
        ("bytes", Value::Number(len as u64)),
        ("field", Value::text(name)),
        ("value", value),
    ];
    Record::row("field", fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::superblock::RawSuperblock;
    use std::mem::offset_of;

    /// Returns the offset of each field of a description, and the total length.
    fn places(description: &str) -> (Vec<(String, u64)>, usize) {
        let (zeros, mut found) = ([0; 1024], Vec::new());
        let len = Part::of(&zeros, 0).send(description, &mut |record| {
            if let (Value::Number(at), Value::Text(name)) =
                (&record.fields[0].1, &record.fields[2].1)
            {
                found.push((name.clone(), *at));
            }
            Ok(())
        });
        (found, len.unwrap())
    }

    #[test]
    fn descriptions_have_the_lengths_of_the_structures() {
        for (description, len) in [
            (SUPERBLOCK, 1024),
            (DESCRIPTOR, 64),
            (INODE, 128),
            (INODE_EXTRA, 32),
            (EXTENT_HEADER, 12),
            (EXTENT, 12),
            (EXTENT_INDEX, 12),
            (ENTRY_TAIL, 12),
            (INDEX_ROOT, 32),
            (ATTRIBUTES, 32),
            (ATTRIBUTE, 16),
            (MMP, 1024),
            (JOURNAL_SUPERBLOCK, 1024),
            (JOURNAL_COMMIT, 60),
            (JOURNAL_REVOKE, 16),
        ] {
            assert_eq!(places(description).1, len, "{description}");
        }
    }

    #[test]
    fn fields_of_the_superblock_are_where_the_parser_has_them() {
        let (found, _) = places(SUPERBLOCK);
        let at = |name: &str| found.iter().find(|(n, _)| n == name).map(|f| f.1 as usize);
        for (name, offset) in [
            ("s_uuid", offset_of!(RawSuperblock, uuid)),
            ("s_last_orphan", offset_of!(RawSuperblock, last_orphan)),
            ("s_hash_seed[0]", offset_of!(RawSuperblock, hash_seed)),
            ("s_mkfs_time", offset_of!(RawSuperblock, mkfs_time)),
            ("s_flags", offset_of!(RawSuperblock, flags)),
            ("s_error_count", offset_of!(RawSuperblock, error_count)),
            ("s_mount_opts", offset_of!(RawSuperblock, mount_opts)),
            ("s_checksum_seed", offset_of!(RawSuperblock, checksum_seed)),
            (
                "s_orphan_file_inum",
                offset_of!(RawSuperblock, orphan_file_inum),
            ),
            ("s_checksum", offset_of!(RawSuperblock, checksum)),
        ] {
            assert_eq!(at(name), Some(offset), "{name}");
        }
    }
}
