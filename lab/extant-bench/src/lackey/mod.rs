//! Programs that run under valgrind's lackey, which prints every access to memory.
//!
//! The traced program is this one, with arguments that make it the traced process. The process reports its load
//! address and the addresses of its marks ([`Hello`]). It sets marks, which are stores to words of a static, around
//! the operations of interest. `Process` reads its output in parallel.
//!
//! Lackey prints a line for each instruction (`I  04001000,3`) and after it one for each of its loads (` L`), stores
//! (` S`) and both at once (` M`).

pub mod symbols;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use symbols::Symbols;

/// Bytes of a cache line.
pub(crate) const LINE: u64 = 64;

/// A line of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// An instruction at this address.
    Instruction(u64),
    /// A load or store of `size` bytes.
    Access {
        address: u64,
        size: u64,
        writes: bool,
    },
}

impl Said {
    /// Parses a line. Parses instructions and loads only if `all`, because outside of operations only stores matter,
    /// which may be marks.
    pub fn parse(line: &[u8], all: bool) -> Option<Self> {
        let (kind, rest) = match line {
            [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
            _ => return None,
        };
        if !all && matches!(kind, b'I' | b'L') {
            return None;
        }
        let comma = rest.iter().position(|&b| b == b',')?;
        let address = hex(&rest[..comma])?;
        if kind == b'I' {
            return Some(Self::Instruction(address));
        }
        Some(Self::Access {
            address,
            size: size(&rest[comma + 1..])?,
            writes: kind != b'L',
        })
    }
}

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, &d| {
        let digit = (d as char).to_digit(16)?;
        Some(n << 4 | u64::from(digit))
    })
}

fn size(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
}

/// Returns the numbers of the lines that an access touches.
pub(crate) fn lines_of(address: u64, size: u64) -> std::ops::RangeInclusive<u64> {
    address / LINE..=address.saturating_add(size.max(1) - 1) / LINE
}

/// Returns whether an instruction belongs to the engine's code.
pub(crate) type Ours = Box<dyn FnMut(u64) -> bool + Send>;

/// The current instruction, and the last one of the engine's code.
pub(crate) struct Code {
    ours: Ours,
    known: std::collections::HashMap<u64, bool>,
    at: u64,
    from: u64,
}

impl Code {
    pub fn new(ours: Ours) -> Self {
        Self {
            ours,
            known: std::collections::HashMap::new(),
            at: 0,
            from: 0,
        }
    }

    pub fn comes_to(&mut self, address: u64) {
        self.at = address;
        let ours = &mut self.ours;
        if *self.known.entry(address).or_insert_with(|| ours(address)) {
            self.from = address;
        }
    }

    pub fn accesses(&self, data: u64) -> Access {
        Access {
            data,
            at: self.at,
            from: self.from,
        }
    }
}

/// An access to memory, and the code that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// Address of the data.
    pub data: u64,
    /// Address of the instruction.
    pub at: u64,
    /// The last instruction of the engine's code before it, or itself.
    pub from: u64,
}

impl Access {
    /// Returns its code, and whether the code belongs to the allocator.
    pub(crate) fn describe(self, symbols: &mut Symbols) -> (String, bool) {
        let at = symbols.place(self.at).clone();
        if at.ours {
            return (at.text, false);
        }
        let from = symbols.place(self.from);
        let text = if from.ours {
            format!("{} → {}", from.text, at.text)
        } else {
            at.text
        };
        (text, at.allocator)
    }
}

/// A reader of the lines of a trace, which produces results.
pub(crate) trait TraceReader {
    /// A result.
    type Result: Send + 'static;
    /// The meaning of a store to a mark.
    type Mark;

    /// Returns whether accesses count at present.
    fn is_inside(&self) -> bool;
    /// Returns the place in the code of the current accesses.
    fn code(&mut self) -> &mut Code;
    /// Returns the mark at an address.
    fn mark_at(&self, address: u64) -> Option<Self::Mark>;
    /// Handles a mark; the last mark of a job returns the result.
    fn mark(&mut self, mark: Self::Mark) -> Option<Self::Result>;
    /// Handles a memory access.
    fn access(&mut self, address: u64, size: u64, writes: bool);

    /// Reads a line.
    fn line(&mut self, line: &[u8]) -> Option<Self::Result> {
        match Said::parse(line, self.is_inside())? {
            Said::Instruction(address) => self.code().comes_to(address),
            Said::Access {
                address,
                size,
                writes,
            } => {
                if let Some(mark) = self.mark_at(address).filter(|_| writes) {
                    return self.mark(mark);
                }
                self.access(address, size, writes);
            }
        }
        None
    }
}

/// The first line that a traced process prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Address of the first mark.
    pub marks: u64,
    /// Load offset of the program: address of an instruction less its address in the file.
    pub bias: u64,
    /// The end of the program's addresses.
    pub end: u64,
    /// Addresses of the lines in which slots mark the biased locks that they read.
    pub readers: std::ops::Range<u64>,
}

impl Hello {
    /// Describes this process, whose marks begin at `marks`.
    pub(crate) fn of_this(marks: usize) -> Result<Self> {
        let (bias, end) = loaded_at()?;
        let readers = percpu::readers_at();
        Ok(Self {
            marks: marks as u64,
            bias,
            end,
            readers: readers.start as u64..readers.end as u64,
        })
    }
}

/// Returns the addresses of this process's program.
fn loaded_at() -> Result<(u64, u64)> {
    let program = std::env::current_exe()?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let mut ours = maps
        .lines()
        .filter(|l| l.ends_with(&*program.to_string_lossy()))
        .filter_map(|l| l.split_once(' ')?.0.split_once('-'));
    let first = ours
        .next()
        .context("the program is not in its own map of memory")?;
    let last = ours.next_back().unwrap_or(first);
    let number = |digits| u64::from_str_radix(digits, 16);
    Ok((number(first.0)?, number(last.1)?))
}

