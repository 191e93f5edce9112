//! `extant cp`.

use crate::address::{Location, base_name, join};
use crate::images::{self, Images};
use crate::output;
use crate::transfer::{Existing, HostSide, ImageSide, Monitor, Route, Rules, Side};
use anyhow::{Context, Result, bail, ensure};
use extant::FileType;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Copy files between the host and images, or within an image
///
/// What is new in an image belongs to user 0 and group 0 unless owners are kept.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant cp hosts disk.img:/etc/hosts\n  extant cp -a disk.img:/home backup/\n  extant cp -r a.img:/data b.img:/"
)]
pub struct Args {
    /// What to copy, and where to: a name, or a directory
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Directories and what is in them too
    #[arg(short, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owner, permissions and times
    #[arg(short)]
    preserve: bool,
    /// All of a tree: -r -p, extended attributes, ACLs and hard links too
    #[arg(short)]
    archive: bool,
    /// The last path is a new name, even if it is a directory
    #[arg(short = 'T')]
    no_target_directory: bool,
    /// Threads; 0: one for each CPU
    #[arg(long, default_value_t = 0)]
    threads: usize,
}

/// A side, and a path on it.
fn side(images: &mut Images, location: &Location) -> Result<(Box<dyn Side>, Vec<u8>)> {
    Ok(match location {
        Location::Host(path) => (
            Box::new(HostSide::new()),
            path.as_os_str().as_bytes().to_vec(),
        ),
        Location::Image(a) => (
            Box::new(ImageSide::new(&images.get(&a.image)?, &a.image)),
            a.path.clone(),
        ),
    })
}

fn rules(args: &Args, to_host: bool) -> Rules {
    let mut rules = Rules::none(args.threads);
    if args.archive || args.preserve {
        (rules.keep_mode, rules.keep_times) = (true, true);
        // Without root owners cannot be kept on the host; cp -p says nothing of it either.
        rules.keep_owner = !to_host || HostSide::new().privileged();
    }
    (rules.keep_xattrs, rules.keep_links) = (args.archive, args.archive);
    rules
}

pub fn run(args: &Args) -> Result<()> {
    let locations: Vec<Location> = args.paths.iter().cloned().map(Location::from).collect();
    let Some((to, from)) = locations.split_last() else {
        bail!("nothing to copy")
    };
    let in_image = |l: &Location| matches!(l, Location::Image(_));
    ensure!(
        locations.iter().any(in_image),
        "none of the paths is in an image: write IMAGE:/path"
    );
    let rules = rules(args, !in_image(to));
    let monitor = Monitor::new("copy");
    let all = |sources: &mut Images, targets: Option<&mut Images>| -> Result<()> {
        let (dst, to) = match targets {
            Some(targets) => side(targets, to)?,
            None => side(sources, to)?,
        };
        let there = dst.meta(&to, true).with_context(|| dst.show(&to))?;
        let into =
            !args.no_target_directory && there.is_some_and(|m| m.kind == FileType::Directory);
        ensure!(
            into || from.len() == 1,
            "{}: not a directory",
            dst.show(&to)
        );
        output::each(from, |from| {
            let (src, from) = side(sources, from)?;
            let to = if into {
                join(&to, base_name(&from))
            } else {
                to.clone()
            };
            let route = Route {
                src: &*src,
                dst: &*dst,
                rules: &rules,
                monitor: &monitor,
            };
            one(args, route, &from, &to)
        })
    };
    // The image copied to is opened for writing, the others for reading; of one image there can be only one.
    let done = match to {
        Location::Host(_) => Images::with(false, |sources| all(sources, None)),
        Location::Image(to) => {
            let id = images::identity(&to.image)?;
            let mut same = false;
            for location in from {
                if let Location::Image(a) = location {
                    same |= images::identity(&a.image)? == id;
                }
            }
            if same {
                Images::with(true, |both| all(both, None))
            } else {
                Images::with(true, |targets| {
                    Images::with(false, |sources| all(sources, Some(targets)))
                })
            }
        }
    };
    monitor.finish();
    done
}

fn one(args: &Args, route: Route<'_>, from: &[u8], to: &[u8]) -> Result<()> {
    let Route { src, dst, .. } = route;
    let follow = !args.recursive && !args.archive;
    let meta = src
        .meta(from, follow)
        .and_then(|m| m.context("no such file or directory"));
    let meta = meta.with_context(|| src.show(from))?;
    if let Some(there) = dst.meta(to, true).with_context(|| dst.show(to))? {
        let same_side = src.show(b"/") == dst.show(b"/");
        ensure!(
            !(same_side && there.id == meta.id),
            "{} and {} are the same file",
            src.show(from),
            dst.show(to)
        );
    }
    if meta.kind != FileType::Directory {
        let existing = if args.archive {
            Existing::Replace
        } else {
            Existing::Overwrite
        };
        return route.file(from, to, follow, existing);
    }
    ensure!(!follow, "{}: is a directory: use -r", src.show(from));
    if src.show(b"/") == dst.show(b"/") {
        let (outer, inner) = (join(from, b""), join(to, b""));
        let itself = inner.starts_with(&outer);
        ensure!(
            !itself,
            "{}: cannot be copied into itself, {}",
            src.show(from),
            dst.show(to)
        );
    }
    route.tree(from, to)
}
