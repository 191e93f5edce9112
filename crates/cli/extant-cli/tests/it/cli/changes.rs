//! mkdir, cp, mv, rm, ln, touch, chmod, chown, setfattr: changes of this program, checked with other programs.

use crate::cli::support::{Mounted, Scratch};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

#[test]
fn makes_directories() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", "-m", "1770", ":/a"]);
    s.ok(&["mkdir", "-p", ":/a/b/c", ":/a/b"]);
    assert!(s.fails(&["mkdir", ":/a"]).contains("file exists"));
    assert!(
        s.fails(&["mkdir", ":/x/y"])
            .contains("no such file or directory")
    );
    assert!(s.debugfs("stat /a").contains("Mode:  01770"));
    s.clean();
}

#[test]
fn sources_of_one_name_do_not_replace_each_other() {
    let Some(s) = Scratch::ext4() else { return };
    let mut host = Vec::new();
    for side in ["a", "b"] {
        let dir = s.host(side);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("x"), side).unwrap();
        host.push(dir.join("x").display().to_string());
        s.ok(&["mkdir", "-p", &format!(":/{side}"), ":/to"]);
        s.ok(&["cp", &host[host.len() - 1], &format!(":/{side}/")]);
    }
    let copied = s.fails(&["cp", &host[0], &host[1], ":/"]);
    assert!(
        copied.contains("b/x") && copied.contains("another source"),
        "{copied}"
    );
    assert_eq!(s.ok(&["cat", ":/x"]), "a");
    let moved = s.fails(&["mv", ":/a/x", ":/b/x", ":/to"]);
    assert!(
        moved.contains("/b/x") && moved.contains("another source"),
        "{moved}"
    );
    assert_eq!(s.ok(&["cat", ":/to/x", ":/b/x"]), "ab");
    // Files that were there before are replaced.
    s.ok(&["cp", &host[1], ":/"]);
    s.ok(&["mv", ":/b/x", ":/to"]);
    assert_eq!(s.ok(&["cat", ":/x", ":/to/x"]), "bb");
    // Directories become one.
    s.ok(&["cp", "-r", &s.host("a").display().to_string(), ":/to/"]);
    s.clean();
}

#[test]
fn moves_removes_links() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", "-p", ":/d/sub", ":/e"]);
    s.ok(&["touch", ":/d/f", ":/d/sub/g"]);
    s.ok(&["ln", ":/d/f", ":/hard"]);
    assert_eq!(s.run(&["stat", "--json", ":/hard"]).json()[0]["links"], 2);
    s.ok(&["ln", "-s", "d/f", ":/sym"]);
    assert!(s.fails(&["ln", "-s", "x", ":/sym"]).contains("file exists"));
    s.ok(&["ln", "-sf", "hard", ":/sym"]);
    s.ok(&["mv", ":/hard", ":/d/sub", ":/e"]);
    assert_eq!(s.ok(&["ls", ":/e"]), "hard\nsub\n");
    s.ok(&["mv", ":/e/hard", ":/renamed"]);
    assert!(
        s.fails(&["mv", "-n", ":/renamed", ":/d/f"])
            .contains("file exists")
    );
    s.ok(&["mv", "--exchange", ":/renamed", ":/e"]);
    assert_eq!(s.ok(&["ls", ":/renamed"]), "sub\n");
    assert!(
        s.fails(&["mv", ":/renamed", ":/renamed/sub/x"])
            .contains("invalid argument")
    );
    assert!(
        s.fails(&["rm", ":/renamed"])
            .ends_with("is a directory: use -r")
    );
    assert!(
        s.fails(&["rm", "-d", ":/renamed"])
            .contains("directory not empty")
    );
    assert!(
        s.fails(&["rm", ":/none"])
            .contains("no such file or directory")
    );
    s.ok(&["rm", "-f", ":/none"]);
    s.ok(&["rm", "-r", ":/renamed", ":/d", ":/e", ":/sym"]);
    assert_eq!(s.ok(&["ls", ":"]), "lost+found\n");
    assert!(s.fails(&["rm", "-r", ":/"]).contains("not removed"));
    s.clean();
}

