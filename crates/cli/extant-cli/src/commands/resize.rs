//! `extant resize`.

use anyhow::Result;
use extant_cli_core::format::show::count;
use extant_cli_core::image::advice::about_disk;
use extant_cli_core::image::resize::{ResizeArgs, Resized, resize};
use extant_terminal::output;
use std::io::Write;

/// Grow or shrink an image
///
/// Without SIZE the volume grows to the end of its file or device. The new volume is made in memory and checked there.
/// Only then is anything written: blocks in the way are copied to free blocks, and an undo file next to the image
/// (IMAGE.extant-undo) protects the switch to the new volume. If the resize is interrupted, the next extant resize
/// rolls back the changes and starts again; extant undo also rolls them back. A file gets the length of its volume,
/// unless --undo needs the old length.
///
/// Partitions keep their size, because the partition table defines it. qcow2 disks keep theirs, too.
///
/// The server of a mounted image (given by its directory or its name) grows the image while it is used, and extends
/// the file if necessary. A crash leaves the old or the new size. A mounted image cannot shrink. Unmount an image
/// before growing it if it has no journal, or if its new descriptors need more blocks than were reserved for them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant resize disk.img 4G\n  extant resize disk.img +20%\n  extant resize -M disk.img\n  \
                  extant resize -P disk.img\n  extant resize /mnt +2G"
)]
pub struct Args {
    #[command(flatten)]
    resize: ResizeArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let done = resize(&args.resize).map_err(|e| about_disk(&args.resize.image.0.image, e))?;
    tell(args, &done)
}

fn tell(args: &Args, done: &Resized) -> Result<()> {
    if args.json {
        return output::json(done);
    }
    let mut out = output::stdout();
    if args.resize.print_min {
        writeln!(out, "{}", done.bytes)?;
        return Ok(out.flush()?);
    }
    let what = match (done.same, done.written) {
        (true, _) => "nothing to do",
        (_, true) => "resized",
        _ => "would be resized",
    };
    let moved = count(done.moved_blocks, "block moved", "blocks moved");
    let renumbered = count(
        done.renumbered_inodes,
        "inode renumbered",
        "inodes renumbered",
    );
    let (name, old, new) = (&done.image, done.old_blocks, done.new_blocks);
    let size = done.block_size;
    writeln!(
        out,
        "{name}: {what}: from {old} to {new} blocks of {size} bytes; {moved}, {renumbered}"
    )?;
    Ok(out.flush()?)
}
