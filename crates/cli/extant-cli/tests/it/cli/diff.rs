//! `extant diff`: trees, structures and blocks of two images.

use crate::cli::support::Scratch;
use extant_testing::common::copy_image;

/// Returns an image, and a copy of it in `other.img`.
fn two() -> Option<Scratch> {
    let s = Scratch::filled()?;
    std::fs::write(s.host("large"), vec![7; 200_000]).unwrap();
    s.ok(&["cp", "@large", ":/etc/large"]);
    copy_image(&s.image, s.host("other.img"));
    Some(s)
}

fn at_other(s: &Scratch, path: &str) -> String {
    format!("{}:{path}", s.host("other.img").display())
}

#[test]
fn trees_differ_in_what_was_changed() {
    let Some(s) = two() else { return };
    let ran = s.run(&["diff", "%", "@other.img"]);
    assert_eq!(
        (ran.code, ran.text().as_str()),
        (Some(0), ""),
        "{}",
        ran.stderr
    );
    let other = |path: &str| at_other(&s, path);
    s.ok(&["rm", ":/etc/motd"]);
    s.ok(&["mkdir", "-p", &other("/new/below")]);
    s.ok(&["chmod", "700", &other("/etc/skel")]);
    s.ok(&["chown", "5:6", &other("/etc/large")]);
    s.ok(&["setfattr", "-n", "user.a", "-v", "x", &other("/etc/large")]);
    let mut bytes = vec![7; 200_000];
    bytes[123_456] = 8;
    std::fs::write(s.host("large"), bytes).unwrap();
    s.ok(&["cp", "@large", &other("/etc/large")]);
    s.ok(&["rm", &other("/etc/link")]);
    s.ok(&["ln", "-s", "elsewhere", &other("/etc/link")]);
    let ran = s.run(&["diff", "%", "@other.img"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let text = ran.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "+ /new/",
            "~ /etc/large: owner 0:0 -> 5:6, content from byte 123456, user.a none -> \"x\"",
            "~ /etc/link: target motd -> elsewhere",
            "+ /etc/motd",
            "~ /etc/skel: mode 0755 -> 0700",
        ]
    );
    // Below a path, a single file, without output, and as JSON.
    let ran = s.run(&["diff", ":/etc/skel", &other("/etc/skel")]);
    assert_eq!(ran.text().lines().count(), 1, "{}", ran.text());
    let ran = s.run(&["diff", ":/etc/large", &other("/etc/large")]);
    assert!(
        ran.text().starts_with("~ /etc/large: owner"),
        "{}",
        ran.text()
    );
    let ran = s.run(&["diff", "-q", "%", "@other.img"]);
    assert_eq!((ran.code, ran.text().as_str()), (Some(1), ""));
    let told = s.run(&["diff", "--json", "%", "@other.img"]).json();
    assert_eq!(told[0]["change"], "added");
    assert_eq!(told[1]["fields"][0]["a"], "0:0");
}

#[test]
fn superblocks_and_blocks_differ() {
    let Some(s) = two() else { return };
    s.debugfs_write("set_super_value mnt_count 17");
    let ran = s.run(&["diff", "--metadata", "%", "@other.img"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().contains("17"), "{}", ran.text());
    let ran = s.run(&["diff", "--blocks", "%", "@other.img"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().contains("superblock"), "{}", ran.text());

    let Some(s) = two() else { return };
    let mut bytes = vec![7; 200_000];
    bytes[123_456] = 8;
    std::fs::write(s.host("large"), bytes).unwrap();
    s.ok(&["cp", "@large", &at_other(&s, "/etc/large")]);
    let ran = s.run(&["diff", "--blocks", "%", "@other.img"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().contains("data of /etc/large"), "{}", ran.text());
}

#[test]
fn what_cannot_be_compared_ends_with_2() {
    let Some(s) = Scratch::filled() else { return };
    assert_eq!(s.run(&["diff", "%", "@missing.img"]).code, Some(2));
    assert_eq!(s.run(&["diff", "%", ":/missing"]).code, Some(2));
    std::fs::write(s.host("junk"), vec![1; 100_000]).unwrap();
    for options in [
        &["diff"][..],
        &["diff", "--blocks"],
        &["diff", "--metadata"],
    ] {
        let args = [options, &["%", "@junk"]].concat();
        let ran = s.run(&args);
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    }
}
