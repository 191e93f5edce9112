//! Scripts for `debugfs -w` with changes and questions: run with both programs on copies of one image.

use crate::cli::called::{ScriptDir, clean, told};
use std::process::Output;

/// Alternating changes and questions; `here` is another name of the directory, and `..` leads out of it again.
const SCRIPT: &str = "\
ls
mkdir etc
cd etc
write src hosts
sif hosts mode 0100755
stat hosts
ls -l
cat hosts
dump hosts copied
symlink here /etc
symlink motd hosts
cd ../etc/./deep/..
mkdir deep
cd deep/../../etc
pwd
ea_set hosts user.a value
ea_list hosts
rm motd
ls
write src deep/other
cat deep/other
rdump deep out
ssv volume_name scripted
stats
cat none
cd none
rm hosts
stat hosts
quit
cat deep/other
pwd
mkdir last
";

/// Returns the output after each request, by request.
fn answers(out: &Output) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let requests = text.split("debugfs: ").skip(1);
    let parts = requests.filter_map(|part| part.split_once('\n'));
    parts
        .map(|(line, answer)| (line.to_owned(), answer.to_owned()))
        .collect()
}

#[track_caller]
fn of<'a>(answers: &'a [(String, String)], line: &str, nth: usize) -> &'a str {
    let mut found = answers.iter().filter(|(asked, _)| asked == line);
    &found.nth(nth).unwrap_or_else(|| panic!("no {line}")).1
}

#[test]
fn requests_see_what_those_before_them_changed() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    std::fs::write(place.image("cmds"), SCRIPT).unwrap();
    let made = "echo hello >src; chmod 640 src; mke2fs -Fq -t ext4 a.img 32M; cp a.img b.img";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    let ours = place.ours("mkdir out; debugfs -w -f cmds a.img || code=$?; cat copied out/deep/other >both; rm -r out copied; exit $code");
    assert_eq!(ours.status.code(), Some(1), "{}", told(&ours));
    let both = std::fs::read(place.image("both")).unwrap();
    assert_eq!(both, b"hello\nhello\n");
    clean(&place.image("a.img"));
    let theirs =
        place.theirs("mkdir out; debugfs -w -f cmds b.img || :; e2fsck -fy b.img >/dev/null || :");
    assert!(theirs.status.success(), "{}", told(&theirs));
    let (a, b) = (answers(&ours), answers(&theirs));
    let asked = |answers: &[(String, String)]| -> Vec<String> {
        answers.iter().map(|(line, _)| line.clone()).collect()
    };
    let script: Vec<_> = SCRIPT.lines().map(str::to_owned).collect();
    assert_eq!((asked(&a), asked(&b)), (script.clone(), script));
    for (line, nth) in [
        ("cat hosts", 0),
        ("cat deep/other", 0),
        ("cat deep/other", 1),
        ("cat none", 0),
    ] {
        assert_eq!(of(&a, line, nth), of(&b, line, nth), "{line}");
    }
    // The inode numbers differ between the programs.
    for nth in [0, 1] {
        let path = |text: &str| {
            text.split("PATH: ")
                .nth(1)
                .map(|rest| rest.lines().next().unwrap_or("").to_owned())
        };
        assert_eq!(path(of(&a, "pwd", nth)), path(of(&b, "pwd", nth)));
    }
    assert!(of(&a, "pwd", 0).contains("PATH: /etc\n"));
    let stat = of(&a, "stat hosts", 0);
    assert!(
        stat.contains("0755") && of(&b, "stat hosts", 0).contains("0755"),
        "{stat}"
    );
    assert!(of(&a, "stat hosts", 1).is_empty() && of(&b, "stat hosts", 1).is_empty());
    assert!(!of(&a, "ls", 0).contains("etc"), "{}", of(&a, "ls", 0));
    assert!(
        of(&a, "ls -l", 0).contains(" 100755 (1)      0      0       6 "),
        "{}",
        of(&a, "ls -l", 0)
    );
    let names = of(&a, "ls", 1);
    assert!(
        names.contains(") here   ") && names.contains(") deep   ") && !names.contains("motd"),
        "{names}"
    );
    assert!(of(&a, "ea_list hosts", 0).contains("user.a"));
    assert!(of(&a, "stats", 0).contains("scripted"));
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    for error in [
        "cd: none: no such file",
        "a.img:/etc/none: no such file",
        "stat: hosts: File not found by ext2_lookup",
        "cd: ../etc/./deep/..: no such file",
    ] {
        assert!(errors.contains(error), "{error} in {errors}");
    }
    // Both images have the same contents in the end.
    let tree = "for f in /etc /etc/here /etc/deep /etc/deep/other /etc/last; do debugfs -R \"stat $f\" IMAGE 2>/dev/null | grep -oE 'Type: .*Mode: +[0-7]+|User: .*Size: [0-9]+|Fast link.*'; done; \
                debugfs -R 'cat /etc/deep/other' IMAGE; debugfs -R 'ls -p /etc' IMAGE | cut -d/ -f3,6 | sort; debugfs -R 'stat /etc/hosts' IMAGE; e2label IMAGE";
    let trees = ["a.img", "b.img"].map(|image| place.theirs(&tree.replace("IMAGE", image)));
    let [ours, theirs] = trees.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    assert_eq!(ours, theirs);
    assert!(
        ours.contains("scripted") && ours.contains("Mode:  0640"),
        "{ours}"
    );
}

