//! The names of one leaf: merged with changes, packed into a block, split over several.

use super::shape::Shape;
use super::update::{NetChange, NetName};
use super::wanted::WantedNames;
use crate::block_memory;
use crate::image::{Image, RecordsEnd};
use ext4_format::dir_entry::{self, LeafBuilder, Packed, RawRecord, rec_len_for};
use ext4_format::hash::DirHasher;
use ext4_format::htree::DxEntry;
use ext4_format::{FileType, FormatError, InodeNr, Where};

/// Most fill of leaves, in percent, when many are made at once.
const BULK_FILL: usize = 77;

/// A name as it will stand in a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'a> {
    /// Directory hash; 0 for an existing name until [`Merged::hash_existing`].
    pub hash: u32,
    pub ino: InodeNr,
    pub ftype: Option<FileType>,
    pub name: &'a [u8],
}

impl<'a> Item<'a> {
    fn of(record: &RawRecord<'a>) -> Self {
        Self {
            hash: 0,
            ino: record.inode,
            ftype: FileType::from_dir_byte(record.file_type),
            name: record.name,
        }
    }

    fn len(&self) -> usize {
        rec_len_for(self.name.len())
    }
}

/// Changes of which some are done.
pub(super) struct Pending<'n> {
    pub changes: &'n [NetName<'n>],
    pub done: Vec<bool>,
    filetype: bool,
}

impl<'n> Pending<'n> {
    pub fn new(changes: &'n [NetName<'n>], shape: &Shape) -> Self {
        Self {
            changes,
            done: vec![false; changes.len()],
            filetype: shape.filetype,
        }
    }

    /// Returns the names to add that no leaf had until now.
    pub fn adds(&self) -> impl Iterator<Item = Item<'n>> + '_ {
        let open = self
            .changes
            .iter()
            .zip(&self.done)
            .filter(|(_, done)| !**done);
        open.filter_map(|(c, _)| match c.change {
            NetChange::Add(ino) => {
                let ftype = self.filetype.then_some(c.ftype);
                Some(Item {
                    hash: c.hash,
                    ino,
                    ftype,
                    name: c.name,
                })
            }
            NetChange::Remove => None,
        })
    }
}

/// The contents of a leaf after the merge.
pub(super) struct Merged<'a> {
    /// The names, without those that are [folded](Merged::folded).
    pub items: Vec<Item<'a>>,
    /// Bytes that they take.
    pub bytes: usize,
    /// Whether the result differs from the present leaf.
    pub changed: bool,
    existing: usize,
    /// The records at the start that stay as they are, without gaps. Most leaves of a large directory get a few names
    /// behind many.
    kept: Packed,
    /// This many names at the start, all of them kept, have no items.
    folded: usize,
}

impl<'a> Merged<'a> {
    /// Merges the names of `block` with removals and replacements, and marks the changes found as done. If `checked` is
    /// set, the names need no check. "." and ".." are names like others here, and no change names them.
    pub fn new(
        block: &'a [u8],
        checked: bool,
        wanted: &WantedNames<'_>,
        pending: &mut Pending<'_>,
    ) -> Result<Self, FormatError> {
        let mut merged = Self::folded(block, checked, wanted, pending)?;
        merged.unfold(block)?;
        Ok(merged)
    }

    /// Merges without items for the names at the start that stay as they are, because they are not needed to write the
    /// leaf.
    pub fn folded(
        block: &'a [u8],
        checked: bool,
        wanted: &WantedNames<'_>,
        pending: &mut Pending<'_>,
    ) -> Result<Self, FormatError> {
        let mut merged = Self::empty();
        merged.changed = false;
        // Of most leaves, hardly more than these names is read.
        let kept = dir_entry::packed(block, checked, |name| !wanted.may_have(name));
        (merged.kept, merged.bytes) = (kept, kept.bytes);
        (merged.existing, merged.folded) = (kept.records, kept.records);
        for record in dir_entry::records(block, merged.kept.bytes, checked) {
            let record = record?;
            let old = Item::of(&record);
            let mut item = old;
            if let Some(i) = wanted.find(record.name) {
                // `wanted` and `pending` have the same changes, so i is in range.
                pending.done[i] = true;
                let NetName { change, ftype, .. } = pending.changes[i];
                let NetChange::Add(ino) = change else {
                    merged.changed = true;
                    continue;
                };
                let ftype = pending.filetype.then_some(ftype);
                (item.ino, item.ftype) = (ino, ftype);
            }
            let same = (item.ino, item.ftype) == (old.ino, old.ftype);
            merged.changed |= !same;
            merged.existing += 1;
            merged.bytes += record.used;
            if same && merged.items.is_empty() && merged.kept.bytes == record.offset {
                merged.folded += 1;
                merged.kept = Packed {
                    records: merged.folded,
                    bytes: merged.bytes,
                    last: record.offset,
                };
            } else {
                merged.items.push(item);
            }
        }
        Ok(merged)
    }

