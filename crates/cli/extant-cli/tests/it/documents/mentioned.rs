//! Commands mentioned in the text: they exist, with their flags.

use crate::documents::markdown::{documents, root};
use crate::mount::support::{EXTANT, extant};
use std::collections::{BTreeSet, HashMap};
use std::process::Command;

/// Checks every `extant COMMAND --flag`, `make TARGET` and `scripts/NAME` of the documents.
pub fn check_all() {
    let mut checker = Checker::new();
    for document in documents() {
        let examples = document
            .blocks
            .iter()
            .filter(|(l, _)| l == "sh" || l == "console");
        let lines = examples.flat_map(|(_, text)| text.lines());
        for text in document.spans.iter().map(String::as_str).chain(lines) {
            checker.check(&document.name, text);
        }
    }
    assert!(checker.wrong.is_empty(), "{}", checker.wrong.join("\n"));
    assert!(checker.checked > 50, "{} were found", checker.checked);
}

/// Checks the lines of a script in the same way.
pub fn check_lines(name: &str, lines: &[String]) {
    let mut checker = Checker::new();
    for line in lines {
        checker.check(name, line);
    }
    assert!(checker.wrong.is_empty(), "{}", checker.wrong.join("\n"));
}

/// Checks that docs/reference/commands.md has exactly the subcommands, and that the man pages have all of them.
pub fn check_reference() {
    let place = tempfile::tempdir().unwrap();
    extant(["man".as_ref(), place.path().as_os_str()]);
    let pages = std::fs::read_dir(place.path()).unwrap();
    let names = pages.map(|page| page.unwrap().file_name().to_string_lossy().into_owned());
    let mut commands: BTreeSet<String> = names
        .filter_map(|name| {
            Some(
                name.strip_prefix("extant-")?
                    .strip_suffix(".1")?
                    .to_string(),
            )
        })
        .filter(|name| !name.contains('-'))
        .collect();
    commands.insert("help".into());
    let documents = documents();
    let page = documents
        .iter()
        .find(|d| d.name == "docs/reference/commands.md");
    let is_word = |span: &&String| span.bytes().all(|b| b.is_ascii_lowercase());
    let spans = page.expect("the page").spans.iter();
    let listed: BTreeSet<String> = spans.filter(is_word).cloned().collect();
    assert_eq!(listed, commands);
}

struct Checker {
    makefile: String,
    /// The `--help` text of each subcommand; `None` for an unknown subcommand.
    helps: HashMap<String, Option<String>>,
    wrong: Vec<String>,
    checked: usize,
}

impl Checker {
    fn new() -> Self {
        Self {
            makefile: std::fs::read_to_string(root().join("Makefile")).expect("the Makefile"),
            helps: HashMap::new(),
            wrong: Vec::new(),
            checked: 0,
        }
    }

    fn check(&mut self, document: &str, text: &str) {
        let text = text.strip_prefix("$ ").unwrap_or(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        let wrong = match words.as_slice() {
            [program @ ("extant" | "extant-bench"), rest @ ..] => self.command(program, rest),
            ["make", target, ..] => self.target(target),
            [script, ..] if script.starts_with("scripts/") => {
                (!root().join(script).exists()).then(|| format!("there is no {script}"))
            }
            _ => return,
        };
        self.checked += 1;
        self.wrong
            .extend(wrong.map(|why| format!("{document}: `{text}`: {why}")));
    }

    fn target(&self, target: &str) -> Option<String> {
        let stem = target.trim_end_matches('…');
        let rule = format!("\n{stem}{}", if stem == target { ":" } else { "" });
        (!self.makefile.contains(&rule)).then(|| format!("the Makefile has no {target}"))
    }

    fn command(&mut self, program: &str, words: &[&str]) -> Option<String> {
        let is_name = |word: &&&str| word.starts_with(|c: char| c.is_ascii_lowercase());
        let command = *words.first().filter(is_name)?;
        let Some(help) = self.help(program, command) else {
            return Some(format!("there is no `{program} {command}`"));
        };
        // The words after these belong to other programs.
        let ends = |word: &&str| ["--", "|", "&&", ";"].contains(word);
        let own = words.iter().take_while(|word| !ends(word));
        let mut flags = own.filter_map(|word| word.strip_prefix("--"));
        let missing = flags.find(|flag| {
            let name = flag.split('=').next().unwrap_or_default();
            !name.is_empty() && name != "help" && !help.contains(&format!("--{name}"))
        })?;
        Some(format!("it has no --{missing}"))
    }

    fn help(&mut self, program: &str, command: &str) -> Option<String> {
        let key = format!("{program} {command}");
        let made = self.helps.entry(key).or_insert_with(|| {
            let program = match program {
                "extant" => EXTANT.into(),
                other => needs::program(other, other),
            };
            let out = Command::new(program)
                .args([command, "--help"])
                .output()
                .expect("the command runs");
            let text = || String::from_utf8_lossy(&out.stdout).into_owned();
            out.status.success().then(text)
        });
        made.clone()
    }
}

#[test]
fn what_does_not_exist_is_found() {
    let mut checker = Checker::new();
    for right in [
        "extant mount --scratch IMAGE DIR",
        "extant",
        "extant-bench mdtest --tasks 1",
        "make test",
        "make torture-…",
        "scripts/fuzz.sh 60",
        "extant shell x -- ls --color",
        "rm --anything",
    ] {
        checker.check("", right);
    }
    assert_eq!(checker.wrong, [""; 0]);
    for wrong in [
        "extant moumt IMAGE",
        "$ extant ls --lnog x",
        "make tset",
        "scripts/absent.sh",
        "extant bench mdtest",
        "extant-bench mdtest --sometimes",
    ] {
        let before = checker.wrong.len();
        checker.check("", wrong);
        assert_eq!(checker.wrong.len(), before + 1, "{wrong}");
    }
}
