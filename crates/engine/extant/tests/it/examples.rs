//! Checks that every operation of the library has an example in its documentation, as the README claims: its own, or
//! one of its type that calls it.

use std::path::Path;

/// Returns the names of the public functions of a source file that no example calls.
fn without_example(text: &str) -> Vec<&str> {
    let lines = || text.lines().map(str::trim_start);
    let examples: String = lines().filter(|line| line.starts_with("///")).collect();
    let (mut docs, mut found) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim_start) {
        let name = ["pub fn ", "pub const fn "]
            .into_iter()
            .find_map(|start| line.strip_prefix(start));
        if let Some(name) = name {
            let hidden = docs.contains("#[doc(hidden)]");
            let name = name.split(['(', '<']).next().unwrap_or(name);
            let called = examples.contains(&format!("{name}("));
            let in_macro = name.starts_with('$');
            if !hidden && !in_macro && !called && !docs.contains("/// ```") {
                found.push(name);
            }
        }
        if line.starts_with("///") || line.starts_with("#[") {
            docs += line;
        } else {
            docs.clear();
        }
    }
    found
}

#[test]
fn every_operation_shows_an_example() {
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut functions = 0;
    let files = |dir: &Path| dir.read_dir().unwrap().map(|entry| entry.unwrap().path());
    for path in files(&api).chain(files(&api.join("copy"))) {
        if path.is_dir() {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        functions += text.matches("    pub fn ").count();
        assert_eq!(without_example(&text), [""; 0], "{}", path.display());
    }
    assert!(
        functions > 100,
        "only {functions}: looked at the wrong place"
    );
}
