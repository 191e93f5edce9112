//! Runs the commands of the documents' `console` blocks.

use crate::documents::given::{self, NOT_RUN, REPLACED};
use crate::documents::markdown::{Document, documents, root};
use crate::mount::support::{EXTANT, run, run_for, script};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The user that types the commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caller {
    Root,
    User,
}

/// A command and its output in the document.
struct Step {
    typed: String,
    shown: Vec<String>,
}

/// Runs all commands of all documents; the test fails with a list of all differences.
pub fn run_all(caller: Caller) {
    needs::tools!(
        "bash",
        "busybox",
        "cp",
        "curl",
        "e2fsck",
        "fusermount3",
        "git",
        "make",
        "mksquashfs",
        "newuidmap",
        "setpriv",
        "tar",
        "zstd"
    );
    prepare_system();
    let mut wrong = Vec::new();
    let mut skipped = BTreeSet::new();
    let mut count = 0;
    for document in documents() {
        let steps = steps(&document);
        if steps.is_empty() {
            continue;
        }
        let session = Session::new(&document.name, caller);
        for step in steps {
            let reason = |(of, begins, _): &&(&'static str, &'static str, &'static str)| {
                *of == document.name && step.typed.starts_with(begins)
            };
            if let Some((of, begins, _)) = NOT_RUN.iter().find(reason) {
                skipped.insert((*of, *begins));
                continue;
            }
            count += 1;
            if let Err(why) = session.take(&step) {
                let name = &document.name;
                wrong.push(format!("{name}, {caller:?}: $ {}\n{why}", step.typed));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 20, "only {count} commands were found");
    let listed = NOT_RUN.iter().map(|(of, begins, _)| (*of, *begins));
    assert_eq!(
        listed.collect::<BTreeSet<_>>(),
        skipped,
        "the list of what is not run has what no document has"
    );
}

/// Returns the commands of a document: those behind `$ ` in `console` blocks, and all lines of `sh` blocks.
fn steps(document: &Document) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (language, text) in &document.blocks {
        let prompt = match language.as_str() {
            "console" => "$ ",
            "sh" | "bash" | "shell" => "",
            _ => continue,
        };
        let first = steps.len();
        for line in text.lines() {
            let goes_on = steps[first..]
                .last()
                .is_some_and(|s| s.typed.ends_with('\\'));
            match (line.strip_prefix(prompt), steps[first..].last_mut()) {
                (_, Some(step)) if goes_on => {
                    step.typed.push('\n');
                    step.typed.push_str(line);
                }
                (Some(typed), _) => steps.push(Step {
                    typed: typed.to_string(),
                    shown: Vec::new(),
                }),
                (None, Some(step)) => step.shown.push(line.to_string()),
                (None, None) => panic!("{}: `{line}` is below no command", document.name),
            }
        }
    }
    steps
}

/// Prepares the parts of the system that commands of the documents use, only in this mount name space: /etc/hostname,
/// an /etc/fstab to change, the helpers of mount(8), a FUSE device for everybody.
fn prepare_system() {
    let text = format!(
        "mount -t tmpfs none /media
         mkdir /media/sbin /media/real
         mount --bind /usr/sbin /media/real; mount -o remount,bind,ro /media/real
         ln -s /media/real/* /media/sbin/
         make -sC {} install EXTANT={EXTANT} PREFIX=/media/usr SBINDIR=/media/sbin
         mount --bind /media/sbin /usr/sbin
         echo vm >/media/hostname; mount --bind /media/hostname /etc/hostname
         printf '#!/bin/sh\nexec \"$@\"\n' >/media/usr/bin/sudo; chmod 755 /media/usr/bin/sudo
         echo nobody:100000:65536 >/media/subuid
         mount --bind /media/subuid /etc/subuid; mount --bind /media/subuid /etc/subgid
         : >/media/fstab; mount --bind /media/fstab /etc/fstab
         mknod -m 666 /media/fuse c 10 229; mount --bind /media/fuse /dev/fuse",
        root().display()
    );
    script(Path::new("/"), &text);
}

/// A reader's session with a document.
struct Session {
    caller: Caller,
    home: tempfile::TempDir,
}

impl Session {
    fn new(document: &str, caller: Caller) -> Self {
        // On disk, because device nodes do not work in every file system in memory.
        let home = tempfile::tempdir().unwrap();
        let session = Self { caller, home };
        session.chown();
        let (ended, text) = session.run(given::script(document), caller);
        assert!(ended, "what {document} takes for given: {text}");
        session
    }

    fn chown(&self) {
        if self.caller == Caller::User {
            let own = ["-R", "65534:65534"];
            run(Command::new("chown").args(own).arg(self.home.path()));
        }
    }

    /// Runs a shell script; returns whether it succeeded, and its output.
    fn run(&self, text: &str, caller: Caller) -> (bool, String) {
        let (mut command, path) = match caller {
            Caller::Root => (
                Command::new("bash"),
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            Caller::User => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash"]);
                // Debian's PATH for users other than root.
                (command, "/usr/local/bin:/usr/bin:/bin")
            }
        };
        let home = self.home.path();
        // Exported variables are kept for later commands.
        let keep = if caller == self.caller {
            "export -p >~/.exported"
        } else {
            ""
        };
        let text = format!("if [ -e ~/.exported ]; then . ~/.exported; fi\n{text}");
        command
            .arg("-c")
            .arg(format!(
                "exec 2>&1; umask 022; set -e -o pipefail\n{text}\n{keep}"
            ))
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .env("PATH", format!("/media/usr/bin:{path}"))
            .env("SITE", home.join(".site"))
            .env("TERM", "dumb")
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8");
        match run_for(command, Duration::from_secs(60)) {
            Some(out) => (
                out.status.success(),
                String::from_utf8_lossy(&out.stdout).into_owned(),
            ),
            None => (false, "it takes longer than a minute".into()),
        }
    }

    /// Runs a step; the error describes the difference.
    fn take(&self, step: &Step) -> Result<(), String> {
        let mut text = step.typed.clone();
        for (typed, runs, _) in REPLACED {
            text = text.replace(typed, runs);
        }
        // An ordinary user that may use sudo.
        let administrator = text.contains("sudo ");
        let caller = if administrator {
            Caller::Root
        } else {
            self.caller
        };
        let (succeeded, printed) = self.run(&text, caller);
        let mut shown = step.shown.as_slice();
        while let [rest @ .., last] = shown
            && last.trim().is_empty()
        {
            shown = rest;
        }
        // Errors are allowed only where the document shows one.
        let fails = shown.iter().any(|line| line.starts_with("error: "));
        if succeeded == fails {
            return Err(format!(
                "    {}succeeds:\n{printed}",
                if fails { "" } else { "not " }
            ));
        }
        let stable: Vec<String> = shown.iter().map(|line| self.stable(line)).collect();
        let lines: Vec<String> = printed
            .trim_end()
            .lines()
            .map(|line| self.stable(line))
            .collect();
        if shown.is_empty() || matches(&stable, &lines) {
            Ok(())
        } else {
            Err(format!(
                "    shown:\n{}\n    printed:\n{printed}",
                shown.join("\n")
            ))
        }
    }

    /// Returns a line without the parts that change from run to run: dates, times, identifiers, the width of columns,
    /// the caller's name and home directory.
    fn stable(&self, line: &str) -> String {
        let line = line.replace(&*self.home.path().to_string_lossy(), "/home/you");
        let words = line.split_whitespace().map(stable_word);
        words.collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Mounts that a document left; unmounting ends their servers.
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        for line in mounts.lines().filter(|line| line.contains(" fuse")) {
            if let Some(dir) = line.split(' ').nth(4).filter(|dir| *dir != "/dev/fuse") {
                let _ = Command::new("umount").args(["-l", dir]).status();
            }
        }
    }
}

fn stable_word(word: &str) -> String {
    let shape: String = word
        .chars()
        .map(|c| if c.is_ascii_hexdigit() { 'x' } else { c })
        .collect();
    match shape.as_str() {
        "xxxx-xx-xx" => "DATE".into(),
        "xx:xx" | "xx:xx:xx" => "TIME".into(),
        "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" => "UUID".into(),
        _ => word.replace("65534", "0"),
    }
}

/// Returns whether the lines are those shown, in which `...` stands for any number of lines.
fn matches(shown: &[String], lines: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| first == line && matches(rest, others)),
    }
}

#[test]
fn lines_match() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(stable_word).collect() };
    let printed = lines("a\n2026-11-21\nb\nc");
    assert!(matches(&lines("a\n2001-01-01\n...\nc"), &printed));
    assert!(matches(&lines("...\nc\n..."), &printed));
    assert!(!matches(&lines("a\n...\nb"), &printed));
    assert!(!matches(&lines("a\n2001-01-1\nb\nc"), &printed));
}
