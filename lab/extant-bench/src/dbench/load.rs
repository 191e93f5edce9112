//! The loadfile: one line per operation, `[time] OP "\path" arguments STATUS`.

use anyhow::{Context, Result, bail, ensure};
use std::io::BufRead;

/// An operation, with its name in the file and its arguments. Paths have '/' between names, start below the root, and
/// contain `client1` where each client puts its own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens or makes a file or directory.
    Create {
        /// The path.
        path: String,
        /// Whether the create options ask for a directory.
        directory: bool,
        /// Whether to create a missing file.
        make: bool,
        /// Number of the handle in later lines.
        handle: u32,
    },
    /// Closes a handle.
    Close(u32),
    /// Writes.
    Write {
        /// Handle of the file.
        handle: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Reads.
    Read {
        /// Handle of the file.
        handle: u32,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Makes a file durable.
    Flush(u32),
    /// Removes a file.
    Unlink(String),
    /// Renames.
    Rename(String, String),
    /// Makes a directory.
    Mkdir(String),
    /// Removes a directory.
    Rmdir(String),
    /// Removes a directory and all below it.
    Deltree(String),
    /// Reads attributes by path.
    Stat(String),
    /// Reads attributes by handle.
    StatHandle(u32),
    /// Sets attributes by handle.
    SetHandle(u32),
    /// Reads the free space.
    StatFs,
    /// Lists a directory; the pattern of the last name is ignored.
    Find(String),
    /// Locks a byte range; servers do that in their own memory, not in a file system.
    Lock,
}

/// A line of the loadfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file.
    pub line: usize,
    /// The operation.
    pub op: Op,
    /// Its name in the file.
    pub name: &'static str,
    /// Whether the operation succeeded in the recording.
    pub succeeds: bool,
}

/// A whole loadfile.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Its lines.
    pub steps: Vec<Step>,
    /// The longest read or write.
    pub longest: usize,
}

/// Options of NTCreateX: it is a directory.
const DIRECTORY: u32 = 0x1;
/// Dispositions of NTCreateX that create a missing file: all but open (1) and overwrite (4).
const OPEN: u32 = 1;
const OVERWRITE: u32 = 4;
/// More bytes than any loadfile reads or writes at once.
const MOST: u32 = 64 << 20;

/// Returns the words of a line; words in double quotes may contain spaces.
fn words(line: &str) -> Result<Vec<&str>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').context("a quote is not closed")?,
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("{text} is not a number"))
}

fn path(text: &str) -> Result<String> {
    let path = text.replace('\\', "/");
    let path = path.trim_matches('/');
    // Names on a volume are case-sensitive, those of the recorded server were not.
    let path = path.to_ascii_lowercase();
    ensure!(
        path.split('/').all(|name| !name.is_empty() && name != ".."),
        "{text}: not a path below the root"
    );
    Ok(path)
}

/// Arguments of an operation, in order.
struct Args<'a>(std::slice::Iter<'a, &'a str>);

impl<'a> Args<'a> {
    fn word(&mut self) -> Result<&'a str> {
        self.0.next().copied().context("an argument is missing")
    }
    fn path(&mut self) -> Result<String> {
        path(self.word()?)
    }
    fn number(&mut self) -> Result<u64> {
        number(self.word()?)
    }
    fn small(&mut self) -> Result<u32> {
        let n = self.number()?;
        u32::try_from(n).with_context(|| format!("{n} is too large"))
    }
    fn len(&mut self) -> Result<u32> {
        let n = self.small()?;
        ensure!(n <= MOST, "{n} bytes at once are too many");
        Ok(n)
    }
}

