//! Random programs: tasks that each work in a separate directory, and mark their operations in the recording.

use super::model::{FileNr, Names, OpNr, Sync, Task};
use super::stamp::{self, CELL, Value};
use super::target::Target;
use crate::common::Rng;
use extant::Fallocate;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// The parameters of a program.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub tasks: usize,
    /// Operations of each task.
    pub ops: u32,
    /// The number of operations after which all tasks wait for each other.
    pub join_every: u32,
    /// Bytes of a block.
    pub block: u64,
    /// Approximate length of the longest file.
    pub longest: u64,
    /// A sync makes all files durable there. Otherwise files are synced one by one.
    pub syncs: bool,
}

/// The record of a program.
#[derive(Clone, Debug)]
pub struct Run {
    pub tasks: Vec<Task>,
    /// Number of operations that each task had done at each meeting of all tasks, without the start and the end.
    pub joins: Vec<Vec<OpNr>>,
}

/// The marks of an operation in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub task: usize,
    pub op: OpNr,
    /// True if the operation has returned, false if it is about to begin.
    pub done: bool,
}

impl Mark {
    pub fn to_bits(self) -> u64 {
        (self.task as u64) << 40 | u64::from(self.op) << 1 | u64::from(self.done)
    }

    pub fn of_bits(bits: u64) -> Self {
        Self {
            task: (bits >> 40) as usize,
            op: (bits >> 1) as u32,
            done: bits & 1 == 1,
        }
    }
}

/// The directory of a task.
pub fn dir(task: usize) -> String {
    format!("/t{task}")
}

/// Runs a program over a target that holds the files in `tasks`. `writes` numbers the writes of all rounds.
pub fn run<T: Target>(
    target: &T,
    plan: &Plan,
    tasks: Vec<Task>,
    writes: &AtomicU32,
    mark: &(dyn Fn(Mark) + std::marker::Sync),
) -> Run {
    let meeting = Meeting::of(tasks.len());
    let tasks: Vec<(Task, Vec<OpNr>)> = std::thread::scope(|s| {
        let workers: Vec<_> = tasks
            .into_iter()
            .enumerate()
            .map(|(number, model)| {
                let meeting = &meeting;
                s.spawn(move || {
                    let _leaves = Leaves(meeting);
                    let mut worker = Worker {
                        target,
                        number,
                        open: open_all(target, number, &model),
                        model,
                        rng: Rng::new(plan.seed ^ (number as u64) << 32),
                        plan: *plan,
                        writes,
                        mark,
                        again: None,
                    };
                    let mut joins = Vec::new();
                    for n in 0..plan.ops {
                        if n > 0 && n.is_multiple_of(plan.join_every) {
                            joins.push(worker.model.names.len() as OpNr - 1);
                            meeting.wait();
                        }
                        worker.step();
                    }
                    (worker.model, joins)
                })
            })
            .collect();
        let joined = workers.into_iter().map(|w| w.join());
        joined
            .map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let meetings = tasks.iter().map(|(_, joins)| joins.len()).min();
    let joins = (0..meetings.unwrap_or(0))
        .map(|j| tasks.iter().map(|(_, joins)| joins[j]).collect())
        .collect();
    Run {
        tasks: tasks.into_iter().map(|(task, _)| task).collect(),
        joins,
    }
}

/// A barrier at which tasks wait for each other, except for tasks that have ended or failed.
struct Meeting {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    tasks: usize,
    here: usize,
    meetings: u64,
}

impl Meeting {
    fn of(tasks: usize) -> Self {
        let (here, meetings) = (0, 0);
        let state = Waiting {
            tasks,
            here,
            meetings,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.here += 1;
        let nth = state.meetings;
        self.check(&mut state);
        let waits = |s: &mut Waiting| s.meetings == nth;
        drop(self.changed.wait_while(state, waits));
    }

    fn check(&self, state: &mut Waiting) {
        if state.here >= state.tasks {
            state.here = 0;
            state.meetings += 1;
            self.changed.notify_all();
        }
    }
}

/// Leaves a task's meetings when it is dropped.
struct Leaves<'a>(&'a Meeting);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tasks -= 1;
        if state.here > 0 {
            self.0.check(&mut state);
        }
    }
}