    /// Makes items of all names; `block` is the one it was made of.
    pub fn unfold(&mut self, block: &'a [u8]) -> Result<(), FormatError> {
        let mut items = Vec::with_capacity(block.len() / 32);
        for record in dir_entry::records(block, 0, true).take(self.folded) {
            items.push(Item::of(&record?));
        }
        items.append(&mut self.items);
        (self.items, self.folded) = (items, 0);
        Ok(())
    }

    /// Makes a leaf without names.
    pub fn empty() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            changed: true,
            existing: 0,
            kept: Packed::default(),
            folded: 0,
        }
    }

    /// Makes an existing name lead to another inode.
    pub fn lead(&mut self, position: usize, ino: InodeNr) {
        if let Some(item) = self.items.get_mut(position).filter(|item| item.ino != ino) {
            item.ino = ino;
            self.changed = true;
            self.kept = Packed::default();
        }
    }

    /// Writes all of it to a block that fits it, and its checksum; `old` is the block it was made of. Returns where its
    /// records end.
    pub fn write(
        &self,
        old: &[u8],
        block: &mut [u8],
        shape: &Shape,
    ) -> Result<Option<RecordsEnd>, FormatError> {
        let Packed {
            records: count,
            bytes,
            last,
        } = self.kept;
        let records = old.get(..bytes).unwrap_or(&[]);
        let rest = self.items.get(count - self.folded..).unwrap_or(&[]);
        let end = match LeafBuilder::continuing(block, shape.csum, records, last) {
            Some(leaf) => finish(leaf, rest.iter().copied()),
            None if self.folded == 0 => {
                let leaf = LeafBuilder::new(block, shape.csum);
                finish(leaf, self.items.iter().copied())
            }
            None => Err(overflow()),
        }?;
        set_checksum(block, shape);
        Ok(end)
    }

    /// Appends new names.
    pub fn extend(&mut self, adds: impl Iterator<Item = Item<'a>>) {
        for item in adds {
            self.bytes += item.len();
            self.items.push(item);
            self.changed = true;
        }
    }

    /// Appends new names while they fit.
    pub fn fill<'n: 'a>(
        &mut self,
        adds: &mut std::iter::Peekable<impl Iterator<Item = Item<'n>>>,
        usable: usize,
    ) {
        while let Some(item) = adds.next_if(|item| self.bytes + item.len() <= usable) {
            self.extend(std::iter::once(item));
        }
    }

    /// Computes the hashes of the names that were in the leaf, but for the first `skip` ones.
    pub fn hash_existing(&mut self, hasher: &DirHasher, skip: usize) {
        let existing = self.items.get_mut(skip..self.existing);
        let names = existing.unwrap_or_default();
        hasher.hash_each(names, |item| item.name, |item, (hash, _)| item.hash = hash);
    }
}

/// A leaf in the index, and what a batch does to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf<'n> {
    /// Index entry of the leaf.
    pub entry: DxEntry,
    /// Hash of the entry to its right, if there is one.
    pub next: Option<u32>,
    /// Changes of names whose hash lies between the two.
    pub changes: &'n [NetName<'n>],
}

/// Facts about the block of a leaf.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeafFacts {
    /// The names of the leaf need no check.
    pub checked: bool,
    /// End of the leaf's records.
    pub end: Option<RecordsEnd>,
}

impl LeafFacts {
    pub fn of(image: &Image) -> Self {
        Self {
            checked: image.has_checked_names(),
            end: image.records_end(),
        }
    }
}

