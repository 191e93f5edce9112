//! `extant mv`.

use anyhow::{Context, Result, bail};
use extant::{Credentials, Error, FileType, RenameMode};
use extant_cli_core::address::advice::{about, about_new, protection};
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::{Address, Location, base_name, join, os};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::{identity, images};
use extant_cli_core::messages::advised::advised;
use extant_terminal::output;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Move or rename files within an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant mv disk.img:/a disk.img:/b\n  extant mv disk.img:/a disk.img:/b disk.img:/dir"
)]
pub struct Args {
    /// Sources, and the destination: a new name, or a directory
    #[arg(value_name = "IMAGE:/PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Do not replace existing files
    #[arg(short, long)]
    no_clobber: bool,
    /// Exchange the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
    /// Treat the last path as a new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let inside = |path: &OsString| match Location::from(path.clone()) {
        Location::Image(address) => Ok(address),
        Location::Host(path) => bail!(
            "{}: not in an image: use cp -a, then remove the source",
            path.shown()
        ),
    };
    let paths: Vec<Address> = args.paths.iter().map(inside).collect::<Result<_>>()?;
    let Some((to, from)) = paths.split_last() else {
        bail!("nothing to move")
    };
    let id = identity::identity(&to.image)?;
    for address in from {
        if identity::identity(&address.image)? != id {
            bail!("{address}: in another image than {to}: use cp -a, then rm -r");
        }
    }
    let mode = match (args.no_clobber, args.exchange) {
        (true, _) => RenameMode::NoReplace,
        (_, true) => RenameMode::Exchange,
        _ => RenameMode::Replace,
    };
    images::change(&to.image, |volume| {
        let target = ImagePlace::of(volume, to).with_context(|| to.to_string())?;
        let into = !args.no_target_directory
            && !args.exchange
            && target
                .attributes(true)
                .is_ok_and(|a| a.file_type() == FileType::Directory);
        if !into {
            target.needs_name().with_context(|| to.to_string())?;
        }
        let mut found = Vec::new();
        let expanded = output::each(from, |from| {
            found.extend(expand(volume, from, NoMatch::Fails)?);
            Ok(())
        });
        if from.len().max(found.len()) > 1 && !into {
            bail!("{to}: not a directory, and there are several to move");
        }
        let mut moved_to = HashSet::new();
        let done = output::each(&found, |from| {
            let source = ImagePlace::of(volume, from).and_then(|p| p.needs_name().map(|()| p));
            let source = source.with_context(|| from.to_string())?;
            let (new, shown) = if into {
                let name = base_name(&from.path);
                (join(&target.path, name), join(&to.path, name))
            } else {
                (target.path.clone(), to.path.clone())
            };
            if moved_to.contains(&new) {
                return Err(advised(
                    format_args!("{from}: {} is another source, moved there", to.at(&shown)),
                    "move it by itself, with a new name",
                ));
            }
            if mode == RenameMode::Replace && is_one_file(&source, &target, &new) {
                bail!("{from} and {} are the same file", to.at(&shown));
            }
            let by_number = [from, to].iter().any(|a| a.number().is_some());
            let moved = if by_number {
                let (old, new) = (source.in_parent(&source.path)?, target.in_parent(&new)?);
                let who = Credentials::root();
                old.0.rename(&who, old.1, &new.0, new.1, mode)
            } else {
                volume.rename_with(os(&source.path), os(&new), mode)
            };
            let both = || format!("{from} to {}", to.at(&shown));
            moved.map_err(|e| explained(e, (&source, from), &target, both))?;
            moved_to.insert(new);
            Ok(())
        });
        done.and(expanded)
    })
}

/// Returns whether a new name already leads to the source, or is that of the target of its link. A rename would do nothing, or
/// the link would replace its target. A link may replace another name of its target.
fn is_one_file(source: &ImagePlace, target: &ImagePlace, new: &[u8]) -> bool {
    let Ok(there) = target.dir.symlink_metadata(os(new)) else {
        return false;
    };
    if source
        .attributes(false)
        .is_ok_and(|a| a.ino() == there.ino())
    {
        return true;
    }
    source.dir.canonicalize(os(&source.path)).is_ok_and(|real| {
        let real = source.resolved_name(real.as_os_str().as_bytes());
        real.is_some() && real == target.resolved_name(new)
    })
}

/// Returns the error of a move, with advice.
fn explained(
    error: Error,
    (source, from): (&ImagePlace, &Address),
    target: &ImagePlace,
    both: impl Fn() -> String,
) -> anyhow::Error {
    match error {
        e if source.attributes(false).is_err() => about(source, e.into()).context(from.to_string()),
        e @ Error::NotFound => about_new(target, e.into()).context(both()),
        e @ Error::Exists => advised(e, "without -n it is replaced").context(both()),
        e @ Error::NotPermitted => match protection(source).or_else(|| protection(target)) {
            Some(advice) => advised(e, advice).context(both()),
            None => anyhow::Error::new(e).context(both()),
        },
        e => anyhow::Error::new(e).context(both()),
    }
}
