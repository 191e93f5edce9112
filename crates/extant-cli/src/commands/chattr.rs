//! `extant chattr`.

use crate::address::{Address, os};
use crate::attr_flags::FlagChange;
use crate::images::Images;
use crate::patterns::NoMatch;
use crate::progress::Progress;
use crate::walk::{Order, walk};
use anyhow::Result;
use extant::{FileType, Metadata, SetAttributes};

/// Change the flags of files in an image
///
/// A change begins with + to add flags, - to take them away, or = to have these alone. The letters are those of chattr: a append-only,
/// A no access times, d not for dump, D directory changes at once, e mapped by extents, i immutable, j data through the journal, P inherit
/// the project, s u c t x kept for others, S writes at once, T top of a hierarchy. Flags bind who writes through a mount, not the commands
/// of this program that only change attributes.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chattr +i disk.img:/etc/machine-id\n  extant chattr -R =d disk.img:/var/cache"
)]
pub struct Args {
    /// +FLAGS, -FLAGS or =FLAGS
    #[arg(allow_hyphen_values = true)]
    change: FlagChange,
    /// Files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// The contents of directories too
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let change = |a: &Metadata| SetAttributes {
        flags: Some(args.change.apply(a.flags())),
        ..Default::default()
    };
    let has_flags = |kind| matches!(kind, FileType::Regular | FileType::Directory);
    Images::each(true, &args.paths, NoMatch::Fails, |place| {
        let a = place.attributes(true)?;
        place.set_attributes(&change(&a), true)?;
        if a.file_type() == FileType::Directory && args.recursive {
            let progress = Progress::count("change");
            walk(
                &place.open_dir()?,
                &place.address.path,
                Order::Before,
                |met| {
                    if has_flags(met.kind) {
                        let set = change(&met.parent.metadata(os(met.name))?);
                        met.parent.set_attributes(os(met.name), &set)?;
                    }
                    progress.add(1);
                    Ok(true)
                },
            )?;
        }
        Ok(())
    })
}
