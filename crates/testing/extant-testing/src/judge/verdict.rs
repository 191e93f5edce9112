//! The verdict on one image after a cut.

use super::model::{FileNr, Names, OpNr, Sync};
use super::program::{Mark, Run, dir};
use super::stamp::{self, CELL, Value};
use crate::common::list;
use extant::{FileType, Volume};
use std::collections::BTreeMap;

/// The recovered directory of a task: for each name the file's id and its cells. A cell without a valid stamp has no
/// value.
pub type Found = BTreeMap<String, (u16, Vec<Option<Value>>)>;

/// Reads the directory of a task.
pub fn find(volume: &Volume, task: usize) -> Result<Found, String> {
    let mut found = Found::new();
    let told = |what: &str| {
        let what = what.to_string();
        move |e: extant::Error| format!("{what}: {e}")
    };
    for entry in list(volume, dir(task)).map_err(told("read_dir"))? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let path = format!("{}/{name}", dir(task));
        if entry.file_type != FileType::Regular {
            return Err(format!("{path} is a {:?}", entry.file_type));
        }
        let stat = volume.metadata(&path).map_err(told(&path))?;
        let bytes = volume.read(&path).map_err(told(&path))?;
        if bytes.len() as u64 != stat.len() {
            return Err(format!(
                "{path}: {} bytes of {} are read",
                bytes.len(),
                stat.len()
            ));
        }
        let cells = bytes.chunks(CELL as usize).map(stamp::parse).collect();
        found.insert(name, ((stat.mode() & 0o777) as u16, cells));
    }
    Ok(found)
}

/// Reads the directory of a task at the start of a round, where every cell must hold a stamp.
pub fn find_whole(volume: &Volume, task: usize) -> BTreeMap<String, (u16, Vec<Value>)> {
    let found = find(volume, task).unwrap_or_else(|e| panic!("{e}"));
    let whole = |(id, cells): (u16, Vec<Option<Value>>)| {
        let cells = cells.into_iter().map(|c| c.expect("a whole stamp"));
        (id, cells.collect())
    };
    found.into_iter().map(|(n, f)| (n, whole(f))).collect()
}

/// The state of a task at a moment of the recording.
#[derive(Clone, Debug, Default)]
struct TaskProgress {
    /// The last operation that began.
    begun: OpNr,
    /// The last operation that returned.
    done: OpNr,
    /// All operations of the task up to this one are durable.
    least: OpNr,
    /// The data of a file are durable up to this operation.
    synced: BTreeMap<FileNr, OpNr>,
}

/// The state of all tasks at a moment of the recording: begun operations, and promises.
#[derive(Clone, Debug)]
pub struct Progress {
    tasks: Vec<TaskProgress>,
    /// For each task in a sync, the operations of all tasks that had returned when the sync began.
    syncing: Vec<Option<Vec<OpNr>>>,
}

impl Progress {
    /// Returns the progress at the start of a round.
    pub fn new(tasks: usize) -> Self {
        Self {
            tasks: vec![TaskProgress::default(); tasks],
            syncing: vec![None; tasks],
        }
    }

    /// Notes that a mark of the recording has been passed.
    pub fn pass(&mut self, run: &Run, mark: Mark) {
        let model = &run.tasks[mark.task];
        let sync = model.syncs[mark.op as usize];
        if !mark.done {
            self.tasks[mark.task].begun = mark.op;
            if sync == Some(Sync::All) {
                self.syncing[mark.task] = Some(self.tasks.iter().map(|k| k.done).collect());
            }
            return;
        }
        let known = &mut self.tasks[mark.task];
        known.done = mark.op;
        match sync {
            None => {}
            Some(Sync::File(nr)) => {
                known.synced.insert(nr, mark.op);
                let touched = model.files[nr].touched_by(mark.op);
                known.least = known.least.max(touched);
            }
            Some(Sync::All) => {
                let covered = self.syncing[mark.task].take().unwrap_or_default();
                for ((known, model), op) in self.tasks.iter_mut().zip(&run.tasks).zip(covered) {
                    known.least = known.least.max(op);
                    for nr in 0..model.files.len() {
                        let synced = known.synced.entry(nr).or_default();
                        *synced = op.max(*synced);
                    }
                }
            }
        }
    }
}

/// The order of operations that a state after a cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of execution: of two operations, one after the other, the second is not there alone.
    Done,
    /// The order of each task, and of each file: a context larger than the journal is committed in parts, and parts
    /// keep the order of two threads only for objects that both used. Data that one thread wrote and another wrote
    /// back count as the other's.
    Tasks,
}

/// The promises that a target keeps.
#[derive(Clone, Copy, Debug)]
pub struct Promises {
    /// Bytes of a block: a file that is mapped in steps grows by whole blocks.
    pub block: u64,
    /// The order of operations.
    pub order: Order,
    /// A size that reaches appended bytes is durable only with these bytes. A kernel that caches writes sends pages in any
    /// order, so a mount does not promise this.
    pub appended_bytes: bool,
}

