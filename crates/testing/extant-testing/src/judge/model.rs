//! The work of a task in its directory: the history of every name, size and cell.

use super::stamp::{CELL, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Number of an operation of a task, from 1; 0 is the state at the start of a round.
pub type OpNr = u32;

/// Index of a file in [`Task::files`].
pub type FileNr = usize;

/// A value that a cell had from an operation on.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub op: OpNr,
    pub value: Value,
    /// A change of metadata removed the former value: in a state that has the operation, former values are gone.
    pub for_good: bool,
    /// The operation appended the cell to the file.
    pub appended: bool,
}

/// The effect of an operation on a size.
#[derive(Clone, Copy, Debug)]
pub enum SizeEvent {
    /// The file ends here.
    Set(u64),
    /// The file ends here at the latest.
    Cut(u64),
    /// The file reaches at least here by data, which reach the device later.
    Append(u64),
    /// The file reaches at least here by a larger size, which waits until the rest of the last block is zeros on the device.
    Grow(u64),
}

/// The history of a file.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Permission bits, by which a file is known again.
    pub id: u16,
    cells: Vec<Vec<Entry>>,
    sizes: Vec<(OpNr, SizeEvent)>,
    /// Operations that changed its metadata or names.
    touched: Vec<OpNr>,
    size: u64,
}

const NOTHING: Entry = Entry {
    op: 0,
    value: 0,
    for_good: true,
    appended: false,
};

