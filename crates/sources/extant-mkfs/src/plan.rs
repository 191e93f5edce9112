//! The plan: inode numbers and blocks for the whole tree, decided in one pass, in one thread, from the tree and the
//! layout alone. So the image does not depend on the number of threads that fill it.
//!
//! Directories are visited depth first, names in hash order. They are split into batches of about one flex group of
//! data. The inodes of a batch are consecutive, if possible in the flex group in which its data begins. The blocks of
//! its directories are consecutive, too, followed by the data of its files.

use super::directory::{least_blocks, shape_of};
use super::error::{MkfsError, Result};
use super::numbers::{Numbers, Stretch};
use super::space::Space;
use super::tree::{Body, Inode, ROOT, Tree};
use super::xattrs::XattrPlan;
use ext4_format::geometry::Geometry;
use ext4_format::layout::Layout;
use ext4_format::mapping::Run;
use ext4_format::mapping::{address_blocks, extent_nodes};
use ext4_format::{FileType, InodeNr};
use std::collections::HashMap;

/// The number that `lost+found` has always had.
pub(super) const LOST_FOUND: u32 = 11;
/// Symbolic links shorter than this are stored in the inode.
pub(super) const FAST_SYMLINK: usize = 60;

/// Blocks of one file; most have one run.
#[derive(Clone, Debug, Default)]
pub(super) enum Runs {
    #[default]
    None,
    One(Run),
    Many(Box<[Run]>),
}

impl Runs {
    pub fn as_slice(&self) -> &[Run] {
        match self {
            Self::None => &[],
            Self::One(run) => std::slice::from_ref(run),
            Self::Many(runs) => runs,
        }
    }
}

impl From<&[Run]> for Runs {
    fn from(runs: &[Run]) -> Self {
        match runs {
            [] => Self::None,
            [run] => Self::One(*run),
            _ => Self::Many(runs.into()),
        }
    }
}

/// Blocks of a file outside of the tree, and of its map.
#[derive(Clone, Default)]
pub(super) struct Mapped {
    pub runs: Vec<Run>,
    pub nodes: Vec<u64>,
}

/// The plan. Vectors named "by inode" go by the tree's index.
#[derive(Clone)]
pub(super) struct Plan {
    pub layout: Layout,
    /// Inode numbers, by inode.
    pub numbers: Vec<u32>,
    /// Numbered inodes: (number, inode), ascending; the root is not among them.
    pub order: Vec<(u32, u32)>,
    /// Numbers in use from 11 on, ascending.
    pub stretches: Vec<Stretch>,
    /// Blocks, by inode.
    pub runs: Vec<Runs>,
    /// Blocks of maps, of the few inodes that have any.
    pub nodes: HashMap<u32, Box<[u64]>>,
    pub xattrs: XattrPlan,
    pub journal: Mapped,
    pub orphan_file: Option<(InodeNr, Mapped)>,
    /// The double indirect block of the resize inode.
    pub resize_block: Option<u64>,
    /// Block of multiple mount protection.
    pub mmp_block: Option<u64>,
    /// The inode of `lost+found`.
    pub lost_found: Option<u32>,
    /// Free ranges of blocks.
    pub free: Vec<(u64, u64)>,
    /// Directories in the order of their blocks.
    pub dirs: Vec<u32>,
    /// Inodes with data, in the order of their blocks.
    pub data: Vec<u32>,
}

/// Why a plan failed.
pub(super) enum Failure {
    /// Blocks ran out.
    Full,
    /// Something that no size helps.
    Error(MkfsError),
}

impl<E: Into<MkfsError>> From<E> for Failure {
    fn from(e: E) -> Self {
        Self::Error(e.into())
    }
}

/// Returns the number of blocks of the orphan file: the requested number, or that of mke2fs.
pub(super) fn orphan_file_blocks(layout: &Layout) -> u32 {
    let by_size = (layout.geometry.blocks_count / 4096).clamp(32, 512) as u32;
    layout.orphan_file_blocks.unwrap_or(by_size)
}

