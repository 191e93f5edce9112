//! ls, tree, cat, stat, df, info, getfattr.

use crate::cli::support::{Scratch, run};

fn filled() -> Option<Scratch> {
    let s = Scratch::filled()?;
    s.ok(&["touch", ":/etc/.hidden"]);
    Some(s)
}

#[test]
fn lists_names_hidden_ones_when_asked() {
    let Some(s) = filled() else { return };
    assert_eq!(s.ok(&["ls", ":/etc"]), "link\nmotd\nskel\n");
    assert_eq!(s.ok(&["ls", "-a", ":/etc"]), ".hidden\nlink\nmotd\nskel\n");
    assert_eq!(s.ok(&["ls", "%"]), "etc\nlost+found\n");
    let long = s.ok(&["ls", "-li", ":/etc"]);
    let link = long.lines().next().unwrap();
    assert!(
        link.contains("lrwxrwxrwx 1 0 0    4 20") && link.ends_with("link -> motd"),
        "{link}"
    );
    let all = s.ok(&["ls", "-R", ":"]);
    assert!(all.contains("disk.img:/etc/skel:\n"), "{all}");
    let json = s.run(&["ls", "--json", ":/etc"]).json();
    assert_eq!(json[0]["path"], "/etc/link");
    assert_eq!(json[0]["target"], "motd");
    assert_eq!(json[1]["size"], 8);
}

