//! Sorts a batch and nets it inode by inode: changes that cancel out inside a batch never reach the disk.
//!
//! Sorting is on plain arrays of numbers: key in the high bits, position in the batch in the low bits, so that items of
//! one transaction with the same stamp keep their order.

use super::directory::{NetChange, NetName};
use super::spread_sort;
use super::threads;
use crate::chunks::Chunks;
use crate::error::{Error, Result};
use crate::item::{
    InodeEvent, InodeItem, ItemList, MapItem, MiscEvent, MiscItem, NameEvent, NameItem, Stamp,
};
use ext4_format::InodeNr;
use ext4_format::timestamp::Timestamp;

/// A batch, sorted.
pub(super) struct Batch<'i> {
    items: &'i ItemList,
    /// Inode number, then position.
    inodes: Vec<u64>,
    maps: Vec<u64>,
    misc: Vec<u64>,
    /// Directory, hash, minor hash, position; then by name and stamp.
    names: Vec<u128>,
}

/// The fate of an inode number in this batch.
#[derive(Clone, Copy)]
pub(super) enum Fate<'i> {
    /// Allocated and freed inside the batch: nothing on disk.
    Nothing,
    /// In use before, free after the batch.
    Freed(&'i InodeItem),
    /// In use after the batch.
    Lives {
        /// The allocation, if it happened in this batch.
        init: Option<&'i InodeItem>,
        /// The last core, if any was logged.
        core: Option<&'i InodeItem>,
    },
}

/// All changes of one inode in a batch.
pub(super) struct InodeChanges<'b, 'i> {
    /// Which.
    pub ino: InodeNr,
    /// The number was in use on disk before this batch.
    pub was_used: bool,
    /// Fate of the inode.
    pub fate: Fate<'i>,
    /// Items with a lower stamp belong to an earlier life.
    since: Stamp,
    items: &'i ItemList,
    maps: &'b [u64],
    misc: &'b [u64],
    names: &'b [u128],
}

/// The net effect of names on their directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NamesSum {
    /// Time of the newest that the directory's last core does not know.
    pub newest: Option<Timestamp>,
    /// Subdirectories more.
    pub links: i64,
}

const fn position(key: u64) -> usize {
    key as u32 as usize
}

const fn name_position(key: u128) -> usize {
    key as u32 as usize
}

/// Returns the positions of `items` sorted by inode, stamp, position.
fn by_inode<T>(items: &Chunks<T>, key: impl Fn(&T) -> (InodeNr, Stamp)) -> Vec<u64> {
    let mut keys = Vec::with_capacity(items.len());
    keys.extend(
        items
            .positions()
            .map(|(i, item)| u64::from(key(item).0.0) << 32 | i as u64),
    );
    // The numbers of each slot mostly grow: a few runs, which a stable sort merges. The keys differ.
    keys.sort();
    for run in keys.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
        if run.len() > 1 {
            // The positions come from `items`.
            run.sort_unstable_by_key(|&k| (key(&items[position(k)]).1, k));
        }
    }
    keys
}

/// Returns the positions of the names sorted by directory, hash, minor hash, name, stamp, position.
fn by_name(items: &Chunks<NameItem>) -> Vec<u128> {
    let mut keys = Vec::with_capacity(items.len());
    keys.extend(items.positions().map(|(i, n)| {
        u128::from(n.dir.0) << 96 | u128::from(n.hash) << 64 | u128::from(n.minor) << 32 | i as u128
    }));
    spread_sort::sorted(keys, |a, b| {
        (a >> 32).cmp(&(b >> 32)).then_with(|| {
            let (x, y) = (&items[name_position(a)], &items[name_position(b)]);
            let of_one_name = x.stamp.cmp(&y.stamp).then(a.cmp(&b));
            x.name.cmp(&y.name).then(of_one_name)
        })
    })
}

impl<'i> Batch<'i> {
    /// Sorts the items, by two threads if there are that many and enough items.
    pub fn new(items: &'i ItemList, threads: usize) -> Result<Self> {
        let longest = items
            .inodes
            .end()
            .max(items.names.end())
            .max(items.maps.end())
            .max(items.misc.end());
        if u32::try_from(longest).is_err() {
            return Err(Error::Unsupported("batch of 2^32 items"));
        }
        let names = || by_name(&items.names);
        let rest = || Self {
            items,
            inodes: by_inode(&items.inodes, |i| (i.ino, i.stamp)),
            maps: by_inode(&items.maps, |i| (i.ino, i.stamp)),
            misc: by_inode(&items.misc, |i| (i.ino, i.stamp)),
            names: Vec::new(),
        };
        let (names, batch) = threads::both(threads, longest, names, rest)?;
        Ok(Self { names, ..batch })
    }

