//! `extant apply`.

use crate::output;
use crate::show::human;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Write the changes that a scratch mount kept to its image
///
/// The overlay stays as it is; applying it again, also after it was interrupted, leads to the same image.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant mount --scratch --keep changes.overlay disk.img /mnt\n  extant umount /mnt\n  \
                  extant apply changes.overlay disk.img"
)]
pub struct Args {
    /// File that `mount --scratch --keep` wrote
    #[arg(value_name = "OVERLAY")]
    overlay: PathBuf,
    /// The image it was made over
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    let bytes = extant::scratch::apply(&args.image, &args.overlay)
        .map_err(crate::images::plain)
        .with_context(|| format!("{} to {}", args.overlay.display(), args.image.display()))?;
    output::summary(&format!("{} written", human(bytes)))
}
