//! The machine of a report.

use super::Params;
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

/// Returns the value of a key in one of /proc's files.
fn value(file: &str, key: &str) -> String {
    let text = read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key));
    let value = line.and_then(|l| l.split_once(':')).map(|(_, v)| v.trim());
    value.unwrap_or("unknown").to_string()
}

/// Returns the first line of a program's version text.
fn version(program: &Path, flag: &str) -> Option<String> {
    let said = Command::new(program).arg(flag).output().ok()?;
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Some(text.lines().next()?.trim().to_string())
}

pub fn head(params: &Params) -> String {
    let system = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = value("/proc/meminfo", "MemTotal");
    let memory = memory
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok());
    let memory = memory.map_or("unknown".into(), |kib| {
        format!("{:.1} GiB", kib / 1048576.0)
    });
    let mut rows = vec![
        ("processor", value("/proc/cpuinfo", "model name")),
        ("CPUs", cpus.to_string()),
        ("memory", memory),
        ("kernel", text(system.release())),
    ];
    let programs = [
        ("Extant", params.program.as_path(), "--version"),
        ("e2fsprogs", Path::new("mke2fs"), "-V"),
        ("tar", Path::new("tar"), "--version"),
    ];
    for (name, program, flag) in programs {
        let said = version(program, flag).unwrap_or_else(|| "not installed".into());
        rows.push((name, said));
    }
    let mode = if params.quick {
        "quick: few and short rounds, whose figures vary"
    } else {
        "full"
    };
    rows.push(("rounds", mode.into()));
    let rows: String = rows
        .iter()
        .map(|(k, v)| format!("| {k} | {v} |\n"))
        .collect();
    let peers = if params.mounts {
        ""
    } else {
        "Without root nothing is mounted, so the kernel and fuse2fs take no part.\n"
    };
    let (made_by, workloads) = if params.long {
        ("make bench-long", "../workloads.md")
    } else {
        ("make bench", "workloads.md")
    };
    format!(
        "# Benchmark report\n\nMade by `{made_by}`; what each benchmark does is in \
        [workloads]({workloads}). All figures are of this run. Images are in memory unless said \
        otherwise; targets take turns round by round, and medians are shown. CPU is that of the process (with \
        fuse2fs, its server's too; what the kernel's own threads do is not in it).\n{peers}\n\
        | | |\n|---|---|\n{rows}"
    )
}
