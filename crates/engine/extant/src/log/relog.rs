//! Logging again in place (mechanism C2, and for blocks C5). An operation that continues where the previous one stopped
//! changes the items of that operation instead of adding its own. An operation that removes everything that the
//! previous one added strikes its items out. So a file that grows block by block, or grows and is cut again and again,
//! costs a few items per context, however many operations that takes. Blocks that are allocated and freed inside one
//! context are free at once, because they were never in the log.
//!
//! Two operations become one in this way, with the order of the later. That is correct only if no third operation can
//! lie between them in a crash. So the first must be the last commit of its slot and the last change of the inode, in
//! the context that is still open. Any operation that has seen the first has seen it through the slot or the inode.

use super::transaction::Commit;
use ext4_format::inode::InodeCore;
use ext4_format::{BlockNr, InodeNr};
use extant_formatter::extent_map::Run;
use extant_formatter::item::{InodeEvent, InodeItem, MapItem, Stamp};
use percpu::SlotId;

/// The positions of the items of a mapping's last change.
#[derive(Clone, Copy, Debug)]
pub struct Relog {
    context: u64,
    slot: SlotId,
    stamp: Stamp,
    inode: usize,
    /// The item of the taken run; its length is zero once it is struck out.
    bits: usize,
    /// The item of the mapped run, with the same length.
    map: Option<usize>,
    /// The item of the cut, before the run was mapped.
    hole: Option<usize>,
}

impl Relog {
    /// Returns true if the change was logged in this context. The commit decides whether it can be logged again.
    pub fn is_of(&self, context: u64) -> bool {
        self.context == context
    }
}

impl Commit<'_> {
    fn may_log_again(&self, last: &Relog, seen: Stamp) -> bool {
        last.context == self.context
            && last.slot == self.slot
            && last.stamp == self.before
            && last.stamp == seen
    }

    /// Logs that a run, taken for the inode, is mapped, and the core of the inode; in place if it continues where
    /// `last` stopped. `seen` is the stamp of the inode's last item. True if it was done in place.
    pub fn extend(
        &mut self,
        ino: InodeNr,
        run: Run,
        core: InodeCore,
        last: &mut Option<Relog>,
        seen: Stamp,
    ) -> bool {
        if let Some(last) = last
            && self.may_log_again(last, seen)
            && self.extend_in_place(ino, run, last)
        {
            self.log_again(last, core);
            return true;
        }
        self.map_run(ino, run, true);
        self.inode(ino, InodeEvent::Update, core);
        let list = &*self.list;
        *last = match (
            list.inodes.last_position(),
            list.bits.last_position(),
            list.maps.last_position(),
        ) {
            (Some(inode), Some(bits), Some(map)) => Some(Relog {
                context: self.context,
                slot: self.slot,
                stamp: self.stamp,
                inode,
                bits,
                map: Some(map),
                hole: None,
            }),
            _ => None,
        };
        false
    }

    fn extend_in_place(&mut self, ino: InodeNr, run: Run, last: &mut Relog) -> bool {
        let bits = &mut self.list.bits[last.bits];
        let item = MapItem {
            ino,
            stamp: self.stamp,
            logical: run.logical,
            len: run.len,
            physical: run.physical,
            unwritten: run.unwritten,
        };
        if bits.len == 0 {
            (bits.start, bits.len) = (run.physical, run.len);
            match last.map {
                Some(map) => self.list.maps[map] = item,
                None => {
                    self.list.maps.push_in(item, &self.log.spare.maps);
                    last.map = self.list.maps.last_position();
                }
            }
        } else {
            let Some(map) = last.map else {
                return false;
            };
            let map = &mut self.list.maps[map];
            let follows = u64::from(map.logical) + u64::from(map.len) == u64::from(run.logical)
                && map.physical.0 + u64::from(map.len) == run.physical.0
                && map.unwritten == run.unwritten;
            let (true, Some(len)) = (follows, map.len.checked_add(run.len)) else {
                return false;
            };
            map.len = len;
            bits.len = len;
        }
        true
    }

    /// Strikes out the run that `last` logged, if it is the run in `gone` and no other is mapped from `from` on: its
    /// blocks were never taken. True if it was struck out.
    pub fn strike_out(
        &mut self,
        ino: InodeNr,
        gone: &[Run],
        from: u32,
        core: InodeCore,
        last: &mut Option<Relog>,
        seen: Stamp,
    ) -> bool {
        let ([gone], Some(last)) = (gone, last) else {
            return false;
        };
        let Some(map) = last.map.filter(|_| self.may_log_again(last, seen)) else {
            return false;
        };
        let (bits, item) = (&mut self.list.bits[last.bits], &mut self.list.maps[map]);
        let whole = (bits.start, bits.len) == (gone.physical, gone.len)
            && (item.logical, item.len) == (gone.logical, gone.len)
            && from <= gone.logical;
        if !whole {
            return false;
        }
        bits.len = 0;
        item.len = 0;
        let hole = MapItem {
            ino,
            stamp: self.stamp,
            logical: from,
            len: u32::MAX - from,
            physical: BlockNr(0),
            unwritten: false,
        };
        match last.hole {
            // The earlier hole already extends to the end of the file, so the one that starts lower is kept.
            Some(before) => {
                let before = &mut self.list.maps[before];
                if from < before.logical {
                    *before = hole;
                }
            }
            // The hole takes the run's position: the next run follows it.
            None => {
                *item = hole;
                (last.hole, last.map) = (Some(map), None);
            }
        }
        self.log_again(last, core);
        true
    }

    /// Logs the core of an inode in a commit that logs nothing else. If the slot's previous commit logged nothing but
    /// this inode's core, its item is changed instead. `seen` is the stamp of the inode's last item.
    pub fn core_alone(&mut self, ino: InodeNr, core: InodeCore, seen: Stamp) {
        let list = &mut *self.list;
        let is_previous = |stamp: Option<Stamp>| stamp == Some(self.before);
        let [last, second] = list.inodes.last_two();
        let same = last.is_some_and(|item| item.ino == ino && item.event == InodeEvent::Update);
        let alone = ![
            second.map(|item| item.stamp),
            list.names.last_two()[0].map(|item| item.stamp),
            list.maps.last_two()[0].map(|item| item.stamp),
            list.bits.last_two()[0].map(|item| item.stamp),
            list.misc.last_two()[0].map(|item| item.stamp),
        ]
        .into_iter()
        .any(is_previous);
        let again = same && seen == self.before && is_previous(last.map(|item| item.stamp));
        match list.inodes.last_position().filter(|_| again && alone) {
            Some(at) => {
                let item = &mut list.inodes[at];
                (item.stamp, item.core) = (self.stamp, core);
                self.in_place = true;
            }
            None => self.inode(ino, InodeEvent::Update, core),
        }
    }

    /// Stamps all of its items with this commit's order.
    fn log_again(&mut self, last: &mut Relog, core: InodeCore) {
        last.stamp = self.stamp;
        let InodeItem {
            stamp, core: old, ..
        } = &mut self.list.inodes[last.inode];
        (*stamp, *old) = (self.stamp, core);
        self.list.bits[last.bits].stamp = self.stamp;
        for map in [last.hole, last.map].into_iter().flatten() {
            self.list.maps[map].stamp = self.stamp;
        }
        self.in_place = true;
    }
}
