//! `extant cat`.

use anyhow::Result;
use extant_cli_core::address::Address;
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::image::images::Images;
use extant_cli_core::image::streams;
use extant_terminal::output;
use std::io::Write;

/// Write files of an image to standard output
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant cat disk.img:/etc/passwd")]
pub struct Args {
    /// Files to write
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let done = Images::each(false, &args.paths, NoMatch::Fails, |place| {
        streams::out_of_image(place, &mut out)
    });
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