/// Prints a value for the process that reads the trace.
pub(crate) fn say(what: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Returns the names of these addresses: from the volume's knowledge, or else by the kind of memory.
pub(crate) fn names_of(volume: &extant::Volume, addresses: &[u64]) -> Vec<String> {
    if addresses.is_empty() {
        return Vec::new();
    }
    let names = volume.what_is_at(addresses);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let kind = |address: u64| {
        maps.lines().find_map(|l| {
            let mut fields = l.split_whitespace();
            let (begin, end) = fields.next()?.split_once('-')?;
            let range = u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
            let what = fields.nth(4).unwrap_or("memory of the heap or a stack");
            range.contains(&address).then(|| what.to_string())
        })
    };
    names
        .into_iter()
        .zip(addresses)
        .map(|(name, &at)| {
            if name.is_empty() {
                kind(at).unwrap_or_default()
            } else {
                name
            }
        })
        .collect()
}

/// Returns whether valgrind is installed.
pub fn tool_is_there() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// A traced process with the results of its trace's reader.
pub(crate) struct Process<D> {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    results: mpsc::Receiver<D>,
    symbols: Arc<Mutex<Option<Symbols>>>,
    said: Arc<Mutex<Vec<String>>>,
    /// Addresses of the lines in which slots mark the locks that they read.
    pub readers: std::ops::Range<u64>,
}

impl<D> Drop for Process<D> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<D: Send + 'static> Process<D> {
    /// Starts a program, which gets `first` as the first line of its input and must print [`Hello`]. `reader` receives
    /// the address of the program's marks.
    pub fn start<R: TraceReader<Result = D>>(
        program: &Path,
        args: &[&str],
        first: &impl Serialize,
        reader: impl FnOnce(u64, Ours) -> R + Send + 'static,
    ) -> Result<Self> {
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
        serde_json::to_writer(&mut stdin, first)?;
        writeln!(stdin)?;
        let symbols: Arc<Mutex<Option<Symbols>>> = Arc::default();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (hello, told) = mpsc::channel();
        let (outbox, inbox) = mpsc::channel();
        let (shared, kept) = (Arc::clone(&symbols), Arc::clone(&said));
        std::thread::spawn(move || {
            let ours: Ours = Box::new(move |at| {
                let mut symbols = lock(&shared);
                symbols.as_mut().is_some_and(|s| s.place(at).ours)
            });
            read(stderr, &told, |marks| reader(marks, ours), &outbox, &kept);
        });
        let mut process = Self {
            child,
            stdin,
            stdout: BufReader::new(stdout).lines(),
            results: inbox,
            symbols,
            said,
            readers: 0..0,
        };
        let first = process.said_line()?;
        let first: Hello = serde_json::from_str(&first).with_context(|| first.clone())?;
        *lock(&process.symbols) = Some(Symbols::new(program, first.bias..first.end)?);
        process.readers = first.readers;
        // Send the marks before the first one is set.
        let _ = hello.send(first.marks);
        writeln!(process.stdin)?;
        Ok(process)
    }

    /// Returns the next result of the trace's reader.
    pub fn result(&self) -> Result<D> {
        self.results.recv().map_err(|_| self.ended())
    }

    fn said_line(&mut self) -> Result<String> {
        match self.stdout.next() {
            Some(line) => Ok(line?),
            None => Err(self.ended()),
        }
    }

    fn ended(&self) -> anyhow::Error {
        // Wait until the last messages have been read.
        while self.results.recv_timeout(Duration::from_secs(5)).is_ok() {}
        anyhow!("the traced process ended: {}", lock(&self.said).join("; "))
    }

    /// Sends the process a question, and waits for its answer.
    pub fn ask<A: for<'d> Deserialize<'d>>(&mut self, question: &impl Serialize) -> Result<A> {
        serde_json::to_writer(&mut self.stdin, question)?;
        writeln!(self.stdin)?;
        self.stdin.flush()?;
        let line = self.said_line()?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }

    /// Calls `work` with the program's symbols.
    pub fn with_symbols<T>(&self, work: impl FnOnce(&mut Symbols) -> T) -> Result<T> {
        let mut symbols = lock(&self.symbols);
        Ok(work(symbols.as_mut().context("no debug information")?))
    }
}

/// Reads the trace. Lines before the marks are known are discarded.
fn read<R: TraceReader>(
    mut from: impl Read,
    told: &mpsc::Receiver<u64>,
    make: impl FnOnce(u64) -> R,
    outbox: &mpsc::Sender<R::Result>,
    said: &Mutex<Vec<String>>,
) {
    let (mut reader, mut make) = (None, Some(make));
    let mut buffer = vec![0; 1 << 18];
    let mut rest: Vec<u8> = Vec::new();
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if reader.is_none()
            && let Ok(marks) = told.try_recv()
        {
            reader = make.take().map(|make| make(marks));
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks are always consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed() {
        let access = |address, size, writes| {
            Some(Said::Access {
                address,
                size,
                writes,
            })
        };
        assert_eq!(
            Said::parse(b"I  00000104,3", true),
            Some(Said::Instruction(0x104))
        );
        assert_eq!(
            Said::parse(b" L 00003000,8", true),
            access(0x3000, 8, false)
        );
        assert_eq!(
            Said::parse(b" M 00003000,16", false),
            access(0x3000, 16, true)
        );
        assert_eq!(Said::parse(b" L 00003000,8", false), None);
        assert_eq!(Said::parse(b"==1== something else", true), None);
        assert_eq!(lines_of(0x5038, 16), 0x140..=0x141);
    }
}