/// A leaf as it is to be written.
#[derive(Debug)]
pub(super) struct NewLeaf {
    /// The hash for its index entry.
    pub hash: u32,
    /// Block of the leaf.
    pub bytes: Vec<u8>,
    /// End of the leaf's records.
    pub end: Option<RecordsEnd>,
}

/// The leaves that replace a leaf: none if it stays as it is, otherwise one or more.
pub(super) type Rewritten = Vec<NewLeaf>;

impl Leaf<'_> {
    /// Returns true if the leaf's first or last hash continues in a neighbour leaf.
    pub fn is_chained(&self) -> bool {
        self.entry.hash & 1 == 1 || self.next.is_some_and(|next| next & 1 == 1)
    }

    /// Works out what becomes of it; `page` is its block as it is; `pending` its changes of which some may be done.
    pub fn rewritten(
        &self,
        page: &[u8],
        known: LeafFacts,
        mut pending: Pending<'_>,
        shape: &Shape,
        hasher: &DirHasher,
    ) -> Result<Rewritten, FormatError> {
        let are_new = self.changes.iter().all(|change| change.is_new);
        debug_assert!(!are_new || self.has_none_of_its_changes(page, shape));
        if are_new
            && let Some(end) = known.end
            && let Some(leaf) = self.continued(page, end, &pending, shape)?
        {
            return Ok(vec![leaf]);
        }
        // New names need not be searched for in any leaf.
        let wanted = WantedNames::new(if are_new { &[] } else { self.changes });
        let mut merged = Merged::folded(page, known.checked, &wanted, &mut pending)?;
        let before = merged.bytes;
        merged.extend(pending.adds());
        if !merged.changed {
            return Ok(Vec::new());
        }
        if merged.bytes <= shape.full().max(before) {
            let mut bytes = block_memory::unset(shape.block_size);
            let end = merged.write(page, &mut bytes, shape)?;
            let hash = self.entry.hash;
            return Ok(vec![NewLeaf { hash, bytes, end }]);
        }
        merged.unfold(page)?;
        merged.hash_existing(hasher, 0);
        let Self { entry, next, .. } = *self;
        let inside = |hash| hash >= entry.hash & !1 && next.is_none_or(|next| hash < next);
        if merged.items.iter().any(|item| !inside(item.hash)) {
            let what = "name in the wrong htree leaf";
            return Err(FormatError::corrupt(what, Where::Buffer(0)));
        }
        merged.items.sort_by_key(|item| item.hash);
        cut(&merged.items, merged.bytes, shape.usable())
            .into_iter()
            .map(|(hash, names)| {
                let mut bytes = block_memory::unset(shape.block_size);
                let end = write(&mut bytes, names, shape)?;
                Ok(NewLeaf { hash, bytes, end })
            })
            .collect()
    }

    /// Returns true if no change is of a name in the leaf.
    fn has_none_of_its_changes(&self, page: &[u8], shape: &Shape) -> bool {
        let mut pending = Pending::new(self.changes, shape);
        let found = Merged::folded(page, false, &WantedNames::new(self.changes), &mut pending);
        found.is_err() || !pending.done.contains(&true)
    }

    /// Returns the leaf with its changes, all of them new names, behind the records that end at `end`. Returns `None`
    /// if they do not fit.
    fn continued(
        &self,
        page: &[u8],
        end: RecordsEnd,
        pending: &Pending<'_>,
        shape: &Shape,
    ) -> Result<Option<NewLeaf>, FormatError> {
        let (last, there) = (usize::from(end.last), usize::from(end.bytes));
        let more: usize = self.changes.iter().map(|c| rec_len_for(c.name.len())).sum();
        if there + more > shape.full() {
            return Ok(None);
        }
        let mut bytes = block_memory::unset(shape.block_size);
        let records = page.get(..there).unwrap_or(&[]);
        let Some(leaf) = LeafBuilder::continuing(&mut bytes, shape.csum, records, last) else {
            return Ok(None);
        };
        let end = finish(leaf, pending.adds())?;
        set_checksum(&mut bytes, shape);
        let hash = self.entry.hash;
        Ok(Some(NewLeaf { hash, bytes, end }))
    }
}

