//! `extant touch`.

use anyhow::{Context, Result};
use extant::{Error, OpenOptions, SetAttributes, Timestamp};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::{clock, times};
use extant_cli_core::image::images::Images;
use std::time::{SystemTime, UNIX_EPOCH};

/// Make empty files in an image, or set the times of existing files
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant touch disk.img:/etc/stamp\n  extant touch -d '2026-01-31 12:00' disk.img:/etc/stamp"
)]
pub struct Args {
    /// Files to make or change
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Use this time instead of now: 2026-01-31, '2026-01-31 12:34:56' (in the zone of TZ or of the system),
    /// 2026-01-31T12:34:56Z, or seconds since 1970
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, value_parser = times::parse)]
    date: Option<Timestamp>,
    /// Do not make files
    #[arg(short = 'c', long)]
    no_create: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let time = match (args.date, clock::fixed()?) {
        (Some(time), _) => time,
        (None, Some(seconds)) => Timestamp::new(seconds, 0),
        (None, None) => {
            let now = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .context("the clock is before 1970")?;
            Timestamp::new(i64::try_from(now.as_secs())?, now.subsec_nanos())
        }
    };
    let set = SetAttributes {
        atime: Some(time.into()),
        mtime: Some(time.into()),
        ..Default::default()
    };
    Images::each(true, &args.paths, NoMatch::IsName, |place| {
        match place.attributes(true) {
            Err(Error::NotFound) if args.no_create => return Ok(()),
            Err(Error::NotFound) => {
                let options = OpenOptions::new().write(true).create(true);
                options.open(&place.dir, os(&place.path))?;
            }
            other => {
                other?;
            }
        }
        Ok(place.set_attributes(&set, true)?)
    })
}
