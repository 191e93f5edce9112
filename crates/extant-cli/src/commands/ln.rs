//! `extant ln`.

use crate::address::{Address, Location, base_name, join};
use crate::advice::{about, about_new, advised};
use crate::images;
use crate::place::Place;
use crate::show::show;
use anyhow::{Context, Result, bail, ensure};
use extant::{Credentials, Error, FileType};
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
        Err(args.target.as_bytes())
    } else {
        match Location::from(args.target.clone()) {
            Location::Image(a) if images::identity(&a.image)? == images::identity(&link.image)? => {
                Ok(a)
            }
            Location::Image(a) => bail!("{a}: in another image than {link}: use cp -a"),
            Location::Host(path) => bail!(
                "{}: not in an image: write IMAGE:/path, or -s for a symbolic link",
                path.display()
            ),
        }
    };
    images::change(&link.image, |volume| {
        let to = Place::of(volume, link).with_context(|| link.to_string())?;
        let into = to
            .attributes(true)
            .is_ok_and(|a| a.file_type == FileType::Directory);
        let (path, shown) = if into {
            let name = base_name(match &target {
                Ok(address) => &address.path,
                Err(text) => text,
            });
            ensure!(
                !matches!(&target, Ok(address) if address.path.ends_with(b">") && address.number().is_some()),
                "{}: a directory, and {} is no name: say that of the link",
                link,
                show(name)
            );
            (join(&to.path, name), join(&link.path, name))
        } else {
            to.needs_name().with_context(|| link.to_string())?;
            (to.path.clone(), link.path.clone())
        };
        let from = match &target {
            Ok(address) => Ok(Place::of(volume, address).with_context(|| address.to_string())?),
            Err(text) => Err(*text),
        };
        let make = || make(&from, &to, &path);
        let made = match make() {
            Err(Error::Exists) if args.force => to.dir.unlink(&path).and_then(|()| make()),
            other => other,
        };
        let there = || link.at(&shown).to_string();
        match (made, &from) {
            (Err(e), Ok(from)) if from.attributes(false).is_err() => {
                Err(about(from, e.into())).with_context(|| from.address.to_string())
            }
            (Err(e @ Error::NotPermitted), Ok(from)) => {
                Err(advised(e, "a directory has one name: use -s"))
                    .with_context(|| from.address.to_string())
            }
            (Err(e @ Error::NotFound), _) => Err(about_new(&to, e.into())).with_context(there),
            (Err(e @ Error::Exists), _) => {
                Err(advised(e, "-f replaces what is no directory")).with_context(there)
            }
            (other, _) => other.with_context(there),
        }
    })
}

/// Makes one link: another name of what is there, or a symbolic link with a text.
fn make(from: &Result<Place, &[u8]>, to: &Place, path: &[u8]) -> extant::Result<()> {
    match from {
        Err(text) => to.dir.symlink(text, path),
        Ok(from) => match from.node() {
            None => to.dir.link_from(&from.dir, &from.path, path),
            Some(node) => {
                let (above, name) = to.in_parent(path)?;
                node.link(&Credentials::root(), &above, name)
            }
        },
    }
}
