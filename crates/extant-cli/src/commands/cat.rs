//! `extant cat`.

use crate::address::Address;
use crate::images::Images;
use crate::output;
use anyhow::Result;
use extant::OpenFlags;
use std::io::Write;

/// Write files of an image to standard output
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant cat disk.img:/etc/passwd")]
pub struct Args {
    /// Files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let done = Images::each(false, &args.paths, |volume, address| {
        let file = volume.open(&address.path, OpenFlags::READ, 0)?;
        let mut buf = vec![0; 1 << 20];
        loop {
            crate::interrupt::check()?;
            match file.read(&mut buf)? {
                0 => return Ok(()),
                n => out.write_all(&buf[..n])?,
            }
        }
    });
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
