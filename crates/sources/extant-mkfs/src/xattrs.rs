//! Extended attributes of the tree: each distinct set is placed once, and blocks are shared by inodes up to the limit
//! of the format.

use super::error::{MkfsError, Result};
use super::space::Space;
use super::tree::Tree;
use ext4_format::geometry::Geometry;
use ext4_format::xattr::{self, MAX_REFCOUNT, XattrSet};
use extant_sources::parts::show;
use std::collections::HashMap;

/// A set laid out.
#[derive(Clone)]
struct Laid {
    area: Option<Vec<u8>>,
    block: Option<Vec<u8>>,
    /// The block in use by fewer than [`MAX_REFCOUNT`] inodes: index into `blocks`.
    open: Option<usize>,
}

/// A block of attributes on the volume.
#[derive(Clone)]
pub(super) struct SharedBlock {
    pub nr: u64,
    pub set: u32,
    pub users: u32,
}

/// Places of the inodes' attributes.
#[derive(Clone)]
pub(super) struct XattrPlan {
    sets: Vec<Laid>,
    pub blocks: Vec<SharedBlock>,
    /// Block by inode, of inodes that have one.
    by_inode: HashMap<u32, u64>,
}

/// Returns the number of bytes behind the fixed part of a new inode.
fn area_len(geo: &Geometry) -> usize {
    let mut raw = vec![0; geo.inode_size.into()];
    ext4_format::inode::init(&mut raw, geo);
    ext4_format::inode::xattr_area(&raw, geo).map_or(0, |r| r.len())
}

impl XattrPlan {
    pub fn new(geo: &Geometry, tree: &Tree) -> Result<Self> {
        let (inner, block_size) = (area_len(geo), geo.block_size as usize);
        let lay = |(id, set): (u32, &XattrSet)| {
            let (area, block) = xattr::place(set, inner, block_size).map_err(|e| {
                let names: Vec<_> = set.iter().map(|(n, _)| show(n)).collect();
                let larger = match block_size {
                    ..4096 => ": blocks of 4096 bytes (-b 4096) hold more",
                    _ => "",
                };
                MkfsError::source(
                    tree.show_with_xattrs(id),
                    format!("{e}: {}{larger}", names.join(", ")),
                )
            })?;
            Ok(Laid {
                area,
                block,
                open: None,
            })
        };
        Ok(Self {
            sets: (1..).zip(&tree.xattrs).map(lay).collect::<Result<_>>()?,
            blocks: Vec::new(),
            by_inode: HashMap::new(),
        })
    }

    /// Takes the block of an inode with this set, or a share of one. `false`: no block is left.
    #[must_use]
    pub fn place(&mut self, inode: u32, set: u32, space: &mut Space) -> bool {
        let Some(laid) = self.laid_mut(set) else {
            return true;
        };
        let Some(bytes) = &laid.block else {
            return true;
        };
        // A block without a hash cannot be found for sharing, and so must not be shared.
        let sharable = xattr::stored_block_hash(bytes).is_some_and(|h| h != 0);
        let open = laid.open.filter(|_| sharable);
        if let Some(shared) = open.and_then(|i| self.blocks.get_mut(i))
            && shared.users < MAX_REFCOUNT
        {
            shared.users += 1;
            self.by_inode.insert(inode, shared.nr);
            return true;
        }
        let mut runs = Vec::new();
        if !space.take(0, 1, &mut runs) {
            return false;
        }
        let nr = runs[0].physical; // one block was taken
        let index = self.blocks.len();
        self.blocks.push(SharedBlock { nr, set, users: 1 });
        self.by_inode.insert(inode, nr);
        if let Some(laid) = self.laid_mut(set) {
            laid.open = Some(index);
        }
        true
    }

    fn laid_mut(&mut self, set: u32) -> Option<&mut Laid> {
        self.sets.get_mut((set as usize).checked_sub(1)?)
    }

    fn laid(&self, set: u32) -> Option<&Laid> {
        self.sets.get((set as usize).checked_sub(1)?)
    }

    /// Returns the part of a set that is in the inode.
    pub fn area(&self, set: u32) -> Option<&[u8]> {
        self.laid(set)?.area.as_deref()
    }

    /// Returns the block of an inode.
    pub fn block_of(&self, inode: u32) -> Option<u64> {
        self.by_inode.get(&inode).copied()
    }

    /// Returns the number of blocks that inodes with these sets need.
    pub fn count_blocks(&self, sets: impl Iterator<Item = u32>) -> u64 {
        let mut users = vec![0u64; self.sets.len() + 1];
        for set in sets {
            if let Some(n) = users.get_mut(set as usize) {
                *n += 1;
            }
        }
        let blocks = (0..).zip(users).map(|(set, users)| {
            let block = self.laid(set).and_then(|l| l.block.as_deref());
            match block.and_then(xattr::stored_block_hash) {
                None => 0,
                Some(0) => users,
                Some(_) => users.div_ceil(MAX_REFCOUNT.into()),
            }
        });
        blocks.sum()
    }

    /// Returns the bytes of a shared block.
    pub fn bytes(&self, shared: &SharedBlock, geo: &Geometry) -> Result<Vec<u8>> {
        let mut bytes = self
            .laid(shared.set)
            .and_then(|l| l.block.clone())
            .unwrap_or_default();
        xattr::set_refcount(&mut bytes, shared.users)?;
        if geo.features.has_metadata_csum() {
            xattr::set_checksum(&mut bytes, geo.csum_seed, ext4_format::BlockNr(shared.nr));
        }
        Ok(bytes)
    }
}
