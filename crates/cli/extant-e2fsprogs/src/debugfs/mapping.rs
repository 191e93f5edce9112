//! Mappings of inodes in the layout of debugfs.

use super::queried_image::{QueriedImage, bytes, number};
use super::words::{operand, options};
use anyhow::{Result, bail};
use extant_check::inspect::Record;
use extant_cli_core::format::show::show;
use std::fmt::Write as _;

impl QueriedImage<'_> {
    /// Returns the nodes and runs of a mapping, with each node's depth below the inode.
    pub fn steps(&self, word: &[u8]) -> Result<Vec<Step>> {
        let path = self.path(word);
        let rows = self.rows("extent", &[b"extents", &path])?;
        let step = |row: &Record| Step {
            height: match bytes(row, "state") {
                b"node" => Some(number(row, "height")),
                _ => None,
            },
            logical: number(row, "logical"),
            physical: number(row, "block"),
            len: number(row, "length"),
            unwritten: bytes(row, "state") == b"unwritten",
        };
        Ok(rows.iter().map(step).collect())
    }

    /// Answers `dump_extents [-n] [-l] FILE`: the nodes and the runs, or only one of the two.
    pub fn extents(&self, words: &[&[u8]]) -> Result<String> {
        let taken = options("nl", words)?;
        let [word] = &taken.operands[..] else {
            bail!("Usage: dump_extents [-n] [-l] file");
        };
        let word = operand(word);
        let inode = self.inode(word)?;
        if inode.number("i_flags") & 0x80000 == 0 {
            bail!("{}: does not uses extent block maps", show(word));
        }
        let steps = self.steps(word)?;
        let digits = |n: u64| n.checked_ilog10().unwrap_or(0) as usize + 1;
        let block_size = self.block_size();
        let blocks = inode.size().div_ceil(block_size);
        let logical = digits(blocks).max(5);
        let physical = digits(self.sb.blocks_count()).max(5);
        let mut text = format!(
            "Level Entries {:>lw$} {:>pw$} Length Flags\n",
            "Logical",
            "Physical",
            lw = logical * 2 + 3,
            pw = physical * 2 + 3
        );
        // Both options together exclude nothing.
        let both = taken.has('n') && taken.has('l');
        let (nodes, leaves) = (both || !taken.has('l'), both || !taken.has('n'));
        let deepest = deepest(&steps);
        for (step, standing) in steps.iter().zip(standings(&steps, deepest, blocks)) {
            let Standing {
                level,
                nth,
                count,
                end,
            } = standing;
            if (step.height.is_some() && !nodes) || (step.height.is_none() && !leaves) {
                continue;
            }
            let _ = write!(text, "{level:2}/{deepest:2} {nth:3}/{count:3} ");
            let (first, at) = (step.logical, step.physical);
            if step.height.is_some() {
                let len = end.saturating_sub(first);
                let last = end.saturating_sub(1);
                let pad = physical + 3;
                let _ = writeln!(
                    text,
                    "{first:logical$} - {last:logical$} {at:physical$}{:pad$} {len:6}",
                    ""
                );
            } else {
                let (last, behind) = (first + step.len.max(1) - 1, at + step.len.max(1) - 1);
                let uninit = if step.unwritten { "Uninit" } else { "" };
                let _ = writeln!(
                    text,
                    "{first:logical$} - {last:logical$} {at:physical$} - {behind:physical$} {:6} {uninit}",
                    step.len
                );
            }
        }
        Ok(text)
    }
}

/// Returns the number of node levels below the inode.
pub(super) fn deepest(steps: &[Step]) -> u64 {
    let heights = steps.iter().filter_map(|step| step.height);
    heights.max().unwrap_or(0)
}

/// A node or a run of a mapping.
pub(super) struct Step {
    /// The height of a node; `None` for a run.
    height: Option<u64>,
    pub logical: u64,
    pub physical: u64,
    pub len: u64,
    unwritten: bool,
}

impl Step {
    /// Returns whether the step is a run of blocks, and not a node.
    pub const fn is_run(&self) -> bool {
        self.height.is_none()
    }

    /// Formats the step as part of a list; `deepest` is the depth of a tree of extents.
    fn shown(&self, deepest: Option<u64>) -> String {
        let (first, at) = (self.logical, self.physical);
        match (self.height, deepest) {
            (Some(height), Some(deepest)) => {
                format!("(ETB{}):{at}", deepest.saturating_sub(height))
            }
            (Some(1), None) => format!("(IND):{at}"),
            (Some(2), None) => format!("(DIND):{at}"),
            (Some(_), None) => format!("(TIND):{at}"),
            (None, _) => {
                let u = if self.unwritten { "[u]" } else { "" };
                match self.len {
                    0 | 1 => format!("({first}{u}):{at}"),
                    len => format!(
                        "({first}-{}{u}):{at}-{}",
                        first + len - 1,
                        at.saturating_add(len - 1)
                    ),
                }
            }
        }
    }
}

/// Position of a step in the tree.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// Number of levels above it.
    level: usize,
    /// Its position among the steps in the same node, and their count.
    nth: u64,
    count: u64,
    /// First logical block after its range.
    end: u64,
}

/// Returns the position of each step in a tree with `deepest` levels of nodes, for a file of `blocks` blocks.
fn standings(steps: &[Step], deepest: u64, blocks: u64) -> Vec<Standing> {
    let level_of = |step: &Step| deepest.saturating_sub(step.height.unwrap_or(0)) as usize;
    let levels = deepest as usize + 1;
    // The current node on each level, and the number of entries of each node.
    let (mut open, mut counts) = (vec![None; levels], Vec::new());
    let mut found: Vec<(Standing, usize)> = Vec::new();
    for step in steps {
        let level = level_of(step);
        let mut standing = Standing {
            level,
            ..Standing::default()
        };
        open.iter_mut()
            .skip(level + 1)
            .for_each(|node| *node = None);
        let Some(node) = open.get_mut(level) else {
            continue;
        };
        let node = *node.get_or_insert_with(|| {
            counts.push(0);
            counts.len() - 1
        });
        if let Some(count) = counts.get_mut(node) {
            *count += 1;
            standing.nth = *count;
        }
        found.push((standing, node));
    }
    let mut behind = vec![blocks; levels];
    for ((standing, node), step) in found.iter_mut().zip(steps).rev() {
        standing.count = counts.get(*node).copied().unwrap_or(0);
        standing.end = behind.get(standing.level).copied().unwrap_or(blocks);
        let below = behind.iter_mut().skip(standing.level);
        below.for_each(|end| *end = step.logical);
    }
    found.into_iter().map(|(standing, _)| standing).collect()
}

/// Formats a mapping as one line; `deepest` is the depth of a tree of extents.
pub(super) fn shown(steps: &[Step], deepest: Option<u64>) -> String {
    let parts: Vec<String> = steps.iter().map(|step| step.shown(deepest)).collect();
    parts.join(", ")
}
