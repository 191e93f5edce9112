//! `extant chown`.

use crate::address::Address;
use crate::images::Images;
use crate::transfer::owner;
use crate::walk::{Order, walk};
use anyhow::Result;
use extant::{FileType, SetAttributes};

/// Change owners in an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant chown -R 1000:1000 disk.img:/home/user")]
pub struct Args {
    /// UID:GID, UID or :GID, as numbers
    #[arg(value_name = "UID:GID", value_parser = owner)]
    owner: (Option<u32>, Option<u32>),
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
    let (uid, gid) = args.owner;
    let set = SetAttributes {
        uid,
        gid,
        ..Default::default()
    };
    Images::each(true, &args.paths, |volume, address| {
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
