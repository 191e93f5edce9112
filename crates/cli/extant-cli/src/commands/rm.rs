//! `extant rm`.

use anyhow::{Result, bail};
use extant::{Error, FileType};
use extant_cli_core::address::advice::above;
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk};
use extant_cli_core::address::{Address, base_name, join, os};
use extant_cli_core::image::images::Images;
use extant_terminal::progress::Progress;

/// Remove files and directories of an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant rm -r disk.img:/var/cache")]
pub struct Args {
    /// Files to remove
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Remove directories and their contents recursively
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Ignore names that do not exist
    #[arg(short, long)]
    force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let otherwise = if args.force {
        NoMatch::IsNothing
    } else {
        NoMatch::Fails
    };
    Images::each(true, &args.paths, otherwise, |place| {
        place.needs_name()?;
        let (dir, path) = (&place.dir, &place.path);
        if [&b""[..], b".", b".."].contains(&base_name(path)) {
            bail!(
                "a path that ends in the root, . or .. is not removed: name what is in it, as /*"
            );
        }
        let a = match dir.symlink_metadata(os(&path)) {
            Err(Error::NotFound | Error::NotDirectory) if args.force => return Ok(()),
            other => other?,
        };
        if a.file_type() != FileType::Directory {
            return Ok(dir.remove_file(os(&path))?);
        }
        let name = join(above(path), base_name(path));
        if path.ends_with(b"/") && dir.read_link(os(&name)).is_ok() {
            bail!("symbolic link to a directory: omit the final slash to remove the link");
        }
        if args.recursive {
            let progress = Progress::count("remove");
            walk(
                &place.open_dir()?,
                &place.address.path,
                Order::After,
                |met| {
                    match met.kind {
                        FileType::Directory => met.parent.remove_dir(os(met.name))?,
                        _ => met.parent.remove_file(os(met.name))?,
                    }
                    progress.add(1);
                    Ok(true)
                },
            )?;
        } else if !args.dir {
            bail!("is a directory: use -r");
        }
        Ok(dir.remove_dir(os(&path))?)
    })
}