/// Writes a leaf and its checksum. Returns where its records end.
pub(super) fn write(
    block: &mut [u8],
    items: &[Item<'_>],
    shape: &Shape,
) -> Result<Option<RecordsEnd>, FormatError> {
    let end = finish(LeafBuilder::new(block, shape.csum), items.iter().copied())?;
    set_checksum(block, shape);
    Ok(end)
}

fn overflow() -> FormatError {
    FormatError::corrupt("names that overflow a directory block", Where::Buffer(0))
}

/// Appends names to the present ones, and returns the end of the records.
fn finish<'a>(
    mut leaf: LeafBuilder<'_>,
    items: impl IntoIterator<Item = Item<'a>>,
) -> Result<Option<RecordsEnd>, FormatError> {
    for item in items {
        if !leaf.push(item.name, item.ino, item.ftype)? {
            return Err(overflow());
        }
    }
    let end = leaf.last().and_then(|(last, end)| {
        Some(RecordsEnd {
            last: last.try_into().ok()?,
            bytes: end.try_into().ok()?,
        })
    });
    leaf.finish();
    Ok(end)
}

fn set_checksum(block: &mut [u8], shape: &Shape) {
    if shape.csum {
        dir_entry::set_tail(block, shape.seed);
    }
}

/// Cuts names in hash order, which take `bytes` together, into evenly filled leaves: in two halves if
/// that leaves room, into more if there are many. Each leaf comes with the hash its index entry
/// states: odd when the leaf before it has names of that hash too.
pub(super) fn cut<'s, 'a>(
    items: &'s [Item<'a>],
    bytes: usize,
    usable: usize,
) -> Vec<(u32, &'s [Item<'a>])> {
    let wanted = bytes.div_ceil(usable * BULK_FILL / 100).max(2);
    let mut leaves = Vec::with_capacity(wanted);
    let (mut first, mut in_leaf, mut total) = (0, 0, 0);
    let close = |leaves: &mut Vec<_>, first: usize, end: usize| {
        let names = &items[first..end];
        let hash = names.first().map_or(0, |n| n.hash);
        let continued = first > 0 && items[first - 1].hash == hash;
        leaves.push((hash | u32::from(continued), names));
    };
    for (i, item) in items.iter().enumerate() {
        let full = total >= bytes * (leaves.len() + 1) / wanted || in_leaf + item.len() > usable;
        if in_leaf > 0 && full {
            close(&mut leaves, first, i);
            (first, in_leaf) = (i, 0);
        }
        in_leaf += item.len();
        total += item.len();
    }
    close(&mut leaves, first, items.len());
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_evenly_and_marks_collisions() {
        let item = |hash| Item {
            hash,
            ino: InodeNr(12),
            ftype: None,
            name: b"12345678",
        };
        // 16 bytes each; 63 fit in 1012 bytes.
        let items: Vec<_> = (0..64).map(|i| item(i * 2)).collect();
        let leaves = cut(&items, 64 * 16, 1012);
        assert_eq!(
            leaves
                .iter()
                .map(|(h, l)| (*h, l.len()))
                .collect::<Vec<_>>(),
            [(0, 32), (64, 32)]
        );
        let items: Vec<_> = (0..6400).map(|i| item(i * 2)).collect();
        let leaves = cut(&items, 6400 * 16, 1012);
        assert_eq!(leaves.len(), (6400 * 16_usize).div_ceil(779));
        assert!(
            leaves
                .iter()
                .all(|(h, l)| *h == l[0].hash && (40..=50).contains(&l.len()))
        );
        let items: Vec<_> = (0..100).map(|_| item(6)).collect();
        let leaves = cut(&items, 1600, 1012);
        assert_eq!(leaves.iter().map(|l| l.0).collect::<Vec<_>>(), [6, 7, 7]);
    }

    /// A name that cannot be one is found wherever it stands: among the names that are kept, or behind them.
    #[test]
    fn names_of_the_device_are_checked() {
        let shape = Shape {
            keeps_room: false,
            block_size: 1024,
            csum: false,
            filetype: false,
            large_dir: false,
            seed: 7,
        };
        let names: Vec<_> = (0..20).map(|n| format!("name.of.{n}")).collect();
        let item = |name: &'static str| Item {
            hash: 0,
            ino: InodeNr(12),
            ftype: None,
            name: name.as_bytes(),
        };
        let names: Vec<_> = names.into_iter().map(|n| item(n.leak())).collect();
        let mut sound = vec![0; 1024];
        write(&mut sound, &names, &shape).unwrap();
        let folded = |block: &[u8]| {
            let mut pending = Pending::new(&[], &shape);
            Merged::folded(block, false, &WantedNames::new(&[]), &mut pending).map(|m| m.existing)
        };
        assert_eq!(folded(&sound), Ok(20));
        let places: Vec<_> = dir_entry::entries(&sound)
            .map(|e| e.unwrap().offset)
            .collect();
        for at in places {
            let mut harmed = sound.clone();
            harmed[at as usize + 12] = b'/';
            assert!(folded(&harmed).is_err(), "{at}");
        }
    }

    proptest::proptest! {
        /// The records that a leaf keeps are as if all had been written again.
        #[test]
        fn what_stays_is_as_if_written_again(
            there in proptest::collection::btree_map(0u8..60, 12u32..99, 0..40),
            changes in proptest::collection::btree_map(0u8..60, proptest::option::of(12u32..99), 0..8),
            csum in proptest::prelude::any::<bool>(),
        ) {
            let shape = Shape { block_size: 1024, csum, filetype: true, large_dir: false, keeps_room: false, seed: 7 };
            let names: Vec<_> = (0..60).map(|n| format!("{n:0width$}", width = 1 + n % 9)).collect();
            let ftype = FileType::Regular;
            let items: Vec<_> = there
                .iter()
                .map(|(&n, &ino)| Item { hash: 0, ino: InodeNr(ino), ftype: Some(ftype), name: names[usize::from(n)].as_bytes() })
                .collect();
            let mut old = vec![0; 1024];
            write(&mut old, &items, &shape).unwrap();
            let changes: Vec<_> = changes
                .iter()
                .map(|(&n, &ino)| NetName {
                    hash: 0,
                    minor: 0,
                    name: names[usize::from(n)].as_bytes(),
                    change: ino.map_or(NetChange::Remove, |ino| NetChange::Add(InodeNr(ino))),
                    ftype,
                    is_new: false,
                })
                .collect();
            let mut pending = Pending::new(&changes, &shape);
            let mut merged = Merged::new(&old, csum, &WantedNames::new(&changes), &mut pending).unwrap();
            merged.extend(pending.adds());
            let (mut kept, mut again) = (vec![0xff; 1024], vec![0; 1024]);
            merged.write(&old, &mut kept, &shape).unwrap();
            write(&mut again, &merged.items, &shape).unwrap();
            proptest::prop_assert_eq!(&kept, &again);
            proptest::prop_assert!(merged.changed || kept == old);
        }

        /// New names behind the end of the records that is known are as if the leaf had been read.
        #[test]
        fn new_names_need_no_reading(
            there in 1usize..40,
            new in proptest::collection::vec(1usize..60, 1..12),
            (csum, keeps_room) in proptest::prelude::any::<(bool, bool)>(),
        ) {
            let shape = Shape { block_size: 1024, csum, filetype: true, large_dir: false, keeps_room, seed: 7 };
            let hasher = DirHasher::new(1, false, [1, 2, 3, 4]).unwrap();
            let ftype = FileType::Regular;
            let name = |kind: char, n: usize, len: usize| format!("{kind}{n:0len$}").into_bytes();
            let old: Vec<_> = (0..there).map(|n| name('o', n, n % 9)).collect();
            let item = |name| Item { hash: 0, ino: InodeNr(12), ftype: Some(ftype), name };
            let items: Vec<_> = old.iter().map(|n| item(&n[..])).collect();
            let mut page = vec![0; 1024];
            let end = write(&mut page, &items, &shape).unwrap();
            let new: Vec<_> = new.iter().enumerate().map(|(n, len)| name('n', n, *len)).collect();
            let changes: Vec<_> = new
                .iter()
                .map(|name| NetName {
                    hash: 2,
                    minor: 0,
                    name,
                    change: NetChange::Add(InodeNr(13)),
                    ftype,
                    is_new: true,
                })
                .collect();
            let leaf = |changes| Leaf { entry: DxEntry { hash: 0, block: 1 }, next: None, changes };
            let rewritten = |changes, known| {
                leaf(changes).rewritten(&page, known, Pending::new(changes, &shape), &shape, &hasher).unwrap()
            };
            let upserts: Vec<_> = changes.iter().map(|c| NetName { is_new: false, ..*c }).collect();
            let expected = rewritten(&upserts, LeafFacts::default());
            proptest::prop_assert!(end.is_some());
            for known in [LeafFacts { checked: true, end }, LeafFacts { checked: true, end: None }, LeafFacts::default()] {
                let found = rewritten(&changes, known);
                proptest::prop_assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    proptest::prop_assert_eq!(&found.bytes, &expected.bytes);
                    proptest::prop_assert_eq!((found.hash, found.end), (expected.hash, expected.end));
                }
            }
        }

        /// The account of room in an index relies on this: a name adds one leaf at most.
        #[test]
        fn a_leaf_is_cut_into_no_more_leaves_than_names_came(
            block in proptest::sample::select(vec![1024usize, 2048, 4096, 65_536]),
            lens in proptest::collection::vec(1usize..=255, 1..400),
            short in proptest::prelude::any::<bool>(),
        ) {
            let usable = block - 12;
            let name = [b'n'; 255];
            let lens = lens.iter().cycle().map(|n| if short { 1 + n % 20 } else { *n });
            let items: Vec<_> = lens
                .zip(0..)
                .map(|(len, i)| Item { hash: i * 2, ino: InodeNr(12), ftype: None, name: &name[..len] })
                .take(block / 4)
                .collect();
            // The leaf was full, and some names were added.
            let mut bytes = 0;
            let there = items.iter().take_while(|i| { bytes += i.len(); bytes <= usable }).count();
            for came in (1..).map(|n| n * n).take_while(|n| there + n <= items.len()) {
                let all = &items[..there + came];
                let leaves = cut(all, all.iter().map(Item::len).sum(), usable);
                proptest::prop_assert!(leaves.len() <= 1 + came, "{} leaves, {came} came", leaves.len());
            }
        }

        /// And a cut takes half a leaf of new names, but for those that leaves may have had before.
        #[test]
        fn cuts_are_paid_for_in_bytes(
            block in proptest::sample::select(vec![1024usize, 2048, 4096]),
            full in 1usize..20,
            batches in proptest::collection::vec((1usize..=255, 1usize..60, 0usize..64), 1..120),
            keeps_room in proptest::prelude::any::<bool>(),
        ) {
            let shape = Shape { block_size: block, csum: true, filetype: true, large_dir: false, keeps_room, seed: 7 };
            let usable = shape.usable();
            let bytes = |leaf: &[usize]| leaf.iter().map(|n| rec_len_for(*n)).sum::<usize>();
            // Leaves of short names, full.
            let mut leaves = vec![vec![8usize; usable / 16]; full];
            let (mut cuts, mut came) = (0, 0);
            let name = [b'n'; 255];
            for (len, count, at) in batches {
                let at = at % leaves.len();
                let mut lens = leaves[at].clone();
                lens.splice(lens.len() / 2..lens.len() / 2, std::iter::repeat_n(len, count));
                came += count * rec_len_for(len);
                if bytes(&lens) <= shape.full() {
                    leaves[at] = lens;
                    continue;
                }
                let items: Vec<_> = lens
                    .iter()
                    .zip(0..)
                    .map(|(len, i)| Item { hash: i * 2, ino: InodeNr(12), ftype: None, name: &name[..*len] })
                    .collect();
                let cut = cut(&items, bytes(&lens), usable);
                cuts += cut.len() - 1;
                let new: Vec<Vec<usize>> =
                    cut.iter().map(|(_, l)| l.iter().map(|i| i.name.len()).collect()).collect();
                leaves.splice(at..=at, new);
            }
            let half = shape.full() / 2;
            let paid = full * (usable - half) + came;
            proptest::prop_assert!(
                cuts * (half - 264) <= paid,
                "{cuts} cuts of {block}, {full} leaves, {came} bytes came"
            );
        }
    }
}
