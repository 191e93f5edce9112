//! Figures of a report that documents quote. A document contains `<!--=KEY-->figure<!--/-->`, of which a reader sees
//! only the figure. The key selects the figure in the report's JSON:
//!
//! ```text
//! [least|most] SECTION FIELD [NAME=VALUE]... [over target=TARGET]
//! ```
//!
//! A section is the anchor of its heading; a field or name is a member of its rows. `_` in a value stands for a space,
//! and `*` at its end for any rest. `over` yields the ratio of the section's first target to this one, row by row, so
//! that more is better. Several rows yield several figures, or the least or the most.
//!
//! The tables of pages that scripts write next to the report are also sections, named after their files. A field is a
//! column's heading with `_` for spaces, `row` the column without a heading, `row2` a second such column. Their cells
//! are quoted unchanged. The report in the directory `long` next to it counts too, with its tables as the section
//! `long`.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Members of a row; members of nested objects are named by their path.
type Row = BTreeMap<String, Value>;

/// Members that distinguish the rows of a target.
const IDENTITY: [&str; 4] = ["workload", "tasks", "shared", "clients"];

/// The rows of all sections of a report.
#[derive(Debug, Default)]
pub struct Figures(BTreeMap<String, Vec<Row>>);

/// Returns the anchor of a heading.
pub fn anchor(title: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let text: String = title.to_lowercase().chars().filter(kept).collect();
    text.replace(' ', "-")
}

fn flatten(path: &str, value: &Value, row: &mut Row) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match path {
                    // Parameters of the measurement are named without a path.
                    "" | "params" | "shape" => flatten(name, value, row),
                    _ => flatten(&format!("{path}.{name}"), value, row),
                }
            }
        }
        Value::Array(_) => {}
        _ => {
            row.insert(path.into(), value.clone());
        }
    }
}

/// Parses the rows that a benchmark printed, reduced to single values.
pub fn rows(json: &[u8]) -> Result<Value> {
    let printed: Value = serde_json::from_slice(json).context("the figures of a benchmark")?;
    let list = match &printed {
        Value::Object(members) => members.get("reports"),
        other => Some(other),
    };
    let list = list
        .and_then(Value::as_array)
        .context("no rows in the figures")?;
    let flat = list.iter().map(|value| {
        let mut row = Row::new();
        flatten("", value, &mut row);
        Value::Object(row.into_iter().collect())
    });
    Ok(flat.collect())
}

/// Returns how many times as good a figure is as another; for times and memory, less is better.
fn times(field: &str, ours: f64, other: f64) -> f64 {
    let costs = ["_ns", "seconds", "p50", "p99", "peak"];
    if costs.iter().any(|end| field.ends_with(end)) {
        other / ours
    } else {
        ours / other
    }
}

fn shown(ratio: f64) -> String {
    match ratio {
        r if r < 1.0 => format!("{r:.2}×"),
        r if r < 100.0 => format!("{r:.1}×"),
        r => format!("{r:.0}×"),
    }
}

/// Returns whether a row has this value under this name.
fn matches(row: &Row, condition: &str) -> Result<bool> {
    let (name, wanted) = condition
        .split_once('=')
        .with_context(|| format!("{condition}: not NAME=VALUE"))?;
    Ok(row.get(name).is_some_and(|value| {
        let value = value.as_str().map_or_else(|| value.to_string(), Into::into);
        let value = value.replace(' ', "_");
        match wanted.strip_suffix('*') {
            Some(begin) => value.starts_with(begin),
            None => value == wanted,
        }
    }))
}

/// Returns the cells of a table's line, if it is one.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().into()).collect())
}

/// Returns the rows of all tables of a page.
fn tables(page: &str) -> Vec<Row> {
    let (mut rows, mut head) = (Vec::new(), None);
    for line in page.lines() {
        let Some(cells) = cells(line) else {
            head = None;
            continue;
        };
        let Some(names) = &head else {
            head = Some(headings(cells));
            continue;
        };
        if cells
            .iter()
            .any(|cell| !cell.starts_with("--") && !cell.starts_with(":-"))
        {
            let values = cells.into_iter().map(Value::String);
            rows.push(names.iter().cloned().zip(values).collect());
        }
    }
    rows
}

