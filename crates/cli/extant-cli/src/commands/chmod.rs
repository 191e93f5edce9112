//! `extant chmod`.

use anyhow::{Result, bail};
use extant::{FileType, Metadata, SetAttributes};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk};
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::mode::ModeChange;
use extant_cli_core::image::images::Images;
use extant_terminal::progress::Progress;

/// Change permissions in an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chmod 4755 disk.img:/bin/su\n  extant chmod -R u=rwX,go= disk.img:/root"
)]
pub struct Args {
    /// Octal mode, or changes such as u+x,go-w
    #[arg(allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files to change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Change directories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let change = |a: &Metadata| SetAttributes {
        mode: Some(args.mode.apply(
            (a.mode() & 0o7777) as u16,
            a.file_type() == FileType::Directory,
        )),
        ..Default::default()
    };
    Images::each(true, &args.paths, NoMatch::Fails, |place| {
        let a = place.attributes(true)?;
        if place.node().is_some() && a.file_type() == FileType::Symlink {
            bail!("a symbolic link has no permissions of its own");
        }
        place.set_attributes(&change(&a), true)?;
        if a.file_type() == FileType::Directory && args.recursive {
            let path = &place.address.path;
            let progress = Progress::count("change");
            walk(&place.open_dir()?, path, Order::Before, |met| {
                if met.kind != FileType::Symlink {
                    let set = change(&met.parent.metadata(os(met.name))?);
                    met.parent.set_attributes(os(met.name), &set)?;
                }
                progress.add(1);
                Ok(true)
            })?;
        }
        Ok(())
    })
}
