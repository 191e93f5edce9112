//! `extant mv`.

use crate::address::{Address, Location, base_name, join};
use crate::images;
use crate::output;
use anyhow::{Context, Result, bail};
use extant::{FileType, RenameMode};
use std::ffi::OsString;

/// Move or rename files within an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant mv disk.img:/a disk.img:/b\n  extant mv disk.img:/a disk.img:/b disk.img:/dir"
)]
pub struct Args {
    /// What to move, and where to: a new name, or a directory
    #[arg(value_name = "IMAGE:/PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Replace nothing
    #[arg(short)]
    no_clobber: bool,
    /// Swap the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// The last path is a new name, even if it is a directory
    #[arg(short = 'T')]
    no_target_directory: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let inside = |path: &OsString| match Location::from(path.clone()) {
        Location::Image(address) => Ok(address),
        Location::Host(path) => bail!(
            "{}: not in an image: use cp -a, then remove the source",
            path.display()
        ),
    };
    let paths: Vec<Address> = args.paths.iter().map(inside).collect::<Result<_>>()?;
    let Some((to, from)) = paths.split_last() else {
        bail!("nothing to move")
    };
    let id = images::identity(&to.image)?;
    for address in from {
        if images::identity(&address.image)? != id {
            bail!("{address}: in another image than {to}: use cp -a, then rm -r");
        }
    }
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    images::change(&to.image, |volume| {
        let into = !args.no_target_directory
            && !args.exchange
            && volume
                .stat(&to.path)
                .is_ok_and(|a| a.file_type == FileType::Directory);
        if from.len() > 1 && !into {
            bail!("{to}: not a directory");
        }
        output::each(from, |from| {
            let new = if into {
                join(&to.path, base_name(&from.path))
            } else {
                to.path.clone()
            };
            volume
                .rename(&from.path, &new, mode)
                .with_context(|| format!("{from} to {}", to.at(&new)))
        })
    })
}
