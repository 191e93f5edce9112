//! `extant rm`.

use crate::address::{Address, base_name};
use crate::images::Images;
use crate::walk::{Order, walk};
use anyhow::{Result, bail};
use extant::{Error, FileType};

/// Remove files and directories of an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant rm -r disk.img:/var/cache")]
pub struct Args {
    /// What to remove
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Directories and what is in them too
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// What does not exist is no error
    #[arg(short)]
    force: bool,
    /// Empty directories too
    #[arg(short)]
    dir: bool,
}

pub fn run(args: &Args) -> Result<()> {
    Images::each(true, &args.paths, |volume, address| {
        let path = &address.path;
        if [&b""[..], b".", b".."].contains(&base_name(path)) {
            bail!("a path that ends in the root, . or .. is not removed");
        }
        let a = match volume.lstat(path) {
            Err(Error::NotFound) if args.force => return Ok(()),
            other => other?,
        };
        if a.file_type != FileType::Directory {
            return Ok(volume.unlink(path)?);
        }
        if args.recursive {
            walk(&volume.open_dir(path)?, path, Order::After, |met| {
                match met.kind {
                    FileType::Directory => met.parent.remove_dir(met.name)?,
                    _ => met.parent.unlink(met.name)?,
                }
                Ok(true)
            })?;
        } else if !args.dir {
            bail!("is a directory: use -r");
        }
        Ok(volume.remove_dir(path)?)
    })
}
