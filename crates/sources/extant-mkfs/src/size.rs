//! Computes the size of a volume for its content, and the layout of that size.

use super::directory::{least_blocks, shape_of};
use super::error::{MkfsError, Result};
use super::options::MkfsOptions;
use super::plan::{Failure, Plan, logical_ranges, lost_found, orphan_file_blocks, plan};
use super::tree::Tree;
use super::xattrs::XattrPlan;
use ext4_format::extent::MAX_INIT_LEN;
use ext4_format::features::RoCompat;
use ext4_format::fold;
use ext4_format::geometry::Geometry;
use ext4_format::layout::{Inodes, Layout, LayoutParams};
use ext4_format::mapping::Run;
use ext4_format::mapping::{address_blocks, nodes_for};

/// A computed size is a multiple of this, or of a sixteenth of it if that is more than a hundredth of the size.
const ROUND: u64 = 1 << 20;
/// Sizes that are searched for are multiples of this.
const PAGE: u64 = 4096;
/// The smallest volume without a given size: it has room for a journal.
const SMALLEST: u64 = 2 << 20;

/// Space that the content takes, at any size of the volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Blocks of data, directories, attributes and maps.
    blocks: u64,
    /// Inodes, reserved ones included.
    inodes: u64,
}

impl Needs {
    /// Counts for a geometry's block size and features.
    pub fn of(tree: &Tree, geo: &Geometry) -> Result<Self> {
        let bs = geo.block_size;
        let xattrs = XattrPlan::new(geo, tree)?;
        let mut blocks = xattrs.count_blocks(tree.inodes.iter().map(|i| i.xattrs));
        let lost_found = lost_found(tree);
        for (d, dir) in (0..).zip(&tree.dirs) {
            let least = least_blocks(geo, lost_found == Some(dir.inode));
            let n = shape_of(geo, tree.names_of(d), least).blocks;
            blocks += u64::from(n) + map_blocks(geo, &[(0, n)]);
        }
        for inode in &tree.inodes {
            let ranges = logical_ranges(inode, bs);
            let data: u64 = ranges.iter().map(|r| u64::from(r.1)).sum();
            blocks += data + map_blocks(geo, &ranges);
        }
        // Adds nine reserved inodes and that of the orphan file; the root and lost+found are in the tree.
        Ok(Self {
            blocks,
            inodes: tree.inodes.len() as u64 + 10,
        })
    }
}

/// Returns the maximum of blocks for the map of these logical ranges.
fn map_blocks(geo: &Geometry, ranges: &[(u32, u32)]) -> u64 {
    let runs = ranges.iter().map(|&(logical, len)| Run {
        logical,
        len,
        physical: 0,
    });
    if !geo.features.has_extents() {
        return address_blocks(&runs.collect::<Vec<_>>(), geo.block_size).into();
    }
    // A stretch may be cut at every group; and the first and last group it touches count as two.
    let piece = u64::from(MAX_INIT_LEN.min(geo.blocks_per_group / 2));
    let pieces = |len: u32| match u64::from(len) {
        n if n <= 64 => 1,
        n => n.div_ceil(piece) + 1,
    };
    nodes_for(ranges.iter().map(|r| pieces(r.1)).sum(), geo.block_size).into()
}

/// The input of a plan: options and the time that counts as now.
pub(super) struct Sizer<'a> {
    pub options: &'a MkfsOptions,
    pub time: i64,
    pub tree: &'a Tree,
}

