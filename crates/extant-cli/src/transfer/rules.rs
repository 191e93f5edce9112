//! What is kept on the way, and what is changed.

use super::Meta;
use anyhow::{Context, Result, bail};
use clap::Args;
use extant::mkfs::{IdMap, ModeMap};

/// Options about owners and permissions, the same wherever trees move.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Owners and permissions")]
pub struct OwnerArgs {
    /// Owner of every file, in place of the source's: UID:GID, UID or :GID
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: Option<(Option<u32>, Option<u32>)>,
    /// Translate owners by ranges: FROM:TO[:COUNT], several with commas between
    #[arg(long, value_name = "RANGES")]
    pub uid_map: Option<IdMap>,
    /// Translate groups by ranges, likewise
    #[arg(long, value_name = "RANGES")]
    pub gid_map: Option<IdMap>,
    /// Change permissions as chmod does, D for directories, F for the rest: D0755,Fgo-w
    #[arg(long, value_name = "CHANGES")]
    pub mode_map: Option<ModeMap>,
    /// Leave extended attributes and ACLs behind
    #[arg(long)]
    pub no_xattrs: bool,
}

/// `UID:GID`, `UID` or `:GID`.
pub fn owner(text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let number = |part: &str| -> Result<Option<u32>> {
        if part.is_empty() {
            return Ok(None);
        }
        part.parse()
            .map(Some)
            .with_context(|| format!("{part:?} is no number of a user or group"))
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    match (number(uid)?, number(gid)?) {
        (None, None) => bail!("write UID:GID, UID or :GID"),
        both => Ok(both),
    }
}

/// What a move keeps and changes.
#[derive(Clone, Debug)]
pub struct Rules {
    pub keep_owner: bool,
    pub keep_mode: bool,
    pub keep_times: bool,
    pub keep_xattrs: bool,
    /// Several names of one file stay names of one file.
    pub keep_links: bool,
    pub threads: usize,
    /// The source is a layer: its white-outs count, and it replaces directories by other things.
    pub layer: bool,
    /// What is mounted in the tree stays behind; the mount points come, empty.
    pub one_file_system: bool,
    /// A file that is left out: the image itself, if it is in the tree.
    pub skip: Option<(u64, u64)>,
    uid: Option<u32>,
    gid: Option<u32>,
    uid_map: IdMap,
    gid_map: IdMap,
    mode_map: ModeMap,
}

impl Rules {
    /// Everything is kept.
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

    /// Content and types only; permissions of new files are as of the source, not forced.
    pub fn none(threads: usize) -> Self {
        let threads = if threads == 0 {
            std::thread::available_parallelism().map_or(1, usize::from)
        } else {
            threads
        };
        Self {
            keep_owner: false,
            keep_mode: false,
            keep_times: false,
            keep_xattrs: false,
            keep_links: false,
            threads,
            layer: false,
            one_file_system: false,
            skip: None,
            uid: None,
            gid: None,
            uid_map: IdMap::default(),
            gid_map: IdMap::default(),
            mode_map: ModeMap::default(),
        }
    }

    /// With the user's wishes.
    pub fn with(mut self, args: &OwnerArgs) -> Self {
        (self.uid, self.gid) = args.owner.unwrap_or_default();
        self.uid_map = args.uid_map.clone().unwrap_or_default();
        self.gid_map = args.gid_map.clone().unwrap_or_default();
        self.mode_map = args.mode_map.clone().unwrap_or_default();
        self.keep_xattrs &= !args.no_xattrs;
        self
    }

    /// What a file is to be on the other side.
    pub fn adjust(&self, mut meta: Meta) -> Meta {
        meta.uid = self.uid.unwrap_or_else(|| self.uid_map.map(meta.uid));
        meta.gid = self.gid.unwrap_or_else(|| self.gid_map.map(meta.gid));
        meta.mode = self.mode_map.map(meta.kind.mode_bits() | meta.mode) & 0o7777;
        meta
    }
}
