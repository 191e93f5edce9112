//! `extant status`.

use anyhow::{Context, Result};
use clap::ValueEnum;
use extant::{PushTimes, SearchCounts};
use extant_cli_core::format::show::human;
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::control::{Client, Command, Status};
use extant_terminal::output;
use std::io::Write;
use std::path::PathBuf;

/// Show the state of a running mount: requests, memory, log, locks
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant status /mnt\n  extant status /mnt --meter on\n  extant status /mnt --locks\n  \
                  extant status /mnt --prometheus"
)]
pub struct Args {
    /// Directory that an image is mounted on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print the result as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Print as Prometheus text, with the counts of the lock meter
    #[arg(long, group = "form")]
    prometheus: bool,
    /// Print the lock meter's report
    #[arg(long, group = "form")]
    locks: bool,
    /// Print the time spent in the engine's operations
    #[arg(long, group = "form")]
    operations: bool,
    /// Switch the lock meter of the mount on or off
    #[arg(long, value_name = "on|off")]
    meter: Option<Switch>,
    /// Switch the timing of the engine's operations on or off
    #[arg(long, value_name = "on|off")]
    profiler: Option<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

pub fn run(args: &Args) -> Result<()> {
    let mounted = Mounted::at(&args.dir)?;
    let mut client = mounted.client()?;
    report(args, &mut client).with_context(|| mounted.name())
}

fn report(args: &Args, client: &mut Client) -> Result<()> {
    if let Some(meter) = args.meter {
        client.ask(Command::MeterLocks(meter == Switch::On))?;
    }
    if let Some(profiler) = args.profiler {
        client.ask(Command::MeterProfile(profiler == Switch::On))?;
    }
    let text = if args.prometheus {
        client.text(Command::Metrics)?
    } else if args.locks {
        client.text(Command::Locks)?
    } else if args.operations {
        client.text(Command::Profile)?
    } else if args.json {
        return output::json(&client.status()?);
    } else {
        readable(&client.status()?)
    };
    let mut out = output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn readable(s: &Status) -> String {
    let facts = facts(s).into_iter();
    let mut out: String = facts
        .map(|(name, value)| format!("{name:>9}  {value}\n"))
        .collect();
    out += &stages(s);
    out += &format!(
        "\n{:<16} {:>12} {:>10} {:>12} {:>10}\n",
        "request", "count", "failed", "mean us", "data"
    );
    for r in &s.requests {
        let data = match r.bytes {
            0 => "-".into(),
            bytes => human(bytes),
        };
        out += &format!(
            "{:<16} {:>12} {:>10} {:>12.1} {data:>10}\n",
            r.kind,
            r.requests,
            r.failures,
            r.average_us()
        );
    }
    out
}

/// Formats the time of pushes: median, 99th percentile and maximum.
fn spread(counts: &[u64]) -> String {
    let times = PushTimes::new(counts.to_vec());
    let [half, most, all] = [0.5, 0.99, 1.0].map(|share| times.quantile(share));
    match times.count() {
        0 => "none".into(),
        _ => format!("half within {half:?}, 99 of 100 within {most:?}, all within {all:?}"),
    }
}

/// Formats the stages of pushes in which time was spent.
fn stages(s: &Status) -> String {
    let spent: Vec<_> = s.push_stages.iter().filter(|g| g.total_ns > 0).collect();
    if spent.is_empty() {
        return String::new();
    }
    let mut out = format!("\n{:<16} {:>12}  time of a push in it\n", "stage", "in all");
    for stage in spent {
        let all = format!("{:.1} ms", stage.total_ns as f64 / 1e6);
        out += &format!("{:<16} {all:>12}  {}\n", stage.name, spread(&stage.times));
    }
    out
}

/// Returns the runs of blocks that each step of the search found.
fn found_by(found: &[u64]) -> String {
    let steps = SearchCounts::SEARCH_STEPS.iter().zip(found);
    let steps: Vec<_> = steps.map(|(step, n)| format!("{step} {n}")).collect();
    steps.join("; ")
}

/// Returns the facts about the mount as a whole, each with its name.
fn facts(s: &Status) -> Vec<(&'static str, String)> {
    let on = |on: bool| if on { "on" } else { "off" };
    let mut rows = vec![
        ("image", s.image.clone()),
        (
            "server",
            format!(
                "process {}, over {}, for {:.0} s",
                s.process, s.transport, s.uptime_seconds
            ),
        ),
        (
            "state",
            match (&s.read_only, s.frozen) {
                (Some(why), _) => format!("read-only: {why}"),
                (None, true) => "frozen".into(),
                (None, false) => "read and write".into(),
            },
        ),
        (
            "space",
            format!(
                "{} of {} free, {} of {} inodes free",
                human(s.space.free_bytes),
                human(s.space.bytes),
                s.space.free_inodes,
                s.space.inodes
            ),
        ),
        (
            "memory",
            format!(
                "{} of data, {} of it dirty; {} of metadata; {} inodes, of which the kernel knows {}",
                human(s.memory.data_bytes),
                human(s.memory.dirty_bytes),
                human(s.memory.metadata_bytes),
                s.memory.inodes,
                s.nodes_known
            ),
        ),
        (
            "log",
            format!(
                "{} transactions in {} pushes, {} written",
                s.log.commits,
                s.log.pushes,
                human(s.log.bytes)
            ),
        ),
        ("pushes", spread(&s.push_times)),
        (
            "search",
            format!(
                "{} groups considered for blocks, {} busy, {} locked in vain",
                s.search.considered, s.search.busy, s.search.failed
            ),
        ),
        ("found by", found_by(&s.search.found)),
        (
            "meters",
            format!(
                "locks {}, operations {}",
                on(s.locks_metered),
                on(s.profiled)
            ),
        ),
    ];
    if s.troubles > 0 {
        let last = s.last_trouble.as_deref().unwrap_or("");
        rows.push(("troubles", format!("{}, the last: {last}", s.troubles)));
    }
    rows
}
