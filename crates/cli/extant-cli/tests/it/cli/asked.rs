//! Options that people expect, and answers that suggest the next command.

use crate::cli::support::{Scratch, printed, run};
use std::fs;
use std::process::Command;

#[test]
fn a_whole_disk_is_answered_with_its_first_partition() {
    let s = Scratch::empty();
    s.ok(&["disk", "%", "--ext4", "root=:8M"]);
    let image = s.image.display().to_string();
    for args in [
        &["check", "%"][..],
        &["repair", "-n", "%"],
        &["repair", "-y", "%"],
        &["tune", "%", "-L", "x"],
        &["resize", "%", "4M"],
        &["resize", "-P", "%"],
        &["rescue", "%"],
        &["ls", "%"],
        &["mount", "%", "@"],
    ] {
        let ran = s.run(args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        assert!(
            ran.stderr.contains(&format!("{image}@p1 is the first")),
            "{args:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn errors_about_a_truncated_image_name_the_length_it_needs() {
    let s = Scratch::empty();
    s.ok(&["mkfs", "%", "-q", "--size", "8M"]);
    let file = fs::OpenOptions::new().write(true).open(&s.image).unwrap();
    file.set_len(3 << 20).unwrap();
    for args in [&["repair", "-y", "%"][..], &["resize", "%", "4M"]] {
        let said = s.run(args).stderr;
        assert!(said.contains("truncate -s 8388608 "), "{said}");
    }
    file.set_len(8 << 20).unwrap();
    s.run(&["repair", "-y", "%"]);
    s.ok(&["check", "%"]);
}

#[test]
fn advice_names_the_first_partition_with_data() {
    let s = Scratch::empty();
    s.ok(&["disk", "%", "--esp", "1M", "--ext4", "root=:8M"]);
    let said = s.fails(&["ls", "%"]);
    assert!(said.contains("@p2 is the first"), "{said}");
}

#[test]
fn what_is_sound_is_shown_beside_what_is_damaged() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/d")).unwrap();
    fs::write(s.host("t/a"), "a").unwrap();
    fs::write(s.host("t/d/b"), "b").unwrap();
    s.ok(&[
        "mkfs", "%", "-q", "--size", "64M", "-b", "1024", "-O", "^flex_bg", "--from", "@t",
    ]);
    let sound = s.bytes();
    let flip = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        fs::write(&s.image, bytes).unwrap();
    };
    // The checksum of the descriptor of group 3, which has no files.
    flip(2048 + 3 * 64 + 0x1e);
    let info = s.run(&["info", "%"]);
    assert_eq!(info.code, Some(1), "{}", info.stderr);
    assert!(
        info.text().contains("UUID:") && info.stderr.contains("group 3"),
        "{}",
        info.stderr
    );
    let listed = s.run(&["ls", "-R", "%"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(listed.text().contains(":/d:\nb\n"), "{}", listed.text());
    assert!(listed.stderr.contains("group 3"), "{}", listed.stderr);
    // The command then writes nothing.
    assert_ne!(s.run(&["touch", ":/x"]).code, Some(0));
    // One inode.
    fs::write(&s.image, &sound).unwrap();
    let place = s.run(&["inspect", "%", "imap", "/a"]).text();
    let words: Vec<usize> = place
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    let [_, _, block, offset] = words[..] else {
        panic!("{place}")
    };
    flip(block * 1024 + offset + 0x7c);
    for args in [&["ls", "-l", "-R", "%"][..], &["ls", "--json", "-R", "%"]] {
        let ran = s.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}");
        assert!(
            ran.stderr.contains("/a: corrupt"),
            "{args:?}: {}",
            ran.stderr
        );
        assert!(ran.text().contains('b'), "{args:?}: {}", ran.text());
    }
    assert!(s.run(&["ls", "-l", "%"]).text().contains("?????????? "));
}

#[test]
fn options_are_there_under_the_names_that_are_tried() {
    let s = Scratch::empty();
    s.ok(&[
        "mkfs",
        "%",
        "--size",
        "64MiB",
        "--label",
        "data",
        "--uuid",
        "6e4f9d2c-0b1a-4c55-9a70-2f8f3c1d5e77",
        "--type",
        "ext3",
        "--block-size",
        "4096",
        "--quiet",
    ]);
    let info = s.run(&["info", "--json", "%"]).json();
    assert_eq!(
        (&info["label"], &info["block_size"]),
        (&"data".into(), &4096.into())
    );
    let said = s.ok(&["mkfs", "%", "-F", "--size", "131072s", "--verbose"]);
    assert!(said.contains("features ") && said.contains("64M"), "{said}");
    assert_eq!(s.ok(&["check", "-f", "-q", "%"]), "");
    assert_eq!(s.run(&["stat", "%"]).text(), s.run(&["stat", ":/"]).text());
    s.ok(&["resize", "%", "96MiB"]);
    fs::write(s.host("long"), "12345").unwrap();
    fs::write(s.host("short"), "1").unwrap();
    s.ok(&["cp", "@long", "@short", ":/"]);
    s.ok(&["touch", "-d", "2001-01-01", ":/long"]);
    assert_eq!(s.ok(&["ls", "-1", "%"]), "long\nlost+found\nshort\n");
    assert!(s.ok(&["ls", "-S", "%"]).ends_with("long\nshort\n"));
    assert!(s.ok(&["ls", "-t", "%"]).ends_with("long\n"));
    assert!(s.ok(&["ls", "-tr", "%"]).starts_with("long\n"));
}

#[test]
fn owners_are_named_as_the_sources_name_them() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/etc")).unwrap();
    fs::write(s.host("t/etc/passwd"), "web:x:33:44::/:/bin/sh\n").unwrap();
    fs::write(s.host("t/etc/group"), "www:x:55:\n").unwrap();
    printed(
        Command::new("tar")
            .arg("-C")
            .arg(s.host("t"))
            .arg("-cf")
            .arg(s.host("t.tar"))
            .arg("."),
    );
    for from in ["@t", "@t.tar"] {
        for (owner, uid, gid) in [("web:www", 33, 55), ("web:", 33, 44), ("root:root", 0, 0)] {
            s.ok(&["mkfs", "%", "-F", "-q", "--from", from, "--owner", owner]);
            let stat = s.run(&["stat", "--json", ":/etc/passwd"]).json();
            assert_eq!(
                (&stat[0]["uid"], &stat[0]["gid"]),
                (&uid.into(), &gid.into()),
                "{from} {owner}"
            );
        }
    }
    let said = s.fails(&["mkfs", "%", "-F", "--from", "@t", "--owner", "nobody-here"]);
    assert!(
        said.contains("not in the source's /etc/passwd: write the number"),
        "{said}"
    );
}

#[test]
fn an_image_is_compared_with_a_directory() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/d")).unwrap();
    fs::write(s.host("t/d/f"), "one").unwrap();
    std::os::unix::fs::symlink("f", s.host("t/d/l")).unwrap();
    s.ok(&["mkfs", "%", "-q", "--from", "@t"]);
    assert_eq!(s.ok(&["diff", "%", "@t"]), "");
    fs::write(s.host("t/d/f"), "two").unwrap();
    fs::write(s.host("t/new"), "").unwrap();
    let ran = s.run(&["diff", "%", "@t"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.text(), "+ /new\n~ /d/f: content from byte 0\n");
    assert_eq!(
        s.run(&["diff", "@t", "%"]).text(),
        "- /new\n~ /d/f: content from byte 0\n"
    );
    assert_eq!(s.run(&["diff", "@t", "@t"]).code, Some(2));
}

#[test]
fn repair_without_a_terminal_says_what_it_needs() {
    let s = Scratch::empty();
    s.ok(&["mkfs", "%", "-q", "--size", "8M"]);
    assert_eq!(s.run(&["repair", "%"]).stderr, "");
    let mut bytes = s.bytes();
    // The count of free inodes in the superblock.
    bytes[1024 + 0x10] ^= 1;
    fs::write(&s.image, &bytes).unwrap();
    let ran = s.run(&["repair", "%"]);
    assert!(
        ran.stderr.contains("no terminal to ask on: -p makes"),
        "{}",
        ran.stderr
    );
    assert!(s.bytes() == bytes);
}

#[test]
fn what_rm_removed_is_found_again() {
    let s = Scratch::empty();
    s.ok(&["mkfs", "%", "-q", "--size", "64M"]);
    let none = s.run(&["rescue", "--deleted", "%"]).text();
    assert!(
        none.contains("deleted files: 0 found in the journal, which has 0 old blocks"),
        "{none}"
    );
    fs::write(s.host("letter"), "dear reader\n").unwrap();
    s.ok(&["cp", "@letter", ":/"]);
    s.ok(&["rm", ":/letter"]);
    let ran = s.run(&["rescue", "--deleted", "--to", "@found", "%"]);
    assert!(
        ran.text().contains("deleted files: 1 found"),
        "{}",
        ran.text()
    );
    assert_eq!(
        fs::read_to_string(s.host("found/#deleted/letter")).unwrap(),
        "dear reader\n"
    );
}

#[test]
fn pages_and_help_have_what_readers_look_for() {
    let s = Scratch::empty();
    s.ok(&["man", "@man"]);
    for page in [
        "extant.1",
        "extant-mkfs.1",
        "extant-check.1",
        "extant-mount.1",
    ] {
        let text = fs::read_to_string(s.host("man").join(page)).unwrap();
        for heading in ["SYNOPSIS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
            let line = if heading.contains(' ') {
                format!(".SH \"{heading}\"")
            } else {
                format!(".SH {heading}")
            };
            assert!(text.contains(&line), "{page}: {line}\n{text}");
        }
        assert!(!text.contains("[]") && !text.contains("<>"), "{page}");
    }
    let check = fs::read_to_string(s.host("man/extant-check.1")).unwrap();
    assert_eq!(check.matches("The exit code is that of fsck").count(), 1);
    let help = run(&["mkfs", "--help"]).text();
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
    assert!(at("Make a file system") < at("Examples:"));
    assert!(at("Examples:") < at("Options are named") && at("Options are named") < at("Usage:"));
}

/// Returns the completions of a shell for a word that begins in an image.
fn completed(s: &Scratch, shell: &str, script: &str) -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_extant"));
    fs::write(s.host("completions"), run(&["completions", shell]).stdout).unwrap();
    let mut command = Command::new(shell);
    command
        .arg("-c")
        .arg(script)
        .arg(shell)
        .current_dir(s.dir.path());
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    String::from_utf8(printed(command.env("PATH", path))).unwrap()
}

