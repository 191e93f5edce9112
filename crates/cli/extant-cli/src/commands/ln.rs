//! `extant ln`.

use anyhow::{Context, Result, bail, ensure};
use extant::{Credentials, Error, FileType};
use extant_cli_core::address::advice::{about, about_new, above};
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::{Address, Location, base_name, join, os};
use extant_cli_core::format::show::{ShowPath, show};
use extant_cli_core::image::{identity, images};
use extant_cli_core::messages::advised::advised;
use extant_terminal::output;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Make links in an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant ln disk.img:/bin/busybox disk.img:/bin/sh\n  extant ln -s busybox disk.img:/bin/sh"
)]
pub struct Args {
    /// Target of the link: a file of the image, or with -s any text; several if the links go into a directory
    #[arg(value_name = "TARGET", required = true)]
    targets: Vec<OsString>,
    /// Name of the link, or a directory to make it in
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    link: Address,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file, but not a directory
    #[arg(short, long)]
    force: bool,
}

/// The target of a link.
enum Target {
    /// A file of the image.
    There(Address),
    /// Any text.
    Text(Vec<u8>),
}

impl Target {
    fn name(&self) -> &[u8] {
        base_name(match self {
            Self::There(address) => &address.path,
            Self::Text(text) => text,
        })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let link = &args.link;
    let id = identity::identity(&link.image)?;
    let target = |word: &OsString| match Location::from(word.clone()) {
        _ if args.symbolic => Ok(Target::Text(word.as_bytes().to_vec())),
        Location::Image(a) if identity::identity(&a.image)? == id => Ok(Target::There(a)),
        Location::Image(a) => bail!("{a}: in another image than {link}: use cp -a"),
        Location::Host(path) => bail!(
            "{}: not in an image: write IMAGE:/path, or -s for a symbolic link",
            path.shown()
        ),
    };
    let targets: Vec<Target> = args.targets.iter().map(target).collect::<Result<_>>()?;
    images::change(&link.image, |volume| {
        let to = ImagePlace::of(volume, link).with_context(|| link.to_string())?;
        let into = to
            .attributes(true)
            .is_ok_and(|a| a.file_type() == FileType::Directory);
        if !into {
            to.needs_name().with_context(|| link.to_string())?;
        }
        let mut found = Vec::new();
        let expanded = output::each(targets, |target| {
            match target {
                Target::There(a) => {
                    let all = expand(volume, &a, NoMatch::Fails)?;
                    found.extend(all.into_iter().map(Target::There));
                }
                text => found.push(text),
            }
            Ok(())
        });
        ensure!(
            into || args.targets.len().max(found.len()) == 1,
            "{link}: not a directory, and there are several to link"
        );
        let done = output::each(&found, |target| one(args, target, &to, into));
        done.and(expanded)
    })
}

/// Makes one link, with the given name, or with its target's name in a directory.
fn one(args: &Args, target: &Target, to: &ImagePlace, into: bool) -> Result<()> {
    let (path, shown) = if into {
        let name = target.name();
        let number =
            matches!(target, Target::There(a) if a.number().is_some_and(|n| n.1.is_empty()));
        ensure!(
            !number,
            "{}: a directory, and {} is not a name: say that of the link",
            to.address,
            show(name)
        );
        (join(&to.path, name), join(&to.address.path, name))
    } else {
        (to.path.clone(), to.address.path.clone())
    };
    let from = match target {
        Target::There(address) => {
            Ok(ImagePlace::of(&to.volume, address).with_context(|| address.to_string())?)
        }
        Target::Text(text) => Err(&text[..]),
    };
    let there = || to.address.at(&shown).to_string();
    let made = match make(&from, to, &path) {
        Err(Error::Exists) if args.force => {
            if is_own_name(&from, to, &path) {
                let from = from.map_or_else(show, |from| from.address.to_string());
                bail!("{from} and {} are the same file", there());
            }
            replace(&from, to, &path)
        }
        other => other,
    };
    match (made, &from) {
        (Err(e), Ok(from)) if from.attributes(false).is_err() => {
            Err(about(from, e.into())).with_context(|| from.address.to_string())
        }
        (Err(e @ Error::NotPermitted), Ok(from)) => {
            Err(advised(e, "a directory has one name: use -s"))
                .with_context(|| from.address.to_string())
        }
        (Err(e @ Error::NotFound), _) => Err(about_new(to, e.into())).with_context(there),
        (Err(e @ Error::Exists), _) => Err(advised(e, "use -f to replace it")).with_context(there),
        (other, _) => other.with_context(there),
    }
}

/// Returns whether the target of a link is the file that the link would replace, under the same name.
fn is_own_name(from: &Result<ImagePlace, &[u8]>, to: &ImagePlace, path: &[u8]) -> bool {
    let joined;
    let target = match from {
        Ok(from) => from.resolved_name(&from.path),
        Err(text) if text.starts_with(b"/") => to.resolved_name(text),
        Err(text) => {
            joined = join(above(path), text);
            to.resolved_name(&joined)
        }
    };
    target.is_some() && target == to.resolved_name(path)
}

/// Replaces a file by a link. The file stays if that fails.
fn replace(from: &Result<ImagePlace, &[u8]>, to: &ImagePlace, path: &[u8]) -> extant::Result<()> {
    let there = to.dir.symlink_metadata(os(path))?.ino();
    if matches!(from, Ok(from) if from.attributes(false)?.ino() == there) {
        return Ok(());
    }
    let mut number = 0;
    let spare = loop {
        let name = format!(".ln{number}");
        let spare = join(above(path), name.as_bytes());
        match make(from, to, &spare) {
            Err(Error::Exists) => number += 1,
            made => break made.map(|()| spare)?,
        }
    };
    let moved = to.dir.rename(os(&spare), os(path));
    moved.inspect_err(|_| drop(to.dir.remove_file(os(&spare))))
}

/// Makes one link: a hard link to an existing file, or a symbolic link with a text.
fn make(from: &Result<ImagePlace, &[u8]>, to: &ImagePlace, path: &[u8]) -> extant::Result<()> {
    match from {
        Err(text) => to.dir.symlink(os(text), os(path)),
        Ok(from) => match from.node() {
            None => to.dir.hard_link_from(&from.dir, os(&from.path), os(path)),
            Some(node) => {
                let (above, name) = to.in_parent(path)?;
                node.link(&Credentials::root(), &above, name)
            }
        },
    }
}
