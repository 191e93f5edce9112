//! Progress of long work: shown on a terminal only.

use crate::cli::support::{Scratch, run};
use std::process::{Command, Stdio};

/// Returns the output of a command on a terminal, with the given delay before it shows progress.
fn seen(s: &Scratch, words: &str, after: Option<&str>) -> String {
    let line = words.replace('%', s.image.to_str().unwrap());
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_extant"));
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .current_dir(s.dir.path())
        .env("TERM", "xterm")
        .env_remove("EXTANT_PROGRESS")
        .stdin(Stdio::null());
    if let Some(after) = after {
        script.env("EXTANT_PROGRESS", after);
    }
    let out = script.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{words}: {text}");
    text
}

fn filled() -> Option<Scratch> {
    if !needs::have(&["script"]) {
        return None;
    }
    let s = Scratch::ext4()?;
    std::fs::create_dir_all(s.host("tree/sub")).unwrap();
    for n in 0..50 {
        std::fs::write(s.host(&format!("tree/sub/{n}")), vec![1; 1000]).unwrap();
    }
    std::fs::write(s.host("large"), vec![2; 3 << 20]).unwrap();
    Some(s)
}

#[test]
fn all_that_may_take_long_shows_how_far_it_is() {
    let Some(s) = filled() else { return };
    // The order matters, because each command works on the results of the earlier ones.
    for (words, shown) in [
        (
            "import % tree",
            &["%: opening", "import: ", " files", "%: writing"][..],
        ),
        ("cp large %:/", &["copy [", "B/s)", " left"]),
        ("cp -r tree %:/copy", &["copy: "]),
        ("cp - %:/new < large", &["copy: "]),
        ("cat %:/large > /dev/null", &["read [", " left"]),
        ("tree %:/copy > /dev/null", &["look: "]),
        ("chmod -R go= %:/copy", &["change: ", "/s)"]),
        ("chown -R 5 %:/copy", &["change: "]),
        ("export % out", &["export [", " left"]),
        ("export %:/copy out.tar", &["export: "]),
        ("rm -r %:/copy", &["remove: "]),
        (
            "mkfs new.img --from tree --size 32M",
            &["scan: ", "data [", "write to the device"],
        ),
    ] {
        let text = seen(&s, words, Some("0"));
        for part in shown {
            let part = part.replace('%', s.image.to_str().unwrap());
            assert!(text.contains(&part), "{words}: {part}: {text}");
        }
    }
    s.clean();
}

#[test]
fn what_is_over_at_once_shows_nothing() {
    let Some(s) = filled() else { return };
    for words in ["cp -r tree %:/t", "chmod -R go= %:/t", "rm -r %:/t"] {
        assert_eq!(seen(&s, words, Some("3600")), "", "{words}");
    }
    // Without a terminal, no progress is shown.
    let image = s.image.to_str().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["import", image])
        .arg(s.host("tree"))
        .env("EXTANT_PROGRESS", "0")
        .output()
        .unwrap();
    assert!(out.status.success() && out.stderr.is_empty() && out.stdout.is_empty());
    assert_eq!(run(&["rm", "-r", &format!("{image}:/sub")]).stderr, "");
}
