//! The figures that documents quote are those of the report.

use extant_bench::report::quoted::{Figures, fill};
use std::path::Path;

fn check(path: &Path, figures: &Figures) -> usize {
    if path.is_dir() {
        let entries = path.read_dir().unwrap();
        return entries.map(|e| check(&e.unwrap().path(), figures)).sum();
    }
    if path.extension().is_none_or(|e| e != "md") {
        return 0;
    }
    let text = std::fs::read_to_string(path).unwrap();
    let (filled, count) =
        fill(&text, figures).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
    assert!(
        filled == text,
        "{}: `extant-bench figures README.md docs` brings its figures up to date",
        path.display()
    );
    count
}

#[test]
fn quoted_figures_are_the_reports() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let figures = Figures::read(&top.join("docs/bench/report.json")).unwrap();
    let count = check(&top.join("README.md"), &figures) + check(&top.join("docs"), &figures);
    assert!(
        count > 60,
        "only {count} figures: looked at the wrong place"
    );
}
