//! The command `extant-bench`, with little work; the mounts and moves use the command `extant`.

mod support;

use support::{Scratch, bench, root, run};

/// Little of mdtest.
const SMALL: [&str; 8] = [
    "--tasks",
    "2",
    "--files",
    "50",
    "--iterations",
    "1",
    "--size",
    "64M",
];

#[test]
fn mdtest_compares_targets() {
    let s = Scratch::empty();
    let path = s.dir.path().to_str().unwrap();
    let args = [&["mdtest", "--target", "lib", "--target", path][..], &SMALL].concat();
    let table = run(&args).text();
    assert!(
        table.contains("extant (in process)") && table.contains("against path"),
        "{table}"
    );
    let json = run(&[&args[..], &["--json", "--shared"]].concat()).json();
    assert!(json[0]["creates"].as_f64().unwrap() > 0.0);
    assert_eq!(json[1]["params"]["shared"], true);
    assert_eq!(s.dir.path().read_dir().unwrap().count(), 0);
    assert_eq!(run(&["mdtest", "--target", "/no/such/place"]).code, Some(1));
}

#[test]
fn grow_compares_steps() {
    let small = [
        "--names", "600", "--step", "100", "--dirs", "3", "--tasks", "2",
    ];
    let args = [&["grow", "--size", "64M"][..], &small].concat();
    let json = run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(json[0]["steps"].as_array().unwrap().len(), 6);
    assert!(json[0]["synced"]["later"].as_f64().unwrap() > 0.0);
    let table = run(&args).text();
    assert!(
        table.contains("600 names in 3 directories by 2 tasks"),
        "{table}"
    );
    assert_eq!(run(&["grow", "--names", "5", "--step", "2"]).code, Some(1));
}

