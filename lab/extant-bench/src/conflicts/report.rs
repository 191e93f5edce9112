//! Tables of the results of the conflict test.

use super::cases::{NOT_COMMUTING, RELATIONS};
use super::run::{CaseResult, Outcome};
use super::{ROUNDS, WARM};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Number of cases by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The number of cases.
    pub cases: usize,
    /// No operation of one side shares a written line with any of the other.
    pub free: usize,
    /// All shared lines belong to the allocator.
    pub allocator: usize,
    /// Lines are shared only by operations of different rounds.
    pub free_per_operation: usize,
    /// Lines are shared only where a lock's bias is revoked.
    pub takes_bias: usize,
    /// Lines are shared in some rounds.
    pub at_times: usize,
    /// Lines are shared in every round.
    pub conflict: usize,
    /// Not run.
    pub failed: usize,
}

impl Counts {
    /// Counts these cases.
    pub fn of<'a>(results: impl IntoIterator<Item = &'a CaseResult>) -> Self {
        let mut counts = Self::default();
        for result in results {
            counts.cases += 1;
            *match result.outcome {
                Outcome::Free => &mut counts.free,
                Outcome::Allocator => &mut counts.allocator,
                Outcome::FreePerOperation => &mut counts.free_per_operation,
                Outcome::TakesBias => &mut counts.takes_bias,
                Outcome::AtTimes => &mut counts.at_times,
                Outcome::Conflict => &mut counts.conflict,
                Outcome::Failed => &mut counts.failed,
            } += 1;
        }
        counts
    }

    /// Returns the share of cases in which no operation shares a written line with the next one of the other side.
    pub fn share_free(&self) -> f64 {
        let free = self.free + self.allocator + self.free_per_operation;
        free as f64 / self.cases.max(1) as f64
    }
}

/// A pair of places in the code that share a line, over all cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meeting {
    /// The two places, in alphabetical order.
    pub places: [String; 2],
    /// The object that holds the line.
    pub object: String,
    /// Cases in which they share it in every round.
    pub always: usize,
    /// Cases in which they share it in fewer rounds, or only between operations of different rounds.
    pub at_times: usize,
    /// A case in which they share it.
    pub example: String,
}

/// Returns all shared lines outside of the allocator, the most frequent first.
pub fn meetings(results: &[CaseResult]) -> Vec<Meeting> {
    let mut all: BTreeMap<[String; 2], Meeting> = BTreeMap::new();
    for result in results {
        let mut here: BTreeMap<[String; 2], (usize, String)> = BTreeMap::new();
        for f in result.findings.iter().filter(|f| !f.allocator && !f.bias) {
            let mut places = [f.a.clone(), f.b.clone()];
            places.sort();
            let entry = here.entry(places).or_insert((0, f.object.clone()));
            entry.0 = entry.0.max(f.rounds);
        }
        for (places, (rounds, object)) in here {
            let meeting = all.entry(places.clone()).or_insert_with(|| Meeting {
                places,
                object,
                always: 0,
                at_times: 0,
                example: result.name.clone(),
            });
            if rounds == ROUNDS {
                meeting.always += 1;
            } else {
                meeting.at_times += 1;
            }
        }
    }
    let mut all: Vec<Meeting> = all.into_values().collect();
    all.sort_by_key(|m| std::cmp::Reverse((m.always, m.at_times)));
    all
}

/// Returns the counts as a table, for each setting, each relation, and in total.
pub fn summary(results: &[CaseResult]) -> String {
    let mut text = String::from(
        "| | cases | free | allocator only | free per operation | take bias away | at times | conflict | free of all | with those that take bias away |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut row = |name: &str, c: Counts| {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {:.1} % | {:.1} % |",
            c.cases,
            c.free,
            c.allocator,
            c.free_per_operation,
            c.takes_bias,
            c.at_times,
            c.conflict,
            100.0 * c.share_free(),
            100.0 * (c.share_free() + c.takes_bias as f64 / c.cases.max(1) as f64),
        );
    };
    let mut settings: Vec<_> = results.iter().map(|r| r.setting).collect();
    settings.dedup();
    for setting in settings {
        let of = results.iter().filter(|r| r.setting == setting);
        row(&setting.to_string(), Counts::of(of));
    }
    for relation in RELATIONS {
        let of = results.iter().filter(|r| r.case.relation == relation);
        let counts = Counts::of(of);
        if counts.cases > 0 {
            row(relation.name(), counts);
        }
    }
    row("all", Counts::of(results));
    text
}

