//! Projects by the ioctls of lsattr and chattr. The kernel reads the results. The kernel writes such volumes only if
//! it is built with quota, so the expected inheritance and errors of ext4 are written here.

use super::support::{EXTANT, Kernel, Mounted, image, over_each, place, run, script};
use std::path::Path;
use std::process::Command;

const EXDEV: Option<i32> = Some(18);

/// Returns the error numbers of renames or links.
fn errors<const N: usize>(
    dir: &Path,
    call: impl Fn(&Path, &Path) -> std::io::Result<()>,
    names: [(&str, &str); N],
) -> [Option<i32>; N] {
    names.map(|(from, to)| {
        let done = call(&dir.join(from), &dir.join(to));
        done.err().and_then(|e| e.raw_os_error())
    })
}

/// Returns project, `P` or `-`, and path of all files and directories.
fn listed(dir: &Path, which: &str) -> Vec<String> {
    let all = script(dir, &format!("lsattr -pd {which}"));
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let inherits = if words[1].contains('P') { "P" } else { "-" };
        format!("{} {inherits} {}", words[0], words[2])
    };
    all.lines().map(line).collect()
}

#[test]
fn projects_are_set_inherited_and_keep_names_apart() {
    over_each(|transport| {
        let place = place();
        let path = place.path().join("disk.img");
        let mut mkfs = Command::new(EXTANT);
        run(mkfs
            .args(["mkfs", "-q", "--size", "32M", "-O", "project"])
            .arg(&path));
        let mounted = Mounted::new(&path, transport, &[]);
        let dir = mounted.dir();
        script(
            dir,
            "mkdir d d/sub e plain; echo x >d/old; echo y >e/f
             chattr -p 42 d; chattr +P d; chattr -p 4294967294 e/f
             echo n >d/new; mkdir d/inner; echo i >d/inner/deep; mkfifo d/fifo; ln -s t d/link",
        );
        assert_eq!(
            listed(dir, "d d/old d/sub e e/f d/new d/inner d/inner/deep"),
            [
                "42 P d",
                "0 - d/old",
                "0 - d/sub",
                "0 - e",
                "4294967294 - e/f",
                "42 - d/new",
                "42 P d/inner",
                "42 - d/inner/deep",
            ]
        );
        script(
            dir,
            "chattr -R -p 9 d/inner; chattr -P d/inner; echo l >d/inner/later; chattr -p 0 d/new; chattr +P plain; mkdir plain/none",
        );
        let moved = [
            ("e/f", "d/f"),
            ("e", "d/e"),
            ("d/inner/deep", "d/deep"),
            ("d/new", "plain/new"),
            ("d/old", "d/inner/old"),
            ("d/fifo", "e/fifo"),
        ];
        let rename = |from: &Path, to: &Path| std::fs::rename(from, to);
        assert_eq!(
            errors(dir, rename, moved),
            [EXDEV, EXDEV, EXDEV, None, None, None]
        );
        let linked = [
            ("e/f", "d/hard"),
            ("d/link", "d/hard"),
            ("e/fifo", "d/again"),
        ];
        let link = |from: &Path, to: &Path| std::fs::hard_link(from, to);
        assert_eq!(errors(dir, link, linked), [EXDEV, None, None]);
        let all = "d d/inner d/inner/deep d/inner/later d/inner/old d/sub e e/f plain plain/new plain/none";
        let expected = [
            "42 P d",
            "9 - d/inner",
            "9 - d/inner/deep",
            "0 - d/inner/later",
            "0 - d/inner/old",
            "0 - d/sub",
            "0 - e",
            "4294967294 - e/f",
            "0 P plain",
            "0 - plain/new",
            "0 P plain/none",
        ];
        assert_eq!(listed(dir, all), expected);
        mounted.unmount();
        let kernel = Kernel::new(&path, "ro");
        assert_eq!(listed(kernel.dir(), all), expected);
    });
}

/// A volume without the feature has project 0 only, as in the kernel.
#[test]
fn projects_without_the_feature() {
    over_each(|transport| {
        let place = place();
        let path = image(place.path(), "16M", &[]);
        let attempt = "echo x >f; chattr -p 5 f 2>&1 || echo refused; lsattr -p f";
        let kernel = Kernel::new(&path, "rw");
        let expected = script(kernel.dir(), attempt);
        drop(kernel);
        assert!(expected.contains("refused"), "{expected}");
        let mounted = Mounted::new(&path, transport, &[]);
        assert_eq!(script(mounted.dir(), attempt), expected);
        mounted.unmount();
    });
}
