//! Options of commands that copy trees: the attributes to keep and to change.

use anyhow::{Context, Result};
use clap::Args;
use extant::Volume;
use extant::mkfs::{IdMap, ModeMap};
use extant_cli_core::format::owners::OwnerSpec;
use extant_transfer::Rules;

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

impl OwnerArgs {
    /// Returns the rules of a copy that keeps all attributes except those that these options change. Names of owners are looked
    /// up in `volume`.
    pub fn rules(&self, threads: usize, volume: &Volume) -> Result<Rules> {
        let mut rules = Rules::all(threads);
        if let Some(owner) = &self.owner {
            (rules.uid, rules.gid) = owner.resolve(volume).context("--owner")?;
        }
        rules.uid_map = self.uid_map.clone().unwrap_or_default();
        rules.gid_map = self.gid_map.clone().unwrap_or_default();
        rules.mode_map = self.mode_map.clone().unwrap_or_default();
        rules.keep_xattrs &= !self.no_xattrs;
        Ok(rules)
    }
}
