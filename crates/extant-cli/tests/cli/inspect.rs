//! `extant inspect`: requests as words, as lines and from a file, as text and as JSON.

use crate::support::Scratch;

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
        ran.stderr.contains("no request \"mkdir\""),
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
