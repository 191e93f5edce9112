//! `extant chown`.

use anyhow::Result;
use extant::{FileType, SetAttributes};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk};
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::owners::OwnerSpec;
use extant_cli_core::image::images::Images;
use extant_terminal::progress::Progress;

/// Change the owners of files in an image
///
/// Names are looked up in the image's own /etc/passwd and /etc/group, never in the host's.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chown -R 1000:1000 disk.img:/home/user\n  extant chown www-data: disk.img:/var/www"
)]
pub struct Args {
    /// USER:GROUP, USER or :GROUP, as names or numbers; USER: selects the user's own group
    #[arg(value_name = "OWNER")]
    owner: OwnerSpec,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Change directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'n', long)]
    no_dereference: bool,
}

pub fn run(args: &Args) -> Result<()> {
    Images::each(true, &args.paths, NoMatch::Fails, |place| {
        let (uid, gid) = args.owner.resolve(&place.volume)?;
        let set = SetAttributes {
            uid,
            gid,
            ..Default::default()
        };
        let path = &place.address.path;
        if args.recursive && place.attributes(false)?.file_type() == FileType::Directory {
            let progress = Progress::count("change");
            walk(&place.open_dir()?, path, Order::Before, |met| {
                met.parent.set_symlink_attributes(os(met.name), &set)?;
                progress.add(1);
                Ok(true)
            })?;
        }
        Ok(place.set_attributes(&set, !args.no_dereference)?)
    })
}
