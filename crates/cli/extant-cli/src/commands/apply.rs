//! `extant apply`.

use anyhow::{Context, Result};
use extant_cli_core::address::is_stream;
use extant_cli_core::format::show::{ShowPath, human};
use extant_cli_core::image::{images, in_place, store, streams};
use extant_cli_core::messages::advised::advised;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Write the changes of a scratch mount's overlay to its image
///
/// The overlay is left unchanged. Applying the overlay again, even after an interruption, leads to the same image.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  extant mount --scratch --keep changes.overlay disk.img /mnt\n  extant umount /mnt\n  \
                  extant apply changes.overlay disk.img"
)]
pub struct Args {
    /// File written by `mount --scratch --keep`, or - to read it from standard input
    #[arg(value_name = "OVERLAY")]
    overlay: PathBuf,
    /// Image that the overlay was made over
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    streams::no_image(&args.image)?;
    let spooled = is_stream(&args.overlay)
        .then(|| streams::spooled(&args.image))
        .transpose()?;
    let overlay = spooled.as_ref().map_or(&*args.overlay, |file| file.path());
    in_place::take_back(&args.image)?;
    let progress = Progress::wait("apply");
    let applied = if store::is_plain(&args.image) {
        extant::scratch::apply(&args.image, overlay)
    } else {
        let base = store::open(&args.image, blockdev::Access::ReadWrite)?;
        extant::scratch::apply_to(&base, overlay)
    };
    progress.done();
    let bytes = applied
        .map_err(|e| match e {
            // The error names the overlay and the rule that it breaks.
            extant::Error::Open { source, .. } if source.kind() == ErrorKind::InvalidData => {
                advised(source, "extant mount --scratch --keep FILE writes overlays")
            }
            other => images::plain(other),
        })
        .with_context(|| format!("{} to {}", args.overlay.shown(), args.image.shown()))?;
    output::summary(&format!("{} written", human(bytes)))
}
