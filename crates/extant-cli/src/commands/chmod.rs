//! `extant chmod`.

use crate::address::Address;
use crate::images::Images;
use crate::mode::ModeChange;
use crate::walk::{Order, walk};
use anyhow::Result;
use extant::{Dir, FileType, SetAttributes};

/// Change permissions in an image
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant chmod 4755 disk.img:/bin/su\n  extant chmod -R u=rwX,go= disk.img:/root"
)]
pub struct Args {
    /// Octal, or changes as u+x,go-w
    #[arg(allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// What is in directories too
    #[arg(short = 'R')]
    recursive: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let change = |dir: &Dir, name: &[u8]| -> Result<FileType> {
        let a = dir.stat(name)?;
        let mode = args
            .mode
            .apply((a.mode & 0o7777) as u16, a.file_type == FileType::Directory);
        dir.set_attributes(
            name,
            &SetAttributes {
                mode: Some(mode),
                ..Default::default()
            },
        )?;
        Ok(a.file_type)
    };
    Images::each(true, &args.paths, |volume, address| {
        if change(volume, &address.path)? == FileType::Directory && args.recursive {
            walk(
                &volume.open_dir(&address.path)?,
                &address.path,
                Order::Before,
                |met| {
                    if met.kind != FileType::Symlink {
                        change(met.parent, met.name)?;
                    }
                    Ok(true)
                },
            )?;
        }
        Ok(())
    })
}
