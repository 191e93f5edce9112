//! Why two operations that commute share a line.

use super::cases::{Case, Op, Relation};
use super::traced::Setting;
use serde::Serialize;

/// Lines of memory that two operations of a case share, by the code that touches them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The code of side A.
    pub a: String,
    /// The code of side B.
    pub b: String,
    /// The writing side: `A`, `B` or `both`.
    pub writer: &'static str,
    /// The object that holds the line.
    pub object: String,
    /// Address of one of the lines.
    pub line: u64,
    /// Number of rounds in which an operation of A and the next one of B shared the line. Zero if only operations of
    /// different rounds did.
    pub rounds: usize,
    /// Whether both accesses are in the memory allocator.
    pub allocator: bool,
    /// Whether a writer read the mark of a slot, to revoke the bias of a lock.
    pub bias: bool,
}

/// Returns the reason for the conflicts of a case, if it is known.
pub fn reason(case: &Case, setting: Setting, findings: &[Finding]) -> Option<&'static str> {
    let has = |op: Op| case.a == op || case.b == op;
    let both = |x: &[Op]| x.contains(&case.a) && x.contains(&case.b);
    let one_file = matches!(
        case.relation,
        Relation::FarPages | Relation::NeighbouringPages
    );
    let met = |place: &str| {
        let mut met = findings
            .iter()
            .filter(|f| !f.allocator && !f.bias && f.rounds > 0);
        met.all(|f| f.a.contains(place) || f.b.contains(place))
    };
    if both(&[Op::Fsync, Op::Datasync]) {
        return Some(
            "flushes of the device and commits of the journal are counted in one place, so that fsyncs share them",
        );
    }
    if one_file && has(Op::Fallocate) {
        return Some(
            "the file's mapping, its count of blocks and its times change, which the other side reads or changes",
        );
    }
    if case.a.reads_or_overwrites() && case.b.reads_or_overwrites() && !setting.turned {
        return Some(
            "a lock that is read is biased towards readers only when it was handed on half as often as there are slots; with \
             locks biased these cases are free",
        );
    }
    if has(Op::Mkdir) || both(&[Op::Rmdir]) {
        return Some(
            "the slots of the two sides are equal modulo the groups of a flex group, so their directories are in one group, from \
             which they take stretches of numbers",
        );
    }
    if met("Budget::draw") {
        return Some("both draw log credits in the same round");
    }
    if met("name_table.rs") || met("bucket.rs") {
        return Some("two names fall into one bucket, or a table of names grows");
    }
    None
}