/// Runs a workload that repeats one operation, over a volume and a directory.
fn repeats(command: &[&str], workloads: &[&str]) {
    // In memory if possible, because every round syncs.
    let dir = needs::memory_dir();
    let path = dir.path().to_str().unwrap();
    let small = [
        "--tasks",
        "1,3",
        "--seconds",
        "0.01",
        "--files",
        "40",
        "--iterations",
        "1",
        "--size",
        "64M",
    ];
    let args = [command, &small, &["--against", path]].concat();
    let json = run(&[&args[..], &["--json"]].concat()).json();
    let reports = json.as_array().unwrap();
    assert_eq!(reports.len(), workloads.len() * 2 * 2);
    for workload in workloads {
        let of = |r: &&serde_json::Value| r["workload"] == *workload;
        assert_eq!(reports.iter().filter(of).count(), 4, "{workload}");
    }
    for report in reports {
        assert!(report["ops"].as_f64().unwrap() > 0.0, "{report}");
        assert!(report["latency"]["count"].as_u64().unwrap() > 0, "{report}");
    }
    let table = run(&args).text();
    assert!(
        table.contains("extant (in process)") && table.contains("path "),
        "{table}"
    );
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn small_workloads_compare_targets() {
    for name in ["open1", "unlink2"] {
        repeats(&[name], &[name]);
    }
    let fallocate2 = ["fallocate2", "fallocate2-in-turn", "fallocate2-search"];
    repeats(&fallocate2[..1], &fallocate2);
    let twice = run(&["open1", "--against", "lib"]);
    assert_eq!(twice.code, Some(1));
    assert!(twice.stderr.contains("name it once"), "{}", twice.stderr);
}

#[test]
fn fxmark_runs_the_rows_that_are_named_or_all() {
    repeats(&["fxmark", "mwcl", "DRBH"], &["MWCL", "DRBH"]);
    let few = [
        "--tasks",
        "2",
        "--seconds",
        "0.1",
        "--files",
        "40",
        "--iterations",
        "1",
    ];
    let all = run(&[&["fxmark", "--json"][..], &few].concat()).json();
    assert_eq!(all.as_array().unwrap().len(), 19);
    assert_eq!(run(&["fxmark", "DROP"]).code, Some(2));
    let help = run(&["fxmark", "--help"]).text();
    assert!(
        help.contains("MRPM") && help.contains("stat a random file"),
        "{help}"
    );
}

#[test]
fn the_log_is_measured_and_says_what_it_did() {
    repeats(&["commits"], &["commits"]);
    repeats(&["fsync"], &["fsync"]);
    let few = ["--seconds", "0.01", "--iterations", "1"];
    let table = run(&[&["commits"][..], &few].concat()).text();
    for word in ["pushes", "log bytes", "sorting", "operations a push"] {
        assert!(table.contains(word), "{word} in {table}");
    }
}

#[test]
fn inodes_are_brought_in_and_dropped() {
    let few = ["--tasks", "30", "--files", "300", "--iterations", "1"];
    let list = [&["inode-list"][..], &few].concat();
    let json = run(&[&list[..], &["--json"]].concat()).json();
    assert_eq!(json[0]["rounds"][0]["ops"], 300);
    assert!(run(&list).text().contains("dropped/s"));
}

#[test]
fn before_stands_beside_after() {
    let few = ["--seconds", "5", "--files", "200", "--iterations", "1"];
    // By their names, which leaves out the millions of inodes of the default.
    let names = [
        "inode-search",
        "inode-stretches",
        "group-lock",
        "group-goals",
        "inode-list",
        "inode-list-walks",
        "commit-list",
    ];
    let before = [&["before", "--json"][..], &names, &few].concat();
    let json = run(&before).json();
    let reports = json.as_array().unwrap();
    // Each pair with one and with two tasks.
    assert_eq!(reports.len(), 2 * names.len() * 2);
    for pair in reports.chunks(2) {
        assert_eq!(
            (&pair[0]["target"], &pair[1]["target"]),
            (&"after".into(), &"before".into())
        );
        assert_eq!(pair[0]["rounds"][0]["ops"], pair[1]["rounds"][0]["ops"]);
    }
    let one_lock = ["unlink2", "--against", "before:one-lock", "--size", "64M"];
    let short = ["--seconds", "0.05", "--iterations", "1"];
    let ran = run(&[&one_lock[..], &short].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("before: one lock"));
    assert_eq!(run(&["before", "nothing"]).code, Some(2));
}

#[test]
fn dbench_replays_a_loadfile() {
    let s = Scratch::empty();
    let load = r#"
Mkdir "\clients" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\a" 0x40 0x2 2 NT_STATUS_OK
WriteX 2 0 65536 65536 NT_STATUS_OK
Flush 2 NT_STATUS_OK
ReadX 2 4096 4096 4096 NT_STATUS_OK
Close 2 NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\none" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
Deltree "\clients\client1" NT_STATUS_OK
"#;
    std::fs::write(s.host("load"), load).unwrap();
    std::fs::create_dir(s.host("dir")).unwrap();
    let args = [
        "dbench",
        "@load",
        "--clients",
        "3",
        "--iterations",
        "1",
        "--size",
        "64M",
        "--cache",
        "1M",
        "--against",
        "@dir",
    ];
    let table = s.ok(&args);
    assert!(
        table.contains("QUERY_PATH_INFORMATION") && table.contains("MB/s"),
        "{table}"
    );
    let json = s.run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!(json[1]["rounds"][0]["ops"], 3 * 10);
    assert_eq!(json[0]["latencies"]["Flush"]["count"], 3);
    assert_eq!(s.host("dir").read_dir().unwrap().count(), 0);
    std::fs::write(s.host("load"), "Mkdir x").unwrap();
    let error = s.fails(&["dbench", "@load"]);
    assert!(error.contains("line 1: "), "{error}");
}

#[test]
fn a_report_is_of_what_is_there() {
    let none = run(&["report", "--out", "/tmp", "--peers", "/no/such/program"]);
    assert_eq!(none.code, Some(1));
    assert!(
        none.stderr.contains("/no/such/program: not there"),
        "{}",
        none.stderr
    );
    assert!(run(&["report", "--help"]).text().contains("--quick"));
}

#[test]
fn locks_and_operations_are_measured_when_asked() {
    let plain = [&["mdtest"][..], &SMALL].concat();
    assert_eq!(run(&plain).stderr, "");
    let ran = run(&[&plain[..], &["--lockmeter", "--profile"]].concat());
    assert_eq!(ran.code, Some(0));
    let line = |name: &str| {
        let found = ran
            .stderr
            .lines()
            .find(|l| l.trim_start().starts_with(name));
        found
            .unwrap_or_else(|| panic!("{name} in {}", ran.stderr))
            .to_string()
    };
    // Two rounds of a hundred files, and a round that is not shown.
    assert_eq!(line("unlink").split_whitespace().nth(2), Some("200"));
    assert!(ran.stderr.contains("directory bucket"), "{}", ran.stderr);
    assert!(ran.stderr.contains("name_table.rs:"), "{}", ran.stderr);
}

#[test]
fn bulk_moves_a_tree_every_way_beside_its_peers() {
    needs::tools!("mke2fs", "tar");
    let s = Scratch::empty();
    let dir = s.dir.path().to_str().unwrap();
    let made = ["--files", "20", "--dirs", "3", "--size", "5000"];
    let peers = ["--against", "tar", "--against", "mke2fs"];
    let rounds = ["--iterations", "2", "--rounds-peer", "1", "--dir", dir];
    let args = [&["bulk"][..], &made, &peers, &rounds].concat();
    let json = run(&[&args[..], &["--json"]].concat()).json();
    // The files and directories, the root and lost+found.
    assert_eq!(json["names"], 3 * 20 + 3 + 2);
    assert_eq!(json["bytes"], 3 * 20 * 5000);
    let reports = json["reports"].as_array().unwrap();
    let of = |name: &str| {
        let begins = |r: &&serde_json::Value| r["name"].as_str().unwrap().starts_with(name);
        reports
            .iter()
            .find(begins)
            .unwrap_or_else(|| panic!("{name}"))
    };
    for (name, direction, rounds) in [
        ("extant mkfs --from", "in", 2),
        ("extant import", "in", 2),
        ("mke2fs -d", "in", 1),
        ("tar c", "in", 1),
        ("extant export DIR", "out", 2),
        ("extant export TAR", "out", 2),
        ("tar x", "out", 1),
    ] {
        let report = of(name);
        assert_eq!(report["direction"], direction, "{name}");
        assert_eq!(report["rounds"].as_array().unwrap().len(), rounds, "{name}");
        for key in ["seconds", "files_synced", "cpu_ns", "peak"] {
            assert!(report[key].as_f64().unwrap() > 0.0, "{name} {key}");
        }
    }
    // The time that an import spends on durability counts as sync, not as work.
    assert!(of("extant import")["sync_seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(s.dir.path().read_dir().unwrap().count(), 0);
    std::fs::create_dir(s.host("tree")).unwrap();
    std::fs::write(s.host("tree/file"), "content").unwrap();
    let table = s.ok(&["bulk", "--from", "@tree", "--iterations", "1"]);
    assert!(table.contains("tree: 3 names, 7 of data"), "{table}");
    let inside = s.fails(&["bulk", "--from", "@tree", "--dir", "@tree"]);
    assert!(inside.contains("lies inside the tree"), "{inside}");
}

#[test]
fn a_peer_that_is_not_installed_is_an_error() {
    let out = bench()
        .args(["bulk", "--against", "mke2fs"])
        .env("PATH", "/no/such/place")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    let line = "extant-bench: --against mke2fs: mke2fs cannot be run: ";
    assert!(
        said.starts_with(line) && said.lines().count() == 1,
        "{said}"
    );
}

/// Returns whether tests run in their long form: `make torture-lines`.
fn is_torture() -> bool {
    std::env::var_os("EXTANT_TORTURE").is_some()
}

/// Commuting operations share only known lines. A single pair says nothing, because the tasks' slots, and the groups that these
/// select, differ from run to run; so only the long form runs, over pairs of every operation.
#[test]
fn operations_that_commute_share_no_line() {
    if !is_torture() {
        return;
    }
    needs::tools!("valgrind");
    let machine = ["conflicts", "--cpus", "64", "--json"];
    let found = run(&[&machine[..], &["--short", "--turned"]].concat()).json();
    assert_eq!(found["counts"]["failed"], 0, "{found:#}");
    let cases = found["cases"].as_array().unwrap();
    let unknown: Vec<_> = cases
        .iter()
        .filter(|case| case["outcome"] == "conflict" && !case["reason"].is_string())
        .collect();
    assert!(unknown.len() <= 2, "{unknown:#?}");
    let takes_bias = found["counts"]["takes_bias"].as_f64().unwrap();
    let free = found["share_free"].as_f64().unwrap() + takes_bias / cases.len() as f64;
    assert!(free >= 0.85, "{found:#}");
}

/// Data that many cores share appear here as misses of each operation. The memory allocator moves pages meanwhile, and
/// two tasks may have blocks of one group; the counts of free blocks do not affect other cores.
#[test]
fn cores_take_few_lines_from_each_other() {
    needs::tools!("valgrind");
    let (cores, ops) = if is_torture() { (4, 18) } else { (2, 4) };
    let [cores_word, ops_word] = [cores, ops].map(|n| n.to_string());
    let traced = [
        "coherence",
        "--cores",
        &cores_word,
        "--ops",
        &ops_word,
        "--json",
    ];
    let workloads = [("commits", ""), ("fallocate2", "space/counts.rs")];
    for (workload, code) in &workloads[..if is_torture() { 2 } else { 1 }] {
        let found = run(&[&traced[..], &["--only", *workload]].concat()).json();
        let missed = found[0]["missed"].as_array().unwrap();
        let own = missed.iter().filter(|m| {
            let there = m["code"].as_str().unwrap().starts_with(*code);
            m["allocator"] == false && there
        });
        let misses: f64 = own
            .map(|m| m["reads"].as_f64().unwrap() + m["writes"].as_f64().unwrap())
            .sum();
        assert!(misses < 0.1, "{found:#}");
        assert_eq!(found[0]["ops"], cores * ops);
        assert!(found[0]["accesses"].as_f64().unwrap() > 100.0);
    }
}

#[test]
fn conflicts_need_their_tool_and_a_case() {
    let bench = |args: &[&str]| {
        let out = bench()
            .args([&["conflicts"], args].concat())
            .env("PATH", "/no/such/place")
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(bench(&[]).starts_with("extant-bench: this needs valgrind"));
}

#[test]
fn predict_prints_tables_and_writes_plots() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("prediction.md");
    let conflicts = dir.path().join("conflicts.json");
    let case = r#"{"cases": [{"name": "stat × stat, other directories",
        "findings": [{"a": "x.rs:1 f", "rounds": 4, "allocator": false, "line": 64}]}]}"#;
    std::fs::write(&conflicts, case).unwrap();
    let small = [
        "predict",
        "--ops",
        "200",
        "--rounds",
        "1",
        "--conflicts",
        conflicts.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ];
    let text = run(&small).text();
    assert_eq!(std::fs::read_to_string(&report).unwrap(), text);
    assert!(text.contains("| stat | now |") && text.contains("Shared line: x.rs:1 f"));
    assert!(dir.path().join("prediction-commits.svg").exists());
    let json = run(&[&small[..], &["--json"]].concat()).json();
    let workloads = json["workloads"].as_array().unwrap();
    assert_eq!(workloads.len(), 12);
    assert_eq!(workloads[2]["predicted"][8]["bottleneck"], "x.rs:1 f");
    assert_eq!(run(&["predict", "--line-ns", "NaN"]).code, Some(1));
}

