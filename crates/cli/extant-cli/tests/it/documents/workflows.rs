//! The workflow files and the action: they are YAML, their targets and scripts exist, and the action's steps make an
//! image.

use crate::documents::markdown::root;
use crate::documents::mentioned;
use crate::mount::support::{EXTANT, extant, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

/// Checks that every workflow file is readable, and names only make targets and scripts that exist.
pub fn check_all() {
    let mut files = vec![root().join("action.yml")];
    for dir in [".github/workflows", ".github/ISSUE_TEMPLATE"] {
        let entries = std::fs::read_dir(root().join(dir));
        let entries = entries.into_iter().flatten().map(|e| e.unwrap().path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "yml")));
    }
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut lines = Vec::new();
        scripts(&load(&file), &mut lines);
        mentioned::check_lines(&name, &lines);
    }
}

fn load(file: &Path) -> Yaml {
    let text = std::fs::read_to_string(file).unwrap();
    let read = YamlLoader::load_from_str(&text);
    let mut documents = read.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    assert_eq!(documents.len(), 1, "{}", file.display());
    documents.remove(0)
}

/// Collects the lines of all `run` keys.
fn scripts(yaml: &Yaml, lines: &mut Vec<String>) {
    match yaml {
        Yaml::Array(items) => items.iter().for_each(|item| scripts(item, lines)),
        Yaml::Hash(map) => {
            for (key, value) in map {
                match (key.as_str(), value.as_str()) {
                    (Some("run"), Some(text)) => lines.extend(text.lines().map(String::from)),
                    _ => scripts(value, lines),
                }
            }
        }
        _ => {}
    }
}

/// Returns a step of the action, run as GitHub runs it.
fn step(number: usize, dir: &Path) -> Command {
    let action = load(&root().join("action.yml"));
    let script = action["runs"]["steps"][number]["run"].as_str();
    let mut bash = Command::new("bash");
    bash.args(["--noprofile", "--norc", "-eo", "pipefail", "-c"])
        .arg(script.expect("the step has a script"))
        .current_dir(dir);
    bash
}

/// Runs the action: the first step takes the command from a release, the second makes an image of layers.
pub fn check_action() {
    needs::tools!("bash", "tar", "gzip");
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    let path = |name: &str| -> PathBuf { dir.join(name) };
    let shell = |script: &str| {
        let mut bash = Command::new("bash");
        run(bash
            .args(["-euc", script])
            .current_dir(dir)
            .env("EXTANT", EXTANT))
    };
    // A replacement for GitHub's client: writes the archive of the release, and records its arguments.
    shell(
        "mkdir bin release tree
         install -m 755 $EXTANT release/extant; tar -C release -c extant | gzip -1 >release.tar.gz
         printf '#!/bin/sh\\necho \"$@\" >asked; cat release.tar.gz\\n' >bin/gh; chmod 755 bin/gh
         echo one >tree/one; mkdir over; echo two >'over/a file'; tar -C over -cf over.tar .",
    );
    let bin = path("bin");
    let mut first = step(0, dir);
    first
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("RUNNER_TEMP", path("temp"))
        .env("GITHUB_PATH", path("path"))
        .env("REPOSITORY", "owner/extant")
        .env("VERSION", "v0.1.0");
    run(&mut first);
    assert_eq!(
        std::fs::read_to_string(path("asked")).unwrap(),
        format!(
            "release download v0.1.0 --repo owner/extant --pattern extant-{}-linux.tar.gz --output -\n",
            std::env::consts::ARCH
        )
    );
    let added = std::fs::read_to_string(path("path")).unwrap();
    let action = load(&root().join("action.yml"));
    let options = action["inputs"]["options"]["default"].as_str().unwrap();
    let mut second = step(1, dir);
    second
        .env("PATH", format!("{}:/usr/bin:/bin", added.trim()))
        .env("FROM", "tree\nover.tar\n")
        .env("IMAGE", "made.img")
        .env("LABEL", "made here")
        .env("OPTIONS", options);
    run(&mut second);
    let image = path("made.img").display().to_string();
    assert_eq!(extant(["cat", &format!("{image}:/a file")]), "two\n");
    assert_eq!(extant(["cat", &format!("{image}:/one")]), "one\n");
    assert!(extant(["info", &image]).contains("made here"));
}