/// Returns the names of columns in a key.
fn headings(cells: Vec<String>) -> Vec<String> {
    let mut unnamed = 0;
    let name = |cell: String| {
        if cell.is_empty() {
            unnamed += 1;
        }
        match (cell.is_empty(), unnamed) {
            (true, 1) => "row".into(),
            (true, nth) => format!("row{nth}"),
            (false, _) => cell.replace(' ', "_"),
        }
    };
    cells.into_iter().map(name).collect()
}

impl Figures {
    /// Parses `report.json`.
    pub fn parse(json: &str) -> Result<Self> {
        Ok(Self(serde_json::from_str(json).context("report.json")?))
    }

    /// Reads the figures of a report, and those of the pages next to it.
    pub fn read(report: &Path) -> Result<Self> {
        let told = |path: &Path| path.display().to_string();
        let text = |path: &Path| fs::read_to_string(path).with_context(|| told(path));
        let mut figures = Self::parse(&text(report)?)?;
        let beside = report.parent().context("a report lies in a directory")?;
        let long = beside.join("long");
        if long.exists() {
            let rows = Self::parse(&text(&long.join("report.json"))?)?;
            figures.0.extend(rows.0);
            figures.add_page("long", &text(&long.join("REPORT.md"))?);
        }
        for entry in beside.read_dir().with_context(|| told(beside))? {
            let path = entry.with_context(|| told(beside))?.path();
            if path.extension().is_some_and(|end| end == "md")
                && let Some(name) = path.file_stem().and_then(|name| name.to_str())
            {
                figures.add_page(name, &text(&path)?);
            }
        }
        Ok(figures)
    }

    /// Adds the tables of a page as a section, unless the report has a section with that name.
    pub fn add_page(&mut self, name: &str, page: &str) {
        self.0.entry(name.into()).or_insert_with(|| tables(page));
    }

