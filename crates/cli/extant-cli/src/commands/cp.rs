//! `extant cp`.

use super::cp_checks as checks;
use crate::transfer::{self, Monitor, side_at};
use anyhow::{Context, Result, bail, ensure};
use extant::FileType;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::is_stream;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::{Location, join};
use extant_cli_core::format::clock;
use extant_cli_core::image::images::Images;
use extant_cli_core::image::{identity, store, streams};
use extant_cli_core::messages::advised::advised;
use extant_terminal::output;
use extant_transfer::{Existing, HostSide, Route, Rules, Side};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Copy files between the host and images, or within an image
///
/// New files in an image belong to user 0 and group 0 unless owners are kept. -a keeps owners, permissions, times,
/// extended attributes, ACLs, hard links within a source, holes, devices and symbolic links. Any user can do that in
/// an image. On the host, users other than root own the files that they copy out, without set-id bits, and a warning
/// names the devices and attributes that are skipped. -p keeps only owners, permissions and times. Patterns (*, ?,
/// [...]) in paths of images are expanded inside the image. Standard input provides only data.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant cp hosts disk.img:/etc/hosts\n  extant cp -a disk.img:/home backup/\n  extant cp -r a.img:/data b.img:/\n  \
    date | extant cp - disk.img:/etc/stamp"
)]
pub struct Args {
    /// Sources, and the destination: a name or a directory. - is standard input or standard output
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Copy directories recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep owner, permissions and times
    #[arg(short)]
    preserve: bool,
    /// Copy whole trees: implies -r and -p, and keeps extended attributes, ACLs and hard links; replaces existing
    /// files
    #[arg(short, long)]
    archive: bool,
    /// Treat the last path as a new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Write blocks of zeros into an image, which otherwise become holes
    #[arg(long)]
    keep_zeros: bool,
    /// Number of threads [0: the number of CPUs]
    #[arg(long, default_value_t = 0, value_parser = store::threads_given)]
    threads: usize,
}

/// Returns a side, and a path on that side.
fn side(images: &mut Images, location: &Location) -> Result<(Box<dyn Side>, Vec<u8>)> {
    Ok(match location {
        Location::Host(path) => (
            Box::new(HostSide::new()),
            path.as_os_str().as_bytes().to_vec(),
        ),
        Location::Image(a) => {
            let place = ImagePlace::of(&images.get(&a.image)?, a).with_context(|| a.to_string())?;
            (Box::new(side_at(&place)), place.path)
        }
    })
}

fn rules(args: &Args, locations: &[Location], epoch: Option<i64>) -> Rules {
    let to_host = matches!(locations.last(), Some(Location::Host(_)));
    let images = locations.iter().filter_map(|location| match location {
        Location::Image(address) => Some(address.image.as_path()),
        Location::Host(_) => None,
    });
    // Several threads would allocate numbers and blocks in an order that differs from run to run.
    let threads = match (args.threads, epoch) {
        (0, Some(_)) if !to_host => 1,
        (threads, _) => store::threads(threads, images),
    };
    let mut rules = Rules::none(threads);
    rules.latest = epoch.filter(|_| !to_host);
    rules.keep_zeros = args.keep_zeros;
    if args.archive || args.preserve {
        (rules.keep_mode, rules.keep_times) = (true, true);
        // Only root can keep owners on the host; cp -p does not report that either.
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
    if let Some(done) = streamed(args, from, to) {
        return done;
    }
    let in_image = |l: &Location| matches!(l, Location::Image(_));
    ensure!(
        locations.iter().any(in_image),
        "none of the paths is in an image: write {}",
        locations
            .iter()
            .find_map(checks::root_of)
            .unwrap_or("IMAGE:/path".into())
    );
    let job = Job {
        args,
        from,
        to,
        rules: rules(args, &locations, clock::source_date_epoch()?),
        monitor: Monitor::new("copy"),
    };
    let done = job.run();
    job.monitor.finish();
    done
}

/// The sources, the target and the rules of a copy.
struct Job<'a> {
    args: &'a Args,
    from: &'a [Location],
    to: &'a Location,
    rules: Rules,
    monitor: Monitor,
}

