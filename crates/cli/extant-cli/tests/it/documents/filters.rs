//! Commands that select tests by name: each name selects some. cargo runs no test, and succeeds, if it selects none.

use crate::documents::markdown::root;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The files with such commands.
const FILES: [&str; 3] = [
    "Makefile",
    "scripts/test-remote.sh",
    "docs/reference/backends.md",
];

/// Appends the files of Rust below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Returns the paths of the functions of a package, as the test programs print those of tests.
fn functions(package: &str) -> Vec<String> {
    let folders = std::fs::read_dir(root().join("crates"))
        .expect("crates")
        .flatten();
    let folders = folders
        .map(|folder| folder.path())
        .chain([root().join("lab")]);
    let mut crates = folders.map(|folder| folder.join(package));
    let own = crates.find(|dir| dir.join("Cargo.toml").exists());
    let own = own.unwrap_or_else(|| panic!("{package} is in no folder"));
    let mut found = Vec::new();
    sources(&own.join("src"), &mut found);
    sources(&own.join("tests"), &mut found);
    let mut functions = Vec::new();
    for path in found {
        let file = path
            .strip_prefix(&own)
            .expect("a file below")
            .with_extension("");
        let names = file.iter().map(|name| name.to_string_lossy());
        let names =
            names.filter(|name| !["src", "tests", "it", "main", "lib", "mod"].contains(&&**name));
        let module = names.collect::<Vec<_>>().join("::");
        let text = std::fs::read_to_string(&path).expect("a source");
        let lines = text
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix("fn "));
        let names = lines.filter_map(|line| line.split_once('('));
        functions.extend(names.map(|(name, _)| format!("{module}::{name}")));
    }
    functions
}

/// Returns the package and the names of a command that runs tests; `None` for other text.
fn selected(text: &str) -> Option<(String, Vec<String>)> {
    let mut words = text.split_whitespace();
    // In the page, T stands for a command.
    let begins = |word: &str| word == "T" || word == "test";
    words.find(|word| begins(word))?;
    let (mut package, mut names) = (None, Vec::new());
    while let Some(word) = words.next() {
        match word {
            "-p" => package = words.next().map(str::to_owned),
            "--profile" | "--test" | "-j" => drop(words.next()),
            _ if word.starts_with('-') => {}
            _ => names.push(word.to_owned()),
        }
    }
    Some((package?, names))
}

/// Checks the names in all files.
pub fn check_all() {
    let mut known: HashMap<String, Vec<String>> = HashMap::new();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for file in FILES {
        let text = std::fs::read_to_string(root().join(file)).expect("the file");
        for command in text.split(['\n', '`', ';']) {
            let Some((package, names)) = selected(command) else {
                continue;
            };
            // Without debug assertions functions are missing that tests use, and nothing is built.
            if command.contains("--release") {
                wrong.push(format!(
                    "{file}: tests of {package} do not build with --release"
                ));
            }
            let functions = known
                .entry(package.clone())
                .or_insert_with(|| functions(&package));
            for name in names {
                let plain = name.strip_prefix("it::").unwrap_or(&name);
                checked += 1;
                // Tests that a macro makes are known by their module only.
                let selects = |function: &String| function.contains(plain);
                if !functions.iter().any(selects) {
                    wrong.push(format!("{file}: `{name}` selects no test of {package}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 60, "{checked} names were found");
}
