//! The parts of a Markdown file that the tests use.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().expect("the repository is there")
}

/// A Markdown file of the repository.
#[derive(Default)]
pub struct Document {
    /// Its path from the root of the repository.
    pub name: String,
    /// Code blocks: the first word of their language, and their text.
    pub blocks: Vec<(String, String)>,
    /// Code spans.
    pub spans: Vec<String>,
    /// The targets of links and images.
    pub links: Vec<String>,
    /// The anchors of its headings, as made by GitHub and mdBook.
    pub anchors: BTreeSet<String>,
}

/// Returns all Markdown files of the repository.
pub fn documents() -> Vec<Document> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    assert!(
        files.iter().any(|f| f.ends_with("README.md")) && files.len() > 8,
        "{files:?}"
    );
    files
        .iter()
        .map(|file| Document::read(&root, file))
        .collect()
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !path.is_symlink() {
            if !["target", ".git", "book"].contains(&&*name) {
                collect(&path, files);
            }
        } else if name.ends_with(".md") {
            files.push(path);
        }
    }
}

impl Document {
    fn read(root: &Path, file: &Path) -> Self {
        let text = std::fs::read_to_string(file).expect("text");
        let name = file.strip_prefix(root).expect("below the root");
        let mut document = Self::parse(&text);
        document.name = name.to_str().expect("UTF-8").to_string();
        document
    }

    pub fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut block: Option<(String, String)> = None;
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let language = match &kind {
                        CodeBlockKind::Fenced(info) => info.split([',', ' ']).next(),
                        CodeBlockKind::Indented => None,
                    };
                    block = Some((language.unwrap_or("").to_string(), String::new()));
                }
                Event::End(TagEnd::CodeBlock) => document.blocks.extend(block.take()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    document.add_anchor(&heading.take().unwrap_or_default());
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push(dest_url.to_string());
                }
                Event::Text(text) => match (&mut block, &mut heading) {
                    (Some((_, block)), _) => block.push_str(&text),
                    (None, Some(heading)) => heading.push_str(&text),
                    (None, None) => {}
                },
                Event::Code(span) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&span);
                    }
                    document.spans.push(span.to_string());
                }
                _ => {}
            }
        }
        document
    }

    /// Adds the anchor of a heading: small letters, hyphens for spaces, no other signs, and a number if the anchor
    /// exists.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.trim().chars().filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        let anchor: String = kept.collect();
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone())
            .chain(numbered)
            .find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }
}
