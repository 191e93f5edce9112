//! The processes that keep a mount busy, as fuser -m finds them. Nothing asks the mount itself: its server may hang.

use crate::format::show::ShowPath;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Number of processes that a message names; further processes are only counted.
const NAMED: usize = 5;

/// Returns the names of the processes with an open file, a root or a working directory below `dir`, or `None`. Only
/// root sees the processes of other users.
pub fn of(dir: &Path) -> Option<String> {
    let own = std::process::id();
    let mut found: Vec<(u32, String)> = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        if let Some(how) = used_by(&entry.path(), dir) {
            let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.push((
                pid,
                format!("{} (process {pid}: {how})", command.trim_end()),
            ));
        }
    }
    found.sort();
    let more = found.len().saturating_sub(NAMED);
    let named: Vec<String> = found
        .into_iter()
        .take(NAMED)
        .map(|(_, text)| text)
        .collect();
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named.join(", ")),
        (false, more) => Some(format!("{}, and {more} more", named.join(", "))),
    }
}

/// Returns the first use of a directory by a process.
fn used_by(process: &Path, dir: &Path) -> Option<String> {
    let leads_below = |link: PathBuf| {
        let target = fs::read_link(link).ok()?;
        target.starts_with(dir).then_some(target)
    };
    for (link, how) in [
        ("cwd", "its working directory"),
        ("root", "its root"),
        ("exe", "its program"),
    ] {
        if leads_below(process.join(link)).is_some() {
            return Some(how.into());
        }
    }
    let open = fs::read_dir(process.join("fd")).ok()?.flatten();
    let file = open.map(|entry| entry.path()).find_map(leads_below);
    if let Some(file) = file {
        return Some(format!("{} is open", file.shown()));
    }
    let maps = fs::read(process.join("maps")).ok()?;
    let mapped = maps.split(|b| *b == b'\n').any(|line| {
        let path = line
            .iter()
            .position(|b| *b == b'/')
            .and_then(|at| line.get(at..));
        path.is_some_and(|path| bytes_path(path).starts_with(dir))
    });
    mapped.then(|| "a file is mapped".into())
}

fn bytes_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(OsStr::from_bytes(bytes))
}
