//! A sample through the command itself.

use crate::common::Rng;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit of a command.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs commands that read or write; a command that panics, is killed or does not end is a finding.
pub fn run(image: &Path, rng: &mut Rng) -> Result<(), String> {
    let at = |path: &str| format!("{}:{path}", image.display());
    let plain = image.display().to_string();
    let host = image.with_extension("tree");
    let host = host.to_str().unwrap_or_default().to_string();
    let tar = format!("{host}.tar");
    let all: Vec<Vec<String>> = [
        vec!["info", "--groups", &plain],
        vec!["map", "--json", &plain],
        vec!["tree", &at("/")],
        vec!["ls", "-lR", &at("/")],
        vec!["ls", "-R", "--json", &at("/")],
        vec!["--noload", "tree", &at("/")],
        vec!["df", &plain],
        vec!["cat", &at("/deep")],
        vec!["stat", &at("/d0/f3")],
        vec!["getfattr", "-d", &at("/d0/f1")],
        vec!["export", &at("/"), &tar],
        vec!["cp", "-r", &at("/d0"), &host],
        vec!["import", &plain, &tar],
        vec!["cp", "/proc/self/stat", &at("/new")],
        vec!["mv", &at("/d1"), &at("/d0/moved")],
        vec!["chmod", "-R", "700", &at("/d2")],
        vec!["ln", &at("/d3/f1"), &at("/hard")],
        vec!["cp", "-r", &at("/d3"), &at("/d4/copy")],
        vec!["rm", "-r", &at("/big"), &at("/d4")],
    ]
    .into_iter()
    .map(|args| args.into_iter().map(String::from).collect())
    .collect();
    let from = rng.below(all.len() as u64) as usize;
    let mut done = Ok(());
    for args in all.iter().cycle().skip(from).take(6) {
        done = done.and_then(|()| one(args));
    }
    let _ = std::fs::remove_dir_all(&host);
    let _ = std::fs::remove_file(&tar);
    done
}

fn one(args: &[String]) -> Result<(), String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("extant runs");
    let start = Instant::now();
    loop {
        match child.try_wait().expect("a child") {
            Some(status) => {
                return match status.code() {
                    Some(0..=2) => Ok(()),
                    _ => Err(format!("extant {args:?}: {status}")),
                };
            }
            None if start.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("extant {args:?}: does not end"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}
