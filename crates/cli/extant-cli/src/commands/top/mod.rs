//! `extant top`.

mod demo;
mod report;
mod screen;
mod source;
mod view;

use anyhow::{Result, bail, ensure};
use extant_terminal::output;
use report::Report;
use source::{Samples, Source};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Watch a mount: requests, log, pushes, locks, slots
///
/// Keys: q or ^C quits, s sorts the requests by rate, time or name, space pauses the display, m switches the server's
/// lock meter on or off, h shows the keys. A lock meter that was switched on here is switched off at the end.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant top /mnt\n  extant top --demo\n  extant top --once --json --interval 5 /mnt"
)]
pub struct Args {
    /// Directory that an image is mounted on
    #[arg(value_name = "DIR", required_unless_present = "demo")]
    dir: Option<PathBuf>,
    /// Watch threads that change a volume in memory
    #[arg(long, conflicts_with = "dir")]
    demo: bool,
    /// Print the rates over one interval and exit
    #[arg(long)]
    once: bool,
    /// Print the result as JSON
    #[arg(long, requires = "once")]
    json: bool,
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Switch the server's lock meter on while this runs
    #[arg(long)]
    meter: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.05..=3600.0).contains(&n) => Ok(Duration::from_secs_f64(n)),
        _ => Err("a number of seconds from 0.05 to 3600".into()),
    }
}

pub fn run(args: &Args) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    if !args.once && !terminal {
        bail!("top draws on a terminal; --once prints the rates over one interval");
    }
    let mut source = match &args.dir {
        Some(dir) => Source::mount(dir)?,
        None => Source::demo()?,
    };
    let first = source.status()?;
    let mut switched = args.meter && !first.locks_metered;
    if switched {
        source.meter(true)?;
    }
    let samples = Samples::start(source, args.interval)?;
    let shown = if args.once {
        once(args, &samples)
    } else {
        let metered = first.locks_metered || switched;
        let mut here = false;
        let shown = screen::run(&samples, metered, &mut here);
        switched |= here;
        shown
    };
    // Restore the meter's state; a server that is gone has no meter.
    if switched {
        samples.meter(false);
    }
    samples.end();
    shown
}

/// Takes two samples, and prints the events between them.
fn once(args: &Args, samples: &Samples) -> Result<()> {
    let before = samples.next()?;
    let after = samples.next()?;
    let report = Report::between(&before, &before, &after);
    ensure!(report.interval_seconds > 0.0, "the clock stands still");
    if args.json {
        output::json(&report)?;
    } else {
        let mut out = output::stdout();
        out.write_all(view::text(&report, 100, 40).as_bytes())?;
        out.flush()?;
    }
    Ok(())
}