/// Returns the stretches of logical blocks that a file fills.
pub(super) fn logical_ranges(inode: &Inode, block_size: u32) -> Vec<(u32, u32)> {
    let bs = u64::from(block_size);
    let to_block = |n: u64| u32::try_from(n).unwrap_or(u32::MAX); // sizes were checked
    match &inode.body {
        Body::File { map: None, .. } => match to_block(inode.size.div_ceil(bs)) {
            0 => Vec::new(),
            n => vec![(0, n)],
        },
        Body::File { map: Some(map), .. } => {
            let mut ranges: Vec<(u32, u32)> = Vec::new();
            for s in map.iter().filter(|s| s.len > 0) {
                let (first, end) = (
                    to_block(s.start / bs),
                    to_block((s.start + s.len).div_ceil(bs)),
                );
                match ranges.last_mut() {
                    Some((start, len)) if first <= *start + *len => {
                        *len = (*len).max(end - *start);
                    }
                    _ => ranges.push((first, end - first)),
                }
            }
            ranges
        }
        Body::Symlink(target) if target.len() >= FAST_SYMLINK => vec![(0, 1)],
        _ => Vec::new(),
    }
}

/// Returns all directories, depth first.
fn depth_first(tree: &Tree) -> Vec<u32> {
    let mut order = Vec::with_capacity(tree.dirs.len());
    let mut stack = vec![0];
    while let Some(d) = stack.pop() {
        order.push(d);
        let subdirs = tree.names_of(d).iter().rev();
        stack.extend(
            subdirs.filter_map(|n| match tree.inodes[n.inode as usize].body {
                Body::Directory(c) => Some(c),
                _ => None,
            }),
        );
    }
    order
}

/// Makes the plan for a tree in a layout.
pub(super) fn plan(tree: &Tree, layout: Layout) -> Result<Plan, Failure> {
    let geo = layout.geometry.clone();
    let mut space = Space::new(&layout);
    let goal = layout.journal_goal().0;
    let journal = place_file(&geo, &mut space, goal, layout.journal_blocks).ok_or(Failure::Full)?;
    let orphans = if geo.features.has_orphan_file() {
        orphan_file_blocks(&layout)
    } else {
        0
    };
    let orphans = place_file(&geo, &mut space, 0, orphans).ok_or(Failure::Full)?;
    let resize_block = take_block_if(geo.features.has_resize_inode(), &mut space)?;
    let mmp_block = take_block_if(geo.features.has_mmp(), &mut space)?;
    let mut numbers = Numbers {
        geo: &geo,
        next: LOST_FOUND,
        left: tree.inodes.len() as u64,
        stretches: Vec::new(),
    };
    let mut planner = Planner {
        tree,
        xattrs: XattrPlan::new(&geo, tree)?,
        plan: Numbered {
            by_inode: vec![0; tree.inodes.len()],
            order: Vec::with_capacity(tree.inodes.len()),
        },
        runs: vec![Runs::None; tree.inodes.len()],
        nodes: HashMap::new(),
        dirs: Vec::with_capacity(tree.dirs.len()),
        data: Vec::new(),
        scratch: Vec::new(),
        space,
    };
    planner.plan.by_inode[ROOT as usize] = InodeNr::ROOT.0;
    let lost_found = lost_found(tree);
    if let Some(inode) = lost_found {
        planner.number(inode, &mut numbers)?;
    }
    let orphan_file = if geo.features.has_orphan_file() {
        Some((InodeNr(numbers.take()?), orphans))
    } else {
        None
    };
    let flex_blocks = u64::from(geo.blocks_per_group) << geo.log_groups_per_flex.min(20);
    let order = depth_first(tree);
    let mut rest = &order[..];
    while !rest.is_empty() {
        let len = batch_len(tree, &geo, rest, flex_blocks);
        let (batch, after) = rest.split_at(len);
        planner.batch(&geo, batch, lost_found, &mut numbers)?;
        rest = after;
    }
    let stretches = numbers.stretches;
    Ok(Plan {
        numbers: planner.plan.by_inode,
        order: planner.plan.order,
        stretches,
        runs: planner.runs,
        nodes: planner.nodes,
        xattrs: planner.xattrs,
        journal,
        orphan_file,
        resize_block,
        mmp_block,
        lost_found,
        free: planner.space.ranges().to_vec(),
        dirs: planner.dirs,
        data: planner.data,
        layout,
    })
}

