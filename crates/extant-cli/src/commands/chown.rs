//! `extant chown`.

use crate::address::Address;
use crate::images::Images;
use crate::owners::OwnerSpec;
use crate::walk::{Order, walk};
use anyhow::Result;
use extant::{FileType, SetAttributes};

/// Change owners in an image
///
/// Names are those of the image's own /etc/passwd and /etc/group; the host's are not asked.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chown -R 1000:1000 disk.img:/home/user\n  extant chown www-data: disk.img:/var/www"
)]
pub struct Args {
    /// USER:GROUP, USER or :GROUP, as names or numbers; USER: for a user with their own group
    #[arg(value_name = "OWNER")]
    owner: OwnerSpec,
    /// Files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// What is in directories too
    #[arg(short = 'R')]
    recursive: bool,
    /// Symbolic links themselves, not what they lead to
    #[arg(short = 'n', long)]
    no_dereference: bool,
}

pub fn run(args: &Args) -> Result<()> {
    Images::each(true, &args.paths, |volume, address| {
        let (uid, gid) = args.owner.resolve(volume)?;
        let set = SetAttributes {
            uid,
            gid,
            ..Default::default()
        };
        let path = &address.path;
        if args.recursive && volume.lstat(path)?.file_type == FileType::Directory {
            walk(&volume.open_dir(path)?, path, Order::Before, |met| {
                met.parent.lset_attributes(met.name, &set)?;
                Ok(true)
            })?;
        }
        if args.no_dereference {
            volume.lset_attributes(path, &set)?;
        } else {
            volume.set_attributes(path, &set)?;
        }
        Ok(())
    })
}