#[test]
fn shells_complete_paths_inside_images() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/etc")).unwrap();
    fs::write(s.host("t/etc/motd"), "").unwrap();
    fs::write(s.host("t/etc/modules"), "").unwrap();
    s.ok(&["mkfs", "%", "-q", "--from", "@t"]);
    let bash = "source ./completions; COMP_LINE='extant cat disk.img:/etc/mo'; COMP_POINT=${#COMP_LINE}; \
                compopt() { :; }; _extant_in_image; printf '%s\\n' \"${COMPREPLY[@]}\"; \
                COMP_LINE='extant ls disk.img:/e'; COMP_POINT=${#COMP_LINE}; _extant_in_image; printf '%s\\n' \"${COMPREPLY[@]}\"";
    assert_eq!(
        completed(&s, "bash", bash),
        "/etc/modules\n/etc/motd\n/etc/\n"
    );
    if !needs::have(&["fish"]) {
        return;
    }
    let fish = "source ./completions; complete -C 'extant cat disk.img:/etc/mod'";
    assert_eq!(completed(&s, "fish", fish), "disk.img:/etc/modules\n");
}

#[test]
fn a_mount_is_placed_by_offset_and_ended_by_its_image() {
    crate::mount::support::isolated(|| {
        let s = Scratch::empty();
        fs::create_dir(s.host("t")).unwrap();
        fs::write(s.host("t/f"), "found").unwrap();
        let root = format!("root={}:8M", s.host("t").display());
        s.ok(&["disk", "@disk.raw", "--ext4", &root]);
        fs::create_dir(s.host("m")).unwrap();
        s.ok(&[
            "mount",
            "-o",
            "ro,offset=1M",
            "-o",
            "sizelimit=8M",
            "@disk.raw",
            "@m",
        ]);
        assert_eq!(fs::read_to_string(s.host("m/f")).unwrap(), "found");
        s.ok(&["umount", "@m"]);
        s.ok(&["mkfs", "%", "-q", "--size", "8M"]);
        s.ok(&["mount", "%", "@m"]);
        let mut holder = Command::new("sleep")
            .arg("60")
            .current_dir(s.host("m"))
            .spawn()
            .unwrap();
        let said = s.fails(&["umount", "%"]);
        let holds = format!(
            "busy: sleep (process {}: its working directory)",
            holder.id()
        );
        assert!(said.contains(&holds), "{said}");
        holder.kill().unwrap();
        holder.wait().unwrap();
        s.ok(&["umount", "%"]);
    });
}
