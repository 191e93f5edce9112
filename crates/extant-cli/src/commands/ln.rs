//! `extant ln`.

use crate::address::{Address, Location, base_name, join};
use crate::images;
use anyhow::{Context, Result, bail};
use extant::{Error, FileType};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Make links in an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant ln disk.img:/bin/busybox disk.img:/bin/sh\n  extant ln -s busybox disk.img:/bin/sh"
)]
pub struct Args {
    /// What the link leads to: a file of the image, or with -s any text
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// The link: a new name, or a directory to make it in
    #[arg(value_name = "IMAGE:/PATH")]
    link: Address,
    /// A symbolic link
    #[arg(short)]
    symbolic: bool,
    /// Replace what has the name, if it is no directory
    #[arg(short)]
    force: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let link = &args.link;
    let target = if args.symbolic {
        args.target.as_bytes().to_vec()
    } else {
        match Location::from(args.target.clone()) {
            Location::Image(a) if images::identity(&a.image)? == images::identity(&link.image)? => {
                a.path
            }
            Location::Image(a) => bail!("{a}: in another image than {link}"),
            Location::Host(path) => bail!(
                "{}: write IMAGE:/path, or -s for a symbolic link",
                path.display()
            ),
        }
    };
    images::change(&link.image, |volume| {
        let into = volume
            .stat(&link.path)
            .is_ok_and(|a| a.file_type == FileType::Directory);
        let path = if into {
            join(&link.path, base_name(&target))
        } else {
            link.path.clone()
        };
        let make = || {
            if args.symbolic {
                volume.symlink(&target, &path)
            } else {
                volume.link(&target, &path)
            }
        };
        let made = match make() {
            Err(Error::Exists) if args.force => volume.unlink(&path).and_then(|()| make()),
            other => other,
        };
        made.with_context(|| link.at(&path).to_string())
    })
}