fn operation(name: &str, args: &mut Args<'_>) -> Result<(&'static str, Op)> {
    Ok(match name {
        "NTCreateX" => {
            let path = args.path()?;
            let (options, disposition) = (args.small()?, args.small()?);
            let op = Op::Create {
                path,
                directory: options & DIRECTORY != 0,
                make: disposition != OPEN && disposition != OVERWRITE,
                handle: args.small()?,
            };
            ("NTCreateX", op)
        }
        "Close" => ("Close", Op::Close(args.small()?)),
        "WriteX" => {
            let (handle, offset, len) = (args.small()?, args.number()?, args.len()?);
            let op = Op::Write {
                handle,
                offset,
                len,
            };
            ("WriteX", op)
        }
        "ReadX" => {
            let (handle, offset, len) = (args.small()?, args.number()?, args.len()?);
            let op = Op::Read {
                handle,
                offset,
                len,
            };
            ("ReadX", op)
        }
        "Flush" => ("Flush", Op::Flush(args.small()?)),
        "Unlink" => ("Unlink", Op::Unlink(args.path()?)),
        "Rename" => ("Rename", Op::Rename(args.path()?, args.path()?)),
        "Mkdir" => ("Mkdir", Op::Mkdir(args.path()?)),
        "Rmdir" => ("Rmdir", Op::Rmdir(args.path()?)),
        "Deltree" => ("Deltree", Op::Deltree(args.path()?)),
        "QUERY_PATH_INFORMATION" => ("QUERY_PATH_INFORMATION", Op::Stat(args.path()?)),
        "QUERY_FILE_INFORMATION" => ("QUERY_FILE_INFORMATION", Op::StatHandle(args.small()?)),
        "SET_FILE_INFORMATION" => ("SET_FILE_INFORMATION", Op::SetHandle(args.small()?)),
        "QUERY_FS_INFORMATION" => ("QUERY_FS_INFORMATION", Op::StatFs),
        "FIND_FIRST" => {
            let pattern = args.path()?;
            let dir = pattern.rsplit_once('/').map_or("", |(dir, _)| dir);
            ("FIND_FIRST", Op::Find(dir.into()))
        }
        "LockX" => ("LockX", Op::Lock),
        "UnlockX" => ("UnlockX", Op::Lock),
        other => bail!("{other}: no operation of dbench"),
    })
}

fn step(line: usize, text: &str) -> Result<Option<Step>> {
    let words = words(text)?;
    let mut rest = words.as_slice();
    // Ignore the recorded time in newer files.
    if let [first, after @ ..] = rest
        && first.parse::<f64>().is_ok()
    {
        rest = after;
    }
    let [name, rest @ ..] = rest else {
        return Ok(None);
    };
    if name.starts_with('#') {
        return Ok(None);
    }
    let [arguments @ .., status] = rest else {
        bail!("no status");
    };
    let (name, op) = operation(name, &mut Args(arguments.iter()))?;
    Ok(Some(Step {
        line,
        op,
        name,
        succeeds: matches!(*status, "NT_STATUS_OK" | "SUCCESS" | "0x00000000"),
    }))
}

impl Load {
    /// Reads a loadfile.
    ///
    /// ```
    /// use extant_bench::dbench::{Load, Op};
    /// let text = r#"Unlink "\clients\client1\file" 0x6 NT_STATUS_OK"#;
    /// let load = Load::parse(text.as_bytes())?;
    /// assert_eq!(load.steps[0].op, Op::Unlink("clients/client1/file".into()));
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    pub fn parse(input: impl BufRead) -> Result<Self> {
        let mut load = Self::default();
        for (i, line) in input.lines().enumerate() {
            let step = line
                .map_err(Into::into)
                .and_then(|line| step(i + 1, &line))
                .with_context(|| format!("line {}", i + 1))?;
            load.steps.extend(step);
        }
        ensure!(!load.steps.is_empty(), "no operations");
        let len = |step: &Step| match step.op {
            Op::Read { len, .. } | Op::Write { len, .. } => len,
            _ => 0,
        };
        load.longest = load.steps.iter().map(len).max().unwrap_or(0) as usize;
        Ok(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_lines_are_named() {
        let error = |text: &str| format!("{:#}", Load::parse(text.as_bytes()).unwrap_err());
        assert_eq!(error(""), "no operations");
        assert_eq!(
            error("# nothing\n\nDance 1 OK"),
            "line 3: Dance: no operation of dbench"
        );
        assert_eq!(
            error("Close x NT_STATUS_OK"),
            "line 1: x is not a number: invalid digit found in string"
        );
        assert_eq!(error("Close"), "line 1: no status");
        assert_eq!(
            error("WriteX 1 0 NT_STATUS_OK"),
            "line 1: an argument is missing"
        );
        assert!(error("Mkdir \"\\a\\..\\b\" NT_STATUS_OK").contains("not a path below"));
        assert!(error("Mkdir \"\\a NT_STATUS_OK").contains("a quote"));
        assert!(error("ReadX 1 0 99999999999 1 NT_STATUS_OK").contains("too large"));
        assert!(error("ReadX 1 0 999999999 1 NT_STATUS_OK").contains("too many"));
    }
}
