//! Links between the files of the repository, without a network.

use crate::documents::markdown::{Document, documents, root};

/// Checks that every relative link names an existing file, and one of its headings.
pub fn check_all() {
    let documents = documents();
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|document| {
            let links = document.links.iter();
            links.filter_map(|link| {
                let why = broken(&documents, document, link)?;
                Some(format!("{}: {link}: {why}", document.name))
            })
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let count: usize = documents.iter().map(|d| d.links.len()).sum();
    assert!(count > 20, "only {count} links were found");
}

/// Checks that every page is in the summary of the book.
pub fn check_summary() {
    let documents = documents();
    let summary = documents.iter().find(|d| d.name == "docs/SUMMARY.md");
    let listed = &summary.expect("the summary").links;
    let pages = documents
        .iter()
        .filter_map(|d| d.name.strip_prefix("docs/"));
    let missing: Vec<&str> = pages
        .filter(|page| *page != "SUMMARY.md")
        .filter(|page| !listed.iter().any(|link| link == page))
        .collect();
    assert_eq!(missing, [""; 0], "docs/SUMMARY.md does not list these");
}

/// Returns the error of a link, if it has one.
fn broken(documents: &[Document], from: &Document, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let name = match file {
        "" => from.name.clone(),
        file => {
            let dir = root().join(&from.name).parent()?.to_path_buf();
            let Ok(path) = dir.join(file).canonicalize() else {
                return Some("there is no such file");
            };
            match path.strip_prefix(root()) {
                Ok(name) => name.to_string_lossy().into_owned(),
                Err(_) => return Some("it leads out of the repository"),
            }
        }
    };
    if anchor.is_empty() {
        return None;
    }
    let Some(target) = documents.iter().find(|d| d.name == name) else {
        return Some("what it leads to has no headings");
    };
    (!target.anchors.contains(anchor)).then_some("there is no such heading")
}

#[test]
fn broken_links_are_found() {
    let mut document = Document::parse("# The *first* `part`, of 2\n\n## Twice\n\n## Twice\n");
    document.name = "docs/made.md".into();
    let of = |link| broken(std::slice::from_ref(&document), &document, link);
    assert_eq!(of("#the-first-part-of-2"), None);
    assert_eq!(of("#twice-1"), None);
    assert_eq!(of("https://example.org/x"), None);
    assert_eq!(of("../README.md"), None);
    assert!(of("#twice-2").is_some());
    assert!(of("README.md").is_some());
    assert!(of("../README.md#nothing").is_some());
    assert!(of("../../../../etc/passwd").is_some());
}