/// Lists the cases with an outcome, each with its settings, by reason.
fn by_reason(results: &[CaseResult], outcome: Outcome) -> String {
    let mut reasons: BTreeMap<&str, BTreeMap<&str, Vec<String>>> = BTreeMap::new();
    for r in results.iter().filter(|r| r.outcome == outcome) {
        let cases = reasons
            .entry(r.reason.unwrap_or("No reason is known"))
            .or_default();
        let settings = cases.entry(&r.name).or_default();
        settings.push(format!("{}: {}", r.setting, r.rounds));
    }
    let mut text = String::new();
    for (reason, cases) in reasons {
        let _ = writeln!(text, "\n{}, {reason}:\n", count_of(cases.len()));
        for (case, settings) in cases {
            let _ = writeln!(text, "- {case} ({})", settings.join("; "));
        }
    }
    text
}

fn count_of(cases: usize) -> String {
    match cases {
        1 => "One case".into(),
        n => format!("{n} cases"),
    }
}

/// Returns the report as Markdown.
pub fn markdown(results: &[CaseResult], machine: &str) -> String {
    let counts = Counts::of(results);
    let mut text = format!(
        "# Conflicts\n\n\
         Written by `extant-bench conflicts --report`; what the cases are and how they are judged is in\n\
         [scaling.md](../scaling.md). {machine}\n\n\
         {} runs of cases, each {WARM} times on both sides before, then {ROUNDS} times traced. In {:.1} % no operation\n\
         met the next one of the other side on a cache line that one of them wrote; in a further {:.1} % one did only where\n\
         it took the bias of a lock away.\n\n{}\n\
         *Locks biased*: before the first round both sides have read all that either works on, and two slots that read are\n\
         enough for a lock to be biased towards readers. The first writer of such a lock looks once at the lines in which\n\
         all slots note what they read, and takes the bias away: *take bias away* counts the cases that met in such lines\n\
         only. Without this setting half as many reads by other slots as there are slots come before each look.\n",
        counts.cases,
        100.0 * counts.share_free(),
        100.0 * counts.takes_bias as f64 / counts.cases.max(1) as f64,
        summary(results)
    );
    let _ = writeln!(
        text,
        "*Free*: none of the {ROUNDS} operations of one side met any of the other's. *Allocator only*: they met on lines of\n\
         the memory allocator. *Free per operation*: only operations of different rounds met. *At times*: in some\n\
         rounds. *Conflict*: in every round.\n"
    );
    let failed: Vec<_> = results
        .iter()
        .filter_map(|r| Some((&r.name, r.error.as_ref()?)))
        .collect();
    if !failed.is_empty() {
        let _ = writeln!(text, "## Not run\n");
        for (name, error) in failed {
            let _ = writeln!(text, "- {name}: {error}");
        }
    }
    let _ = writeln!(
        text,
        "## Lines of code that meet\n\n| always | at times | place | other place | object | for example |\n|---|---|---|---|---|---|"
    );
    for m in meetings(results) {
        let [a, b] = &m.places;
        let _ = writeln!(
            text,
            "| {} | {} | `{a}` | `{b}` | {} | {} |",
            m.always, m.at_times, m.object, m.example
        );
    }
    for (title, outcome) in [
        ("Cases with a conflict in every round", Outcome::Conflict),
        ("Cases with a conflict in some rounds", Outcome::AtTimes),
    ] {
        let cases = by_reason(results, outcome);
        if !cases.is_empty() {
            let _ = writeln!(
                text,
                "\n## {title}\n\nBehind each setting stands the number of rounds, of {ROUNDS}.\n{cases}"
            );
        }
    }
    let _ = writeln!(
        text,
        "\n## Pairs that are no cases, because they do not commute\n"
    );
    for (what, why) in NOT_COMMUTING {
        let _ = writeln!(text, "- {what}: {why}.");
    }
    text
}
