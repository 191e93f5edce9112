//! Inodes: found by number or path, their fields, and the blocks that they map.

use super::fields::{self, Part};
use super::record::{Record, Value, send_findings};
use super::{Answered, InspectError, Inspector, MAX_FINDINGS, Sink};
use crate::mapping::{Step, Walker};
use crate::report::Findings;
use ext4_format::extent::Extent;
use ext4_format::group_desc::GroupDesc;
use ext4_format::inode::inline::{self, Inline};
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr};

/// Told logical block, block, offset in the block and bytes of a part of a directory; no more come when it returns false.
type EachPart<'e> = dyn FnMut(u32, BlockNr, usize, &[u8]) -> bool + 'e;

/// An inode, decoded as far as possible.
pub(super) struct Inode {
    pub(super) ino: InodeNr,
    pub(super) raw: Vec<u8>,
    pub(super) core: InodeCore,
    /// Error that makes its bytes invalid, if any.
    damage: Option<FormatError>,
}

impl Inode {
    pub(super) const fn has(&self, flag: u32) -> bool {
        self.core.flags & flag != 0
    }

    pub(super) fn is_directory(&self) -> bool {
        self.core.file_type() == Some(FileType::Directory)
    }
}

/// Parses a number, decimal or with `0x`.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Inspector<'_> {
    /// Returns the descriptor of a group, and whether it is valid.
    pub(super) fn descriptor(
        &self,
        group: GroupNr,
    ) -> Result<(GroupDesc, Result<(), FormatError>), InspectError> {
        let geo = &self.volume.geo;
        let (block, offset) = geo.desc_location(group);
        let bytes = self.block(block)?;
        let bytes = bytes.get(offset as usize..).unwrap_or(&[]);
        let bytes = bytes.get(..geo.desc_size.into()).unwrap_or(&[]);
        let desc = GroupDesc::decode_unchecked(bytes).unwrap_or_default();
        Ok((desc, GroupDesc::decode(bytes, geo, group).map(|_| ())))
    }

    /// Returns the block and offset of an inode.
    pub(super) fn place(&self, ino: InodeNr) -> Result<(GroupNr, BlockNr, usize), InspectError> {
        let geo = &self.volume.geo;
        let missing = || InspectError::Missing(format!("there is no inode {ino}"));
        let (group, index) = geo.group_of_inode(ino).ok_or_else(missing)?;
        let (desc, _) = self.descriptor(group)?;
        let within = u64::from(index / geo.inodes_per_block());
        let block = desc.inode_table.0.checked_add(within);
        let block = BlockNr(block.ok_or_else(missing)?);
        let offset = (index % geo.inodes_per_block()) as usize * usize::from(geo.inode_size);
        Ok((group, block, offset))
    }

    /// Reads an inode.
    pub(super) fn inode(&self, ino: InodeNr) -> Result<Inode, InspectError> {
        let (_, block, offset) = self.place(ino)?;
        let bytes = self.block(block)?;
        let size = usize::from(self.volume.geo.inode_size);
        let raw = bytes.get(offset..offset + size).unwrap_or(&[]);
        Ok(self.decode(ino, raw))
    }

    /// Decodes an inode, also from invalid bytes.
    pub(super) fn decode(&self, ino: InodeNr, raw: &[u8]) -> Inode {
        let geo = &self.volume.geo;
        let (core, damage) = match inode::decode_verified(raw, geo, ino) {
            Ok(core) => (core, None),
            Err(e) => {
                // Without the two fields that can make an inode impossible: the size of the extra part and the size of the file.
                let mut mended = raw.to_vec();
                for at in [111, 128, 129] {
                    if let Some(byte) = mended.get_mut(at) {
                        *byte = 0;
                    }
                }
                let core = inode::decode_verified(&mended, geo, ino);
                (core.unwrap_or_default(), Some(e))
            }
        };
        Inode {
            ino,
            raw: raw.to_vec(),
            core,
            damage,
        }
    }

    /// Returns the inode that a word names: `<12>`, or a path from the root. Symbolic links are not followed.
    pub(super) fn find(&self, word: &[u8]) -> Result<Inode, InspectError> {
        let inside = word.strip_prefix(b"<").and_then(|w| w.strip_suffix(b">"));
        if let Some(number) = inside.and_then(number) {
            let ino = u32::try_from(number).unwrap_or(u32::MAX);
            return self.inode(InodeNr(ino));
        }
        let mut at = self.inode(InodeNr::ROOT)?;
        for name in word.split(|&b| b == b'/') {
            if name.is_empty() || name == b"." {
                continue;
            }
            let mut found = None;
            self.each_entry_block(&at, &Findings::new(0), &mut |_, _, _, bytes| {
                let mut entries = ext4_format::dir_entry::entries_of(bytes, true);
                found = entries.find_map(|e| e.ok().filter(|e| e.name == name).map(|e| e.inode));
                found.is_none()
            });
            let missing = || {
                let (name, within) = (name.escape_ascii(), at.ino);
                InspectError::Missing(format!("no \"{name}\" in the directory <{within}>"))
            };
            at = self.inode(found.ok_or_else(missing)?)?;
        }
        Ok(at)
    }

    /// Returns the seed of the checksums of an inode's blocks, if blocks have checksums.
    pub(super) fn seed(&self, inode: &Inode) -> Option<u32> {
        self.volume.seed(inode.ino, inode.core.generation)
    }

    /// Returns whether the inode's `i_block` leads to blocks.
    pub(super) fn is_mapped(&self, inode: &Inode) -> bool {
        if inode.has(flags::INLINE_DATA) {
            return false;
        }
        let geo = &self.volume.geo;
        let own = match inode::file_acl(&inode.raw, geo).0 {
            0 => 0,
            _ => geo.sectors_per_cluster(),
        };
        match inode.core.file_type() {
            Some(FileType::Regular | FileType::Directory) => true,
            Some(FileType::Symlink) => {
                inode.has(flags::EXTENTS) || inode::sectors(&inode.raw, geo) > own
            }
            Some(_) => false,
            // The inode of bad blocks has no mode.
            None => inode.ino.0 == 1,
        }
    }

    /// Calls `step` with each node and each run of an inode's mapping, until it returns false.
    pub(super) fn walk(
        &self,
        inode: &Inode,
        findings: &Findings,
        claims: Option<&crate::claim::Claims>,
        step: &mut dyn FnMut(Step) -> bool,
    ) {
        let Ok(root) = inode::i_block(&inode.raw) else {
            return;
        };
        if !self.is_mapped(inode) {
            return;
        }
        let seed = self.seed(inode);
        let walker = Walker::new(&self.volume, findings, claims, inode.ino, seed).watched(step);
        walker.walk(inode.core.flags, root);
    }

    /// Calls `each` with logical block, block, offset in the block and bytes of each part of a directory that holds entries, until it
    /// returns false.
    pub(super) fn each_entry_block(
        &self,
        directory: &Inode,
        findings: &Findings,
        each: &mut EachPart<'_>,
    ) {
        if !directory.is_directory() {
            return;
        }
        if directory.has(flags::INLINE_DATA) {
            let Ok((_, block, offset)) = self.place(directory.ino) else {
                return;
            };
            // Damage is reported where the attributes are shown.
            let geo = &self.volume.geo;
            if let Ok(inline) = Inline::undamaged_part(&directory.raw, geo) {
                let [own, rest] = inline.records();
                if each(0, block, offset + inline::RECORDS_AT, own) {
                    each(0, block, 0, rest);
                }
            }
            return;
        }
        let mut bytes = vec![0; self.volume.block_size()];
        self.walk(directory, findings, None, &mut |step| {
            let Step::Run(run) = step else { return true };
            (0..run.len).all(|i| {
                let at = BlockNr(run.physical.0.saturating_add(i.into()));
                let place = crate::report::FindingPlace::inode(directory.ino);
                let read = self.volume.read_or_tell(at, &mut bytes, place, findings);
                !read || each(run.logical.saturating_add(i), at, 0, &bytes)
            })
        });
    }

    pub(super) fn imap(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let (group, block, offset) = self.place(inode.ino)?;
        let fields = vec![
            ("inode", inode.ino.0.into()),
            ("group", group.0.into()),
            ("block", block.0.into()),
            ("offset", Value::Number(offset as u64)),
        ];
        Ok(sink(Record::row("inode-place", fields))?)
    }

    pub(super) fn stat(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let Inode { ino, raw, core, .. } = inode;
        self.send_inode_damage(inode, sink)?;
        let (group, block, offset) = self.place(*ino)?;
        let kind = core.file_type().map_or("none", FileType::name);
        let acl = inode::file_acl(raw, geo).0;
        let mut fields = vec![
            ("inode", ino.0.into()),
            ("type", Value::text(kind)),
            ("mode", Value::Octal((core.mode & 0o7777).into())),
            ("flags", Value::Hex(core.flags.into())),
            ("generation", core.generation.into()),
            ("user", core.uid.into()),
            ("group", core.gid.into()),
            ("project", inode::project(raw).into()),
            ("size", core.size.into()),
            ("links", core.links.into()),
            ("sectors", inode::sectors(raw, geo).into()),
            ("attribute_block", Value::number((acl != 0).then_some(acl))),
            ("fragment", inode::fragment(raw).into()),
        ];
        for (name, time) in [
            ("accessed", core.atime),
            ("changed", core.ctime),
            ("modified", core.mtime),
            ("born", core.crtime),
        ] {
            let is_known = name != "born" || time != Timestamp::EPOCH;
            fields.push((name, time_of(time, is_known)));
        }
        let deleted = i64::from(core.dtime);
        fields.push(("deleted", time_of(Timestamp::new(deleted, 0), deleted != 0)));
        if matches!(
            core.file_type(),
            Some(FileType::BlockDevice | FileType::CharDevice)
        ) {
            fields.push(("major", inode::dev_major(core.rdev).into()));
            fields.push(("minor", inode::dev_minor(core.rdev).into()));
        }
        if core.file_type() == Some(FileType::Symlink)
            && !self.is_mapped(inode)
            && let Ok(target) = inode::i_block(raw)
        {
            let len = usize::try_from(core.size).unwrap_or(usize::MAX);
            let target = target.get(..len).unwrap_or(target);
            fields.push(("target", Value::Name(target.to_vec())));
        }
        fields.push(("in_group", group.0.into()));
        fields.push(("in_block", block.0.into()));
        fields.push(("at_offset", Value::Number(offset as u64)));
        sink(Record::lines("inode", fields))?;
        Ok(())
    }

    /// Tells a wrong checksum and impossible bytes.
    fn send_inode_damage(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let verified = inode::verify_checksum(&inode.raw, &self.volume.geo, inode.ino);
        self.judge("inode", verified, sink)?;
        if let Some(damage) = &inode.damage {
            sink(Record::problem(damage.to_string()))?;
        }
        Ok(())
    }

    /// Sends the fields of an inode in its block, at `at`.
    pub(super) fn inode_fields(&self, inode: &Inode, at: usize, sink: &mut Sink<'_>) -> Answered {
        let whole = Part {
            at,
            ..Part::of(&inode.raw, 0)
        };
        let fixed = whole.send(fields::INODE, sink)?;
        let extra = inode.raw.get(fixed..fixed + 2);
        let extra = extra.map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
        if let Some(bytes) = inode.raw.get(fixed..) {
            let bytes = bytes.get(..extra.max(2)).unwrap_or(bytes);
            let part = Part {
                bytes,
                at: at + fixed,
                big_endian: false,
            };
            part.send(fields::INODE_EXTRA, sink)?;
        }
        self.send_inode_damage(inode, sink)
    }

    pub(super) fn dump_inode(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let (_, _, offset) = self.place(inode.ino)?;
        self.inode_fields(inode, offset, sink)
    }

    /// Sends all nodes and runs, with their heights: `extents` and `blocks`.
    pub(super) fn extents(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let findings = Findings::new(MAX_FINDINGS);
        let mut sent = Ok(());
        self.walk(inode, &findings, None, &mut |step| {
            sent = sink(Record::row("extent", run_fields(&step)));
            sent.is_ok()
        });
        sent?;
        self.tell_unmapped(inode, sink)?;
        Ok(send_findings(findings, sink)?)
    }

    /// Sends all blocks of an inode, data and nodes.
    pub(super) fn blocks(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        let findings = Findings::new(MAX_FINDINGS);
        let mut sent = Ok(());
        self.walk(inode, &findings, None, &mut |step| {
            let (first, len, logical, of) = match step {
                Step::Node(node) => (node.block, 1, node.logical, "node"),
                Step::Run(run) => (run.physical, run.len, run.logical.into(), state(&run)),
            };
            for i in 0..u64::from(len) {
                let fields = vec![
                    ("block", first.0.saturating_add(i).into()),
                    ("logical", logical.saturating_add(i).into()),
                    ("state", Value::text(of)),
                ];
                sent = sink(Record::row("block", fields));
                if sent.is_err() {
                    break;
                }
            }
            sent.is_ok()
        });
        sent?;
        self.tell_unmapped(inode, sink)?;
        Ok(send_findings(findings, sink)?)
    }

    fn tell_unmapped(&self, inode: &Inode, sink: &mut Sink<'_>) -> Answered {
        if !self.is_mapped(inode) {
            let why = if inode.has(flags::INLINE_DATA) {
                "the data are in the inode"
            } else {
                "the inode has no data in blocks"
            };
            sink(Record::note(why))?;
        }
        Ok(())
    }

    pub(super) fn bmap(&self, inode: &Inode, logical: u64, sink: &mut Sink<'_>) -> Answered {
        let findings = Findings::new(MAX_FINDINGS);
        let mut found = None;
        self.walk(inode, &findings, None, &mut |step| {
            if let Step::Run(run) = step
                && let Ok(logical) = u32::try_from(logical)
                && let Some(block) = run.map(logical)
            {
                found = Some((block, state(&run)));
            }
            found.is_none()
        });
        let fields = vec![
            ("logical", logical.into()),
            ("block", Value::number(found.map(|f| f.0.0))),
            ("state", Value::text(found.map_or("hole", |f| f.1))),
        ];
        sink(Record::row("mapping", fields))?;
        Ok(send_findings(findings, sink)?)
    }
}

fn run_fields(step: &Step) -> Vec<(&'static str, Value)> {
    let (height, logical, block, len, state) = match step {
        Step::Node(node) => (node.height, node.logical, node.block, None, "node"),
        Step::Run(run) => (
            0,
            run.logical.into(),
            run.physical,
            Some(run.len),
            state(run),
        ),
    };
    vec![
        ("height", height.into()),
        ("logical", logical.into()),
        ("block", block.0.into()),
        ("length", Value::number(len)),
        ("state", Value::text(state)),
    ]
}

const fn state(run: &Extent) -> &'static str {
    if run.unwritten {
        "unwritten"
    } else {
        "written"
    }
}

fn time_of(time: Timestamp, is_known: bool) -> Value {
    if is_known {
        Value::Time(time.secs())
    } else {
        Value::Nothing
    }
}
