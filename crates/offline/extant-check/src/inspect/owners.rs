//! The owners of blocks, and the paths of inodes: all inodes are searched.

use super::inode::Inode;
use super::record::{Record, Value};
use super::{Answered, Inspector, Sink};
use crate::claim::Claims;
use crate::mapping::Step;
use crate::report::Findings;
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap, inode};
use std::collections::BTreeSet;

/// Role of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Superblock,
    /// The block holds the descriptors of these groups.
    Descriptors(GroupNr),
    ReservedDescriptors,
    BlockBitmap(GroupNr),
    InodeBitmap(GroupNr),
    /// A block of a group's inode table: the group, and the index of the first inode there.
    Inodes(GroupNr, u32),
    MultipleMount,
    /// Of an inode: a logical block of its data.
    Data(InodeNr, u64),
    /// Of an inode: a node of its extent tree, or a block of its map.
    Node(InodeNr),
    /// Of an inode, and perhaps of others: extended attributes.
    Attributes(InodeNr),
}

impl Role {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Descriptors(_) => "group descriptors",
            Self::ReservedDescriptors => "reserved for group descriptors",
            Self::BlockBitmap(_) => "block bitmap",
            Self::InodeBitmap(_) => "inode bitmap",
            Self::Inodes(..) => "inode table",
            Self::MultipleMount => "multiple mount protection",
            Self::Data(..) => "data",
            Self::Node(_) => "node",
            Self::Attributes(_) => "extended attributes",
        }
    }

    const fn inode(self) -> Option<u32> {
        match self {
            Self::Data(ino, _) | Self::Node(ino) | Self::Attributes(ino) => Some(ino.0),
            _ => None,
        }
    }

    const fn group(self) -> Option<u32> {
        match self {
            Self::Descriptors(group)
            | Self::BlockBitmap(group)
            | Self::InodeBitmap(group)
            | Self::Inodes(group, _) => Some(group.0),
            _ => None,
        }
    }
}

