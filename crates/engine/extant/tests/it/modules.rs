//! Checks the crates and the modules of those outside the engine. A crate uses only crates of its own folder and of folders before
//! it. No module may use an item of its crate root or be part of a cycle.

use crate::rooms::{code, is_test, module_of, paths, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of crates, each built on those before it.
const FOLDERS: [&str; 8] = [
    "crates/format",
    "crates/storage",
    "crates/sources",
    "crates/offline",
    "crates/engine",
    "crates/mount",
    "crates/cli",
    "lab",
];

/// The crates whose modules are looked at.
const CRATES: [&str; 27] = [
    "ext4-format",
    "ext4-image",
    "extant-sources",
    "extant-mkfs",
    "extant-transfer",
    "extant-check",
    "extant-repair",
    "extant-tune",
    "extant-resize",
    "extant-rescue",
    "extant-disk",
    "extant-mmp",
    "extant-terminal",
    "extant-formatter",
    "extant-fuse",
    "extant-cli-core",
    "extant-e2fsprogs",
    "extant-cli",
    "percpu",
    "blockdev",
    "extant-nbd",
    "extant-remote",
    "extant-verity",
    "fuse-server",
    "extant-demo",
    "lockmeter",
    "extant-bench",
];

/// A module, as the segments of its path.
type Module = Vec<String>;

/// Appends the paths of a `use` after a prefix: `a::{b, c::{D, E}}` has three.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        found.push(format!("{prefix}{}", tree.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        expand(&prefix, part, found);
    }
}

/// Returns the lines of code, each `use crate::{a::x, b}` as a line for each of its paths.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    // The first line and the text of a `use` that is not complete yet.
    let mut open: Option<(usize, String)> = None;
    for (number, line) in code(text) {
        let (first, mut whole) = open.take().unwrap_or((number, String::new()));
        whole += line.trim();
        let item = match whole.split_once("use ") {
            Some((visibility, item)) if visibility.is_empty() || visibility.starts_with("pub") => {
                item
            }
            _ => {
                lines.push((first, whole));
                continue;
            }
        };
        match item.strip_suffix(';') {
            Some(item) => {
                let mut found = Vec::new();
                expand("", item, &mut found);
                lines.extend(found.into_iter().map(|path| (first, path)));
            }
            None => open = Some((first, whole)),
        }
    }
    lines
}

/// Returns the module that a path leads to; `None` for an item of the root.
fn target(path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let lengths = (1..=path.len()).rev();
    let mut prefixes = lengths.map(|len| path[..len].to_vec());
    prefixes.find(|prefix| modules.contains(prefix))
}

/// Returns the arrows to the root, and those between modules that are in a circle, or lead to one, with file and line.
fn wrong(files: &BTreeMap<String, String>) -> String {
    let modules = files.keys().map(|file| module_of(Path::new(file)));
    let modules: BTreeSet<Module> = modules.collect();
    let mut wrong = String::new();
    let mut arrows: BTreeMap<Module, BTreeMap<Module, String>> = BTreeMap::new();
    for (file, text) in files {
        let module = module_of(Path::new(file));
        // The text of an exported macro stands in the crates that use it, and names items as they do.
        let own = |(_, line): &(usize, String)| !line.contains("$crate");
        for (number, line) in lines(text).into_iter().filter(own) {
            for path in paths(&line, &module) {
                let place = format!("{file}:{number}: {}", path.join("::"));
                match target(&path, &modules) {
                    None => writeln!(wrong, "{place} is an item of the root").unwrap(),
                    Some(to) if to == module => {}
                    Some(to) => {
                        arrows.entry(module.clone()).or_default().insert(to, place);
                    }
                }
            }
        }
    }
    // A module whose arrows all lead to modules that are gone is in no circle.
    loop {
        let left: BTreeSet<Module> = arrows.keys().cloned().collect();
        arrows.retain(|_, to| to.keys().any(|to| left.contains(to)));
        if arrows.len() == left.len() {
            for to in arrows.values() {
                let circle = to.iter().filter(|(to, _)| left.contains(*to));
                circle.for_each(|(_, place)| writeln!(wrong, "{place} is in a circle").unwrap());
            }
            return wrong;
        }
    }
}

