//! `filefrag` and `freefrag` of debugfs: the runs of files, and of free blocks.

use super::dirs::{Entry, live_entries};
use super::queried_image::{Inode, QueriedImage, number};
use super::words::{operand, options};
use anyhow::{Result, bail, ensure};
use extant_cli_core::format::show::show;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fmt::Write as _;

/// Least widths of logical and physical block numbers.
const LOGICAL: usize = 7;
const PHYSICAL: usize = 8;

/// A run of blocks that are contiguous in the file and on the device.
struct Run {
    logical: u64,
    physical: u64,
    len: u64,
    /// The block after the run before it, unless there is a hole between the two.
    expected: Option<u64>,
}

/// Answers `filefrag [-d] [-v] [-r] [FILE]`: a file, or the files in a directory; with `-d` the directory itself, and with
/// `-r` also the files in the directories below it, level by level, each directory once.
pub(super) fn of_files(asked: &QueriedImage<'_>, words: &[&[u8]]) -> Result<String> {
    let taken = options("dvr", words)?;
    let here = OsString::from(".");
    let word = match &taken.operands[..] {
        [] => operand(&here),
        [word] => operand(word),
        _ => bail!("Usage: filefrag [-dvr] file"),
    };
    let verbose = taken.has('v');
    let mut text = String::new();
    let inode = asked.inode(word)?;
    if !inode.is_directory() || taken.has('d') {
        one(asked, &inode, &show(word), verbose, &mut text)?;
        text.push('\n');
        return Ok(text);
    }
    // A damaged image may have a directory below itself.
    let mut listed = BTreeSet::from([inode.ino]);
    let mut waiting = VecDeque::from([(inode.ino, word.to_vec())]);
    while let Some((dir, path)) = waiting.pop_front() {
        for Entry { ino, name } in live_entries(asked, dir)? {
            let path = [&path[..], b"/", &name].concat();
            let inode = asked.numbered(ino)?;
            one(asked, &inode, &show(&path), verbose, &mut text)?;
            if taken.has('r') && inode.is_directory() && listed.insert(ino) {
                waiting.push_back((ino, path));
            }
        }
    }
    text.push('\n');
    Ok(text)
}

/// Adds the number of runs of a file; with `verbose`, all its runs.
fn one(
    asked: &QueriedImage<'_>,
    inode: &Inode,
    name: &str,
    verbose: bool,
    text: &mut String,
) -> Result<()> {
    let word = format!("<{}>", inode.ino);
    let runs = runs(asked, word.as_bytes())?;
    if verbose {
        let stat = asked.rows("inode", &[b"stat", word.as_bytes()])?;
        let sectors = stat.first().map_or(0, |row| number(row, "sectors"));
        let block_size = asked.block_size();
        let digits = |n: u64| n.checked_ilog10().unwrap_or(0) as usize + 1;
        let logical = digits(inode.size().div_ceil(block_size)).max(LOGICAL);
        let physical = digits(asked.sb.blocks_count()).max(PHYSICAL);
        let _ = writeln!(
            text,
            "\n{name} has {} block(s), i_size is {}",
            sectors / (block_size / 512),
            inode.size()
        );
        let _ = writeln!(
            text,
            "{:>4} {:>logical$} {:>physical$} {:>physical$} {:>logical$}",
            "ext", "logical", "physical", "expected", "length"
        );
        for (nth, run) in runs.iter().enumerate() {
            let expected = run
                .expected
                .map_or(String::new(), |block| block.to_string());
            let _ = writeln!(
                text,
                "{nth:4} {:logical$} {:physical$} {expected:>physical$} {:logical$}",
                run.logical, run.physical, run.len
            );
        }
    }
    let kind = if inode.is_directory() { " (dir)" } else { "" };
    let _ = writeln!(text, "{name}: {} contiguous extents{kind}", runs.len());
    Ok(())
}

/// Returns the runs of a file, where runs of the mapping that continue each other are one.
fn runs(asked: &QueriedImage<'_>, word: &[u8]) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    for step in asked.steps(word)?.iter().filter(|step| step.is_run()) {
        let (logical, physical, len) = (step.logical, step.physical, step.len);
        let end = |start: u64, run: &Run| start.saturating_add(run.len);
        let mut expected = None;
        if let Some(last) = runs.last_mut()
            && end(last.logical, last) == logical
        {
            let next = end(last.physical, last);
            if next == physical {
                last.len = last.len.saturating_add(len);
                continue;
            }
            expected = Some(next);
        }
        runs.push(Run {
            logical,
            physical,
            len,
            expected,
        });
    }
    Ok(runs)
}

/// Answers `freefrag`: the runs of free blocks by their length, in the layout of e2freefrag.
pub(super) fn of_free_blocks(asked: &QueriedImage<'_>, words: &[&[u8]]) -> Result<String> {
    let taken = options("c:h", words)?;
    ensure!(
        !taken.has('c'),
        "-c is not supported: extant inspect freefrag lists the free runs by their length"
    );
    ensure!(
        !taken.has('h') && taken.operands.is_empty(),
        "usage: freefrag"
    );
    let records = asked.records(&[b"freefrag"])?;
    let of = |kind| records.iter().filter(move |record| record.kind == kind);
    let Some(all) = of("free-space").next() else {
        bail!("the bitmaps cannot be read");
    };
    let block_size = asked.block_size();
    let kib = |blocks: u64| blocks.saturating_mul(block_size) / 1024;
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    // As in e2freefrag, the count of free blocks is that of the superblock, and the runs are those of the bitmaps.
    let (blocks, free) = (number(all, "blocks"), asked.sb.free_blocks());
    let mut text = format!(
        "Device: {}\nBlocksize: {block_size} bytes\nTotal blocks: {blocks}\nFree blocks: {free} ({:.1}%)\n\n",
        asked.image.display(),
        percent(free, blocks)
    );
    let _ = writeln!(
        text,
        "Min. free extent: {} KB \nMax. free extent: {} KB\nAvg. free extent: {} KB\nNum. free extent: {}",
        kib(number(all, "shortest")),
        kib(number(all, "longest")),
        kib(number(all, "average")),
        number(all, "free_runs")
    );
    text.push_str("\nHISTOGRAM OF FREE EXTENT SIZES:\n");
    text.push_str("Extent Size Range :  Free extents   Free Blocks  Percent\n");
    for row in of("free-runs") {
        let from = kib(number(row, "from"));
        let to = from.saturating_mul(2);
        // Both ends have the unit of the first.
        let power = from.checked_ilog2().unwrap_or(0) / 10;
        let unit = ["K", "M", "G", "T"].get(power as usize).unwrap_or(&"P");
        let (from, to) = (from >> (10 * power), to >> (10 * power));
        let blocks = number(row, "blocks");
        let _ = writeln!(
            text,
            "{from:5}{unit}...{to:5}{unit}-  :  {:12}  {blocks:12}  {:6.2}%",
            number(row, "runs"),
            percent(blocks, free)
        );
    }
    Ok(text)
}