/// Judges what recovery found, read by `find` for each task.
pub fn judge(
    run: &Run,
    progress: &Progress,
    found: &[Found],
    promises: Promises,
) -> Result<(), String> {
    let mut legal: Vec<Vec<OpNr>> = Vec::new();
    for (task, found) in found.iter().enumerate() {
        legal.push(states(run, progress, task, found, promises)?);
    }
    if promises.order == Order::Tasks {
        return Ok(());
    }
    // Between two joins, or at one, all operations.
    let last: Vec<OpNr> = run.tasks.iter().map(|t| t.names.len() as OpNr).collect();
    let first = vec![0; last.len()];
    let mut border = vec![&first];
    border.extend(&run.joins);
    border.push(&last);
    let fits = border.windows(2).any(|pair| {
        legal.iter().enumerate().all(|(task, legal)| {
            let between = pair[0][task]..=pair[1][task];
            legal.iter().any(|k| between.contains(k))
        })
    });
    if fits {
        return Ok(());
    }
    Err(format!(
        "what one task did after a join is there, what another did before is not: states {legal:?}, joins {:?}",
        run.joins
    ))
}

/// Returns the states of a task that agree with the recovered directory.
fn states(
    run: &Run,
    progress: &Progress,
    task: usize,
    found: &Found,
    promises: Promises,
) -> Result<Vec<OpNr>, String> {
    let (model, known) = (&run.tasks[task], &progress.tasks[task]);
    let mut why = Vec::new();
    let mut legal = Vec::new();
    for k in known.least..=known.begun {
        if !names_agree(model, &model.names[k as usize], found) {
            continue;
        }
        // The state that the contents match.
        let mut of = match promises.order {
            Order::Done => k..=k,
            Order::Tasks => known.least..=known.begun,
        };
        let judge = |of| contents(run, known, (task, k, of), found, promises);
        if of.any(|of| judge(of).map_err(|e| why.push(e)).is_ok()) {
            legal.push(k);
        }
    }
    if !legal.is_empty() {
        return Ok(legal);
    }
    let told: Vec<String> = (0..=known.begun as usize)
        .map(|op| format!("  {op}: {}", model.told[op]))
        .collect();
    let names: Vec<_> = found.iter().map(|(n, (id, _))| (n, id)).collect();
    if why.is_empty() {
        let told = |k: OpNr| {
            let names = model.names[k as usize].iter();
            names.map(|(n, nr)| (n.clone(), model.files[*nr].id))
        };
        let (first, last): (Vec<_>, Vec<_>) =
            (told(known.least).collect(), told(known.begun).collect());
        why.push(format!(
            "no such names: {names:?}; the first: {first:?}; the last: {last:?}"
        ));
    }
    let why = why.join("\n");
    Err(format!(
        "task {task}, states {} to {} (done {}): {why}\nsynced: {:?}\n{}",
        known.least,
        known.begun,
        known.done,
        known.synced,
        told.join("\n")
    ))
}

fn names_agree(model: &super::model::Task, names: &Names, found: &Found) -> bool {
    names.len() == found.len()
        && names
            .iter()
            .zip(found)
            .all(|((n, nr), (f, (id, _)))| n == f && model.files[*nr].id == *id)
}

fn contents(
    run: &Run,
    known: &TaskProgress,
    (task, named, k): (usize, OpNr, OpNr),
    found: &Found,
    promises: Promises,
) -> Result<(), String> {
    let model = &run.tasks[task];
    for (name, (_, cells)) in found {
        let nr = model.names[named as usize][name];
        let file = &model.files[nr];
        let synced = known.synced.get(&nr).copied().unwrap_or(0);
        let size = cells.len() as u64 * CELL;
        let sizes = file.legal_sizes(synced, k);
        let (least, most) = (sizes.first().copied(), sizes.last().copied());
        let between =
            size.is_multiple_of(promises.block) && least <= Some(size) && Some(size) <= most;
        if !sizes.contains(&size) && !between {
            return Err(format!(
                "{name} (file {nr}) has {size} bytes after operation {k}; legal: {sizes:?}"
            ));
        }
        for (cell, &value) in cells.iter().enumerate() {
            let legal = file.legal(
                cell as u64,
                (synced, k, known.begun),
                promises.appended_bytes,
            );
            if value.is_none_or(|v| legal.iter().all(|e| e.value != v)) {
                return Err(format!(
                    "{name} (file {nr}, {size} bytes), cell {cell} at {}, after operation {k}, synced at {synced}: \
                     found {}; history: {}",
                    cell as u64 * CELL,
                    stamp::describe(value),
                    file.tell(cell as u64)
                ));
            }
        }
    }
    Ok(())
}
