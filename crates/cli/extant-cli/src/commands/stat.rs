//! `extant stat`.

use super::ls::{Listed, facts};
use anyhow::Result;
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::{Address, Rooted};
use extant_cli_core::format::{show, times};
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use std::io::Write;

/// Show the attributes of files in an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant stat disk.img:/etc/passwd")]
pub struct Args {
    /// Files to show; a bare IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Rooted>,
    /// Follow symbolic links
    #[arg(short = 'L', long = "dereference")]
    follow: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let paths: Vec<Address> = args.paths.iter().map(|Rooted(a)| a.clone()).collect();
    let done = Images::each(false, &paths, NoMatch::Fails, |place| {
        let a = place.attributes(args.follow)?;
        let f = facts(&a, || place.read_link())?;
        if args.json {
            found.push(Listed {
                path: place.address.path[..].into(),
                facts: f,
            });
            return Ok(());
        }
        let target = f
            .target
            .as_ref()
            .map(|t| format!(" -> {}", show::show(t.as_bytes())))
            .unwrap_or_default();
        writeln!(out, "  File: {}{target}", place.address)?;
        write!(
            out,
            "  Size: {:<14} Held: {:<14} Type: {}",
            f.size, f.allocated, f.kind
        )?;
        match f.device {
            Some((major, minor)) => writeln!(out, " {major}, {minor}")?,
            None => writeln!(out)?,
        }
        writeln!(
            out,
            " Inode: {:<14} Links: {:<13} Generation: {}",
            f.ino,
            f.links,
            a.generation()
        )?;
        let mode = show::mode(a.file_type(), a.mode());
        writeln!(
            out,
            "  Mode: {} {mode}   Uid: {}   Gid: {}   Flags: {:#x}",
            f.mode,
            f.uid,
            f.gid,
            a.flags()
        )?;
        for (what, time) in [
            ("Access", a.atime()),
            ("Modify", a.mtime()),
            ("Change", a.ctime()),
            (" Birth", a.crtime()),
        ] {
            writeln!(out, "{what}: {}", times::local_ns(time))?;
        }
        Ok(())
    });
    output::end(done, out, args.json, &found)
}
