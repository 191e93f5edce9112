//! `extant top` with its own load, in terminals of two sizes.

use crate::cli::support::Scratch;
use crate::tmux::{Terminal, misfit};
use std::path::Path;
use std::time::{Duration, Instant};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Returns the second picture: the first that has rates.
#[track_caller]
fn figures(terminal: &Terminal, columns: u16) -> Vec<String> {
    terminal.until(|screen| {
        let line = |kind: &str| {
            screen
                .iter()
                .find(|line| line.starts_with(&format!("│{kind} ")))
        };
        let rated = line("create")
            .is_some_and(|l| l.split_whitespace().nth(1).is_some_and(|rate| rate != "-"));
        rated && misfit(screen, columns.into()).is_none()
    })
}

fn watched_at(columns: u16, rows: u16) {
    let s = Scratch::empty();
    let terminal = Terminal::new(columns, rows);
    let settings = s.host("settings");
    terminal.note_settings(&settings);
    terminal.types(&format!(
        "{EXTANT} top --demo --interval 0.3; echo ended $?"
    ));
    let screen = figures(&terminal, columns);
    assert!(
        screen[0].starts_with("extant top  a volume in memory"),
        "{screen:?}"
    );
    assert!(
        screen[usize::from(rows) - 1].starts_with("q end"),
        "{screen:?}"
    );
    let text = screen.join("\n");
    assert!(!text.contains('…'), "nothing is cut\n{text}");
    for word in [
        "create",
        "fsync",
        "fill",
        "commits/s",
        "cache",
        "slot",
        "meter is off",
    ] {
        assert!(text.contains(word), "{word}:\n{text}");
    }
    // Keys: help, order, pause, and the lock meter.
    terminal.presses("h");
    terminal.until_seen("halt the picture, and let it go on");
    terminal.presses("h");
    terminal.presses("s");
    terminal.until_fits("requests by time", columns);
    terminal.presses("m");
    let screen = terminal.until_fits("waited", columns);
    assert!(!screen.join("\n").contains('…'), "{screen:?}");
    terminal.presses("Space");
    terminal.until_fits("HALTED", columns);
    // The rest of that picture may still be in transit.
    std::thread::sleep(Duration::from_millis(300));
    let halted = terminal.screen();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(terminal.screen(), halted, "it is halted");
    terminal.presses("q");
    terminal.until(|screen| screen.iter().any(|line| line == "ended 0"));
    terminal.is_as_before(&settings);
    // The previous screen is restored.
    assert!(terminal.screen().iter().any(|line| line == "noted"));
}

#[test]
fn it_fits_a_small_terminal() {
    needs::tools!("tmux");
    watched_at(80, 24);
}

#[test]
fn it_fits_a_large_terminal() {
    needs::tools!("tmux");
    watched_at(200, 50);
}

/// The terminal is restored however `top` ends.
#[test]
fn it_leaves_the_terminal_as_it_was() {
    needs::tools!("tmux");
    let s = Scratch::empty();
    let settings = s.host("settings");
    let terminal = Terminal::new(80, 24);
    terminal.note_settings(&settings);
    let start = |n: u32| {
        // The process writes its own number, so that the test ends only this process.
        let pid = s.host("pid").display().to_string();
        terminal.types(&format!(
            "sh -c 'echo $$ >{pid}; exec {EXTANT} top --demo --interval 0.3'; echo ended {n} $?"
        ));
        figures(&terminal, 80);
    };
    let ended = |n: u32, code: u32| {
        terminal.until(|screen| {
            screen
                .iter()
                .any(|line| *line == format!("ended {n} {code}"))
        });
        terminal.is_as_before(&settings);
    };
    start(1);
    terminal.presses("C-c");
    ended(1, 0);
    start(2);
    let pid = std::fs::read_to_string(s.host("pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    ended(2, 130);
    // `top` ends with its terminal.
    start(3);
    let pid = std::fs::read_to_string(s.host("pid")).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    assert!(process.exists());
    drop(terminal);
    let end = Instant::now() + Duration::from_secs(30);
    let is_there =
        || std::fs::read_to_string(process.join("status")).is_ok_and(|s| !s.contains("State:\tZ"));
    while is_there() {
        assert!(Instant::now() < end, "it outlives its terminal");
        std::thread::sleep(Duration::from_millis(50));
    }
    // On a terminal that is too small, `top` prints a message.
    let tiny = Terminal::new(60, 12);
    tiny.types(&format!("{EXTANT} top --demo"));
    tiny.until_seen("The terminal is too small:");
    tiny.presses("q");
    tiny.until(|screen| screen.iter().any(|line| line.starts_with("ready>")));
}

#[test]
fn once_prints_rates_for_scripts() {
    let s = Scratch::empty();
    let report = s
        .run(&[
            "top",
            "--demo",
            "--once",
            "--json",
            "--meter",
            "--interval",
            "1.5",
        ])
        .json();
    let seconds = report["interval_seconds"].as_f64().unwrap();
    assert!(seconds > 1.4, "{seconds}");
    let kinds = report["requests"].as_array().unwrap();
    let rate = |kind: &str| {
        let found = kinds.iter().find(|k| k["kind"] == kind).unwrap();
        found["per_second"].as_f64().unwrap()
    };
    assert!(rate("create") > 1.0, "{report:#}");
    let sum: f64 = kinds
        .iter()
        .map(|k| k["per_second"].as_f64().unwrap())
        .sum();
    assert!((sum - report["requests_per_second"].as_f64().unwrap()).abs() < 1e-6);
    let pushes = &report["pushes"];
    let us = |what: &str| pushes[what].as_u64().unwrap();
    assert!(us("counted") >= 1, "{report:#}");
    assert!(
        us("p50_us") <= us("p99_us") && us("p99_us") <= us("max_us"),
        "{pushes}"
    );
    assert!(report["log"]["blocks"].as_u64().unwrap() > 0);
    assert!(
        !report["locks"].as_array().unwrap().is_empty(),
        "{report:#}"
    );
    let threads: u64 = report["slots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["threads"].as_u64().unwrap())
        .sum();
    assert!(threads > 1, "{report:#}");
    let text = s.ok(&["top", "--demo", "--once", "--interval", "0.2"]);
    let lines: Vec<String> = text.lines().map(str::to_string).collect();
    assert_eq!(misfit(&lines, 100), None, "{text}");
}

#[test]
fn what_cannot_be_watched_is_said() {
    let s = Scratch::empty();
    let line = s.fails(&["top", "--demo"]);
    assert_eq!(
        line,
        "error: top draws on a terminal; --once prints the rates over one interval"
    );
    std::fs::create_dir(s.host("dir")).unwrap();
    let line = s.fails(&["top", "--once", "@dir"]);
    assert!(line.contains("dir: nothing is mounted here"), "{line}");
    assert_eq!(s.run(&["top"]).code, Some(2));
    assert_eq!(
        s.run(&["top", "--demo", "--once", "--interval", "0"]).code,
        Some(2)
    );
}
