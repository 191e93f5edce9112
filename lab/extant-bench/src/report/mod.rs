//! The report: every benchmark is run as a separate command, whose JSON becomes tables and plots. The report contains
//! only figures of that run, with the commands that produced them.

mod figures;
mod machine;
mod markdown;
mod plots;
pub mod quoted;
mod sections;

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use sections::{Section, sections};

use crate::child;

/// The input of a report and its place.
#[derive(Clone, Debug)]
pub struct Params {
    /// The command `extant`.
    pub program: PathBuf,
    /// The directory of the report and its plots.
    pub dir: PathBuf,
    /// Whether to run few and short rounds.
    pub quick: bool,
    /// Whether to run the benchmarks of larger trees instead.
    pub long: bool,
    /// Whether the kernel's ext4 and fuse2fs take part, if they are available.
    pub mounts: bool,
    /// Whether FUSE over io_uring takes part.
    pub uring: bool,
    /// dbench's loadfile, if there is one.
    pub loadfile: Option<PathBuf>,
    /// The program that runs library peers, if there is one.
    pub peers: Option<PathBuf>,
}

/// Runs all sections and writes the report. `between` is called before each section with its title; if it fails, the
/// report ends. A failed section is marked in the report; returns the titles of failed sections.
pub fn write(params: &Params, mut between: impl FnMut(&str) -> Result<()>) -> Result<Vec<String>> {
    let told = || params.dir.display().to_string();
    std::fs::create_dir_all(&params.dir).with_context(told)?;
    let mut text = machine::head(params);
    let (mut failed, mut rows) = (Vec::new(), String::new());
    for section in sections(params) {
        between(section.title)?;
        text += &format!("\n## {}\n\n{}\n\n", section.title, section.about);
        text += &format!("`{}`\n\n", section.shown());
        match run(params, &section) {
            Ok((made, printed)) => {
                text += &made;
                rows += &json_rows(&section, &printed);
            }
            Err(error) => {
                between(section.title)?;
                text += &format!("This failed: {error:#}\n");
                failed.push(section.title.to_string());
            }
        }
        // Write the report so far, in case the run is aborted.
        let path = params.dir.join("REPORT.md");
        std::fs::write(&path, &text).with_context(|| path.display().to_string())?;
    }
    let path = params.dir.join("report.json");
    let json = format!("{{\n{}\n}}\n", rows.trim_end_matches(",\n"));
    std::fs::write(&path, json).with_context(|| path.display().to_string())?;
    Ok(failed)
}

/// Returns the member of `report.json` for a section, one row per line.
fn json_rows(section: &Section, rows: &Value) -> String {
    let rows: Vec<_> = rows.as_array().into_iter().flatten().collect();
    let lines: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let anchor = quoted::anchor(section.title);
    format!("\"{anchor}\": [\n{}\n],\n", lines.join(",\n"))
}

/// Runs a section; returns its part of the report, and its rows.
fn run(params: &Params, section: &Section) -> Result<(String, Value)> {
    let ran = child::run(
        Command::new(&section.program)
            .args(&section.args)
            .arg("--json"),
    )?;
    Ok((
        section.render(&ran.stdout, &params.dir)?,
        quoted::rows(&ran.stdout)?,
    ))
}

/// Returns a plot's file, and the line of the report that shows it.
fn shown(dir: &Path, name: &str, what: &str) -> (PathBuf, String) {
    let file = format!("{name}.svg");
    (dir.join(&file), format!("\n![{what}]({file})\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A command that answers every benchmark with the same results.
    const STAND_IN: &str = r#"#!/bin/sh
case "$*" in
*mdtest*) echo '[{"target":"ours","params":{"tasks":2,"shared":false},"creates":2e6,"creates_synced":1e6,"create_cpu_ns":500,"unlinks":4e6,"unlinks_synced":2e6,"unlink_cpu_ns":300}]' ;;
*bulk*) echo '{"reports":[{"name":"extant import","direction":"in","seconds":1,"sync_seconds":0.5,"files":100,"bytes":1e6,"cpu_ns":10,"peak":1000}]}' ;;
*dbench*) echo '[{"target":"ours","params":{"clients":2},"bytes":1e9,"bytes_synced":9e8,"ops":1e6,"cpu_ns":900,"latencies":{"Flush":{"count":2,"mean":5,"p50":5,"p99":6,"max":7,"buckets":[]}}}]' ;;
"mount "*) echo '[
 {"workload":"create","target":"mount:uring","shape":{"tasks":2},"ops":40000,"ops_finished":30000,"finishes":"sync","finish_seconds":0.1,"cpu_ns":10,"counts":{},"latency":{"p50":9,"p99":12,"buckets":[]},"unit":"/s","figure":40000,"times":{"floor":0.9,"kernel":0.5,"fuse2fs":null}},
 {"workload":"untar","target":"fuse2fs","shape":{"tasks":2},"ops":0,"ops_finished":0,"finishes":"sync","finish_seconds":0,"cpu_ns":0,"counts":{},"latency":{"p50":0,"p99":0,"buckets":[]},"unit":"s","figure":0,"times":{"floor":null,"kernel":null,"fuse2fs":null},"failed":"no room"}]' ;;
