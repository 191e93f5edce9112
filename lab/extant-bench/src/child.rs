//! Another program as the measured target: wall time, CPU time and peak memory of one child process.

use crate::stats::Elapsed;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::Instant;
use wait4::Wait4;

/// Costs of a child process, and its standard output.
#[derive(Debug)]
pub struct Ran {
    /// Time from its start to its end; CPU time of it and of the children that it waited for.
    pub elapsed: Elapsed,
    /// Peak memory in bytes. The system includes the memory of the parent at the start of the child, so values below a
    /// few MiB are not visible.
    pub peak: u64,
    /// Standard output.
    pub stdout: Vec<u8>,
}

/// Runs a command to its end, with empty standard input. A failed command is an error with the last line of its
/// standard error.
///
/// ```
/// let ran = extant_bench::child::run(std::process::Command::new("echo").arg("hello"))?;
/// assert_eq!(ran.stdout, b"hello\n");
/// assert!(ran.elapsed.wall > 0.0 && ran.peak > 0);
/// # Ok::<(), anyhow::Error>(())
/// ```
pub fn run(command: &mut Command) -> Result<Ran> {
    let name = command.get_program().to_string_lossy().into_owned();
    let context = || name.clone();
    // Files instead of pipes, because they need no reader while the child runs.
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    let start = Instant::now();
    let used = command
        .spawn()
        .and_then(Wait4::wait4)
        .with_context(context)?;
    let wall = start.elapsed().as_secs_f64();
    if !used.status.success() {
        let text = read(&mut stderr)?;
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        bail!("{name}: {}: {}", used.status, last.unwrap_or("no message"));
    }
    Ok(Ran {
        elapsed: Elapsed {
            wall,
            cpu: (used.rusage.utime + used.rusage.stime).as_secs_f64(),
        },
        peak: used.rusage.maxrss,
        stdout: read(&mut stdout)?,
    })
}

fn read(file: &mut File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_say_why() {
        let ls = run(Command::new("ls").arg("/no/such/place"));
        let text = format!("{:#}", ls.unwrap_err());
        assert!(
            text.starts_with("ls: ") && text.contains("/no/such/place"),
            "{text}"
        );
        let none = run(&mut Command::new("extant-no-such-program"));
        assert!(format!("{:#}", none.unwrap_err()).starts_with("extant-no-such-program: "));
    }

    #[test]
    fn cpu_is_the_childs() {
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        let idle = run(Command::new("true").arg("")).unwrap();
        let busy = run(Command::new("sh").args(["-c", busy])).unwrap();
        assert!(busy.elapsed.cpu > idle.elapsed.cpu);
        assert!(busy.elapsed.cpu <= busy.elapsed.wall * 1.5 + 0.02);
    }
}