/// Returns whether mounts can be made here; in CI they must be possible.
fn can_mount() -> bool {
    let fuse = std::path::Path::new("/dev/fuse").exists();
    if !fuse {
        needs::ignored("there is no /dev/fuse");
    }
    root() && fuse && needs::have(&["mke2fs"])
}

#[test]
fn mounts_are_compared_with_their_floor() {
    if !can_mount() {
        return;
    }
    let small = [
        "--files",
        "40",
        "--file-size",
        "1M",
        "--seconds",
        "0.02",
        "--iterations",
        "1",
        "--clients",
        "2",
        "--size",
        "128M",
    ];
    let against = |transport: &str| {
        let words = [format!("mount:{transport}"), format!("floor:{transport}")];
        let bench = ["mount", "--target", &words[0], "--against"];
        let args = [&bench[..], &[&words[1], "kernel"], &small, &["--json"]].concat();
        run(&args).json()
    };
    let mut transports = vec!["classic"];
    if std::path::Path::new("/sys/module/fuse/parameters/enable_uring").exists() {
        transports.push("uring");
    }
    for transport in transports {
        let all = against(transport);
        let all = all.as_array().unwrap();
        let of = |name: &str| {
            let name = format!("{name}:{transport}");
            all.iter().filter(move |m| m["target"] == name.as_str())
        };
        assert!(of("mount").count() >= 14, "{all:#?}");
        for m in of("mount").chain(of("floor")) {
            assert_eq!(m["failed"], serde_json::Value::Null, "{m:#}");
            assert!(m["figure"].as_f64().unwrap() > 0.0, "{m:#}");
        }
        assert!(of("mount").all(|m| m["times"]["floor"].as_f64().unwrap() > 0.0));
    }
    let dir = needs::memory_dir();
    let path = dir.path().to_str().unwrap();
    let bench = ["mount", "create", "stream-write", "--target", path];
    let table = run(&[&bench[..], &small].concat()).text();
    assert!(
        table.contains("stream-write") && table.contains("MB/s"),
        "{table}"
    );
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    assert_eq!(run(&["mount", "dance"]).code, Some(2));
}

#[test]
fn every_benchmark_shows_an_example() {
    let help = run(&["--help"]).text();
    let indented = help.lines().filter_map(|line| line.strip_prefix("  "));
    let names = indented.filter_map(|line| line.split(' ').next());
    let named = |n: &&str| {
        !n.is_empty()
            && *n != "help"
            && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !n.starts_with('-')
    };
    let names: Vec<_> = names
        .filter(named)
        .filter(|n| *n != "extant-bench")
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let help = run(&[name, "--help"]).text();
        assert!(
            help.contains("Example") && help.contains(&format!("extant-bench {name}")),
            "{name}: {help}"
        );
    }
}