    /// Returns the inodes of the batch, by number.
    fn each(&self) -> Each<'_, 'i> {
        Each {
            items: self.items,
            inodes: &self.inodes,
            maps: &self.maps,
            misc: &self.misc,
            names: &self.names,
        }
    }

    /// Returns the inodes by group, for groups of `per_group` inodes.
    pub fn units(&self, per_group: u32) -> impl Iterator<Item = Each<'_, 'i>> {
        let mut rest = self.each();
        let per_group = u64::from(per_group.max(1));
        std::iter::from_fn(move || {
            let group = u64::from(rest.head()?.saturating_sub(1)) / per_group;
            Some(rest.split_before((group + 1) * per_group + 1))
        })
    }
}

/// Iterator over the inodes of a batch, or of a part of it.
#[derive(Clone)]
pub(super) struct Each<'b, 'i> {
    items: &'i ItemList,
    inodes: &'b [u64],
    maps: &'b [u64],
    misc: &'b [u64],
    names: &'b [u128],
}

impl<'b, 'i> Each<'b, 'i> {
    /// Returns the next inode.
    #[inline]
    fn head(&self) -> Option<u32> {
        // Beyond every number.
        const NONE: u64 = u64::MAX;
        let head = |keys: &[u64]| keys.first().map_or(NONE, |k| k >> 32);
        if self.has_only_inodes() {
            return self.inodes.first().map(|k| (k >> 32) as u32);
        }
        let name_head = self.names.first().map_or(NONE, |k| (k >> 96) as u64);
        let next = head(self.inodes)
            .min(head(self.maps))
            .min(head(self.misc))
            .min(name_head);
        (next != NONE).then_some(next as u32)
    }

    #[inline]
    fn has_only_inodes(&self) -> bool {
        self.maps.len() | self.misc.len() | self.names.len() == 0
    }

    /// Returns the approximate work in the unit: its number of items.
    pub fn weight(&self) -> usize {
        self.inodes.len() + self.maps.len() + self.misc.len() + self.names.len()
    }

    /// Splits off the inodes below `end`.
    fn split_before(&mut self, end: u64) -> Self {
        fn cut<'b, K>(rest: &mut &'b [K], below: impl Fn(&K) -> bool) -> &'b [K] {
            let (head, tail) = rest.split_at(rest.partition_point(below));
            *rest = tail;
            head
        }
        let below = |k: &u64| k >> 32 < end;
        Self {
            items: self.items,
            inodes: cut(&mut self.inodes, below),
            maps: cut(&mut self.maps, below),
            misc: cut(&mut self.misc, below),
            names: cut(&mut self.names, |k| k >> 96 < u128::from(end)),
        }
    }
}

/// Splits off the leading run of one inode.
#[inline]
fn split_run<'b, K: Copy>(rest: &mut &'b [K], of: impl Fn(K) -> bool) -> &'b [K] {
    // Most inodes have no run in most lists.
    if !rest.first().is_some_and(|&k| of(k)) {
        return &[];
    }
    let n = rest.iter().position(|&k| !of(k)).unwrap_or(rest.len());
    let (run, tail) = rest.split_at(n);
    *rest = tail;
    run
}

impl<'b, 'i> Iterator for Each<'b, 'i> {
    type Item = InodeChanges<'b, 'i>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let ino = self.head()?;
        let same = |k: u64| (k >> 32) as u32 == ino;
        let events = split_run(&mut self.inodes, same);
        let (was_used, fate) = fate(self.items, events);
        // Most groups have no other changes, or none any more.
        let (maps, misc, names) = if self.has_only_inodes() {
            Default::default()
        } else {
            (
                split_run(&mut self.maps, same),
                split_run(&mut self.misc, same),
                split_run(&mut self.names, |k| (k >> 96) as u32 == ino),
            )
        };
        let since = match fate {
            Fate::Lives {
                init: Some(init), ..
            } => init.stamp,
            _ => 0,
        };
        Some(InodeChanges {
            ino: InodeNr(ino),
            was_used,
            fate,
            since,
            items: self.items,
            maps,
            misc,
            names,
        })
    }
}

/// Returns whether the number was in use before, and its fate in the batch.
fn fate<'i>(items: &'i ItemList, events: &[u64]) -> (bool, Fate<'i>) {
    // Positions come from the list itself.
    let item = |&k: &u64| &items.inodes[position(k)];
    if let [only] = events {
        let only = item(only);
        return match only.event {
            InodeEvent::Free => (true, Fate::Freed(only)),
            event => {
                let born = event == InodeEvent::Init;
                let fate = Fate::Lives {
                    init: born.then_some(only),
                    core: Some(only),
                };
                (!born, fate)
            }
        };
    }
    let was_used = events
        .first()
        .is_none_or(|k| item(k).event != InodeEvent::Init);
    let turn = events
        .iter()
        .map(item)
        .rfind(|i| i.event != InodeEvent::Update);
    let fate = match turn.map(|i| (i.event, i)) {
        Some((InodeEvent::Free, item)) if was_used => Fate::Freed(item),
        Some((InodeEvent::Free, _)) => Fate::Nothing,
        _ => Fate::Lives {
            init: turn,
            core: events.last().map(item),
        },
    };
    (was_used, fate)
}

