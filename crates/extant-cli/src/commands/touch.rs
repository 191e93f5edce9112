//! `extant touch`.

use crate::address::Address;
use crate::images::Images;
use anyhow::{Context, Result};
use extant::{Error, OpenFlags, SetAttributes, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

/// Make empty files in an image, or set the times of what is there
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant touch -d 1700000000 disk.img:/etc/stamp")]
pub struct Args {
    /// Files
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Seconds since 1970, instead of now
    #[arg(short, value_name = "SECONDS", allow_negative_numbers = true)]
    date: Option<i64>,
    /// Make nothing
    #[arg(short = 'c')]
    no_create: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let time = match args.date {
        Some(secs) => Timestamp::new(secs, 0),
        None => {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .context("the clock is before 1970")?;
            Timestamp::new(i64::try_from(now.as_secs())?, now.subsec_nanos())
        }
    };
    let set = SetAttributes {
        atime: Some(time),
        mtime: Some(time),
        ..Default::default()
    };
    Images::each(true, &args.paths, |volume, address| {
        match volume.stat(&address.path) {
            Err(Error::NotFound) if args.no_create => return Ok(()),
            Err(Error::NotFound) => {
                volume.open(&address.path, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?;
            }
            other => {
                other?;
            }
        }
        Ok(volume.set_attributes(&address.path, &set)?)
    })
}