/// Returns the folders of the crates of this repository, each with the rank of the folder it is in.
fn crates() -> Vec<(usize, PathBuf)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut found = Vec::new();
    for (rank, folder) in FOLDERS.iter().enumerate() {
        for entry in fs::read_dir(top.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.join("Cargo.toml").exists() {
                found.push((rank, path));
            }
        }
    }
    found
}

/// Returns the names in a manifest's table of dependencies.
fn dependencies(manifest: &str) -> Vec<String> {
    let of_builds = manifest
        .lines()
        .skip_while(|line| line.trim() != "[dependencies]");
    let lines = of_builds.skip(1).take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(['.', '=']));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

#[test]
fn crates_use_their_folder_and_those_before_it() {
    let crates = crates();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let ranks: BTreeMap<String, usize> = crates
        .iter()
        .map(|(rank, path)| (name(path), *rank))
        .collect();
    assert!(ranks.len() > 25, "{ranks:?}");
    let mut arrows = 0;
    for (rank, path) in &crates {
        let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest) {
            let Some(of_used) = ranks.get(&used) else {
                continue;
            };
            let folders = (FOLDERS[*rank], FOLDERS[*of_used]);
            assert!(
                of_used <= rank,
                "{} in {} uses {used} in {}",
                name(path),
                folders.0,
                folders.1
            );
            arrows += 1;
        }
    }
    assert!(
        arrows > 60,
        "{arrows} dependencies between crates of this repository"
    );
}

#[test]
fn modules_outside_the_engine_have_no_cycles_and_do_not_use_the_root() {
    let crates = crates();
    for name in CRATES {
        let path = crates.iter().find(|(_, path)| path.ends_with(name));
        let path = &path.unwrap_or_else(|| panic!("{name} is in no folder")).1;
        let src = path.join("src");
        let mut found = Vec::new();
        sources(&src, &mut found);
        let files = found.iter().map(|path| {
            let file = path.strip_prefix(&src).unwrap().display().to_string();
            (file, fs::read_to_string(path).unwrap())
        });
        let files: BTreeMap<String, String> = files
            .filter(|(file, _)| file != "lib.rs" && file != "main.rs" && !is_test(Path::new(file)))
            .collect();
        assert!(files.len() > 1, "{name}: {} files", files.len());
        let wrong = wrong(&files);
        assert!(wrong.is_empty(), "{name}:\n{wrong}");
    }
}

#[test]
fn circles_and_items_of_the_root_are_found() {
    let of = |files: &[(&str, &str)]| {
        let files = files
            .iter()
            .map(|(file, text)| (file.to_string(), text.to_string()));
        wrong(&files.collect())
    };
    let down = [
        (
            "a.rs",
            "use crate::b::{B, C};\nuse crate::{\n    b,\n    c::C,\n};",
        ),
        ("b.rs", "fn f() -> crate::c::C {"),
        ("c.rs", "pub(crate) struct C;"),
    ];
    assert_eq!(of(&down), "");
    let root = of(&[("a.rs", "use crate::{Error, b};"), ("b.rs", "")]);
    assert_eq!(root, "a.rs:1: Error is an item of the root\n");
    let circle = of(&[("a.rs", "use crate::b::B;"), ("b.rs", "\nuse super::a::A;")]);
    assert_eq!(
        circle,
        "a.rs:1: b::B is in a circle\nb.rs:2: a::A is in a circle\n"
    );
    let braces = of(&[
        ("a/b.rs", "use super::{c::{C, D}, d};"),
        ("a/c.rs", "use crate::a::{\n    b::B,\n    d,\n};"),
        ("a/d.rs", ""),
    ]);
    assert_eq!(
        braces,
        "a/b.rs:1: a::c::D is in a circle\na/c.rs:1: a::b::B is in a circle\n"
    );
}