#[test]
fn draws_trees() {
    let Some(s) = filled() else { return };
    let tree = s.ok(&["tree", ":"]);
    let want = "├── etc\n│   ├── link -> motd\n│   ├── motd\n│   └── skel\n└── lost+found\n\n3 directories, 2 files\n";
    assert!(tree.ends_with(want), "{tree}");
    assert!(
        s.ok(&["tree", "-L", "1", ":"])
            .ends_with("├── etc\n└── lost+found\n\n2 directories, 0 files\n")
    );
    assert_eq!(
        s.run(&["tree", "--json", ":/etc"])
            .json()
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn writes_files_to_standard_output() {
    let Some(s) = filled() else { return };
    assert_eq!(
        s.ok(&["cat", ":/etc/motd", ":/etc/link"]),
        "welcome\nwelcome\n"
    );
    let ran = s.run(&["cat", ":/etc/none", ":/etc/motd"]);
    // The command continues with the other arguments, like coreutils.
    assert_eq!((ran.code, ran.text().as_str()), (Some(1), "welcome\n"));
    assert!(
        ran.stderr
            .contains("disk.img:/etc/none: no such file or directory"),
        "{}",
        ran.stderr
    );
    assert!(s.fails(&["cat", ":/etc"]).contains("is a directory"));
}

#[test]
fn shows_what_debugfs_shows() {
    let Some(s) = filled() else { return };
    let stat = s.run(&["stat", "--json", ":/etc/motd"]).json();
    let debugfs = s.debugfs("stat /etc/motd");
    assert!(
        debugfs.contains(&format!("Inode: {} ", stat[0]["ino"])),
        "{debugfs}"
    );
    assert!(debugfs.contains("Mode:  0644") && stat[0]["mode"] == "0644");
    assert!(s.ok(&["stat", ":/etc/link"]).contains("symbolic link"));
    assert!(s.ok(&["stat", "-L", ":/etc/link"]).contains("regular file"));
}

#[test]
fn counts_space_and_inodes() {
    let Some(s) = filled() else { return };
    let df = s.run(&["df", "--json", "%"]).json();
    let (free, inodes) = (
        df[0]["free"].as_u64().unwrap(),
        df[0]["inodes_free"].as_u64().unwrap(),
    );
    let stats = s.debugfs("stats -h");
    let number = |what: &str| -> u64 {
        let line = stats.lines().find(|l| l.starts_with(what)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(free, number("Free blocks:") * number("Block size:"));
    assert_eq!(inodes, number("Free inodes:"));
    for args in [&["df", "%"][..], &["df", "-h", "%"], &["df", "-i", "%"]] {
        assert_eq!(s.ok(args).lines().count(), 2, "{args:?}");
    }
}

#[test]
fn info_counts_removed_files_that_hold_space() {
    let Some(s) = Scratch::mke2fs("8M", &["-t", "ext4", "-O", "^orphan_file"]) else {
        return;
    };
    assert!(!s.ok(&["info", "%"]).contains("Orphans:"));
    for request in [
        "write /etc/passwd held",
        "unlink held",
        "sif <12> links_count 0",
        "sif <12> dtime 0",
        "ssv last_orphan 12",
    ] {
        s.debugfs_write(request);
    }
    let text = s.ok(&["info", "%"]);
    assert!(
        text.contains("Orphans:             1 (removed files"),
        "{text}"
    );
    assert_eq!(s.run(&["info", "--json", "%"]).json()["orphans"], 1);
}

#[test]
fn describes_images_of_every_kind() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "orphan_file,metadata_csum_seed"],
        &["-t", "ext3"],
        &["-t", "ext2"],
    ] {
        let Some(s) = Scratch::mke2fs("40M", args) else {
            return;
        };
        let before = s.bytes();
        let info = s.run(&["info", "--json", "%"]).json();
        let debugfs = s.debugfs("stats");
        assert!(debugfs.contains(info["uuid"].as_str().unwrap()));
        for feature in info["features"].as_array().unwrap() {
            assert!(debugfs.contains(feature.as_str().unwrap()), "{feature}");
        }
        let groups = info["group_descriptors"].as_array().unwrap();
        assert_eq!(groups.len(), 5);
        let third = format!("Group  3: block bitmap at {}, ", groups[3]["block_bitmap"]);
        assert!(debugfs.contains(third.trim_start()), "{third}\n{debugfs}");
        let text = s.ok(&["info", "--groups", "%"]);
        assert!(text.contains("Group 4: blocks 32769-40959"), "{text}");
        assert_eq!(
            args.contains(&"ext2"),
            text.contains("Journal:             <none>")
        );
        assert!(s.bytes() == before, "info changed the image");
    }
}

#[test]
fn shows_attributes() {
    let Some(s) = filled() else { return };
    s.ok(&[
        "setfattr",
        "-n",
        "user.text",
        "-v",
        "it works",
        ":/etc/motd",
    ]);
    s.ok(&[
        "setfattr",
        "-n",
        "trusted.bin",
        "-v",
        "0x00ff",
        ":/etc/motd",
    ]);
    let all = s.ok(&["getfattr", "-d", "-m", "-", ":/etc/motd"]);
    assert!(
        all.contains("trusted.bin=0x00ff\nuser.text=\"it works\"\n"),
        "{all}"
    );
    assert!(!s.ok(&["getfattr", ":/etc/motd"]).contains("trusted"));
    assert_eq!(
        s.ok(&["getfattr", "-n", "user.text", "--only-values", ":/etc/motd"]),
        "it works"
    );
    assert!(
        s.debugfs("ea_list /etc/motd")
            .contains("user.text (8) = \"it works\"")
    );
    s.ok(&["setfattr", "-x", "user.text", ":/etc/motd"]);
    assert!(
        s.fails(&["getfattr", "-n", "user.text", ":/etc/motd"])
            .contains("no such attribute")
    );
    s.clean();
}

#[test]
fn completions_and_man_pages_come_from_the_same_definition() {
    let bash = run(&["completions", "bash"]);
    assert!(bash.text().contains("extant__subcmd__mkfs") || bash.text().contains("mkfs"));
    let s = Scratch::empty();
    s.ok(&["man", "@man1"]);
    let page = std::fs::read_to_string(s.host("man1/extant-mkfs.1")).unwrap();
    assert!(page.contains("SOURCE_DATE_EPOCH"), "{page}");
}

/// Returns the subcommands that a help text lists, between its usage and its options.
fn listed(help: &str) -> Vec<&str> {
    let commands = help.split("Usage:").nth(1).unwrap();
    let commands = commands.split("Options:").next().unwrap();
    commands
        .lines()
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .filter(|n| *n != "help")
        .collect()
}

#[test]
fn every_subcommand_shows_an_example() {
    let help = run(&["--help"]).text();
    let names = listed(&help);
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let help = run(&[name, "--help"]).text();
        assert!(
            help.contains("Example") && help.contains(&format!("extant {name}")),
            "{name}: {help}"
        );
    }
}