/// Returns the inode of `lost+found`, if the tree has that directory.
pub(super) fn lost_found(tree: &Tree) -> Option<u32> {
    let inode = tree.find(0, b"lost+found")?;
    (tree.inodes[inode as usize].file_type() == FileType::Directory).then_some(inode)
}

/// Returns the number of directories with about `blocks` blocks of data; at least one.
fn batch_len(tree: &Tree, geo: &Geometry, dirs: &[u32], blocks: u64) -> usize {
    let mut sum = 0;
    for (i, &d) in dirs.iter().enumerate() {
        let sizes = tree
            .names_of(d)
            .iter()
            .map(|n| &tree.inodes[n.inode as usize]);
        let files = sizes.filter(|i| matches!(i.body, Body::File { .. }));
        sum += files
            .map(|f| f.size.div_ceil(geo.block_size.into()))
            .sum::<u64>();
        if sum >= blocks {
            return i + 1;
        }
    }
    dirs.len()
}

fn place_file(geo: &Geometry, space: &mut Space, goal: u64, len: u32) -> Option<Mapped> {
    let mut mapped = Mapped::default();
    if len == 0 {
        return Some(mapped);
    }
    let nodes = if geo.features.has_extents() {
        0
    } else {
        let whole = [Run {
            logical: 0,
            len,
            physical: 0,
        }];
        address_blocks(&whole, geo.block_size)
    };
    let mut logical = 0;
    let mut nodes_left = u64::from(nodes);
    for (start, n) in space.carve(goal, u64::from(len) + u64::from(nodes))? {
        let for_nodes = n.min(nodes_left);
        nodes_left -= for_nodes;
        mapped.nodes.extend(start..start + for_nodes);
        let n = (n - for_nodes) as u32; // at most `len`
        if n > 0 {
            mapped.runs.push(Run {
                logical,
                len: n,
                physical: start + for_nodes,
            });
        }
        logical += n;
    }
    if geo.features.has_extents() {
        let count = extent_nodes(&mapped.runs, geo.block_size);
        for (start, n) in space.carve(goal, count.into())? {
            mapped.nodes.extend(start..start + n);
        }
    }
    Some(mapped)
}

/// Takes one block if it is wanted.
fn take_block_if(wanted: bool, space: &mut Space) -> Result<Option<u64>, Failure> {
    if !wanted {
        return Ok(None);
    }
    let blocks = take_blocks(space, 1).ok_or(Failure::Full)?;
    Ok(blocks.first().copied())
}

/// Takes single blocks from the front.
fn take_blocks(space: &mut Space, n: u32) -> Option<Vec<u64>> {
    let mut runs = Vec::new();
    if n > 0 && !space.take(0, n, &mut runs) {
        return None;
    }
    let blocks = runs
        .iter()
        .flat_map(|r| r.physical..r.physical + u64::from(r.len));
    Some(blocks.collect())
}

struct Numbered {
    by_inode: Vec<u32>,
    order: Vec<(u32, u32)>,
}

struct Planner<'a> {
    tree: &'a Tree,
    space: Space,
    xattrs: XattrPlan,
    plan: Numbered,
    runs: Vec<Runs>,
    nodes: HashMap<u32, Box<[u64]>>,
    dirs: Vec<u32>,
    data: Vec<u32>,
    scratch: Vec<Run>,
}