fn open_all<T: Target>(target: &T, task: usize, model: &Task) -> BTreeMap<FileNr, T::Handle> {
    let mut open = BTreeMap::new();
    for (name, &file) in model.now() {
        let path = format!("{}/{name}", dir(task));
        open.entry(file).or_insert_with(|| target.open(&path));
    }
    open
}

struct Worker<'a, T: Target> {
    target: &'a T,
    number: usize,
    model: Task,
    open: BTreeMap<FileNr, T::Handle>,
    rng: Rng,
    plan: Plan,
    writes: &'a AtomicU32,
    mark: &'a (dyn Fn(Mark) + std::marker::Sync),
    /// A file that was cut and will grow again.
    again: Option<FileNr>,
}

impl<T: Target> Worker<'_, T> {
    /// Runs one operation by `call`, and adds it to the model by `note`.
    fn op<R>(
        &mut self,
        told: String,
        call: impl FnOnce(&T, &BTreeMap<FileNr, T::Handle>) -> R,
        note: impl FnOnce(&mut Task, &mut Names, OpNr),
    ) -> R {
        let op = self.model.names.len() as OpNr;
        let (task, mark) = (self.number, self.mark);
        let at = |done| Mark { task, op, done };
        mark(at(false));
        let result = call(self.target, &self.open);
        mark(at(true));
        let mut names = self.model.now().clone();
        self.model.told.push(told);
        self.model.syncs.push(None);
        note(&mut self.model, &mut names, op);
        self.model.names.push(names);
        result
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", dir(self.number))
    }

    fn file(&mut self) -> Option<FileNr> {
        let n = self.rng.below(self.open.len() as u64) as usize;
        self.open.keys().nth(n).copied()
    }

    fn name(&mut self) -> Option<String> {
        let n = self.rng.below(self.model.now().len() as u64) as usize;
        self.model.now().keys().nth(n).cloned()
    }

    /// A place in a file, mostly at a border of a block.
    fn place(&mut self, most: u64) -> u64 {
        let at = self.rng.below(most.max(CELL) + 1);
        let grain = [self.plan.block, self.plan.block, 512, CELL][self.rng.below(4) as usize];
        at / grain * grain
    }

    fn length(&mut self) -> u64 {
        let block = self.plan.block;
        let most = [CELL, block, 2 * block, 5 * block][self.rng.below(4) as usize];
        (self.rng.below(most) / CELL + 1) * CELL
    }

    fn step(&mut self) {
        if self.rng.below(4) == 0 {
            self.look();
        }
        if let Some(file) = self.again.take()
            && self.rng.below(3) > 0
        {
            return self.grow(file);
        }
        let few = self.open.len() < 3;
        let Some(file) = self.file().filter(|_| !few || self.rng.below(3) > 0) else {
            return self.create();
        };
        match self.rng.below(100) {
            0..8 => self.create(),
            8..36 => self.write(file),
            36..46 => self.cut(file),
            46..52 => self.grow(file),
            52..58 => self.allocate(file),
            58..63 => self.zero_range(file),
            63..69 => self.punch(file),
            69..74 => self.copy(file),
            74..86 => self.fsync(file),
            86..89 => self.sync(),
            89..94 => self.rename(),
            94..97 => self.link(),
            _ => self.unlink(),
        }
    }

    /// Checks that callers see the contents of the model.
    fn look(&mut self) {
        let Some(nr) = self.file() else { return };
        let (file, handle) = (&self.model.files[nr], &self.open[&nr]);
        assert_eq!(self.target.size(handle), file.size());
        let found = self.target.read(handle, 0, file.size() as usize);
        let cells = file.size() / CELL;
        let found: Vec<_> = found.chunks(CELL as usize).map(stamp::parse).collect();
        let expected: Vec<_> = file.values(0..cells).into_iter().map(Some).collect();
        let first = (0..cells as usize).find(|&c| found.get(c) != expected.get(c));
        if let Some(cell) = first {
            panic!(
                "task {}, file {nr}, {} bytes, cell {cell}: read {}, expected {}; history: {}\n{}",
                self.number,
                file.size(),
                stamp::describe(found.get(cell).copied().flatten()),
                stamp::describe(expected[cell]),
                file.tell(cell as u64),
                self.model.told.join("\n")
            );
        }
    }

    fn create(&mut self) {
        let used: Vec<u16> = self.model.files.iter().map(|f| f.id).collect();
        // Readable and writable, for programs that are not root.
        let free = |id: &u16| id & 0o600 == 0o600 && !used.contains(id);
        let Some(id) = (0o600..0o1000).find(free) else {
            return self.sync();
        };
        let mut name = format!("f{}", self.rng.below(12));
        while self.model.now().contains_key(&name) {
            name.push('x');
        }
        let (path, nr) = (self.path(&name), self.model.files.len());
        let told = format!("create {name}");
        let handle = self.op(
            told,
            |t, _| t.create(&path, id),
            |task, names, op| {
                let mut file = super::model::File::with(id, &[]);
                file.touch(op);
                task.files.push(file);
                names.insert(name, nr);
            },
        );
        self.open.insert(nr, handle);
        if self.rng.below(3) > 0 {
            self.write(nr);
        }
    }

    fn write(&mut self, nr: FileNr) {
        let size = self.model.files[nr].size();
        let most = (size + self.plan.block).min(self.plan.longest);
        let at = match self.rng.below(3) {
            0 => size,
            _ => self.place(most),
        };
        let len = self.length();
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let cells = at / CELL..(at + len) / CELL;
        let data = stamp::fill(number, cells.clone());
        let values: Vec<Value> = cells.clone().map(|c| stamp::value(number, c)).collect();
        self.op(
            format!("write {number} to file {nr}, {at}+{len}"),
            |t, open| t.write(&open[&nr], at, &data),
            |task, _, op| task.files[nr].write(op, cells.start, &values),
        );
    }

    fn cut(&mut self, nr: FileNr) {
        let size = self.model.files[nr].size();
        let to = self.place(size).min(size);
        self.set_size(nr, to);
        self.again = Some(nr);
    }

    fn grow(&mut self, nr: FileNr) {
        let size = self.model.files[nr].size();
        let to = size + self.length();
        if self.rng.below(4) == 0 {
            let how = Fallocate::Allocate { keep_size: false };
            return self.allocate_to(nr, how, size, to - size);
        }
        self.set_size(nr, to);
    }

    fn set_size(&mut self, nr: FileNr, to: u64) {
        self.op(
            format!("truncate file {nr} to {to}"),
            |t, open| t.truncate(&open[&nr], to),
            |task, _, op| task.files[nr].set_size(op, to),
        );
    }

    fn allocate(&mut self, nr: FileNr) {
        let keep_size = self.rng.below(2) == 0;
        let at = self.place(self.model.files[nr].size() + self.plan.block);
        let len = self.length();
        self.allocate_to(nr, Fallocate::Allocate { keep_size }, at, len);
    }

    fn allocate_to(&mut self, nr: FileNr, how: Fallocate, at: u64, len: u64) {
        let keeps = how == Fallocate::Allocate { keep_size: true };
        self.op(
            format!("fallocate file {nr}, {at}+{len}, {how:?}"),
            |t, open| t.fallocate(&open[&nr], how, at, len),
            |task, _, op| {
                let file = &mut task.files[nr];
                file.touch(op);
                if !keeps {
                    file.reaches(op, at + len);
                }
            },
        );
    }

    fn zero_range(&mut self, nr: FileNr) {
        let keep_size = self.rng.below(2) == 0;
        let size = self.model.files[nr].size();
        let at = self.place(size);
        let len = self.length();
        let inside = at..(at + len).min(size.max(at));
        let whole = hole(&inside, self.plan.block, size);
        self.op(
            format!("zero file {nr}, {at}+{len}, keep size {keep_size}"),
            |t, open| t.fallocate(&open[&nr], Fallocate::ZeroRange { keep_size }, at, len),
            |task, _, op| {
                let file = &mut task.files[nr];
                file.zero(op, cells(&inside), cells(&whole));
                if !keep_size {
                    file.reaches(op, at + len);
                }
            },
        );
    }

    fn punch(&mut self, nr: FileNr) {
        let size = self.model.files[nr].size();
        let at = self.place(size);
        let len = self.length();
        let inside = at..(at + len).min(size.max(at));
        let whole = hole(&inside, self.plan.block, size);
        self.op(
            format!("punch file {nr}, {at}+{len}"),
            |t, open| t.fallocate(&open[&nr], Fallocate::PunchHole, at, len),
            |task, _, op| task.files[nr].zero(op, cells(&inside), cells(&whole)),
        );
    }

    fn copy(&mut self, from: FileNr) {
        let Some(to) = self.file() else { return };
        let size = self.model.files[from].size();
        let at = self.place(size).min(size);
        let len = self.length().min(size - at);
        let place = self.place(self.model.files[to].size());
        if len == 0 || from == to {
            return self.write(to);
        }
        let values = self.model.files[from].values(at / CELL..(at + len) / CELL);
        let block = self.plan.block;
        self.op(
            format!("copy file {from}, {at}+{len}, to file {to}, {place}"),
            |t, open| t.copy((&open[&from], at), (&open[&to], place), len),
            |task, _, op| task.files[to].copy(op, (at, block), place / CELL, &values),
        );
    }

    fn fsync(&mut self, nr: FileNr) {
        let datasync = self.rng.below(3) == 0;
        self.op(
            format!("fsync file {nr}, only data {datasync}"),
            |t, open| t.fsync(&open[&nr], datasync),
            |task, _, op| task.syncs[op as usize] = Some(Sync::File(nr)),
        );
    }

    fn sync(&mut self) {
        if !self.plan.syncs {
            if let Some(file) = self.file() {
                self.fsync(file);
            }
            return;
        }
        self.op(
            "sync".into(),
            |t, _| t.sync(),
            |task, _, op| task.syncs[op as usize] = Some(Sync::All),
        );
    }

    fn rename(&mut self) {
        let Some(from) = self.name() else { return };
        let to = match self.name().filter(|_| self.rng.below(3) > 0) {
            Some(other) => other,
            None => format!("r{}", self.rng.below(4)),
        };
        let nr = self.model.now()[&from];
        // Two names of one file: nothing happens.
        if self.model.now().get(&to) == Some(&nr) {
            return self.write(nr);
        }
        let (old, new) = (self.path(&from), self.path(&to));
        self.op(
            format!("rename {from} to {to}"),
            |t, _| t.rename(&old, &new),
            |task, names, op| {
                names.remove(&from);
                if let Some(over) = names.insert(to, nr) {
                    task.files[over].touch(op);
                }
                task.files[nr].touch(op);
            },
        );
        self.drop_some();
    }

    fn link(&mut self) {
        let Some(old) = self.name() else { return };
        let new = format!("l{}", self.rng.below(6));
        if self.model.now().contains_key(&new) {
            return self.unlink();
        }
        let nr = self.model.now()[&old];
        let (old_path, new_path) = (self.path(&old), self.path(&new));
        self.op(
            format!("link {old} as {new}"),
            |t, _| t.link(&old_path, &new_path),
            |task, names, op| {
                names.insert(new, nr);
                task.files[nr].touch(op);
            },
        );
    }

    fn unlink(&mut self) {
        let Some(name) = self.name() else { return };
        let path = self.path(&name);
        self.op(
            format!("unlink {name}"),
            |t, _| t.unlink(&path),
            |task, names, op| {
                if let Some(nr) = names.remove(&name) {
                    task.files[nr].touch(op);
                }
            },
        );
        self.drop_some();
    }

    /// Closes about half of the open files without a name.
    fn drop_some(&mut self) {
        let named: Vec<FileNr> = self.model.now().values().copied().collect();
        let nameless = self.open.keys().filter(|nr| !named.contains(nr));
        for nr in nameless.copied().collect::<Vec<_>>() {
            if self.rng.below(2) == 0 {
                self.open.remove(&nr);
            }
        }
    }
}

fn cells(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / CELL..bytes.end / CELL
}

/// The part of a range that a hole takes away for good: all of it, or nothing if the hole has no whole block, and
/// zeros are written as data. The edges of a hole are on the device before the hole is durable.
fn hole(range: &Range<u64>, block: u64, size: u64) -> Range<u64> {
    let start = range.start.next_multiple_of(block);
    let end = if range.end >= size {
        range.end.next_multiple_of(block)
    } else {
        range.end / block * block
    };
    if start < end { range.clone() } else { 0..0 }
}