impl Job<'_> {
    /// Runs the copy. Opens the destination image for writing and the others for reading; one image cannot be opened
    /// twice.
    fn run(&self) -> Result<()> {
        let Location::Image(to) = self.to else {
            return Images::with(false, |sources| self.copy(sources, None));
        };
        let id = identity::identity(&to.image)?;
        let mut same = false;
        for location in self.from {
            if let Location::Image(a) = location {
                same |= identity::identity(&a.image)?.file == id.file;
            }
        }
        if same {
            return Images::with(true, |both| self.copy(both, None));
        }
        Images::with(true, |targets| {
            Images::with(false, |sources| self.copy(sources, Some(targets)))
        })
    }

    /// Copies all sources to an image of `targets`, or of `sources` if `targets` is `None`.
    fn copy(&self, sources: &mut Images, targets: Option<&mut Images>) -> Result<()> {
        let (dst, to) = match targets {
            Some(targets) => side(targets, self.to)?,
            None => side(sources, self.to)?,
        };
        checks::has_place(&*dst, &to)?;
        let there = dst.meta(&to, true).with_context(|| dst.show(&to))?;
        let into =
            !self.args.no_target_directory && there.is_some_and(|m| m.kind == FileType::Directory);
        let (found, expanded) = expanded(sources, self.from);
        ensure!(
            into || self.from.len().max(found.len()) == 1,
            "{}: not a directory, and there are several to copy",
            dst.show(&to)
        );
        if let Some(bytes) = total(sources, &found) {
            self.monitor.expect(bytes);
        }
        let mut made = HashSet::new();
        let done = output::each(&found, |from| {
            let (src, from) = side(sources, from)?;
            let to = if into {
                join(&to, checks::new_name(&*src, &from)?)
            } else {
                to.clone()
            };
            let route = Route {
                src: &*src,
                dst: &*dst,
                rules: &self.rules,
                monitor: &self.monitor,
            };
            one(self.args, route, &from, &to, made.contains(&to))?;
            made.insert(to);
            Ok(())
        });
        done.and(expanded)
    }
}

/// Expands patterns in the sources; the result reports whether every pattern had a match.
fn expanded(images: &mut Images, from: &[Location]) -> (Vec<Location>, Result<()>) {
    let mut found = Vec::new();
    let done = output::each(from, |from| {
        match from {
            Location::Image(a) => {
                let volume = images.get(&a.image)?;
                let all = expand(&volume, a, NoMatch::Fails)?;
                found.extend(all.into_iter().map(Location::Image));
            }
            host => found.push(host.clone()),
        }
        Ok(())
    });
    (found, done)
}

/// Copies to or from a standard stream, if an operand names one.
fn streamed(args: &Args, from: &[Location], to: &Location) -> Option<Result<()>> {
    let is_stream = |l: &Location| matches!(l, Location::Host(path) if is_stream(path));
    if !from.iter().chain([to]).any(is_stream) {
        return None;
    }
    let copy = || match (from, to) {
        ([Location::Image(from)], to) if is_stream(to) => {
            let mut out = output::stdout();
            let done = Images::each(false, std::slice::from_ref(from), NoMatch::Fails, |place| {
                if place.attributes(true)?.file_type() == FileType::Directory {
                    bail!(
                        "is a directory: extant export {} - writes an archive",
                        place.address
                    );
                }
                streams::out_of_image(place, &mut out)
            });
            output::end(done, out, false, &())
        }
        ([from], Location::Image(to)) if is_stream(from) => {
            Images::each(true, std::slice::from_ref(to), NoMatch::IsName, |place| {
                let there = place.attributes(true);
                if there.is_ok_and(|a| a.file_type() == FileType::Directory)
                    && !args.no_target_directory
                {
                    bail!(
                        "is a directory, and standard input has no name: write {}",
                        place.address.at(&join(&place.address.path, b"NAME"))
                    );
                }
                streams::into_image(place)
            })
        }
        _ => bail!(
            "-: standard input or output is one side of a copy, and one path of an image the other"
        ),
    };
    Some(copy())
}

/// Returns the number of bytes to copy, if all sources are plain files.
fn total(images: &mut Images, from: &[Location]) -> Option<u64> {
    let mut bytes = 0u64;
    for location in from {
        let (side, path) = side(images, location).ok()?;
        let meta = side.meta(&path, true).ok()??;
        if meta.kind != FileType::Regular {
            return None;
        }
        bytes = bytes.saturating_add(meta.size);
    }
    Some(bytes).filter(|bytes| *bytes > 0)
}

/// Copies one source. `is_made`: another source was copied to the same name.
fn one(args: &Args, route: Route<'_>, from: &[u8], to: &[u8], is_made: bool) -> Result<()> {
    let Route { src, dst, .. } = route;
    let follow = !args.recursive && !args.archive;
    let meta = src.meta(from, follow).with_context(|| src.show(from))?;
    let meta = meta.ok_or_else(|| transfer::nowhere(src, from))?;
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
        if is_made {
            return Err(advised(
                format_args!(
                    "{}: {} is the copy of another source",
                    src.show(from),
                    dst.show(to)
                ),
                "copy it by itself, with a new name",
            ));
        }
        let existing = if args.archive {
            Existing::Replace
        } else {
            Existing::Overwrite
        };
        return route.file(from, to, follow, existing);
    }
    ensure!(!follow, "{}: is a directory: use -r", src.show(from));
    if src.show(b"/") == dst.show(b"/") {
        checks::not_into_itself(&src.show(from), meta.id, (dst, to))?;
    }
    route.tree(from, to)
}
