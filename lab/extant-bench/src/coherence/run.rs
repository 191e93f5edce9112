//! Starts the traced process, passes its accesses through the model, and reports the missed lines and their code.

use super::WARM;
use super::caches::{Caches, Miss};
use super::traced::{Job, Mark};
use crate::lackey::{Access, Code, LINE, Ours, Process, TraceReader, lines_of};
use crate::predict::measure::Workload;
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

/// Number of lines whose names are requested: those with the most misses.
const NAMED: usize = 24;

/// Misses of one kind of object by one place in the code, per operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missed {
    /// The object that contains the line; numbers in its name are removed.
    pub object: String,
    /// The code.
    pub code: String,
    /// Whether the code belongs to the memory allocator.
    pub allocator: bool,
    /// Misses of reads.
    pub reads: f64,
    /// Misses of writes.
    pub writes: f64,
}

/// The traffic of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Traffic {
    /// The workload.
    pub workload: Workload,
    /// The number of cores.
    pub cores: usize,
    /// The number of slots.
    pub slots: usize,
    /// Counted operations of all cores.
    pub ops: u64,
    /// Memory accesses per operation, line by line.
    pub accesses: f64,
    /// Misses by object and code, most first.
    pub missed: Vec<Missed>,
    /// Misses per operation of the line with the most misses.
    pub hottest: f64,
}

impl Traffic {
    /// Returns the misses per operation.
    pub fn misses(&self) -> f64 {
        self.count(|_| true)
    }

    /// Returns the misses outside of the memory allocator.
    pub fn of_engine(&self) -> f64 {
        self.count(|m| !m.allocator)
    }

    fn count(&self, of: impl Fn(&Missed) -> bool) -> f64 {
        let some = self.missed.iter().filter(|m| of(m));
        some.fold(0.0, |sum, m| sum + m.reads + m.writes)
    }
}

/// Misses of a line by one place in the code: of reads, of writes.
type Counts = HashMap<(u64, Access), [u64; 2]>;

struct Reader {
    marks: u64,
    code: Code,
    caches: Caches,
    /// Operations that each core has begun.
    begun: HashMap<usize, usize>,
    inside: Option<(usize, bool)>,
    /// Lines that the current operation has missed.
    here: HashSet<u64>,
    total: Total,
}

#[derive(Default)]
struct Total {
    ops: u64,
    accesses: u64,
    counts: Counts,
}

impl Reader {
    fn new(marks: u64, ours: Ours) -> Self {
        Self {
            marks,
            code: Code::new(ours),
            caches: Caches::default(),
            begun: HashMap::new(),
            inside: None,
            here: HashSet::new(),
            total: Total::default(),
        }
    }
}

impl TraceReader for Reader {
    type Result = Total;
    type Mark = Mark;

    fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    fn code(&mut self) -> &mut Code {
        &mut self.code
    }

    fn mark_at(&self, address: u64) -> Option<Mark> {
        address.checked_sub(self.marks).and_then(Mark::at)
    }

    fn mark(&mut self, mark: Mark) -> Option<Total> {
        self.here.clear();
        self.inside = None;
        match mark {
            Mark::Begin(core) => {
                let begun = self.begun.entry(core).or_default();
                *begun += 1;
                let counts = *begun > WARM;
                self.total.ops += u64::from(counts);
                self.inside = Some((core, counts));
            }
            Mark::End => {}
            Mark::Done => return Some(std::mem::take(&mut self.total)),
        }
        None
    }

    fn access(&mut self, address: u64, size: u64, writes: bool) {
        let Some((core, counts)) = self.inside else {
            return;
        };
        for line in lines_of(address, size) {
            let miss = self.caches.access(core, line, writes);
            if !counts {
                continue;
            }
            self.total.accesses += 1;
            // A line that is read and then written is missed once if no other core accesses it in between.
            if let Some(miss) = miss
                && self.here.insert(line)
            {
                let access = Access {
                    data: 0,
                    ..self.code.accesses(address)
                };
                let counts = self.total.counts.entry((line, access)).or_default();
                counts[usize::from(miss == Miss::Write)] += 1;
            }
        }
    }
}

