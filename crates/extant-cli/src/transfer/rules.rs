//! Attributes that are kept when trees move, and attributes that are changed.

use super::Meta;
use crate::owners::OwnerSpec;
use anyhow::{Context, Result};
use clap::Args;
use extant::mkfs::{IdMap, ModeMap};
use extant::{Timestamp, Volume};

/// Options about owners and permissions, common to all commands that move trees.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Owners and permissions")]
pub struct OwnerArgs {
    /// Set the owner of every file: USER:GROUP, USER or :GROUP, as numbers or as names. Names are looked up in the
    /// /etc/passwd and /etc/group of the image if it exists already, else of the sources
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<OwnerSpec>,
    /// Translate owners by ranges: FROM:TO or FROM:TO:COUNT, separated by commas
    #[arg(long, value_name = "RANGES")]
    pub uid_map: Option<IdMap>,
    /// Translate groups by ranges, like --uid-map
    #[arg(long, value_name = "RANGES")]
    pub gid_map: Option<IdMap>,
    /// Change permissions as chmod does; D for directories, F for other files: D0755,Fgo-w
    #[arg(long, value_name = "CHANGES")]
    pub mode_map: Option<ModeMap>,
    /// Do not copy extended attributes and ACLs
    #[arg(long)]
    pub no_xattrs: bool,
}

/// The rules of a move.
#[derive(Clone, Debug)]
pub struct Rules {
    pub keep_owner: bool,
    pub keep_mode: bool,
    pub keep_times: bool,
    pub keep_xattrs: bool,
    /// Keep hard links as hard links.
    pub keep_links: bool,
    pub threads: usize,
    /// The source is a layer: its white-outs apply, and its files may replace directories.
    pub layer: bool,
    /// Skip the contents of mounts in the tree; their mount points are copied as empty directories.
    pub one_file_system: bool,
    /// Latest allowed time, in seconds. Access times, which reading changes, become the modification times.
    pub latest: Option<i64>,
    /// A file to skip: the image itself, if the image is in the tree.
    pub skip: Option<(u64, u64)>,
    uid: Option<u32>,
    gid: Option<u32>,
    uid_map: IdMap,
    gid_map: IdMap,
    mode_map: ModeMap,
}

impl Rules {
    /// Keeps everything.
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

    /// Keeps content and types only; permissions of new files are those of the source, subject to the umask.
    pub fn none(threads: usize) -> Self {
        Self {
            keep_owner: false,
            keep_mode: false,
            keep_times: false,
            keep_xattrs: false,
            keep_links: false,
            threads,
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

    /// Adds the user's options; names of owners are looked up in a volume.
    pub fn with(mut self, args: &OwnerArgs, volume: &Volume) -> Result<Self> {
        if let Some(owner) = &args.owner {
            (self.uid, self.gid) = owner.resolve(volume).context("--owner")?;
        }
        self.uid_map = args.uid_map.clone().unwrap_or_default();
        self.gid_map = args.gid_map.clone().unwrap_or_default();
        self.mode_map = args.mode_map.clone().unwrap_or_default();
        self.keep_xattrs &= !args.no_xattrs;
        Ok(self)
    }

    /// Returns a file's attributes on the other side.
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
