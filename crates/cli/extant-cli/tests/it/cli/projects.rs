//! Generations and project numbers: shown, changed, and copied to a new image. The kernel's lsattr and debugfs judge.

use crate::cli::support::{Mounted, Scratch};
use std::fs;
use std::process::Command;

/// Returns the lines of lsattr in order, without the prefix of their paths.
fn lines(text: &str, top: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(|l| l.replace(top, "")).collect();
    lines.sort();
    lines
}

/// Checks that lsattr prints the same lines with all options as on the kernel's mount.
fn lists_as_the_kernel(s: &Scratch, dir: &str) {
    let Some(mounted) = Mounted::new(s) else {
        return;
    };
    let point = mounted.path().display().to_string();
    for options in ["-p", "-v", "-pv", "-dpv"] {
        let out = Command::new("lsattr")
            .arg(options)
            .arg(format!("{point}{dir}"))
            .output()
            .unwrap();
        let theirs = lines(&String::from_utf8(out.stdout).unwrap(), &point);
        let ours = lines(&s.ok(&["lsattr", options, &format!(":{dir}")]), "");
        assert_eq!(ours, theirs, "lsattr {options}");
        assert!(!ours.is_empty());
    }
}

#[test]
fn projects_and_generations_are_changed_and_shown() {
    let args = ["-t", "ext4", "-O", "project,^metadata_csum"];
    let Some(s) = Scratch::mke2fs("16M", &args) else {
        return;
    };
    fs::write(s.host("file"), "text").unwrap();
    s.ok(&["mkdir", ":/p"]);
    s.ok(&["cp", "@file", ":/p/first"]);
    s.ok(&["chattr", "-R", "-p", "7", "-v", "0x10", ":/p"]);
    s.ok(&["chattr", "+P", ":/p"]);
    s.ok(&["cp", "@file", ":/p/.second"]);
    s.ok(&["mkdir", ":/p/sub"]);
    s.ok(&["chattr", "-v", "4294967295", ":/p/sub"]);
    s.ok(&["chattr", "-p", "123456", "+d", ":/p/first"]);
    s.clean();
    lists_as_the_kernel(&s, "/p");
    let listed = s.ok(&["lsattr", "-pv", ":/p"]);
    assert_eq!(
        listed.lines().map(|l| &l[..17]).collect::<Vec<_>>(),
        ["123456 16         ", "    7 4294967295 "].map(|l| &l[..17])
    );
    assert!(s.debugfs("stat /p/.second").contains("Project:     7"));
    let json = s.run(&["lsattr", "-d", "--json", ":/p"]).json();
    assert_eq!(
        (json[0]["project"].as_u64(), json[0]["generation"].as_u64()),
        (Some(7), Some(16))
    );
    for (args, line) in [
        (&["chattr", ":/p"][..], "write what to change"),
        (&["chattr", "+d"], "write the files"),
    ] {
        assert!(s.fails(args).contains(line), "{args:?}");
    }
    assert_eq!(s.run(&["chattr", "-p", "x", ":/p"]).code, Some(2));
    let Some(s) = Scratch::ext4() else { return };
    for (args, line) in [
        (
            ["chattr", "-p", "7", ":/lost+found"],
            "without the feature project",
        ),
        (["chattr", "-v", "7", ":/lost+found"], "metadata_csum"),
    ] {
        let before = s.bytes();
        assert!(s.fails(&args).contains(line), "{args:?}");
        assert!(s.bytes() == before, "nothing is changed");
    }
}

/// A new volume with the feature keeps the projects of the old one; without it they are omitted, like all unsupported
/// attributes.
#[test]
fn a_new_image_has_the_projects_of_an_old_one() {
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-O", "project"]) else {
        return;
    };
    fs::write(s.host("file"), "text").unwrap();
    s.ok(&["mkdir", ":/p"]);
    s.ok(&["chattr", "-p", "7", "+P", ":/p"]);
    s.ok(&["cp", "@file", ":/p/first"]);
    s.ok(&["ln", "-s", "first", ":/p/link"]);
    for (features, project) in [("project", 7), ("^project", 0)] {
        s.ok(&[
            "mkfs", "@new.img", "-F", "-q", "--from", "%", "-O", features,
        ]);
        let mut new = Scratch::empty();
        new.image = s.host("new.img");
        new.clean();
        for path in ["/p", "/p/first", "/p/link"] {
            let stat = new.debugfs(&format!("stat {path}"));
            assert!(
                stat.contains(&format!("Project: {project:5} ")),
                "{features}: {stat}"
            );
        }
        let letter = if project == 0 { '-' } else { 'P' };
        let listed = new.ok(&["lsattr", "-d", ":/p"]);
        assert_eq!(listed.chars().nth(19), Some(letter), "{listed}");
    }
}
