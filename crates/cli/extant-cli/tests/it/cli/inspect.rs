//! `extant inspect`: requests as words, as lines and from a file, as text and as JSON.

use crate::cli::support::Scratch;

#[test]
fn requests_are_answered_in_their_order() {
    let Some(s) = Scratch::filled() else { return };
    let ran = s.run(&["inspect", "%", "stat", "/etc/motd"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.text().contains("size:"), "{}", ran.text());
    std::fs::write(s.host("requests"), "# two\nimap <2>\n\nsuperblock\n").unwrap();
    let ran = s.run(&[
        "inspect",
        "--json",
        "%",
        "-R",
        "ex /etc/motd",
        "-f",
        "@requests",
    ]);
    let text = ran.text();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<_> = lines
        .iter()
        .map(|l| l["request"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["extents", "imap", "superblock"]);
    assert_eq!(lines[0]["records"][0]["state"], "written");
    assert_eq!(lines[1]["records"][0]["inode"], 2);
    let last = lines[2]["records"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["of"], &last["checksum"]),
        (&"superblock".into(), &"right".into())
    );
}

#[test]
fn what_cannot_be_answered_is_told() {
    let Some(s) = Scratch::filled() else { return };
    let ran = s.run(&["inspect", "%", "mkdir", "x"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("no request \"mkdir\"") && ran.stderr.contains("named debugfs"),
        "{}",
        ran.stderr
    );
    let ran = s.run(&["inspect", "%", "stat", "/missing"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("no \"missing\""), "{}", ran.stderr);
    s.debugfs_write("set_inode_field /etc/motd checksum 1");
    let ran = s.run(&["inspect", "%", "stat", "/etc/motd"]);
    assert!(ran.text().contains("checksum: wrong"), "{}", ran.text());
}

#[test]
fn requests_come_from_standard_input() {
    let Some(s) = Scratch::filled() else { return };
    let lines =
        b"cd etc\npwd\n# a comment\nls\ncat motd\nimap skel\ndump motd out\nquit\nstat /missing\n";
    let place = s.host("");
    let lines = String::from_utf8_lossy(lines).replace(
        "dump motd out",
        &format!("dump motd {}out", place.display()),
    );
    let ran = s.run_with(&["inspect", "%"], lines.as_bytes());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = ran.text();
    assert!(text.starts_with("/etc\n"), "{text}");
    for part in ["skel", "welcome\n", "inode     group"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(std::fs::read(s.host("out")).unwrap(), b"welcome\n");
    let ran = s.run_with(
        &["inspect", "%"],
        b"cd /nowhere\ncd\ncd ../etc\npwd\nmkdir x\ncat\n",
    );
    assert_eq!((ran.code, ran.text().as_str()), (Some(1), "/etc\n"));
    assert_eq!(ran.stderr.lines().count(), 3, "{}", ran.stderr);
    let ran = s.run_with(&["inspect", "%"], b"");
    assert!(
        ran.stderr.contains("no request; there are"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_prompt_completes_and_remembers() {
    needs::tools!("tmux");
    let Some(s) = Scratch::filled() else { return };
    let terminal = crate::tmux::Terminal::new(100, 30);
    let program = env!("CARGO_BIN_EXE_extant");
    let state = s.host("state");
    let dir = s.host("");
    terminal.types(&format!(
        "cd {} && export XDG_STATE_HOME={}",
        dir.display(),
        state.display()
    ));
    terminal.types(&format!("{program} inspect disk.img; echo ended $?"));
    terminal.until_seen("disk.img:/>");
    // The request and both names are completed.
    for key in ["sta", "Tab", "/e", "Tab", "mo", "Tab", "Enter"] {
        terminal.presses(key);
    }
    terminal.until_seen("stat /etc/motd");
    terminal.until_seen("size:");
    terminal.types("cd etc");
    terminal.until_seen("disk.img:/etc>");
    terminal.presses("C-d");
    terminal.until(|screen| screen.iter().any(|line| line == "ended 0"));
    let history = std::fs::read_to_string(state.join("extant/inspect-history")).unwrap();
    assert!(history.contains("stat /etc/motd"), "{history}");
}