impl Planner<'_> {
    /// Numbers an inode; `false` if it has a number.
    fn number(&mut self, inode: u32, numbers: &mut Numbers<'_>) -> Result<bool> {
        let slot = &mut self.plan.by_inode[inode as usize];
        if *slot != 0 {
            return Ok(false);
        }
        *slot = numbers.take()?;
        self.plan.order.push((*slot, inode));
        Ok(true)
    }

    fn batch(
        &mut self,
        geo: &Geometry,
        dirs: &[u32],
        lost_found: Option<u32>,
        numbers: &mut Numbers<'_>,
    ) -> Result<(), Failure> {
        let tree = self.tree;
        if let Some(block) = self.space.cursor() {
            numbers.align(block);
        }
        let first_data = self.data.len();
        let mut fresh = Vec::new();
        for &d in dirs {
            let inode = tree.dirs[d as usize].inode;
            self.number(inode, numbers)?;
            fresh.push(inode);
            for name in tree.names_of(d) {
                let i = &tree.inodes[name.inode as usize];
                if matches!(i.body, Body::Directory(_)) || !self.number(name.inode, numbers)? {
                    continue;
                }
                check_inode(geo, tree, name.inode)?;
                fresh.push(name.inode);
                if matches!(i.body, Body::File { .. } | Body::Symlink(_)) {
                    self.data.push(name.inode);
                }
            }
        }
        for &d in dirs {
            let inode = tree.dirs[d as usize].inode;
            check_inode(geo, tree, inode)?;
            let least = least_blocks(geo, lost_found == Some(inode));
            let blocks = shape_of(geo, tree.names_of(d), least).blocks;
            self.place(geo, inode, &[(0, blocks)])?;
            self.dirs.push(d);
        }
        for &inode in &fresh {
            let set = tree.inodes[inode as usize].xattrs;
            if !self.xattrs.place(inode, set, &mut self.space) {
                return Err(Failure::Full);
            }
        }
        let mut data = self.data.split_off(first_data);
        data.retain(|&i| {
            let inode = &tree.inodes[i as usize];
            !logical_ranges(inode, geo.block_size).is_empty()
        });
        for &inode in &data {
            let ranges = logical_ranges(&tree.inodes[inode as usize], geo.block_size);
            self.place(geo, inode, &ranges)?;
        }
        self.data.append(&mut data);
        Ok(())
    }

    /// Takes the blocks of an inode and of its map.
    fn place(&mut self, geo: &Geometry, inode: u32, ranges: &[(u32, u32)]) -> Result<(), Failure> {
        let mut mapped = Mapped {
            runs: std::mem::take(&mut self.scratch),
            nodes: Vec::new(),
        };
        mapped.runs.clear();
        if !geo.features.has_extents() {
            // The map's size is known beforehand, so the map is in front of the data.
            let logical = ranges.iter().map(|&(logical, len)| Run {
                logical,
                len,
                physical: 0,
            });
            let n = address_blocks(&logical.collect::<Vec<_>>(), geo.block_size);
            mapped.nodes = take_blocks(&mut self.space, n).ok_or(Failure::Full)?;
        }
        for &(logical, len) in ranges {
            if !self.space.take(logical, len, &mut mapped.runs) {
                return Err(Failure::Full);
            }
        }
        if geo.features.has_extents() {
            self.map_nodes(geo, &mut mapped)?;
        }
        self.runs[inode as usize] = (&mapped.runs[..]).into();
        if !mapped.nodes.is_empty() {
            self.nodes.insert(inode, mapped.nodes.into());
        }
        self.scratch = mapped.runs;
        Ok(())
    }

    /// Takes the blocks of a map whose runs are known.
    fn map_nodes(&mut self, geo: &Geometry, mapped: &mut Mapped) -> Result<(), Failure> {
        let n = if geo.features.has_extents() {
            extent_nodes(&mapped.runs, geo.block_size)
        } else {
            address_blocks(&mapped.runs, geo.block_size)
        };
        mapped.nodes = take_blocks(&mut self.space, n).ok_or(Failure::Full)?;
        Ok(())
    }
}

/// Rejects an inode that the format cannot hold at any size of the volume.
fn check_inode(geo: &Geometry, tree: &Tree, index: u32) -> Result<()> {
    let inode = &tree.inodes[index as usize];
    let is_dir = matches!(inode.body, Body::Directory(_));
    let features = &geo.features;
    let what = match &inode.body {
        Body::File { .. } if inode.size > geo.max_file_size(features.has_extents()) => {
            "the file is larger than the format allows"
        }
        Body::File { .. } if inode.size >= 1 << 31 && !features.has_large_file() => {
            "a file of 2 GiB or more needs the feature large_file"
        }
        Body::Symlink(target) if target.len() >= geo.block_size as usize => {
            "the target of the symbolic link is longer than a block"
        }
        _ if inode.links > ext4_format::inode::LINK_MAX && !is_dir => "more than 65000 hard links",
        _ if inode.links > ext4_format::inode::LINK_MAX && !features.has_dir_nlink() => {
            "more than 65000 subdirectories need the feature dir_nlink"
        }
        _ if inode.xattrs != 0 && !features.has_ext_attr() => {
            "extended attributes need the feature ext_attr"
        }
        _ => return Ok(()),
    };
    Err(MkfsError::source(tree.show(index), what))
}
