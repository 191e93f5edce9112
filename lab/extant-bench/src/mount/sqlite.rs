//! Rows on databases. A client is a shell of SQLite with a separate database, and an operation is a durable transaction.

use super::Row;
use crate::runner::Task;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Name of the shell.
const SHELL: &str = "sqlite3";

/// Returns whether the shell is installed.
pub fn is_installed() -> bool {
    let mut version = Command::new(SHELL);
    let version = version.arg("--version").stdout(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// A shell.
struct Client {
    shell: Child,
    /// Closed first, so that the shell ends.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Runs statements, and waits for their end.
    fn run(&mut self, statements: &str) -> Result<()> {
        let input = self.input.as_mut().context("the shell has ended")?;
        writeln!(input, "{statements} SELECT 'done';")?;
        input.flush()?;
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            let read = self.output.read_line(&mut line)?;
            ensure!(read > 0, "the shell of SQLite has ended");
        }
        Ok(())
    }
}

impl Task for Client {
    fn op(&mut self) -> Result<bool> {
        self.run("INSERT INTO rows(t) VALUES(hex(randomblob(50)));")?;
        Ok(true)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        // A shell that cannot be waited for is gone.
        let _ = self.shell.wait();
    }
}

/// Starts a shell with a new database in a directory.
pub fn task(row: Row, dir: &Path) -> Result<Box<dyn Task>> {
    let journal = match row {
        Row::SqliteWal => "wal",
        _ => "delete",
    };
    let mut shell = Command::new(SHELL)
        .args(["-batch", "-bail"])
        .arg(dir.join("rows.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("sqlite3 cannot be run")?;
    let input = shell.stdin.take();
    let output = shell.stdout.take().context("the output of the shell")?;
    let mut client = Client {
        shell,
        input,
        output: BufReader::new(output),
    };
    client.run(&format!(
        "PRAGMA journal_mode={journal}; PRAGMA synchronous=full; CREATE TABLE rows(n INTEGER PRIMARY KEY, t TEXT);"
    ))?;
    Ok(Box::new(client))
}