/// Traces a job. `program` with `args` must call [`traced::main`](super::traced::main).
pub fn run(program: &Path, args: &[&str], job: Job) -> Result<Traffic> {
    let mut traced = Process::start(program, args, &job, Reader::new)?;
    let total = traced.result()?;
    let mut lines: BTreeMap<u64, u64> = BTreeMap::new();
    for ((line, _), [reads, writes]) in &total.counts {
        *lines.entry(*line).or_default() += reads + writes;
    }
    let mut most: Vec<(u64, u64)> = lines.into_iter().map(|(line, n)| (n, line)).collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    let hottest = most.first().map_or(0, |(n, _)| *n);
    most.truncate(NAMED);
    let asked: Vec<u64> = most.iter().map(|(_, line)| line * LINE).collect();
    let names: Vec<String> = traced.ask(&asked)?;
    let names: HashMap<u64, String> = most.iter().map(|(_, line)| *line).zip(names).collect();
    let per_op = |n: u64| n as f64 / total.ops.max(1) as f64;
    let mut rows: BTreeMap<(String, String), Missed> = BTreeMap::new();
    for ((line, access), [reads, writes]) in &total.counts {
        let (code, allocator) = traced.with_symbols(|symbols| access.describe(symbols))?;
        let object = without_numbers(names.get(line).map_or("", String::as_str));
        let row = rows
            .entry((object.clone(), code.clone()))
            .or_insert(Missed {
                object,
                code,
                allocator,
                reads: 0.0,
                writes: 0.0,
            });
        row.reads += per_op(*reads);
        row.writes += per_op(*writes);
    }
    let mut missed: Vec<Missed> = rows.into_values().collect();
    missed.sort_by(|a, b| (b.reads + b.writes).total_cmp(&(a.reads + a.writes)));
    Ok(Traffic {
        workload: job.workload,
        cores: job.cores,
        slots: job.slots,
        ops: total.ops,
        accesses: per_op(total.accesses),
        missed,
        hottest: per_op(hottest),
    })
}

/// Returns a name without its numbers, so that objects of a kind are counted together.
fn without_numbers(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_ascii_digit() {
            false => plain.push(c),
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_of_counted_operations_are_counted_once_a_line() {
        let mut reader = Reader::new(0x10_0000, Box::new(|at| at < 0x500));
        let begin = |core: u64| format!(" S {:08x},8\n", 0x10_0000 + core * 64);
        let end = format!(" S {:08x},8\n", 0x10_0000 + 256 * 64);
        let done = format!(" S {:08x},8\n", 0x10_0000 + 257 * 64);
        let mut text = String::new();
        for _ in 0..WARM + 2 {
            for core in 0..2 {
                text += &begin(core);
                // A counter that both read and write; a separate line for each; a line that no core writes.
                text += "I  00000100,3\n L 00002000,8\n S 00002000,8\n";
                text += &format!(" M {:08x},8\n L 00004000,8\n", 0x3000 + core * 64);
                text += &end;
                text += " M 00002000,8\n";
            }
        }
        text += &done;
        let mut totals = text.lines().filter_map(|l| reader.line(l.as_bytes()));
        let total = totals.next().unwrap();
        assert_eq!((total.ops, total.accesses), (4, 16));
        let access = Access {
            data: 0,
            at: 0x100,
            from: 0x100,
        };
        assert_eq!(
            total.counts,
            HashMap::from([((0x2000 / LINE, access), [4, 0])])
        );
    }

    #[test]
    fn names_lose_their_numbers() {
        assert_eq!(without_numbers("inode 1207, state"), "inode #, state");
    }
}
