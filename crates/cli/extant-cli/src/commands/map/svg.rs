//! The picture as SVG: one path for each look, with a piece for each run of cells that look alike, so that a large
//! picture stays small. The SVG is written as plain text, because a drawing crate would write each cell separately.

use super::Shown;
use super::palette::{CellLook, Look};
use extant_cli_core::format::show::human;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Cells per row.
pub const COLUMNS: u32 = 128;
/// Approximate number of rows.
pub const ROWS: u32 = 48;

/// Width and height of a cell.
pub const CELL: (u64, u64) = (6, 10);
/// Space at the left for the group numbers.
pub const LEFT: u64 = 70;
/// Space above the cells.
pub const TOP: u64 = 34;
/// Height of a line of text.
pub const LINE: u64 = 18;

/// Number of steps of lightness.
pub const STEPS: f64 = 4.0;

/// Returns the lightness of a cell, in steps.
pub fn steps(cell: &CellLook) -> u8 {
    let steps = match cell.look {
        // Free.
        0 => STEPS,
        // Show at least one step, so that used blocks are visible.
        _ => (cell.fill * STEPS).ceil().clamp(1.0, STEPS),
    };
    steps as u8
}

/// Formats a colour for SVG.
fn colour(look: &Look) -> String {
    let [red, green, blue] = look.rgb;
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Draws the picture.
pub fn draw(shown: &Shown<'_>) -> String {
    let layout = shown.survey.picture.layout;
    let columns = usize::try_from(layout.columns).unwrap_or(1);
    let rows = shown.palette.cells.chunks(columns);
    let height = TOP + rows.len() as u64 * CELL.1;
    let legend = legend(shown, height + LINE);
    let (width, total) = (
        (LEFT + layout.columns * CELL.0 + 10).max(520),
        height + legend.1 + LINE,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let cell = human(
        layout
            .cell
            .saturating_mul(shown.volume.geometry().block_size.into()),
    );
    text(
        &mut svg,
        10,
        20,
        &format!("{}; a cell is {cell}", shown.title()),
    );
    let mut paths: BTreeMap<(usize, u8), String> = BTreeMap::new();
    for (nr, cells) in (0u64..).zip(rows) {
        let first = nr * layout.columns;
        let y = TOP + nr * CELL.1;
        let per_part = layout.rows * layout.columns;
        if first.is_multiple_of(per_part) {
            let group = first / per_part * u64::from(layout.groups);
            text(&mut svg, 10, y + CELL.1 - 1, &group.to_string());
        }
        let there = (first..)
            .zip(cells)
            .take_while(|(cell, _)| layout.blocks(*cell).is_some());
        let there: Vec<_> = there.map(|(_, cell)| (cell.look, steps(cell))).collect();
        let mut x = LEFT;
        for alike in there.chunk_by(|a, b| a == b) {
            let width = alike.len() as u64 * CELL.0;
            if let Some(&look) = alike.first() {
                let path = paths.entry(look).or_default();
                // A line in the middle of the row, as wide as the row.
                let _ = write!(path, "M{x} {}h{width}", y + CELL.1 / 2);
            }
            x += width;
        }
    }
    for ((what, steps), path) in &paths {
        let stroke = shown
            .palette
            .looks
            .get(*what)
            .map_or_else(String::new, colour);
        let opacity = f64::from(*steps) / STEPS;
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" stroke=\"{stroke}\" stroke-width=\"{}\" stroke-opacity=\"{opacity}\"/>",
            CELL.1 - 1
        );
    }
    svg += &legend.0;
    svg += "</svg>\n";
    svg
}

// Writing to a string does not fail.
fn rectangle(svg: &mut String, (x, y): (u64, u64), look: &Look) {
    let fill = colour(look);
    let _ = writeln!(
        svg,
        "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>"
    );
}

fn text(svg: &mut String, x: u64, y: u64, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(words));
}

/// Returns the legend from `y` on, and its height.
fn legend(shown: &Shown<'_>, y: u64) -> (String, u64) {
    let block = u64::from(shown.volume.geometry().block_size);
    let mut svg = String::new();
    let mut lines = 0;
    for look in shown.palette.legend() {
        let at = y + lines / 2 * LINE;
        let x = 10 + lines % 2 * 260;
        rectangle(&mut svg, (x, at - 10), look);
        let bytes = human(look.total.saturating_mul(block));
        text(&mut svg, x + 18, at, &format!("{}: {bytes}", look.name));
        lines += 1;
    }
    let at = y + lines.div_ceil(2) * LINE;
    text(&mut svg, 10, at, &shown.fragmentation());
    (svg, (lines.div_ceil(2) + 1) * LINE)
}