impl File {
    /// A file that holds these values at the start of a round.
    pub fn with(id: u16, values: &[Value]) -> Self {
        let cell = |&value: &Value| vec![Entry { value, ..NOTHING }];
        let size = values.len() as u64 * CELL;
        Self {
            id,
            cells: values.iter().map(cell).collect(),
            sizes: vec![(0, SizeEvent::Set(size))],
            touched: vec![0],
            size,
        }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// The values as a reader sees them now.
    pub fn values(&self, cells: std::ops::Range<u64>) -> Vec<Value> {
        cells.map(|c| self.value(c)).collect()
    }

    fn value(&self, cell: u64) -> Value {
        let history = self.cells.get(cell as usize);
        history.and_then(|h| h.last()).map_or(0, |e| e.value)
    }

    fn put(&mut self, cell: u64, entry: Entry) {
        let cell = cell as usize;
        if self.cells.len() <= cell {
            self.cells.resize_with(cell + 1, || vec![NOTHING]);
        }
        self.cells[cell].push(entry);
    }

    /// Notes data of these values from `first` on.
    pub fn write(&mut self, op: OpNr, first: u64, values: &[Value]) {
        for (cell, &value) in (first..).zip(values) {
            let entry = Entry {
                op,
                value,
                for_good: false,
                appended: cell * CELL >= self.size,
            };
            self.put(cell, entry);
        }
        let end = (first + values.len() as u64) * CELL;
        if end > self.size {
            self.size = end;
            self.sizes.push((op, SizeEvent::Append(end)));
            self.touched.push(op);
        }
    }

    /// Notes data of these values from `first` on that come in parts, as in a copy: the file may also end where a part
    /// ends, at a multiple of `block` in the source, from `at` on.
    pub fn copy(&mut self, op: OpNr, (at, block): (u64, u64), first: u64, values: &[Value]) {
        let (size, len) = (self.size, values.len() as u64 * CELL);
        self.write(op, first, values);
        let parts = (at / block + 1..).map(|n| n * block - at);
        let ends = parts.take_while(|part| *part < len);
        let ends = ends.map(|part| first * CELL + part);
        let ends = ends.filter(|end| *end > size);
        let events: Vec<_> = ends.map(|end| (op, SizeEvent::Append(end))).collect();
        // In ascending order, before the size that the whole copy leaves.
        let last = self.sizes.len().saturating_sub(1);
        self.sizes.splice(last..last, events);
    }

    /// Notes that the cells read as zeros. If `for_good` is set, the operation's metadata remove the former values.
    pub fn zero(&mut self, op: OpNr, cells: std::ops::Range<u64>, for_good: std::ops::Range<u64>) {
        let known = cells.start..cells.end.min(self.cells.len() as u64);
        for cell in known {
            let entry = Entry {
                op,
                value: 0,
                for_good: for_good.contains(&cell),
                appended: false,
            };
            self.put(cell, entry);
        }
        // Notes that parts of blocks are overwritten with zeros, as by any write.
        if !for_good.is_empty() {
            self.touched.push(op);
        }
    }

    /// Notes that the size is set.
    pub fn set_size(&mut self, op: OpNr, size: u64) {
        if size < self.size {
            let gone = size / CELL..self.cells.len() as u64;
            self.zero(op, gone.clone(), gone);
            self.sizes.push((op, SizeEvent::Cut(size)));
        } else {
            self.sizes.push((op, SizeEvent::Grow(size)));
        }
        self.size = size;
        self.touched.push(op);
    }

    /// Notes that the file reaches at least here. A server may have to be asked for this size, since its kernel keeps
    /// larger sizes to itself.
    pub fn reaches(&mut self, op: OpNr, end: u64) {
        if end > self.size {
            self.set_size(op, end);
        } else {
            self.sizes.push((op, SizeEvent::Grow(end)));
        }
    }

    /// Notes that a name of the file was added or removed.
    pub fn touch(&mut self, op: OpNr) {
        self.touched.push(op);
    }

    /// Returns the last operation up to `op` that changed the file's metadata.
    pub fn touched_by(&self, op: OpNr) -> OpNr {
        let before = self.touched.iter().copied().filter(|&t| t <= op);
        before.max().unwrap_or(0)
    }

    /// Returns the values that a cell may have in a state that has all metadata up to operation `k` and all data up to
    /// `synced`, if no operation after `now` has begun. If `appended_bytes`, a size that reaches an appended cell comes with its value, unless a larger
    /// size was set later.
    pub fn legal(
        &self,
        cell: u64,
        (synced, k, now): (OpNr, OpNr, OpNr),
        appended_bytes: bool,
    ) -> &[Entry] {
        let Some(history) = self.cells.get(cell as usize) else {
            return std::slice::from_ref(&NOTHING);
        };
        let grows = self.sizes.iter().filter(|(op, _)| *op <= k);
        let grown = grows.filter(|(_, event)| matches!(event, SizeEvent::Grow(_)));
        let grown = grown.map(|(op, _)| *op).max().unwrap_or(0);
        let comes = |e: &Entry| appended_bytes && e.appended && e.op > grown;
        let is_base = |e: &Entry| e.op <= synced || (e.for_good || comes(e)) && e.op <= k;
        let base = history.iter().rposition(is_base).unwrap_or(0);
        let end = history.partition_point(|e| e.op <= now);
        &history[base..end.max(base + 1)]
    }

    /// Returns the sizes that a file may have in such a state.
    pub fn legal_sizes(&self, synced: OpNr, k: OpNr) -> BTreeSet<u64> {
        let mut sizes = BTreeSet::from([0]);
        for &(op, event) in self.sizes.iter().filter(|(op, _)| *op <= k.max(synced)) {
            match event {
                SizeEvent::Set(size) => sizes = BTreeSet::from([size]),
                SizeEvent::Cut(size) => sizes = sizes.iter().map(|&s| s.min(size)).collect(),
                SizeEvent::Append(size) | SizeEvent::Grow(size) => {
                    sizes.insert(size);
                }
            }
            if op <= synced {
                sizes = sizes.last().copied().into_iter().collect();
            }
        }
        sizes
    }

    /// The history of a cell, for a failed test.
    pub fn tell(&self, cell: u64) -> String {
        let history = self.cells.get(cell as usize);
        let entries = history.into_iter().flatten().map(|e| {
            let good = if e.for_good { " for good" } else { "" };
            let what = super::stamp::describe(Some(e.value));
            format!("op {}: {what}{good}", e.op)
        });
        entries.collect::<Vec<_>>().join("; ")
    }
}

/// Names of a task's directory.
pub type Names = BTreeMap<String, FileNr>;

/// The history of one task.
#[derive(Clone, Debug)]
pub struct Task {
    pub files: Vec<File>,
    /// The names after each operation, those at the start first.
    pub names: Vec<Names>,
    /// A description of each operation, for a failed test.
    pub told: Vec<String>,
    /// The part that each operation made durable: a sync everything, an fsync one file.
    pub syncs: Vec<Option<Sync>>,
}

/// The things that became durable with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    File(FileNr),
    All,
}

impl Task {
    /// A history that starts a round with these files, by their names.
    pub fn starting(found: &BTreeMap<String, (u16, Vec<Value>)>) -> Self {
        let mut files: Vec<File> = Vec::new();
        let mut names = Names::new();
        for (name, (id, values)) in found {
            let known = files.iter().position(|f| f.id == *id);
            let nr = known.unwrap_or_else(|| {
                files.push(File::with(*id, values));
                files.len() - 1
            });
            names.insert(name.clone(), nr);
        }
        Self {
            files,
            names: vec![names],
            told: vec!["the start".into()],
            syncs: vec![None],
        }
    }

    /// Names as they are now.
    pub fn now(&self) -> &Names {
        &self.names[self.names.len() - 1]
    }
}