/// A command whose two paths are names of one file changes nothing, however the paths are spelled, and no link replaces its target.
/// The exit codes are those of GNU mv, ln and cp.
#[test]
fn a_file_is_not_put_in_its_own_place() {
    let Some(s) = Scratch::ext4() else { return };
    let tree = s.host("tree");
    std::fs::create_dir_all(tree.join("d")).unwrap();
    for name in ["a", "d/f"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    for (name, of) in [("b", "a"), ("d/g", "d/f")] {
        std::fs::hard_link(tree.join(of), tree.join(name)).unwrap();
    }
    for (name, to) in [("l", "d"), ("s", "a"), ("gone", "none")] {
        std::os::unix::fs::symlink(to, tree.join(name)).unwrap();
    }
    s.ok(&["mkfs", "-Fq", "%", "--from", "@tree", "--size", "8M"]);
    let files = |top: &str| s.ok(&["lsattr", "-Ra", top]) + &s.ok(&["ls", "-lR", top]);
    let (before, base) = (files(":/"), s.bytes());
    for line in [
        "mv a a",
        "mv a ./a",
        "mv a d/../a",
        "mv d/f l/f",
        "mv d/f d",
        "mv -T d d",
        "mv d l",
        "mv d d/x",
        "mv a b",
        "mv d/f d/g",
        "mv s a",
        "mv s s",
        "mv gone gone",
        "ln a a",
        "ln -f a a",
        "ln -f a d/../a",
        "ln -f d/f l/f",
        "ln -f d/f d",
        "ln -f none a",
        "ln -f d a",
        "ln -sf a a",
        "ln -sf ../d/f d/f",
        "ln -s -f x d/../d/f/y",
        "cp a a",
        "cp a b",
        "cp -a a a",
        "cp a s",
        "cp s a",
        "cp -r d d/x",
        "cp -aT d d",
    ] {
        let mut words = line.split(' ').peekable();
        let mut ours = vec![words.next().unwrap().to_owned()];
        let symbolic = line.starts_with("ln -s");
        while let Some(option) = words.next_if(|word| word.starts_with('-')) {
            ours.push(option.into());
        }
        let paths: Vec<&str> = words.collect();
        let last = paths.len() - 1;
        let at = |(i, path): (usize, &&str)| match symbolic && i < last {
            true => (*path).to_owned(),
            false => format!(":/{path}"),
        };
        ours.extend(paths.iter().enumerate().map(at));
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        let said = s.fails(&ours);
        let theirs = Command::new("sh")
            .args(["-c", line])
            .current_dir(&tree)
            .output();
        let theirs = theirs.unwrap();
        // GNU looks for the text of a symbolic link in the present directory, and makes a link again in its own place.
        if !["ln -sf ../d/f d/f", "ln -f d/f l/f"].contains(&line) {
            assert_eq!(theirs.status.code(), Some(1), "{line}: GNU does it");
        }
        let same = String::from_utf8_lossy(&theirs.stderr).contains("are the same file");
        assert!(
            !same || said.contains("are the same file") || line == "mv s s",
            "{line}: {said}"
        );
        assert_eq!(files(":/"), before, "{line}");
    }
    for (line, text) in [
        (&["ln", "-f", ":/a", ":/b"][..], "a"),
        (&["ln", "-f", ":/d/f", ":/b"], "d/f"),
        (&["ln", "-sf", "a", ":/b"], "a"),
        (&["mv", ":/a", ":/s"], "a"),
        // Another name of the link's target.
        (&["mv", ":/s", ":/b"], "a"),
    ] {
        s.ok(line);
        let place = line.last().unwrap();
        assert_eq!(s.ok(&["cat", place]), text, "{line:?}");
        s.clean();
        std::fs::write(&s.image, &base).unwrap();
    }
}

/// A link that cannot be made leaves the file that it was to replace.
#[test]
fn a_link_that_fails_replaces_nothing() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&[
        "mkfs",
        "-Fq",
        "%",
        "--size",
        "2M",
        "-N",
        "16",
        "-O",
        "^has_journal",
    ]);
    s.ok(&["mkdir", ":/d"]);
    let made = |n: &u32| s.run(&["ln", "-s", "x", &format!(":/{n}")]).code == Some(0);
    assert!((0..16).take_while(made).count() < 16, "inodes are left");
    let full = ":/0";
    let before = s.ok(&["ls", "-lR", ":/"]);
    assert!(
        s.fails(&["ln", "-sf", "other", full])
            .contains("no space left")
    );
    assert!(
        s.fails(&["ln", "-sf", "other", ":/d/none/x"])
            .contains("no such file")
    );
    assert_eq!(s.ok(&["ls", "-lR", ":/"]), before);
    s.clean();
}

#[test]
fn changes_modes_owners_times() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["touch", "-d", "1000000000", ":/d/f"]);
    s.ok(&["ln", "-s", "f", ":/d/l"]);
    s.ok(&["chmod", "-R", "u=rwX,go=", ":/d"]);
    s.ok(&["chmod", "g+r,+t", ":/d/f"]);
    s.ok(&["chown", "-R", "1000:100", ":/d"]);
    s.ok(&["chown", ":7", ":/d/f"]);
    if let Some(mounted) = Mounted::new(&s) {
        let dir = mounted.path().join("d");
        let of = |name: &str| dir.join(name).symlink_metadata().unwrap();
        assert_eq!(
            (of(".").mode(), of(".").uid(), of(".").gid()),
            (0o40700, 1000, 100)
        );
        assert_eq!(
            (of("f").mode(), of("f").uid(), of("f").gid()),
            (0o101640, 1000, 7)
        );
        assert_eq!((of("l").mode(), of("l").uid()), (0o120777, 1000));
        assert_eq!(of("f").mtime(), 1_000_000_000);
    }
    s.clean();
}

