//! SQLite: a shell that inserts rows, and reports each committed transaction.

use crate::it::programs::witness::Witness;
use extant::Volume;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Journal mode of SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    Delete,
    Wal,
}

impl Journal {
    pub fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Wal => "wal",
        }
    }
}

/// The time of each transaction's acknowledgement, in order.
pub type Commits = Vec<u64>;

/// Inserts rows 1, 2, … in order, each in a transaction, until `stop` is set.
pub fn insert(witness: &Witness, dir: &Path, journal: Journal, stop: &AtomicBool) -> Commits {
    let mut shell = Command::new("sqlite3")
        .arg("-batch")
        .arg(dir.join(format!("{}.db", journal.name())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = shell.stdin.take().unwrap();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    let mut say = |text: String, answer: &str| {
        // A missing answer reveals a shell that has ended.
        let _ = writeln!(input, "{text} SELECT 'done';");
        let _ = input.flush();
        let mut line = String::new();
        while line.trim() != answer {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "sqlite3 ended");
        }
    };
    let mode = journal.name();
    say(
        format!(
            "PRAGMA journal_mode={mode}; PRAGMA synchronous=extra; PRAGMA wal_autocheckpoint=40; \
             CREATE TABLE rows(n INTEGER PRIMARY KEY, t TEXT);"
        ),
        "done",
    );
    let mut commits = Commits::new();
    while !stop.load(Ordering::Relaxed) {
        let n = commits.len() + 1;
        let text = "x".repeat(n * 37 % 900);
        say(format!("INSERT INTO rows VALUES({n}, '{text}');"), "done");
        commits.push(witness.device.tick());
    }
    drop(input);
    assert!(shell.wait().unwrap().success());
    commits
}

/// Checks that the database in a recovered volume is intact, and has every transaction acknowledged by the tick, and
/// at most one more.
pub fn judge(volume: &Volume, journal: Journal, commits: &Commits, at: u64) -> Result<(), String> {
    let told = commits.partition_point(|&tick| tick < at);
    let name = journal.name();
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let place = place.map_err(|e| e.to_string())?;
    for suffix in ["", "-journal", "-wal"] {
        let file = format!("{name}.db{suffix}");
        match volume.read(format!("/{file}")) {
            Ok(bytes) => std::fs::write(place.path().join(&file), bytes),
            Err(extant::Error::NotFound) => Ok(()),
            Err(e) => return Err(format!("{file}: {e}")),
        }
        .map_err(|e| e.to_string())?;
    }
    if told == 0 {
        return Ok(());
    }
    let out = Command::new("sqlite3")
        .arg(place.path().join(format!("{name}.db")))
        .arg("PRAGMA integrity_check; SELECT count(*), max(n), sum(length(t) != n * 37 % 900) FROM rows;")
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let row = |n: usize| format!("ok\n{n}|{n}|0\n");
    if text == row(told) || text == row(told + 1) {
        return Ok(());
    }
    Err(format!(
        "database with journal {name}, {told} commits told: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    ))
}
