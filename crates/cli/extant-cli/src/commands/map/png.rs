//! The picture as PNG, drawn like the SVG, with letters of eight by eight pixels.

use super::Shown;
use super::palette::CellLook;
use super::svg::{CELL, LEFT, LINE, STEPS, TOP, steps};
use anyhow::{Context, Result};
use extant_cli_core::format::show::human;
use font8x8::UnicodeFonts;

/// Pixels of a letter, in both directions.
const LETTER: usize = 8;
const WHITE: [u8; 3] = [255; 3];
const BLACK: [u8; 3] = [0; 3];

/// Rows of pixels, red, green and blue.
struct Canvas {
    width: usize,
    height: usize,
    bytes: Vec<u8>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Self {
            width,
            height,
            bytes: vec![WHITE[0]; width.saturating_mul(height).saturating_mul(3)],
        }
    }

    /// Fills a rectangle, clipped to the canvas.
    fn fill(&mut self, (x, y): (usize, usize), (width, height): (usize, usize), colour: [u8; 3]) {
        let end = (x + width).min(self.width);
        for row in y..(y + height).min(self.height) {
            let start = (row * self.width + x.min(end)) * 3;
            let stretch = self.bytes.get_mut(start..(row * self.width + end) * 3);
            for pixel in stretch.unwrap_or_default().chunks_exact_mut(3) {
                pixel.copy_from_slice(&colour);
            }
        }
    }

    /// Writes text that stands on a line; letters that the font lacks are question marks.
    fn text(&mut self, (x, y): (usize, usize), words: &str) {
        for (nr, letter) in words.chars().enumerate() {
            let glyph = font8x8::BASIC_FONTS.get(letter);
            let glyph = glyph.or_else(|| font8x8::LATIN_FONTS.get(letter));
            let glyph = glyph.or_else(|| font8x8::BASIC_FONTS.get('?'));
            for (row, bits) in glyph.unwrap_or_default().into_iter().enumerate() {
                for column in (0..LETTER).filter(|column| bits & (1 << column) != 0) {
                    let at = (x + nr * LETTER + column, (y + row).saturating_sub(LETTER));
                    self.fill(at, (1, 1), BLACK);
                }
            }
        }
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let size = (u32::try_from(self.width)?, u32::try_from(self.height)?);
        let mut encoder = png::Encoder::new(&mut out, size.0, size.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().context("PNG")?;
        writer.write_image_data(&self.bytes).context("PNG")?;
        writer.finish().context("PNG")?;
        Ok(out)
    }
}

/// Blends a colour with white, by the share of the cell in use.
fn faded(shown: &Shown<'_>, cell: &CellLook) -> [u8; 3] {
    let rgb = shown
        .palette
        .looks
        .get(cell.look)
        .map_or(WHITE, |look| look.rgb);
    let opacity = f64::from(steps(cell)) / STEPS;
    // A weighted mean of bytes is a byte.
    rgb.map(|part| (opacity * f64::from(part) + (1.0 - opacity) * 255.0).round() as u8)
}

/// Draws the picture. The text of title and legend determines its width.
pub fn draw(shown: &Shown<'_>) -> Result<Vec<u8>> {
    let layout = shown.survey.picture.layout;
    let block = u64::from(shown.volume.geometry().block_size);
    let cell = human(layout.cell.saturating_mul(block));
    let title = format!("{}; a cell is {cell}", shown.title());
    let legend: Vec<_> = shown.palette.legend().collect();
    let lines = legend
        .iter()
        .map(|look| format!("{}: {}", look.name, human(look.total.saturating_mul(block))));
    let lines: Vec<String> = lines.collect();
    let columns = usize::try_from(layout.columns)?;
    let rows = shown.palette.cells.len().div_ceil(columns.max(1));
    let (left, top, line) = (LEFT as usize, TOP as usize, LINE as usize);
    let (wide, high) = (CELL.0 as usize, CELL.1 as usize);
    let longest = lines.iter().map(|text| text.chars().count() + 4);
    let longest = longest
        .chain([title.chars().count() + 2])
        .max()
        .unwrap_or(0);
    let below = top + rows * high + line;
    let mut canvas = Canvas::new(
        (left + columns * wide + 10).max(longest * LETTER),
        below + (lines.len() + 1) * line,
    );
    canvas.text((10, 20), &title);
    let per_part = usize::try_from(layout.rows.saturating_mul(layout.columns))?.max(1);
    for (nr, cells) in shown.palette.cells.chunks(columns.max(1)).enumerate() {
        let (first, y) = (nr * columns, top + nr * high);
        if first.is_multiple_of(per_part) {
            let group = first / per_part * layout.groups as usize;
            canvas.text((10, y + high - 1), &group.to_string());
        }
        let there = cells.iter().enumerate();
        let there = there.take_while(|(at, _)| layout.blocks((first + at) as u64).is_some());
        for (at, cell) in there {
            let colour = faded(shown, cell);
            canvas.fill((left + at * wide, y), (wide, high - 1), colour);
        }
    }
    for (nr, (look, text)) in legend.iter().zip(&lines).enumerate() {
        let y = below + nr * line;
        canvas.fill((10, y - 10), (12, 12), look.rgb);
        canvas.text((28, y), text);
    }
    canvas.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_stays_on_the_canvas() {
        let mut canvas = Canvas::new(20, 10);
        canvas.fill((15, 5), (100, 100), [1, 2, 3]);
        canvas.fill((100, 100), (1, 1), BLACK);
        canvas.text((16, 3), "a\u{4e00}");
        let pixel = |x: usize, y: usize| canvas.bytes[(y * 20 + x) * 3..][..3].to_vec();
        assert_eq!(pixel(15, 5), [1, 2, 3]);
        assert_eq!(pixel(14, 5), WHITE);
        assert_eq!(pixel(0, 9), WHITE);
        assert!(canvas.encode().unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
    }
}