#[test]
fn scripts_come_by_standard_input_too_and_links_lead_to_directories() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.ours(
        "mke2fs -Fq -t ext4 -d tree d.img 32M; \
         printf 'mkdir \"a b\"\nsymlink l \"a b\"\ncd l\npwd\nmkdir in\nstat in\nls\ndirents\nq\nmkdir no\n' | debugfs -w d.img",
    );
    assert!(made.status.success(), "{}", told(&made));
    let text = told(&made);
    assert!(
        text.contains("PATH: /a b\n") && text.contains(" in\n"),
        "{text}"
    );
    clean(&place.image("d.img"));
    let out = place.theirs("debugfs -R 'stat \"/a b/in\"' d.img; debugfs -R 'ls /' d.img");
    assert!(
        told(&out).contains("Type: directory") && !told(&out).contains(" no "),
        "{}",
        told(&out)
    );
    // Read-only requests leave the image unchanged, and the session may be writable without a change.
    let before = std::fs::read(place.image("d.img")).unwrap();
    let asked = place.ours("printf 'cd etc\ncat motd\npwd\n' >asks; debugfs -w -f asks d.img; debugfs -w <asks d.img; debugfs -w -R 'cat /etc/motd' d.img");
    assert!(asked.status.success(), "{}", told(&asked));
    assert_eq!(
        told(&asked).matches("welcome\n").count(),
        3,
        "{}",
        told(&asked)
    );
    assert_eq!(told(&asked).matches("PATH: /etc\n").count(), 2);
    assert_eq!(std::fs::read(place.image("d.img")).unwrap(), before);
}

/// An unknown request, or one with the wrong arguments, prevents the whole script from running.
#[test]
fn a_script_is_looked_at_before_its_first_request() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.ours("mke2fs -Fq -t ext4 -d tree d.img 32M");
    assert!(made.status.success(), "{}", told(&made));
    let before = std::fs::read(place.image("d.img")).unwrap();
    for (request, line) in [
        ("eo motd", "debugfs: eo is not supported: mappings are not"),
        ("stat", "debugfs: stat: wrong number of words"),
        ("cat", "debugfs: cat: wrong number of paths"),
        ("bmap motd", "debugfs: bmap: wrong number of words"),
    ] {
        let script =
            format!("printf 'mkdir a\ncat /etc/motd\n{request}\n' >cmds; debugfs -w -f cmds d.img");
        let out = place.ours(&script);
        assert_eq!(out.status.code(), Some(1), "{request}: {}", told(&out));
        assert!(told(&out).starts_with(line), "{request}: {}", told(&out));
        assert_eq!(told(&out).lines().count(), 1, "{}", told(&out));
        assert!(
            std::fs::read(place.image("d.img")).unwrap() == before,
            "{request}"
        );
    }
}
