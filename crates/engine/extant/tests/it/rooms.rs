//! The rooms of the engine's source, with a check that every arrow between them points down.
//!
//! A room is a folder of `src/`. The list below is their order, the lowest first: code of a room may name items of its
//! own room and of rooms before it. `lib.rs` stands above all of them, so its exports are above every room.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms, from the lowest to the highest.
const ROOMS: [&str; 15] = [
    "base",
    "types",
    "store",
    "space",
    "log",
    "incore",
    "commit",
    "watch",
    "inodes",
    "data",
    "lifecycle",
    "names",
    "volume",
    "api",
    "lib",
];

/// Names that `lib.rs` re-exports from other crates, which are in no room.
const FOREIGN: [&str; 1] = ["mkfs"];

fn rank(room: &str) -> Option<usize> {
    ROOMS.iter().position(|r| *r == room)
}

pub fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Returns the numbered lines without comments, and without unit tests, which may use all of a volume.
pub fn code(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut in_tests = false;
    let mut after_cfg = false;
    for (number, line) in text.lines().enumerate() {
        if after_cfg && (line.starts_with("mod ") || line.starts_with("pub(super) mod ")) {
            in_tests = line.ends_with('{');
        }
        after_cfg = line == "#[cfg(test)]" || after_cfg && line.starts_with('#');
        if !in_tests {
            lines.push((number + 1, line.split("//").next().unwrap_or("")));
        }
        if line == "}" {
            in_tests = false;
        }
    }
    lines
}

/// The paths that a line of code names from the root of the crate: those that begin with `crate`, and those that climb
/// there by `super` from a module this deep.
pub fn paths(line: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    for (start, _) in line.match_indices(['c', 's']) {
        let before = line[..start].chars().next_back();
        if before.is_some_and(|c| is_name(c) || c == ':') {
            continue;
        }
        let mut path = Vec::new();
        let mut rest = &line[start..];
        loop {
            let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
            rest = &rest[name.len()..];
            if name.is_empty() {
                break;
            }
            path.push(name);
            match rest.strip_prefix("::") {
                Some(after) => rest = after,
                None => break,
            }
        }
        if path.len() > 1 && path[0] == "crate" {
            found.push(path[1..].to_vec());
        } else if path.len() > 1 && path[0] == "super" {
            let up = path.iter().take_while(|p| *p == "super").count();
            let mut whole = module[..module.len().saturating_sub(up)].to_vec();
            whole.extend_from_slice(&path[up..]);
            found.push(whole);
        }
    }
    found
}

/// Returns the room that a path leads to, or `None` if it leads to another crate.
fn room_of(path: &[String]) -> Option<&str> {
    let first = path.first()?.as_str();
    match rank(first) {
        Some(_) => Some(first),
        None if FOREIGN.contains(&first) => None,
        // An item that lib.rs exports.
        None => Some("lib"),
    }
}

pub fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

pub fn is_test(file: &Path) -> bool {
    let name = file.to_string_lossy();
    name.contains("/tests/") || name.ends_with("tests.rs")
}

/// Returns every arrow that points up, with file and line.
fn arrows_up(file: &Path, text: &str) -> String {
    let module = module_of(file);
    let room = module[0].as_str();
    let own = rank(room).unwrap_or_else(|| panic!("{}: in no room", file.display()));
    let mut up = String::new();
    for (number, line) in code(text) {
        for path in paths(line, &module) {
            let Some(to) = room_of(&path).filter(|to| rank(to) > Some(own)) else {
                continue;
            };
            let path = path.join("::");
            writeln!(up, "{}:{number}: {room} -> {to}: {path}", file.display()).unwrap();
        }
    }
    up
}

#[test]
fn every_arrow_between_rooms_points_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut up = String::new();
    let mut seen = 0;
    for path in files {
        let file = path.strip_prefix(&src).unwrap();
        if file == Path::new("lib.rs") || is_test(file) {
            continue;
        }
        seen += 1;
        up += &arrows_up(file, &fs::read_to_string(&path).unwrap());
    }
    assert!(seen > 100, "{seen} files");
    assert!(up.is_empty(), "arrows that point up:\n{up}");
}

#[test]
fn an_arrow_up_is_found() {
    let up = |file: &str, line: &str| !arrows_up(Path::new(file), line).is_empty();
    assert!(up("log/mod.rs", "use crate::names::Names;"));
    assert!(up(
        "log/mod.rs",
        "    let x = crate::names::lookup::find();"
    ));
    assert!(up("log/relog.rs", "use super::super::names::Names;"));
    assert!(up("names/create.rs", "use crate::Volume;"));
    assert!(up("store/mod.rs", "fn f() -> crate::Result<()> {"));
    assert!(!up("names/create.rs", "use crate::log::Log;"));
    assert!(!up("names/create.rs", "use super::lookup::find;"));
    assert!(!up("names/create.rs", "// as crate::volume::engine has it"));
    assert!(!up(
        "log/mod.rs",
        "#[cfg(test)]\nmod tests {\n    use crate::Volume;\n}"
    ));
    assert!(!up("volume/open.rs", "use crate::mkfs::format;"));
}