    /// Returns the text of a key's figures.
    pub fn get(&self, key: &str) -> Result<String> {
        let mut words = key.split_whitespace().peekable();
        let pick = words.next_if(|w| ["least", "most"].contains(w));
        let (section, field) = (words.next(), words.next());
        let (Some(section), Some(field)) = (section, field) else {
            bail!("a key is a section and a field");
        };
        let rows = self
            .0
            .get(section)
            .with_context(|| format!("the report has no section {section}"))?;
        let words: Vec<&str> = words.collect();
        let (wanted, over) = match words.iter().position(|w| *w == "over") {
            Some(at) => (&words[..at], Some(&words[at + 1..])),
            None => (&words[..], None),
        };
        let (mut found, mut cells) = (Vec::new(), Vec::new());
        for row in rows {
            let conditions = wanted.iter().chain(over.unwrap_or_default());
            let met = conditions
                .map(|c| matches(row, c))
                .collect::<Result<Vec<_>>>()?;
            let Some(value) = row.get(field).filter(|_| !met.contains(&false)) else {
                continue;
            };
            match (value.as_f64(), value.as_str()) {
                (Some(value), _) => found.push(match over {
                    None => value,
                    Some(_) => times(field, Self::first_like(rows, row, field)?, value),
                }),
                (None, cell) => cells.extend(cell),
            }
        }
        if !cells.is_empty() && found.is_empty() && pick.is_none() {
            return Ok(cells.join(", "));
        }
        ensure!(!found.is_empty(), "no row of {section} has such a {field}");
        Ok(match pick {
            Some("least") => shown(found.iter().copied().fold(f64::INFINITY, f64::min)),
            Some(_) => shown(found.iter().copied().fold(0.0, f64::max)),
            None => found.into_iter().map(shown).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the figure of the first target in the row with the same parameters.
    fn first_like(rows: &[Row], row: &Row, field: &str) -> Result<f64> {
        let same = |other: &&Row| {
            IDENTITY
                .iter()
                .all(|name| other.get(*name) == row.get(*name))
        };
        let first = rows.iter().find(same).and_then(|first| first.get(field));
        first
            .and_then(Value::as_f64)
            .context("the first target has no such figure")
    }
}

/// Returns a document with its present figures, and their number.
pub fn fill(text: &str, figures: &Figures) -> Result<(String, usize)> {
    let (mut filled, mut count, mut rest) = (String::new(), 0, text);
    while let Some((before, after)) = rest.split_once("<!--=") {
        let parts = after
            .split_once("-->")
            .and_then(|(key, after)| Some((key, after.split_once("<!--/-->")?.1)));
        let (key, after) = parts.context("a figure has no end")?;
        let figure = figures
            .get(key)
            .with_context(|| format!("figure {key:?}"))?;
        filled += &format!("{before}<!--={key}-->{figure}<!--/-->");
        count += 1;
        rest = after;
    }
    Ok((filled + rest, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let printed = br#"[
            {"target":"extant (in process)","params":{"tasks":1},"creates":20,"cpu_ns":5,"latency":{"p99":7,"buckets":[1]}},
            {"target":"kernel ext4","params":{"tasks":1},"creates":2,"cpu_ns":50,"latency":{"p99":70,"buckets":[1]}},
            {"target":"extant (in process)","params":{"tasks":2},"creates":30,"cpu_ns":5,"latency":{"p99":7,"buckets":[1]}},
            {"target":"kernel ext4","params":{"tasks":2},"creates":60,"cpu_ns":5,"times":{"floor":0.25}}]"#;
        let rows = rows(printed).unwrap();
        assert!(!rows.to_string().contains("buckets"));
        Figures::parse(&serde_json::json!({ anchor("mdtest, all"): rows }).to_string()).unwrap()
    }

    #[test]
    fn a_key_finds_its_figures() {
        let f = figures();
        for (key, figure) in [
            ("mdtest-all creates over target=kernel_ext4", "10.0×, 0.50×"),
            ("most mdtest-all creates over target=kernel_ext4", "10.0×"),
            ("most mdtest-all creates over target=kern*", "10.0×"),
            ("least mdtest-all cpu_ns over target=kernel_ext4", "1.0×"),
            (
                "mdtest-all latency.p99 tasks=1 over target=kernel_ext4",
                "10.0×",
            ),
            ("mdtest-all times.floor tasks=2", "0.25×"),
        ] {
            assert_eq!(f.get(key).unwrap(), figure, "{key}");
        }
        for wrong in [
            "",
            "mdtest-all",
            "bulk creates",
            "mdtest-all links",
            "mdtest-all creates tasks=3 over target=kernel_ext4",
            "mdtest-all creates tasks",
        ] {
            assert!(f.get(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_of_a_page_is_a_section() {
        let mut f = figures();
        f.add_page(
            "conflicts",
            "# A page\n\n| | | cases | free of all |\n|---|---|---:|---|\n| 2 slots | now | 3 | 1.5 % |\n| 16 slots | now | 4 | 2 % |\n\n| x |\n|---|\n| 5 |\n",
        );
        f.add_page("mdtest-all", "| creates |\n|---|\n| 1 |\n");
        for (key, figure) in [
            ("conflicts free_of_all row=16_slots", "2 %"),
            ("conflicts free_of_all", "1.5 %, 2 %"),
            ("conflicts cases row=2_slots row2=now", "3"),
            ("conflicts x", "5"),
            ("mdtest-all creates tasks=3 over target=kernel_ext4", ""),
            ("most conflicts cases", ""),
            ("conflicts cases row=3_slots", ""),
        ] {
            match f.get(key) {
                Ok(found) => assert_eq!(found, figure, "{key}"),
                Err(_) => assert_eq!("", figure, "{key}"),
            }
        }
    }

    #[test]
    fn a_document_gets_the_figures_of_now() {
        let old =
            "of <!--=mdtest-all creates tasks=1 over target=kernel_ext4-->3×<!--/-->, and all";
        let (new, count) = fill(old, &figures()).unwrap();
        assert_eq!((new, count), (old.replace("3×", "10.0×"), 1));
        assert!(fill("<!--=mdtest-all creates-->1", &figures()).is_err());
    }
}
