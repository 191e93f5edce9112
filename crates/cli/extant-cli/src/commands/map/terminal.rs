//! The picture as text, with or without a terminal.

use super::Shown;
use super::palette::{CellLook, Palette};
use crate::survey::FreeRuns;
use anyhow::Result;
use extant_cli_core::format::show::{count, human};
use extant_terminal::output;
use std::io::{IsTerminal, Write};

/// Approximate number of rows.
pub const ROWS: u32 = 24;
/// Width of the group numbers at the left of a row.
const LABEL: usize = 16;
/// Columns if the output is not a terminal.
const PLAIN: usize = 80;

/// Returns the number of cells in a row.
pub fn columns() -> u32 {
    let size = rustix::termios::tcgetwinsize(std::io::stdout());
    let wide = size.ok().map(|s| usize::from(s.ws_col)).filter(|&n| n > 0);
    let cells = wide.unwrap_or(PLAIN).clamp(LABEL + 8, 400) - LABEL;
    u32::try_from(cells).unwrap_or(u32::MAX)
}

/// Returns whether to use colours: only on terminals, unless the user forbids them.
pub fn coloured() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns a cell as a letter: a capital if at least half of the cell is in use.
fn letter(palette: &Palette, cell: &CellLook) -> char {
    let letter = palette.looks.get(cell.look).map_or(' ', |look| look.letter);
    match cell.fill {
        fill if fill < 0.5 => letter.to_ascii_lowercase(),
        _ => letter,
    }
}

/// Returns a cell as a shade.
fn shade(cell: &CellLook) -> char {
    match (cell.look, cell.fill) {
        // Free.
        (0, _) => '·',
        (_, fill) if fill < 0.25 => '░',
        (_, fill) if fill < 0.5 => '▒',
        (_, fill) if fill < 0.75 => '▓',
        _ => '█',
    }
}

/// Formats a row of cells.
fn row(palette: &Palette, cells: &[CellLook], colour: bool) -> String {
    if !colour {
        return cells.iter().map(|cell| letter(palette, cell)).collect();
    }
    let mut line = String::new();
    let mut last = None;
    for cell in cells {
        let now = palette.looks.get(cell.look).map_or(0, |look| look.colour);
        if last.replace(now) != Some(now) {
            line += &format!("\x1b[38;5;{now}m");
        }
        line.push(shade(cell));
    }
    if last.is_some() {
        line += "\x1b[0m";
    }
    line
}

pub fn print(shown: &Shown<'_>) -> Result<()> {
    let mut out = output::stdout();
    let survey = &shown.survey;
    let (layout, block) = (survey.picture.layout, shown.volume.geometry().block_size);
    let colour = coloured();
    let cell = layout.cell.saturating_mul(block.into());
    let blocks = count(layout.cell, "block", "blocks");
    writeln!(
        out,
        "{}; a cell is {blocks}, {}",
        shown.title(),
        human(cell)
    )?;
    let per_part = layout.rows * layout.columns;
    let columns = usize::try_from(layout.columns).unwrap_or(1);
    // Cells at the end of a part or of the volume may have no blocks.
    for (nr, cells) in (0u64..).zip(shown.palette.cells.chunks(columns)) {
        let first = nr * layout.columns;
        let there = (first..)
            .zip(cells)
            .take_while(|(cell, _)| layout.blocks(*cell).is_some());
        let there = there.count();
        if there == 0 {
            continue;
        }
        let part = first / per_part;
        let group = part * u64::from(layout.groups);
        let last = (group + u64::from(layout.groups)).min(shown.volume.geometry().groups.into());
        let label = match (first % per_part, last - group) {
            (0, 0 | 1) => format!("{group}"),
            (0, _) => format!("{group}-{}", last - 1),
            _ => String::new(),
        };
        writeln!(
            out,
            "{label:>15} {}",
            row(&shown.palette, &cells[..there], colour)
        )?;
    }
    writeln!(out)?;
    legend(&mut out, shown, colour)?;
    writeln!(out, "\n{}", shown.fragmentation())?;
    free_runs(&mut out, survey.free_runs(), block.into())?;
    Ok(out.flush()?)
}

fn legend(out: &mut impl Write, shown: &Shown<'_>, colour: bool) -> Result<()> {
    let block = u64::from(shown.volume.geometry().block_size);
    let blocks = shown.volume.geometry().blocks_count.max(1);
    for look in shown.palette.legend() {
        let total = look.total;
        let mark = match (colour, look.letter) {
            (false, letter) => letter.to_string(),
            (true, '.') => "\x1b[38;5;240m·\x1b[0m".into(),
            (true, _) => format!("\x1b[38;5;{}m█\x1b[0m", look.colour),
        };
        let share = 100.0 * total as f64 / blocks as f64;
        let bytes = human(total.saturating_mul(block));
        writeln!(
            out,
            "  {mark} {:27} {total:>12} {bytes:>7} {share:>5.1}%",
            look.name
        )?;
    }
    Ok(())
}

/// Widest bar of the histogram.
const BAR: u64 = 30;

fn free_runs(out: &mut impl Write, runs: &[FreeRuns], block: u64) -> Result<()> {
    let Some(most) = runs.iter().map(|r| r.blocks).max() else {
        return Ok(writeln!(out, "nothing is free")?);
    };
    writeln!(out, "free runs by length:")?;
    for r in runs.iter().skip_while(|r| r.runs == 0) {
        let bar = (u128::from(r.blocks) * u128::from(BAR)).div_ceil(u128::from(most.max(1)));
        let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
        let from = human(r.at_least.saturating_mul(block));
        let bytes = human(r.blocks.saturating_mul(block));
        writeln!(
            out,
            "  from {from:>6} {:>10} runs {bytes:>7}  {bar}",
            r.runs
        )?;
    }
    Ok(())
}
