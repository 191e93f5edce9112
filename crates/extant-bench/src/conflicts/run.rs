//! Starts the traced process, reads its trace, and says which cases have conflicts, where.

use super::ROUNDS;
use super::cases::{self, Case};
use super::symbols::Symbols;
use super::trace::{Access, Conflict, Reader, Rounds};
use super::traced::{Answer, Hello, Setting};
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Lines of memory that two operations of a case share, by the code that touches them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code of side A.
    pub a: String,
    /// The code of side B.
    pub b: String,
    /// The writing side: `A`, `B` or `both`.
    pub writer: &'static str,
    /// The object that holds the line.
    pub object: String,
    /// Address of one of the lines.
    pub line: u64,
    /// In how many rounds an operation of A and the next one of B met there. In none: only operations of
    /// different rounds did.
    pub rounds: usize,
    /// Both accesses are in the memory allocator.
    pub allocator: bool,
    /// A writer looked at what a slot reads, to take the bias of a lock away.
    pub bias: bool,
}

/// How a case came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No operation of one side shares a written line with any of the other.
    Free,
    /// Only the memory allocator's own lines are shared.
    Allocator,
    /// An operation and the next one of the other side share none; ones of different rounds do.
    FreePerOperation,
    /// They met only where a writer takes the bias of a lock away, and looks at the readers of all slots: once for each time
    /// that contention has biased a lock.
    TakesBias,
    /// Some rounds have conflicts: stocks are filled, a table grows, two names fall into one bucket.
    AtTimes,
    /// Every round has.
    Conflict,
    /// The case could not be run.
    Failed,
}

/// One case and its result.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// The case.
    pub case: Case,
    /// The machine and the past of its locks.
    pub setting: Setting,
    /// How it came out.
    pub outcome: Outcome,
    /// Rounds with a conflict outside of the allocator.
    pub rounds: usize,
    /// The lines shared.
    pub findings: Vec<Finding>,
    /// The reason, if it is meant to have a conflict.
    pub reason: Option<&'static str>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The traced process.
struct Traced {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    cases: mpsc::Receiver<Rounds>,
    symbols: Arc<Mutex<Option<Symbols>>>,
    said: Arc<Mutex<Vec<String>>>,
    /// Lines in which slots note what they read.
    readers: std::ops::Range<u64>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the tool is there.
pub fn tool_is_there() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Runs cases in one traced process. `program` with `args` shall call [`traced::main`](super::traced::main) with
/// the setting, and the cases it reads from the first line of its input.
pub fn run(
    program: &Path,
    args: &[&str],
    setting: Setting,
    cases: &[Case],
    mut progress: impl FnMut(&CaseResult),
) -> Result<Vec<CaseResult>> {
    let mut traced = Traced::start(program, args, cases)?;
    let mut objects: HashMap<(String, String), String> = HashMap::new();
    let mut results = Vec::new();
    for case in cases {
        let rounds = traced.cases.recv().map_err(|_| traced.ended())?;
        let (found, clean) = traced.places(&rounds)?;
        // Only for lines that are met in every round: looking up names is traced, too, and takes time.
        let unknown: Vec<_> = found
            .iter()
            .filter(|(key, (_, rounds, _))| *rounds == ROUNDS && !objects.contains_key(*key))
            .map(|(key, (conflict, ..))| (key.clone(), conflict.a.data))
            .collect();
        let ask: Vec<u64> = unknown.iter().map(|(_, at)| *at).collect();
        let answer = traced.ask(&ask)?;
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

impl Traced {
    fn start(program: &Path, args: &[&str], cases: &[Case]) -> Result<Self> {
        let mut child = Command::new("valgrind")
            .args([
                "--tool=lackey",
                "--trace-mem=yes",
                "--basic-counts=no",
                "--log-fd=2",
            ])
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("valgrind (Debian's package valgrind has it)")?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            bail!("no pipes to valgrind");
        };
        serde_json::to_writer(&mut stdin, cases)?;
        writeln!(stdin)?;
        let symbols = Arc::new(Mutex::new(None));
        let said = Arc::new(Mutex::new(Vec::new()));
        let (hello, told) = mpsc::channel();
        let (outbox, inbox) = mpsc::channel();
        let (shared, kept) = (Arc::clone(&symbols), Arc::clone(&said));
        std::thread::spawn(move || read(stderr, &told, &outbox, &shared, &kept));
        let mut traced = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout).lines(),
            cases: inbox,
            symbols,
            said,
            readers: 0..0,
        };
        let first = traced.said_line()?;
        let first: Hello = serde_json::from_str(&first).with_context(|| first.clone())?;
        *lock(&traced.symbols) = Some(Symbols::new(program, first.bias..first.end)?);
        traced.readers = first.readers;
        // In this order: the marks are known before the first is set.
        let _ = hello.send(first.marks);
        writeln!(traced.stdin)?;
        Ok(traced)
    }

