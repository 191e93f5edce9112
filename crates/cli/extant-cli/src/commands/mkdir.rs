//! `extant mkdir`.

use anyhow::Result;
use extant::{Dir, Error, SetAttributes};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::mode::ModeChange;
use extant_cli_core::image::images::Images;
use std::path::Path;

/// Make directories in an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant mkdir -p disk.img:/var/lib/data")]
pub struct Args {
    /// Directories to make
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Also make parent directories; ignore existing ones
    #[arg(short, long)]
    parents: bool,
    /// Permissions, as for chmod
    #[arg(short, long, default_value = "755")]
    mode: ModeChange,
}

pub fn run(args: &Args) -> Result<()> {
    let mode = args.mode.apply(0o755, true);
    Images::each(true, &args.paths, NoMatch::IsName, |place| {
        place.needs_name()?;
        if args.parents {
            make_all(&place.dir, &place.path, mode)
        } else {
            make(&place.dir, &place.path, mode)
        }
    })
}

fn make(from: &Dir, path: &[u8], mode: u16) -> Result<()> {
    let dir = from.create_dir_with_mode(os(path), mode.into())?;
    if from.symlink_metadata(os(path))?.mode() & 0o7777 != u32::from(mode) {
        // A default ACL or the parent's set-group-id bit changed the mode; set the requested one.
        dir.set_attributes(
            ".",
            &SetAttributes {
                mode: Some(mode),
                ..Default::default()
            },
        )?;
    }
    Ok(())
}

/// Makes a directory and its missing parents.
pub fn make_all(from: &Dir, path: &[u8], mode: u16) -> Result<()> {
    let slashes = path.iter().rev().take_while(|&&b| b == b'/').count();
    let path = &path[..path.len() - slashes];
    if path.is_empty() {
        return Ok(()); // the root
    }
    let above = Path::new(os(path)).parent();
    if let Some(above) = above.filter(|above| !above.as_os_str().is_empty()) {
        let made = from.create_dir_all(above);
        // The existing file is not a directory.
        made.map_err(|e| match e {
            Error::Exists => Error::NotDirectory,
            other => other,
        })?;
    }
    match make(from, path, mode) {
        Err(e)
            if matches!(e.downcast_ref(), Some(Error::Exists))
                && from.open_dir(os(&[path, b"/"].concat())).is_ok() =>
        {
            Ok(())
        }
        other => other,
    }
}