/// Help is fast: five million instructions take two milliseconds on a slow core.
#[test]
fn help_takes_few_instructions() {
    needs::tools!("valgrind");
    let dir = tempfile::tempdir().unwrap();
    let counts = dir.path().join("counts").display().to_string();
    let out = std::process::Command::new("valgrind")
        .args([
            "--tool=callgrind",
            &format!("--callgrind-out-file={counts}"),
        ])
        .args([env!("CARGO_BIN_EXE_extant"), "--help"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let count = said
        .lines()
        .find_map(|line| line.split_once("Collected : "));
    let count: u64 = count.expect("a count").1.trim().parse().unwrap();
    // Ten times the limit of a release, because the tests use an unoptimized build.
    assert!(count < 60_000_000, "{count} instructions");
}

/// Help begins with what a command is and examples of it.
#[test]
fn examples_come_first() {
    let help = run(&["--help"]).text();
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
    let order = [
        "Make, fill, read",
        "Examples:",
        "Usage:",
        "Make, fill and",
        "  mkfs ",
        "Read images",
        "  ls ",
        "Change files and sizes",
        "  cp ",
        "Mount images",
        "  mount ",
        "Measure",
        "  top ",
        "Options:",
        "--noload",
    ];
    assert!(order.map(at).is_sorted(), "{help}");
    for name in listed(&help) {
        for args in [&[name, "--help"][..], &["help", name]] {
            let help = run(args).text();
            let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
            assert!(
                at("Example") < at("Usage:") && at("Usage:") < at("Options:"),
                "{help}"
            );
            assert!(!help.contains("\n\n\n") && !help.contains("{"), "{help}");
        }
    }
    // The text about -o in the help of mount is there, at the end.
    let mount = run(&["mount", "--help"]).text();
    assert!(
        mount.trim_end().ends_with("of ext4 and of FUSE."),
        "{mount}"
    );
}

/// Help is coloured on a terminal, unless NO_COLOR is set.
#[test]
fn colours_are_for_terminals() {
    needs::tools!("script");
    let seen = |words: &str, no_color: Option<&str>| {
        let line = format!("{} {words}", env!("CARGO_BIN_EXE_extant"));
        let mut script = std::process::Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        script.stdin(std::process::Stdio::null());
        if let Some(value) = no_color {
            script.env("NO_COLOR", value);
        }
        let out = script.output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    for words in ["--help", "ls --help", "help mkfs"] {
        assert!(seen(words, None).contains("\x1b["), "{words}");
        assert!(!seen(words, Some("1")).contains('\x1b'), "{words}");
        let args: Vec<_> = words.split(' ').collect();
        let ran = run(&args);
        assert!(!(ran.text() + &ran.stderr).contains('\x1b'), "{words}");
    }
}

#[test]
fn times_are_in_the_zone_of_tz_and_in_utc_for_machines() {
    let Some(s) = Scratch::ext4() else { return };
    let run = |args: &[&str]| {
        let image = s.image.to_str().unwrap();
        let args = args.iter().map(|a| a.replace('%', image));
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(args)
            .env("TZ", "IST-5:30")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.code(), said.as_str()), (Some(0), ""));
        String::from_utf8(out.stdout).unwrap()
    };
    run(&["touch", "-d", "2026-01-31 05:29:59", "%:/f"]);
    assert!(run(&["ls", "-l", "%:/f"]).contains(" 2026-01-31 05:29:59 "));
    let stat = run(&["stat", "%:/f"]);
    assert!(
        stat.contains("Modify: 2026-01-31 05:29:59.000000000 +0530"),
        "{stat}"
    );
    let json = run(&["stat", "--json", "%:/f"]);
    assert!(
        json.contains("\"mtime\": \"2026-01-30T23:59:59.000000000Z\""),
        "{json}"
    );
    run(&["touch", "-d", "2446-05-10T22:38:55Z", "%:/f"]);
    assert!(run(&["ls", "-l", "%:/f"]).contains(" 2446-05-11 04:08:55 "));
    assert_eq!(s.run(&["touch", "-d", "never", ":/f"]).code, Some(2));
    let info = s.run(&["info", "--json", "%"]).json();
    let written = info["written"].as_str().unwrap();
    assert!(written.ends_with('Z') && written.contains('T'), "{written}");
    assert!(info["mounted"].is_null() || info["mounted"].is_string());
}