    fn said_line(&mut self) -> Result<String> {
        match self.stdout.next() {
            Some(line) => Ok(line?),
            None => Err(self.ended()),
        }
    }

    fn ended(&self) -> anyhow::Error {
        // Until what it said last has been read.
        while self.cases.recv_timeout(Duration::from_secs(5)).is_ok() {}
        anyhow!("the traced process ended: {}", lock(&self.said).join("; "))
    }

    fn ask(&mut self, addresses: &[u64]) -> Result<Answer> {
        serde_json::to_writer(&mut self.stdin, addresses)?;
        writeln!(self.stdin)?;
        self.stdin.flush()?;
        let line = self.said_line()?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }

    /// Conflicts by the places in the code that meet, and in how many rounds; and the number of rounds without any.
    fn places(&self, rounds: &Rounds) -> Result<(Found, usize)> {
        let mut symbols = lock(&self.symbols);
        let symbols = symbols.as_mut().context("no debug information")?;
        let mut found = Found::new();
        let mut clean = 0;
        for round in &rounds.rounds {
            let mut here = BTreeMap::new();
            for conflict in round {
                let (a, mine) = describe(symbols, conflict.a);
                let (b, theirs) = describe(symbols, conflict.b);
                here.entry((a, b)).or_insert((*conflict, mine && theirs));
            }
            clean += usize::from(here.values().all(|(_, allocator)| *allocator));
            for (key, (conflict, allocator)) in here {
                found.entry(key).or_insert((conflict, 0, allocator)).1 += 1;
            }
        }
        for conflict in &rounds.together {
            let (a, mine) = describe(symbols, conflict.a);
            let (b, theirs) = describe(symbols, conflict.b);
            found
                .entry((a, b))
                .or_insert((*conflict, 0, mine && theirs));
        }
        if rounds.rounds.len() != ROUNDS {
            clean = 0;
        }
        Ok((found, clean))
    }
}

/// The code of an access, and whether it belongs to the allocator.
fn describe(symbols: &mut Symbols, access: Access) -> (String, bool) {
    let at = symbols.place(access.at).clone();
    if at.ours {
        return (at.text, false);
    }
    let from = symbols.place(access.from);
    let text = if from.ours {
        format!("{} → {}", from.text, at.text)
    } else {
        at.text
    };
    (text, at.allocator)
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
    // Findings of no round are of operations of different rounds.
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
            .then(|| cases::reason(&case, setting, &findings))
            .flatten(),
        outcome,
        rounds,
        findings,
        error,
    }
}

/// Reads the trace. Until the marks are known it is only taken off the pipe.
fn read(
    mut from: impl Read,
    told: &mpsc::Receiver<u64>,
    outbox: &mpsc::Sender<Rounds>,
    symbols: &Mutex<Option<Symbols>>,
    said: &Mutex<Vec<String>>,
) {
    let mut reader = None;
    let mut buffer = vec![0; 1 << 18];
    let mut rest: Vec<u8> = Vec::new();
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if reader.is_none()
            && let Ok(marks) = told.try_recv()
        {
            let ours = |at| lock(symbols).as_mut().is_some_and(|s| s.place(at).ours);
            reader = Some(Reader::new(marks, ours));
        }
        rest.extend_from_slice(&buffer[..n]);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &rest) {
            let line = &rest[start..end];
            start = end + 1;
            if !matches!(line, [b'I' | b' ', ..] | [b'=', b'=', ..]) {
                let mut said = lock(said);
                said.push(String::from_utf8_lossy(line).into_owned());
                let extra = said.len().saturating_sub(8);
                said.drain(..extra);
            }
            if let Some(done) = reader.as_mut().and_then(|r| r.line(line))
                && outbox.send(done).is_err()
            {
                return;
            }
        }
        rest.drain(..start);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The data behind these locks are consistent at any moment.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