impl Inspector<'_> {
    /// Calls `each` with every inode whose bytes are not all zero, until it returns false. Tables that were never written are left out.
    pub(super) fn each_inode(&self, each: &mut dyn FnMut(&Inode) -> bool) {
        let geo = &self.volume.geo;
        let size = usize::from(geo.inode_size);
        let mut bytes = vec![0; self.volume.block_size()];
        for group in (0..geo.groups).map(GroupNr) {
            let Ok((desc, kept)) = self.descriptor(group) else {
                continue;
            };
            let inodes = match kept {
                Ok(()) => desc.used_records(geo),
                Err(_) => geo.inodes_per_group,
            };
            for i in 0..inodes.div_ceil(geo.inodes_per_block()) {
                let at = BlockNr(desc.inode_table.0.saturating_add(i.into()));
                if at.0 >= geo.blocks_count || self.volume.read_into(at, &mut bytes).is_err() {
                    continue;
                }
                for (raw, k) in bytes.chunks_exact(size).zip(0..) {
                    let index = i * geo.inodes_per_block() + k;
                    if index >= inodes || blockdev::is_zero(raw) {
                        continue;
                    }
                    let ino = geo.inode_nr(group, index);
                    if !each(&self.decode(ino, raw)) {
                        return;
                    }
                }
            }
        }
    }

    /// Returns the role of a block according to the superblock and the descriptors.
    pub(super) fn fixed_role(&self, block: BlockNr) -> Option<Role> {
        let geo = &self.volume.geo;
        if block.0 == SUPERBLOCK_OFFSET / u64::from(geo.block_size) {
            return Some(Role::Superblock);
        }
        if geo.features.has_mmp() && block.0 == self.volume.sb.mmp_block.get() {
            return Some(Role::MultipleMount);
        }
        let (own, _) = geo.group_of_block(block)?;
        let first = geo.group_first_block(own).0;
        let within = block.0 - first;
        if within == 0 && geo.has_super(own) {
            return Some(Role::Superblock);
        }
        if within < geo.group_base_meta_blocks(own).into() {
            let index = within - u64::from(geo.has_super(own));
            let count = geo.gdt_blocks_in_group(own);
            let of_meta =
                geo.features.has_meta_bg() && own.0 / geo.descs_per_block() >= geo.first_meta_bg;
            let index = match of_meta {
                true => own.0 / geo.descs_per_block(),
                false if index < count.into() => index as u32,
                false => return Some(Role::ReservedDescriptors),
            };
            return Some(Role::Descriptors(GroupNr(
                index.saturating_mul(geo.descs_per_block()),
            )));
        }
        for group in (0..geo.groups).map(GroupNr) {
            let Ok((desc, _)) = self.descriptor(group) else {
                continue;
            };
            let within = block.0.checked_sub(desc.inode_table.0);
            let within = within.filter(|w| *w < geo.itable_blocks().into());
            let role = match within {
                _ if desc.block_bitmap == block => Role::BlockBitmap(group),
                _ if desc.inode_bitmap == block => Role::InodeBitmap(group),
                Some(within) => Role::Inodes(group, within as u32 * geo.inodes_per_block()),
                None => continue,
            };
            return Some(role);
        }
        None
    }

    /// Calls `found` with each of the blocks that inodes own and its role, once for each mapping.
    pub(super) fn owners(
        &self,
        wanted: &BTreeSet<u64>,
        found: &mut dyn FnMut(BlockNr, Role) -> bool,
    ) {
        // A node that many inodes share is walked once, so that walks of hostile trees end.
        let claims = Claims::new(&self.volume.geo);
        let findings = Findings::new(0);
        let mut go_on = true;
        self.each_inode(&mut |inode| {
            let ino = inode.ino;
            if inode.core.links == 0 && ino.0 != 1 {
                return true;
            }
            let acl = inode::file_acl(&inode.raw, &self.volume.geo);
            if wanted.contains(&acl.0) && acl.0 != 0 {
                go_on = found(acl, Role::Attributes(ino));
            }
            self.walk(inode, &findings, Some(&claims), &mut |step| {
                match step {
                    Step::Node(node) if wanted.contains(&node.block.0) => {
                        go_on &= found(node.block, Role::Node(ino));
                    }
                    Step::Node(_) => {}
                    Step::Run(run) => {
                        let first = run.physical.0;
                        let end = first.saturating_add(run.len.into());
                        for &block in wanted.range(first..end) {
                            let logical = u64::from(run.logical) + (block - first);
                            go_on &= found(BlockNr(block), Role::Data(ino, logical));
                        }
                    }
                }
                go_on
            });
            go_on
        });
    }

    pub(super) fn icheck(&self, blocks: &[u64], sink: &mut Sink<'_>) -> Answered {
        let row = |block: u64, role: Option<Role>, of: &str| {
            let logical = match role {
                Some(Role::Data(_, logical)) => Some(logical),
                _ => None,
            };
            let fields = vec![
                ("block", block.into()),
                ("inode", Value::number(role.and_then(Role::inode))),
                ("logical", Value::number(logical)),
                ("group", Value::number(role.and_then(Role::group))),
                ("what", Value::text(of)),
            ];
            Record::row("owner", fields)
        };
        let count = self.volume.geo.blocks_count;
        let mut wanted: BTreeSet<u64> = blocks.iter().copied().collect();
        let mut none = Vec::new();
        for &block in &wanted {
            match self.fixed_role(BlockNr(block)) {
                Some(role) => sink(row(block, Some(role), role.text()))?,
                None if block >= count => sink(row(block, None, "beyond the end"))?,
                None => none.push(block),
            }
        }
        wanted = none.into_iter().collect();
        let (mut sent, mut owned) = (Ok(()), BTreeSet::new());
        self.owners(&wanted, &mut |block, role| {
            owned.insert(block.0);
            sent = sink(row(block.0, Some(role), role.text()));
            sent.is_ok()
        });
        sent?;
        for &block in wanted.difference(&owned) {
            let of = match self.is_in_use(BlockNr(block)) {
                Some(true) => "in use, of no inode",
                Some(false) => "free",
                None => "not known",
            };
            sink(row(block, None, of))?;
        }
        Ok(())
    }

    /// Returns whether a block is in use according to the bitmap.
    pub(super) fn is_in_use(&self, block: BlockNr) -> Option<bool> {
        let (group, bit) = self.volume.geo.group_of_block(block)?;
        let map = self.block_bitmap(group).ok()?;
        Some(bitmap::test(&map, bit))
    }
}