*fsync*) echo 'no figures'; echo broken >&2; exit 1 ;;
*) echo '[
 {"workload":"MWCL","target":"ours","shape":{"tasks":1},"ops":100,"ops_finished":50,"finishes":"sync","finish_seconds":0.1,"cpu_ns":10,"counts":{"pushes":2},"latency":{"p50":9,"p99":12,"buckets":[[9,3],[12,1]]}},
 {"workload":"MWCL","target":"peer","shape":{"tasks":1},"ops":10,"ops_finished":5,"finishes":"sync","finish_seconds":0.1,"cpu_ns":100,"counts":{},"latency":{"p50":90,"p99":120,"buckets":[[90,3]]}},
 {"workload":"MWCL","target":"ours","shape":{"tasks":2},"ops":180,"ops_finished":50,"finishes":"sync","finish_seconds":0.1,"cpu_ns":11,"counts":{},"latency":{"p50":9,"p99":12,"buckets":[]}},
 {"workload":"MWCL","target":"broken","shape":{"tasks":2},"ops":0,"ops_finished":0,"finishes":"sync","finish_seconds":0,"cpu_ns":0,"counts":{},"latency":{"p50":0,"p99":0,"buckets":[]},"failed":"it cannot"}]' ;;
esac
"#;

    #[test]
    fn a_report_has_tables_plots_and_what_failed() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("stand-in");
        std::fs::write(&program, STAND_IN).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let params = Params {
            program,
            dir: dir.path().join("out"),
            quick: true,
            long: false,
            mounts: true,
            uring: true,
            loadfile: Some("client.txt".into()),
            peers: None,
        };
        let mut titles = 0;
        let failed = write(&params, |_| {
            titles += 1;
            Ok(())
        });
        assert_eq!(failed.unwrap(), ["fsync", "fsync, fast commits"]);
        assert!(titles > sections(&params).len());
        let text = std::fs::read_to_string(params.dir.join("REPORT.md")).unwrap();
        for part in [
            "# Benchmark report",
            "| MWCL | 1 | peer | 10 | 5 | 100.0 ms | 100 ns | 90 ns | 120 ns | 10.0× | 10.0× |",
            "cannot: it cannot",
            "stand-in: exit status: 1: broken",
            "2.00 M",
            "`extant-bench fxmark",
            "pushes 2",
            "| create | 2 | mount:uring | 40.0 k/s | 100.0 ms | 10 ns | 9 ns | 12 ns | 0.90× | 0.50× | - |",
            "| untar | 2 | fuse2fs | not measured: no room |",
            "--against floor:uring floor:classic kernel fuse2fs",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let json = std::fs::read_to_string(params.dir.join("report.json")).unwrap();
        let figures = quoted::Figures::parse(&json).unwrap();
        let key = "fxmark ops tasks=1 over target=peer";
        assert_eq!(figures.get(key).unwrap(), "10.0×");
        let key = "mount times.kernel workload=create";
        assert_eq!(figures.get(key).unwrap(), "0.50×");
        // Every picture in the report exists.
        let shown: Vec<_> = text
            .split("](")
            .skip(1)
            .filter_map(|t| t.split_once(')'))
            .filter(|(file, _)| file.ends_with(".svg"))
            .collect();
        assert!(shown.len() > 3);
        for (file, _) in shown {
            let svg = std::fs::read_to_string(params.dir.join(file)).unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("ours"), "{file}");
        }
        assert!(write(&params, |_| anyhow::bail!("enough")).is_err());
    }
}
