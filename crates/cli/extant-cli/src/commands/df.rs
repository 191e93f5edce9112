//! `extant df`.

use anyhow::Result;
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{HostPath, human};
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;

/// Show the used and free space of images
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Example:\n  extant df -h disk.img"
)]
pub struct Args {
    /// Images to show
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<Rooted>,
    /// Show sizes in powers of 1024: 1.5G
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Show inodes instead of bytes
    #[arg(short)]
    inodes: bool,
    /// Print the result as JSON, in bytes
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    image: HostPath,
    size: u64,
    used: u64,
    available: u64,
    free: u64,
    inodes: u64,
    inodes_used: u64,
    inodes_free: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    let done = Images::with(false, |images| {
        output::each(&args.images, |Rooted(address)| {
            let s = images.get(&address.image)?.statfs()?;
            let bytes = |blocks: u64| blocks.saturating_mul(s.block_size.into());
            rows.push(Row {
                image: HostPath::from(&*address.image),
                size: bytes(s.blocks),
                used: bytes(s.blocks.saturating_sub(s.free_blocks)),
                available: bytes(s.available_blocks),
                free: bytes(s.free_blocks),
                inodes: s.inodes,
                inodes_used: s.inodes.saturating_sub(s.free_inodes),
                inodes_free: s.free_inodes,
            });
            Ok(())
        })
    });
    if args.json {
        return done.and(output::json(&rows));
    }
    if rows.is_empty() {
        return done;
    }
    let number = |n: u64| match (args.inodes, args.human) {
        (_, true) => human(n),
        (true, false) => n.to_string(),
        (false, false) => n.div_ceil(1024).to_string(),
    };
    let unit = match (args.inodes, args.human) {
        (true, _) => "Inodes",
        (false, true) => "Size",
        (false, false) => "1K-blocks",
    };
    let head = if args.inodes {
        ["IUsed", "IFree", "IUse%"]
    } else {
        ["Used", "Available", "Use%"]
    };
    let width = rows
        .iter()
        .map(|r| r.image.to_string().chars().count())
        .max()
        .unwrap_or(0)
        .max(5);
    let mut out = output::stdout();
    writeln!(
        out,
        "{:width$} {unit:>12} {:>12} {:>12} {:>5}",
        "Image", head[0], head[1], head[2]
    )?;
    for row in &rows {
        let (total, used, available) = if args.inodes {
            (row.inodes, row.inodes_used, row.inodes_free)
        } else {
            (row.size, row.used, row.available)
        };
        // As in df: the share of the blocks available to users other than root, rounded up.
        let percent = match used.saturating_add(available) {
            0 => "-".into(),
            all => format!("{}%", (u128::from(used) * 100).div_ceil(all.into())),
        };
        let [total, used, available] = [total, used, available].map(number);
        writeln!(
            out,
            "{:width$} {total:>12} {used:>12} {available:>12} {percent:>5}",
            row.image
        )?;
    }
    out.flush()?;
    done
}
