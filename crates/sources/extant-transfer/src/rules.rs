//! Options of a copy: the attributes to keep and to change.

use crate::meta::Meta;
use ext4_format::timestamp::Timestamp;
use extant_mkfs::{IdMap, ModeMap};

/// Options of a copy.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Keep owners and groups.
    pub keep_owner: bool,
    /// Continue if the process is not permitted to set an owner.
    pub owner_may_be_refused: bool,
    /// Keep permissions.
    pub keep_mode: bool,
    /// Keep times.
    pub keep_times: bool,
    /// Keep extended attributes.
    pub keep_xattrs: bool,
    /// Keep hard links as hard links.
    pub keep_links: bool,
    /// Write zeros that are data of the source. Otherwise blocks of zeros become holes, on sides that can.
    pub keep_zeros: bool,
    /// Number of threads. If 0, the calling thread does all work.
    pub threads: usize,
    /// Fail if the destination exists.
    pub only_new: bool,
    /// Apply the source as a layer: white-outs remove files, and files may replace directories.
    pub layer: bool,
    /// Skip the contents of mounts in the tree; their mount points are copied as empty directories.
    pub one_file_system: bool,
    /// Latest allowed time, in seconds. Access times, which reading changes, become the modification times.
    pub latest: Option<i64>,
    /// File to skip: the image, if it is in the source tree.
    pub skip: Option<(u64, u64)>,
    /// Owner of all files.
    pub uid: Option<u32>,
    /// Group of all files.
    pub gid: Option<u32>,
    /// Translation of owners.
    pub uid_map: IdMap,
    /// Translation of groups.
    pub gid_map: IdMap,
    /// Changes of permissions.
    pub mode_map: ModeMap,
}

impl Rules {
    /// Returns the options that keep all attributes.
    pub fn all(threads: usize) -> Self {
        Self {
            keep_owner: true,
            keep_mode: true,
            keep_times: true,
            keep_xattrs: true,
            keep_links: true,
            ..Self::none(threads)
        }
    }

    /// Returns the options that keep only content and types. New files have the permissions of the source, less the umask.
    pub fn none(threads: usize) -> Self {
        Self {
            keep_owner: false,
            owner_may_be_refused: false,
            keep_mode: false,
            keep_times: false,
            keep_xattrs: false,
            keep_links: false,
            keep_zeros: true,
            threads,
            only_new: false,
            layer: false,
            one_file_system: false,
            latest: None,
            skip: None,
            uid: None,
            gid: None,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
            mode_map: ModeMap::default(),
        }
    }

    /// Returns the attributes of a file on the destination side.
    pub fn adjust(&self, mut meta: Meta) -> Meta {
        meta.uid = self.uid.unwrap_or_else(|| self.uid_map.map(meta.uid));
        meta.gid = self.gid.unwrap_or_else(|| self.gid_map.map(meta.gid));
        if let Some(latest) = self.latest {
            if meta.mtime.secs() >= latest {
                meta.mtime = Timestamp::new(latest, 0);
            }
            meta.atime = meta.mtime;
        }
        meta.mode = self.mode_map.map(meta.kind.mode_bits() | meta.mode) & 0o7777;
        meta
    }
}