impl Sizer<'_> {
    /// Returns the layout of a volume of `size` bytes that has enough inodes; with `slack`, some more than the
    /// content needs, in the proportion of the space that must stay free.
    fn layout(&self, size: u64, needs: &Needs, slack: bool) -> Result<Layout> {
        let mut params = self.options.layout_params(size, self.time)?;
        let mut layout = self.finish(&params)?;
        let have = u64::from(layout.geometry.inodes_count);
        let wanted = if slack {
            let free = self.free_part(needs.inodes);
            needs.inodes + free + 16
        } else {
            needs.inodes + 1
        };
        if have < wanted || self.options.is_tight() {
            if self.options.inodes.is_some() {
                if have < needs.inodes + 1 {
                    return Err(MkfsError::TooFewInodes {
                        given: layout.geometry.inodes_count,
                        needed: needs.inodes + 1,
                    });
                }
            } else {
                params.inodes = Inodes::Count(u32::try_from(wanted).map_err(|_| {
                    MkfsError::Options("the content needs more than 2^32 inodes".into())
                })?);
                layout = self.finish(&params)?;
            }
        }
        Ok(layout)
    }

    /// Creates a layout, and enters the options that do not affect the layout.
    fn finish(&self, params: &LayoutParams) -> Result<Layout> {
        let mut params = params.clone();
        if params.features.has_resize_inode() && params.block_size >= 4096 {
            // The resize inode itself is a file of more than 2 GiB, then.
            params.features.ro_compat |= RoCompat::LARGE_FILE;
        }
        if self.options.inodes.is_none() {
            even_groups(&mut params);
        }
        let mut layout = Layout::new(&params)?;
        let version = self.options.hash_version;
        let sb = &mut layout.superblock;
        sb.def_hash_version = version.stored();
        sb.errors.set(self.options.errors);
        sb.default_mount_opts.set(self.options.mount_options);
        if params.features.has_casefold() {
            sb.encoding.set(fold::UTF8_12_1); // the only one there is
            let strict = u16::from(self.options.strict_names);
            sb.encoding_flags.set(strict * fold::STRICT);
        }
        sb.flags.set(if version.is_unsigned() {
            ext4_format::superblock::FLAG_UNSIGNED_HASH
        } else {
            ext4_format::superblock::FLAG_SIGNED_HASH
        });
        self.options.values.enter(sb)?;
        layout.geometry = Geometry::new(sb)?;
        Ok(layout)
    }

    /// Returns a geometry with the block size and the features of the new volume.
    pub fn sample(&self) -> Result<Geometry> {
        let params = self
            .options
            .layout_params(self.options.size.unwrap_or(1 << 30), self.time)?;
        match self.finish(&params) {
            Ok(layout) => Ok(layout.geometry),
            // The size may be impossible; this geometry serves to find the right size.
            Err(e) => {
                let mut params = params;
                params.blocks_count = params.blocks_count.max(1 << 16);
                params.journal_blocks = None;
                self.finish(&params).map(|l| l.geometry).map_err(|_| e)
            }
        }
    }

    /// Returns the number of blocks free for the content.
    fn room(layout: &Layout) -> u64 {
        let geo = &layout.geometry;
        let mut taken = u64::from(layout.journal_blocks);
        taken += map_blocks(geo, &[(0, layout.journal_blocks)]);
        if geo.features.has_orphan_file() {
            taken += u64::from(orphan_file_blocks(layout)) + 16;
        }
        taken += u64::from(geo.features.has_resize_inode());
        (geo.blocks_count - layout.overhead).saturating_sub(taken)
    }

    /// Returns the free space to add to `used` bytes so that the wanted part of the volume stays free.
    fn free_part(&self, used: u64) -> u64 {
        let free = self.options.free_percent.clamp(0.0, 99.0);
        // An estimate: volumes have far fewer blocks than a float counts exactly.
        (used as f64 * free / (100.0 - free)).ceil() as u64
    }

    /// Fails for options that no size helps: volumes of 8 GiB and of 1 TiB fail in the same way.
    fn possible(&self, needs: &Needs, slack: bool) -> Result<()> {
        let Err(large) = self.layout(8 << 30, needs, slack) else {
            return Ok(());
        };
        match self.layout(1 << 40, needs, slack) {
            Err(e) if e.to_string() == large.to_string() => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the least size, by this count, that has room for the content; with `slack`, the part of the volume
    /// that was asked for stays free.
    fn size_for(&self, needs: &Needs, slack: bool) -> Result<u64> {
        let wants_journal = self.options.feature_set()?.has_journal();
        let mut size = SMALLEST;
        let mut last_error = None;
        for _ in 0..2000 {
            let more = match self.layout(size, needs, slack) {
                Ok(layout) => {
                    let block_size = u64::from(layout.geometry.block_size);
                    let room = Self::room(&layout);
                    let spare = if slack {
                        (layout.geometry.blocks_count as f64 * self.options.free_percent / 100.0)
                            as u64
                    } else {
                        0
                    };
                    let wanted = needs.blocks + spare;
                    let journal = !wants_journal || layout.journal_blocks > 0;
                    if room >= wanted && journal {
                        return Ok(size);
                    }
                    if room < wanted {
                        // The missing bytes, without the metadata and the slack that they need: never too many.
                        (wanted - room).saturating_mul(block_size)
                    } else {
                        (size / 64).max(64 * block_size)
                    }
                }
                Err(e @ MkfsError::TooFewInodes { .. })
                    if self.options.inodes.is_none_or(fixed) =>
                {
                    return Err(e);
                }
                Err(e) => {
                    if last_error.is_none() {
                        self.possible(needs, slack)?;
                    }
                    last_error = Some(e);
                    (size / 64).max(64 * 4096)
                }
            };
            // If a journal needs more, or the layout is not possible, the steps are small so that the size does not
            // overshoot much. For some options no size is enough.
            let larger = size.checked_add(more);
            match larger.and_then(|larger| larger.checked_next_multiple_of(round(size))) {
                Some(larger) => size = larger,
                None => break,
            }
        }
        Err(last_error.unwrap_or_else(no_size))
    }

    /// Returns the plan for the size given, or for the size the content needs.
    pub fn plan(&self) -> Result<Plan> {
        if self.options.is_tight() {
            return self.least_plan();
        }
        let needs = Needs::of(self.tree, &self.sample()?)?;
        let mut size = match self.options.size {
            Some(size) => size,
            None => self.size_for(&needs, true)?,
        };
        loop {
            let too_small = |given| {
                let needed = self.least(&needs, given)?;
                Err(MkfsError::TooSmall { given, needed })
            };
            let layout = match self.layout(size, &needs, self.options.size.is_none()) {
                Ok(layout) => layout,
                // If a larger size would do, the error is about the size.
                Err(e @ MkfsError::Format(_)) => match self.size_for(&needs, false) {
                    Ok(needed) if needed > size => return too_small(size),
                    _ => return Err(e),
                },
                Err(e) => return Err(e),
            };
            match plan(self.tree, layout) {
                Ok(plan) => return Ok(plan),
                Err(Failure::Error(e)) => return Err(e),
                Err(Failure::Full) if self.options.size.is_some() => return too_small(size),
                Err(Failure::Full) => {
                    size = (size + size / 200).next_multiple_of(round(size)) + round(size);
                }
            }
        }
    }

    /// Returns the plan for the least volume that holds the content.
    fn least_plan(&self) -> Result<Plan> {
        let usual = self.least_above(&Needs::of(self.tree, &self.sample()?)?, 0)?;
        if self.options.block_size.is_some() || self.options.usage.is_some() {
            return Ok(usual.1);
        }
        let options = MkfsOptions {
            block_size: Some(1024),
            ..self.options.clone()
        };
        let small = Sizer {
            options: &options,
            ..*self
        };
        let needs = small.sample().and_then(|geo| Needs::of(self.tree, &geo));
        // If the content does not fit blocks of 1 KiB, keep the usual ones.
        match needs.and_then(|needs| small.least_above(&needs, 0)) {
            Ok((size, plan)) if size <= usual.0 / 4 * 3 => Ok(plan),
            _ => Ok(usual.1),
        }
    }

    /// Finds a size above `given` for which a plan was made, near the least such size.
    fn least(&self, needs: &Needs, given: u64) -> Result<u64> {
        self.least_above(needs, given).map(|(size, _)| size)
    }

    /// Returns the least size above one that is too small, to the page or a five-hundredth, and its plan.
    fn least_above(&self, needs: &Needs, too_small: u64) -> Result<(u64, Plan)> {
        let mut size = self.size_for(needs, false)?.max(too_small + PAGE);
        let mut tries = 0;
        let mut found = loop {
            match self.try_size(needs, size) {
                Ok(plan) => break (size, plan),
                Err(Failure::Error(e)) => return Err(e),
                Err(Failure::Full) if tries == 100 => return Err(no_size()),
                Err(Failure::Full) => size = (size + size / 100).next_multiple_of(PAGE) + PAGE,
            }
            tries += 1;
        };
        let mut low = too_small;
        loop {
            let high = found.0;
            let middle = (low + (high - low) / 2).next_multiple_of(PAGE);
            if high - low <= PAGE.max(high / 500) || middle >= high {
                return Ok(found);
            }
            match self.try_size(needs, middle) {
                Ok(plan) => found = (middle, plan),
                Err(_) => low = middle,
            }
        }
    }

    /// Returns the plan for a size, which has the journal that the options ask for.
    fn try_size(&self, needs: &Needs, size: u64) -> Result<Plan, Failure> {
        let wants_journal = self.options.is_tight() && self.options.feature_set()?.has_journal();
        let layout = match self.layout(size, needs, false) {
            Ok(layout) => layout,
            // The usual cause is a lack of room.
            Err(MkfsError::Format(_)) => return Err(Failure::Full),
            Err(e) => return Err(e.into()),
        };
        if wants_journal && layout.journal_blocks == 0 {
            return Err(Failure::Full);
        }
        plan(self.tree, layout)
    }
}

fn no_size() -> MkfsError {
    MkfsError::Options("no size is enough for these options".into())
}

/// Rounds a size up to a convenient multiple.
fn round(size: u64) -> u64 {
    if size < 100 * ROUND {
        ROUND / 16
    } else {
        ROUND
    }
}

/// Makes groups smaller, and about equal, if their bitmaps could not count the inodes that the content needs. A count
/// that the user gives is rounded by the layout, as by mke2fs.
fn even_groups(p: &mut LayoutParams) {
    let (Inodes::Count(inodes), None) = (p.inodes, p.blocks_per_group) else {
        return;
    };
    let bits = u64::from(p.block_size) * 8;
    let per_table_block = u64::from(p.block_size / u32::from(p.inode_size.max(128)));
    // Counted in 16 bits, and rounded up to whole blocks of the table.
    let most = bits.min(65_528).saturating_sub(2 * per_table_block.max(8));
    let groups = u64::from(inodes).div_ceil(most.max(1));
    if groups > p.blocks_count.div_ceil(bits.min(65_528)) {
        let blocks = p.blocks_count.div_ceil(groups).next_multiple_of(8).max(256);
        p.blocks_per_group = u32::try_from(blocks).ok();
    }
}

/// Returns whether a choice of inodes does not grow with the volume.
const fn fixed(inodes: Inodes) -> bool {
    matches!(inodes, Inodes::Count(_))
}