impl<'i> InodeChanges<'_, 'i> {
    /// Returns the mapping changes of the inode's present life, in order.
    pub fn maps(&self) -> impl Iterator<Item = &'i MapItem> {
        let (items, since) = (self.items, self.since);
        self.maps
            .iter()
            .map(move |&k| &items.maps[position(k)])
            .filter(move |m| m.stamp >= since)
    }

    /// Returns the other events of the inode's present life, in order.
    pub fn misc(&self) -> impl Iterator<Item = &'i MiscEvent> {
        let (items, since) = (self.items, self.since);
        let of_life = move |m: &&MiscItem| m.stamp >= since;
        self.misc
            .iter()
            .map(move |&k| &items.misc[position(k)])
            .filter(of_life)
            .map(|m| &m.event)
    }

    /// Returns true if no mapping was logged, in any life.
    pub fn is_unmapped(&self) -> bool {
        self.maps.is_empty()
    }

    /// Returns true if a name was logged in the inode's present life as a directory.
    pub fn has_names(&self) -> bool {
        self.names
            .iter()
            .any(|&k| self.items.names[name_position(k)].stamp >= self.since)
    }

    /// Puts the directory's net changes into `net`, in the order of the index.
    #[inline(never)]
    pub fn names(&self, net: &mut Vec<NetName<'i>>) -> NamesSum {
        net.clear();
        net.reserve(self.names.len());
        let mut sum = NamesSum::default();
        let (newborn, core_stamp) = match self.fate {
            Fate::Lives { init, core } => (init.is_some(), core.map(|c| c.stamp)),
            _ => return sum,
        };
        // Returns whether the directory lacked the name before the batch, and the last event of the name.
        let mut run: Option<(bool, &'i NameItem)> = None;
        let mut emit = |(is_new, item): (bool, &'i NameItem)| {
            let change = match item.event {
                // The name was added and removed in this batch.
                NameEvent::Removed if is_new => return,
                NameEvent::Removed => NetChange::Remove,
                _ => NetChange::Add(item.ino),
            };
            net.push(NetName {
                hash: item.hash,
                minor: item.minor,
                name: item.name.as_bytes(),
                ftype: item.ftype,
                change,
                is_new,
            });
        };
        let items = &self.items.names;
        // Names that are adjacent in the index are far apart in the batch.
        for item in percpu::prefetched(self.names.iter().map(|&k| &items[name_position(k)])) {
            if item.stamp < self.since {
                continue;
            }
            sum.links += i64::from(item.links);
            if core_stamp.is_none_or(|s| item.stamp > s) {
                sum.newest = sum.newest.max(Some(item.time));
            }
            // The last of equal names is the net change. The first shows whether the name existed before.
            let same = |before: &NameItem| {
                (before.hash, before.minor, &before.name) == (item.hash, item.minor, &item.name)
            };
            match &mut run {
                Some((_, last)) if same(last) => *last = item,
                _ => {
                    // A directory born in this batch had no names.
                    let is_new = newborn || item.event == NameEvent::Added;
                    if let Some(done) = run.replace((is_new, item)) {
                        emit(done);
                    }
                }
            }
        }
        if let Some(last) = run {
            emit(last);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;
    use ext4_format::FileType;
    use ext4_format::inode::InodeCore;

    fn inode(ino: u32, event: InodeEvent, stamp: Stamp) -> InodeItem {
        InodeItem {
            ino: InodeNr(ino),
            event,
            stamp,
            core: InodeCore::default(),
        }
    }

    fn name(dir: u32, name: &[u8], ino: u32, stamp: Stamp) -> NameItem {
        NameItem {
            dir: InodeNr(dir),
            ino: InodeNr(ino),
            replaced: InodeNr(0),
            event: match ino {
                0 => NameEvent::Removed,
                _ => NameEvent::Set,
            },
            hash: 2,
            minor: 7,
            stamp,
            time: Timestamp::new(stamp as i64, 0),
            ftype: FileType::Regular,
            links: stamp as i8,
            name: Name::new(name).unwrap(),
        }
    }

    #[test]
    fn lives_are_told_apart() {
        use InodeEvent::{Free, Init, Update};
        let items = ItemList {
            inodes: vec![
                inode(14, Update, 9),
                inode(12, Free, 5),
                inode(12, Init, 3),
                inode(13, Update, 1),
                inode(13, Free, 4),
                inode(14, Init, 8),
                inode(14, Free, 2),
            ]
            .into(),
            ..ItemList::default()
        };
        let batch = Batch::new(&items, 2).unwrap();
        let all: Vec<_> = batch.each().collect();
        assert!(matches!(
            (all[0].was_used, all[0].fate),
            (false, Fate::Nothing)
        ));
        assert!(matches!((all[1].was_used, all[1].fate), (true, Fate::Freed(i)) if i.stamp == 4));
        assert!(matches!((all[2].was_used, all[2].fate),
            (true, Fate::Lives { init: Some(i), core: Some(c) }) if (i.stamp, c.stamp) == (8, 9)));
        assert_eq!((all.len(), all[2].since), (3, 8));
    }

    /// Returns each name's net state as (name, whether it stays, whether it is new), from events as (name, event,
    /// stamp).
    fn netted(events: &[(&'static [u8], NameEvent, Stamp)]) -> Vec<(Vec<u8>, bool, bool)> {
        let item = |&(bytes, event, stamp): &(&'static [u8], NameEvent, Stamp)| NameItem {
            event,
            ..name(2, bytes, 12, stamp)
        };
        let items = ItemList {
            names: events.iter().map(item).collect::<Vec<_>>().into(),
            inodes: vec![inode(2, InodeEvent::Update, 1)].into(),
            ..ItemList::default()
        };
        let mut net = Vec::new();
        Batch::new(&items, 1)
            .unwrap()
            .each()
            .next()
            .unwrap()
            .names(&mut net);
        let stays = |n: &NetName<'_>| n.change != NetChange::Remove;
        net.iter()
            .map(|n| (n.name.to_vec(), stays(n), n.is_new))
            .collect()
    }

    #[test]
    fn the_first_event_of_a_name_tells_whether_it_is_new() {
        use NameEvent::{Added, Removed, Set};
        // Net state of the name: whether it stays, and whether it is new.
        type Left = Option<(bool, bool)>;
        let runs: [(&[NameEvent], Left); 7] = [
            (&[Added], Some((true, true))),
            (&[Added, Set], Some((true, true))),
            (&[Added, Removed], None),
            (&[Added, Removed, Added], Some((true, true))),
            (&[Removed], Some((false, false))),
            (&[Removed, Added], Some((true, false))),
            (&[Set, Removed, Added, Removed], Some((false, false))),
        ];
        for (run, expected) in runs {
            // The inode's items lie between others, and were logged by several slots.
            let mut events = vec![(&b"z"[..], Set, 1), (b"a", Added, 2)];
            events.extend(
                run.iter()
                    .zip(3..)
                    .map(|(event, stamp)| (&b"m"[..], *event, stamp)),
            );
            events.reverse();
            let mut all = vec![(b"a".to_vec(), true, true)];
            all.extend(expected.map(|(stays, is_new)| (b"m".to_vec(), stays, is_new)));
            all.push((b"z".to_vec(), true, false));
            assert_eq!(netted(&events), all, "{run:?}");
        }
    }

    #[test]
    fn units_are_groups() {
        use InodeEvent::Update;
        let items = ItemList {
            inodes: [1, 16, 17, 40].map(|n| inode(n, Update, 1)).to_vec().into(),
            names: vec![name(16, b"a", 5, 1), name(33, b"b", 5, 1)].into(),
            ..ItemList::default()
        };
        let batch = Batch::new(&items, 2).unwrap();
        let units: Vec<(usize, Vec<u32>)> = batch
            .units(16)
            .map(|u| (u.weight(), u.map(|c| c.ino.0).collect()))
            .collect();
        assert_eq!(units, [(3, vec![1, 16]), (1, vec![17]), (2, vec![33, 40])]);
    }

    #[test]
    fn names_are_netted_by_name() {
        let items = ItemList {
            names: vec![
                name(2, b"b", 20, 4),
                name(2, b"a", 0, 3),
                name(2, b"a", 12, 1),
                name(2, b"b", 21, 6),
            ]
            .into(),
            inodes: vec![inode(2, InodeEvent::Update, 4)].into(),
            ..ItemList::default()
        };
        let batch = Batch::new(&items, 2).unwrap();
        let mut net = Vec::new();
        let all: Vec<_> = batch.each().collect();
        let sum = NamesSum {
            newest: Some(Timestamp::new(6, 0)),
            links: 4 + 3 + 1 + 6,
        };
        assert_eq!(all[0].names(&mut net), sum);
        let got: Vec<_> = net
            .iter()
            .map(|n| (n.name, matches!(n.change, NetChange::Add(InodeNr(21)))))
            .collect();
        assert_eq!(got, [(&b"a"[..], false), (&b"b"[..], true)]);
    }
}