#[test]
fn flags_are_those_of_lsattr() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", "-p", ":/d/sub"]);
    s.ok(&["touch", ":/d/f", ":/d/.hidden", ":/d/sub/g"]);
    s.ok(&["ln", "-s", "f", ":/d/l"]);
    s.ok(&["chattr", "+iA", ":/d/f"]);
    s.ok(&["chattr", "-R", "+d", ":/d/sub"]);
    s.ok(&["chattr", "=S", ":/d/.hidden"]);
    let mine = s.ok(&["lsattr", "-R", "-a", ":/d"]);
    let seen: Vec<_> = mine
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!(
        seen,
        [
            ("--S-----------e-------", "/d/.hidden"),
            ("----i--A------e-------", "/d/f"),
            ("------d-------e-------", "/d/sub"),
            ("------d-------e-------", "/d/sub/g"),
        ]
    );
    if let Some(mounted) = Mounted::new(&s) {
        for (letters, path) in seen {
            let out = Command::new("lsattr")
                .arg("-d")
                .arg(mounted.path().join(&path[1..]))
                .output()
                .unwrap();
            let text = String::from_utf8(out.stdout).unwrap();
            assert!(text.starts_with(letters), "{text}");
        }
    }
    s.ok(&["chattr", "-i", ":/d/f"]);
    assert_eq!(
        s.ok(&["lsattr", "-d", ":/d/f"]),
        "-------A------e------- /d/f\n"
    );
    assert!(s.fails(&["chattr", "+i", ":/d/none"]).contains("/d/none"));
    assert!(s.fails(&["chattr", "-e", ":/d/f"]).contains("the mapping"));
    assert_eq!(
        s.run(&["lsattr", "--json", ":/d"]).json()[0]["letters"],
        "-------A------e-------"
    );
    for bad in ["i", "+I", "+q"] {
        assert_eq!(s.run(&["chattr", bad, ":/d/f"]).code, Some(2), "{bad}");
    }
    s.clean();
}

#[test]
fn copies_in_and_out_and_within() {
    let Some(s) = Scratch::ext4() else { return };
    std::fs::create_dir_all(s.host("tree/sub")).unwrap();
    std::fs::write(s.host("tree/sub/f"), vec![7; 300_000]).unwrap();
    std::os::unix::fs::symlink("sub/f", s.host("tree/l")).unwrap();
    assert!(
        s.fails(&["cp", "@tree", ":/"])
            .ends_with("is a directory: use -r")
    );
    s.ok(&["cp", "-r", "@tree", ":/"]);
    s.ok(&["cp", "-a", ":/tree", ":/copy"]);
    assert!(
        s.fails(&["cp", "-r", ":/tree", ":/tree/sub"])
            .contains("cannot be copied into itself")
    );
    assert!(
        s.fails(&["cp", ":/tree/sub/f", ":/tree/l"])
            .ends_with("are the same file")
    );
    s.ok(&["cp", "-r", ":/copy", "@out"]);
    assert_eq!(
        std::fs::read(s.host("out/sub/f")).unwrap(),
        vec![7; 300_000]
    );
    assert_eq!(
        std::fs::read_link(s.host("out/l")).unwrap().to_str(),
        Some("sub/f")
    );
    // Overwriting an existing file through the link writes into the same file.
    std::fs::write(s.host("short"), "short").unwrap();
    s.ok(&["cp", "@short", ":/tree/l"]);
    assert_eq!(s.ok(&["cat", ":/tree/sub/f"]), "short");
    assert_eq!(s.ok(&["cp", "@short", "@tree/l", ":/copy"]), "");
    assert!(
        s.fails(&["cp", "@short", "@out/none"])
            .contains("none of the paths is in an image")
    );
    s.clean();
}

#[test]
fn copies_between_images() {
    let (Some(a), Some(b)) = (
        Scratch::ext4(),
        Scratch::mke2fs("32M", &["-t", "ext2", "-I", "256"]),
    ) else {
        return;
    };
    a.ok(&["mkdir", "-p", ":/d"]);
    a.ok(&["touch", "-d", "5", ":/d/f"]);
    a.ok(&["chown", "12:34", ":/d/f"]);
    a.ok(&["setfattr", "-n", "user.k", "-v", "v", ":/d/f"]);
    let from = format!("{}:/d", a.image.display());
    b.ok(&["cp", "-a", &from, ":/"]);
    let stat = b.run(&["stat", "--json", ":/d/f"]).json();
    assert_eq!(
        (stat[0]["uid"].as_u64(), stat[0]["gid"].as_u64()),
        (Some(12), Some(34))
    );
    assert_eq!(stat[0]["mtime"], "1970-01-01T00:00:05.000000000Z");
    assert_eq!(
        b.ok(&["getfattr", "-n", "user.k", "--only-values", ":/d/f"]),
        "v"
    );
    assert!(b.fails(&["mv", &from, ":/"]).contains("in another image"));
    a.clean();
    b.clean();
}
