//! Starts the traced process, reads its trace, and reports the cases with conflicts and their code.

use super::ROUNDS;
use super::cases::Case;
use super::reasons::{Finding, reason};
use super::trace::{Conflict, Reader, Rounds};
use super::traced::{Answer, Setting};
use crate::lackey::Process;
use crate::lackey::symbols::Symbols;
use anyhow::Result;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No operation of one side shares a written line with any of the other.
    Free,
    /// All shared lines belong to the memory allocator.
    Allocator,
    /// No operation shares a line with the next one of the other side; only operations of different rounds do.
    FreePerOperation,
    /// Lines are shared only where a writer revokes the bias of a lock, and reads the marks of all slots: once for
    /// each time that contention has biased a lock.
    TakesBias,
    /// Some rounds have conflicts: stocks are filled, a table grows, two names hash to one bucket.
    AtTimes,
    /// Every round has conflicts.
    Conflict,
    /// The case could not be run.
    Failed,
}

/// A case with its result.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// The case.
    pub case: Case,
    /// The machine and the history of its locks.
    pub setting: Setting,
    /// Outcome.
    pub outcome: Outcome,
    /// Rounds with a conflict outside of the allocator.
    pub rounds: usize,
    /// The shared lines.
    pub findings: Vec<Finding>,
    /// The reason, if the conflict is known.
    pub reason: Option<&'static str>,
    /// Why the case failed.
    pub error: Option<String>,
}

/// Runs cases in one traced process. `program` with `args` must call [`traced::main`](super::traced::main) with the
/// setting and the cases from the first line of its input.
pub fn run(
    program: &Path,
    args: &[&str],
    setting: Setting,
    cases: &[Case],
    mut progress: impl FnMut(&CaseResult),
) -> Result<Vec<CaseResult>> {
    let mut traced = Process::start(program, args, &cases, Reader::new)?;
    let mut objects: HashMap<(String, String), String> = HashMap::new();
    let mut results = Vec::new();
    for case in cases {
        let rounds = traced.result()?;
        let (found, clean) = traced.with_symbols(|symbols| places(symbols, &rounds))?;
        // Only for lines shared in every round, because looking up names is traced, too, and takes time.
        let unknown: Vec<_> = found
            .iter()
            .filter(|(key, (_, rounds, _))| *rounds == ROUNDS && !objects.contains_key(*key))
            .map(|(key, (conflict, ..))| (key.clone(), conflict.a.data))
            .collect();
        let ask: Vec<u64> = unknown.iter().map(|(_, at)| *at).collect();
        let answer: Answer = traced.ask(&ask)?;
        objects.extend(unknown.into_iter().map(|(key, _)| key).zip(answer.names));
        let result = judge(
            *case,
            setting,
            (found, clean),
            &objects,
            &traced.readers,
            answer.error,
        );
        progress(&result);
        results.push(result);
    }
    Ok(results)
}

type Found = BTreeMap<(String, String), (Conflict, usize, bool)>;

/// Returns conflicts by the places in the code and their number of rounds; and the number of rounds without conflicts.
fn places(symbols: &mut Symbols, rounds: &Rounds) -> (Found, usize) {
    let mut found = Found::new();
    let mut clean = 0;
    for round in &rounds.rounds {
        let mut here = BTreeMap::new();
        for conflict in round {
            let (a, mine) = conflict.a.describe(symbols);
            let (b, theirs) = conflict.b.describe(symbols);
            here.entry((a, b)).or_insert((*conflict, mine && theirs));
        }
        clean += usize::from(here.values().all(|(_, allocator)| *allocator));
        for (key, (conflict, allocator)) in here {
            found.entry(key).or_insert((conflict, 0, allocator)).1 += 1;
        }
    }
    for conflict in &rounds.together {
        let (a, mine) = conflict.a.describe(symbols);
        let (b, theirs) = conflict.b.describe(symbols);
        found
            .entry((a, b))
            .or_insert((*conflict, 0, mine && theirs));
    }
    if rounds.rounds.len() != ROUNDS {
        clean = 0;
    }
    (found, clean)
}

fn judge(
    case: Case,
    setting: Setting,
    (found, clean): (Found, usize),
    objects: &HashMap<(String, String), String>,
    readers: &std::ops::Range<u64>,
    error: Option<String>,
) -> CaseResult {
    let rounds = ROUNDS - clean.min(ROUNDS);
    let findings: Vec<Finding> = found
        .into_iter()
        .map(|(key, (conflict, rounds, allocator))| Finding {
            object: objects.get(&key).cloned().unwrap_or_default(),
            line: conflict.line,
            a: key.0,
            b: key.1,
            writer: match (conflict.a_writes, conflict.b_writes) {
                (true, true) => "both",
                (true, false) => "A",
                _ => "B",
            },
            rounds,
            allocator,
            bias: readers.contains(&conflict.a.data) || readers.contains(&conflict.b.data),
        })
        .collect();
    // Findings with zero rounds are between operations of different rounds.
    let met = |f: &&Finding| !f.allocator && f.rounds > 0;
    let outcome = if error.is_some() {
        Outcome::Failed
    } else if findings.is_empty() {
        Outcome::Free
    } else if findings.iter().all(|f| f.allocator) {
        Outcome::Allocator
    } else if rounds == 0 {
        Outcome::FreePerOperation
    } else if findings.iter().filter(met).all(|f| f.bias) {
        Outcome::TakesBias
    } else if rounds < ROUNDS {
        Outcome::AtTimes
    } else {
        Outcome::Conflict
    };
    CaseResult {
        name: case.to_string(),
        case,
        setting,
        reason: (outcome >= Outcome::AtTimes)
            .then(|| reason(&case, setting, &findings))
            .flatten(),
        outcome,
        rounds,
        findings,
        error,
    }
}
