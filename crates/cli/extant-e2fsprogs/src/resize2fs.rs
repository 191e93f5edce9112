//! `resize2fs`: runs `extant resize`. Sizes without a unit are blocks, and the output has the lines that scripts read.

use super::call::{Answer, Answered, Called, aside, device, print};
use super::getopt::{self, Options, text};
use super::in_use::InUse;
use super::{changes, listing};
use crate::refusal::{Refusal, refuse};
use ext4_format::features::Features;
use extant_cli_core::image::resize::{ResizeArgs, Resized, SizeChange, resize};
use extant_tune::TuneOptions;
use std::ffi::OsString;
use std::path::Path;

pub(super) const OPTIONS: Options = Options::of("bfFhMPpsVd:S:z:");

pub(super) fn answer(called: &Called) -> Answered {
    let taken = &called.taken;
    let (image, size) = match &taken.operands[..] {
        [image] => (image, None),
        [image, size] => (image, Some(size)),
        _ => return Err(refuse("write a device or file, and its new size")),
    };
    let image = &device(image);
    let (mut args, mut stride, mut undo) = (ResizeArgs::of(image), None, None);
    for (letter, value) in &taken.options {
        match letter {
            'V' => return called.version(),
            'M' => args.min = true,
            'P' => args.print_min = true,
            'b' => args.wide = true,
            's' => args.narrow = true,
            'z' => undo = Some(value.as_os_str()),
            'S' => {
                let bad = || refuse("-S: no stride of a RAID: blocks, at most 65535");
                let number = text('S', value)?;
                stride = Some(number.parse::<u16>().map_err(|_| bad())?);
            }
            // An image is always checked first; the flushing and the display of resize2fs are not needed.
            'f' | 'F' | 'p' | 'd' => {}
            letter => return Err(refuse(format!("-{letter} is not supported"))),
        }
    }
    if let Some(size) = size {
        if args.min || args.print_min {
            return Err(refuse("-M and -P find the size themselves"));
        }
        args.size = Some(SizeChange::To(bytes(image, text(' ', size)?)?));
    }
    if args.wide && args.narrow {
        return Err(refuse("-b and -s contradict each other"));
    }
    let has_extents = |sb| Features::of(&sb).has_extents();
    if args.wide && listing::superblock_of(image.as_ref()).is_ok_and(|sb| !has_extents(sb)) {
        return Err(refuse("-b needs the feature extent: set it with tune2fs"));
    }
    // Printing the minimum size changes nothing, and needs no undo file.
    let undo = undo.filter(|_| !args.print_min);
    let path = Path::new(image);
    if let Some(in_use) = InUse::of(path).or_else(|| InUse::on(path)) {
        return grow(&in_use, &args, undo.is_some());
    }
    called.with_undo(image, undo, || change(&args, stride))
}

/// Resizes the volume, and then sets its stride.
fn change(args: &ResizeArgs, stride: Option<u16>) -> Answered {
    let image = &args.image.0.image;
    let done = resize(args)?;
    if let Some(stride) = stride.filter(|_| !args.print_min) {
        let options = TuneOptions {
            stride: Some(stride),
            ..TuneOptions::default()
        };
        changes::tune(image, options)?;
    }
    if !done.written && !args.print_min {
        let (new, kib) = (done.new_blocks, done.block_size / 1024);
        aside(format_args!(
            "The filesystem is already {new} ({kib}k) blocks long.  Nothing to do!\n"
        ));
        return Ok(Answer::Done(0));
    }
    print(lines(args, &done))
}

/// Grows a mounted volume with the kernel, or prints its minimum size.
fn grow(in_use: &InUse, args: &ResizeArgs, has_undo: bool) -> Answered {
    let (name, dir) = (in_use.name(), in_use.dir.display());
    let (sb, length) = in_use.look()?;
    let bad = || refuse(format!("{name}: blocks of an impossible size"));
    let block_size = sb.block_size().map(u64::from).ok_or_else(bad)?;
    let (old, kib) = (sb.blocks_count(), block_size / 1024);
    if args.print_min {
        let used = old.saturating_sub(sb.free_blocks());
        return print(format!(
            "Estimated minimum size of the filesystem: {used}\n"
        ));
    }
    if args.min || args.wide || args.narrow || has_undo {
        return Err(refuse(format!(
            "{name}: it is mounted on {dir}, and becomes larger only: unmount it first"
        )));
    }
    let new = match args.size {
        Some(SizeChange::To(bytes)) => bytes / block_size,
        _ => length / block_size,
    };
    if new == old {
        aside(format_args!(
            "The filesystem is already {new} ({kib}k) blocks long.  Nothing to do!\n"
        ));
        return Ok(Answer::Done(0));
    }
    print(format!(
        "Filesystem at {name} is mounted on {dir}; on-line resizing required\n"
    ))?;
    if new < old {
        return Err(refuse("On-line shrinking not supported"));
    }
    if new > length / block_size {
        return Err(refuse(format!(
            "the device has {} ({kib}k) blocks, and {new} are asked for",
            length / block_size
        )));
    }
    in_use.grow(new)?;
    let (now, _) = in_use.look()?;
    print(format!(
        "The filesystem on {name} is now {} ({kib}k) blocks long.\n\n",
        now.blocks_count()
    ))
}

fn lines(args: &ResizeArgs, done: &Resized) -> String {
    let (name, new, kib) = (&done.image, done.new_blocks, done.block_size / 1024);
    if args.print_min {
        return format!("Estimated minimum size of the filesystem: {new}\n");
    }
    format!(
        "Resizing the filesystem on {name} to {new} ({kib}k) blocks.\n\
         The filesystem on {name} is now {new} ({kib}k) blocks long.\n\n"
    )
}

/// Parses a size in sectors (`s`), KiB, MiB, GiB, TiB or blocks of the volume.
fn bytes(image: &OsString, size: &str) -> Result<u64, Refusal> {
    let bad = || {
        refuse(format!(
            "{size}: not a size: write a number of blocks, or a number with s, K, M, G or T"
        ))
    };
    let is_counted = size.ends_with(|c: char| c.is_ascii_hexdigit());
    let unit = if is_counted {
        let sb = listing::superblock_of(image.as_ref())?;
        sb.block_size().map(u64::from).ok_or_else(bad)?
    } else {
        1
    };
    getopt::bytes(size, unit).ok_or_else(bad)
}
