//! Conflicts in lackey's stream of accesses.
//!
//! Only lines between the marks of an operation are examined; other lines are only scanned for marks.

use super::traced::Mark;
use crate::lackey::{Access, Code, LINE, Ours, TraceReader, lines_of};
use std::collections::HashMap;

#[derive(Clone, Copy, Default)]
struct Line {
    written: Option<Access>,
    read: Option<Access>,
}

/// Lines touched by one operation.
type Touched = HashMap<u64, Line>;

/// A line that one side wrote and the other touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its address.
    pub line: u64,
    /// The access of side A.
    pub a: Access,
    /// The access of side B.
    pub b: Access,
    /// Side A wrote.
    pub a_writes: bool,
    /// Side B wrote.
    pub b_writes: bool,
}

/// Results of the rounds of a case.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The conflicts of the two operations, by round.
    pub rounds: Vec<Vec<Conflict>>,
    /// Conflicts between all operations of the two sides.
    pub together: Vec<Conflict>,
}

/// Reads a trace.
pub(crate) struct Reader {
    marks: u64,
    code: Code,
    inside: Option<bool>,
    sides: [Vec<Touched>; 2],
}

impl Reader {
    /// Returns a reader for marks at this address.
    pub fn new(marks: u64, ours: Ours) -> Self {
        Self {
            marks,
            code: Code::new(ours),
            inside: None,
            sides: Default::default(),
        }
    }
}

impl TraceReader for Reader {
    type Result = Rounds;
    type Mark = Mark;

    fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    fn code(&mut self) -> &mut Code {
        &mut self.code
    }

    fn mark_at(&self, address: u64) -> Option<Mark> {
        address.checked_sub(self.marks).and_then(Mark::at)
    }

    fn mark(&mut self, mark: Mark) -> Option<Rounds> {
        let begins = match mark {
            Mark::BeginA => Some(false),
            Mark::BeginB => Some(true),
            Mark::End => None,
            Mark::CaseDone => {
                self.inside = None;
                let [a, b] = std::mem::take(&mut self.sides);
                return Some(Rounds::of(&a, &b));
            }
        };
        self.inside = begins;
        if let Some(second) = begins {
            self.sides[usize::from(second)].push(Touched::new());
        }
        None
    }

    fn access(&mut self, address: u64, size: u64, writes: bool) {
        let Some(second) = self.inside else {
            return;
        };
        let Some(touched) = self.sides[usize::from(second)].last_mut() else {
            return;
        };
        let access = self.code.accesses(address);
        for line in lines_of(address, size) {
            let seen = touched.entry(line).or_default();
            let place = if writes {
                &mut seen.written
            } else {
                &mut seen.read
            };
            place.get_or_insert(access);
        }
    }
}

impl Rounds {
    fn of(a: &[Touched], b: &[Touched]) -> Self {
        let rounds = a.iter().zip(b).map(|(a, b)| conflicts(a, b)).collect();
        Self {
            rounds,
            together: conflicts(&joined(a), &joined(b)),
        }
    }
}

fn joined(ops: &[Touched]) -> Touched {
    let mut all = Touched::new();
    for (line, seen) in ops.iter().flatten() {
        let place = all.entry(*line).or_default();
        place.written = place.written.or(seen.written);
        place.read = place.read.or(seen.read);
    }
    all
}

fn conflicts(a: &Touched, b: &Touched) -> Vec<Conflict> {
    let mut found: Vec<Conflict> = a
        .iter()
        .filter_map(|(line, x)| {
            let y = b.get(line)?;
            (x.written.is_some() || y.written.is_some()).then_some(())?;
            Some(Conflict {
                line: line * LINE,
                a: x.written.or(x.read)?,
                b: y.written.or(y.read)?,
                a_writes: x.written.is_some(),
                b_writes: y.written.is_some(),
            })
        })
        .collect();
    found.sort_by_key(|c| c.line);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Vec<Rounds> {
        let mut reader = Reader::new(0x1000, Box::new(|at| at < 0x500));
        lines
            .lines()
            .filter_map(|l| reader.line(l.as_bytes()))
            .collect()
    }

    #[test]
    fn a_line_written_by_one_and_touched_by_the_other() {
        let cases = read(
            "==1== something else\nI  00000100,3\n S 00009000,8\n\
             I  00000104,3\n S 00001000,8\n\
             I  00000108,3\n M 00002008,8\n L 00003000,8\n L 00005038,16\n\
             I  0000010b,3\n S 00001080,8\n\
             I  00000110,3\n S 00001040,8\n\
             I  00000200,3\nI  00000900,3\n L 00002030,4\n L 00003000,8\n S 00005040,1\n\
             I  0000010b,3\n S 00001080,8\n L 00009000,8\n S 000010c0,8\n",
        );
        assert_eq!(cases.len(), 1);
        let [round] = &cases[0].rounds[..] else {
            panic!("one round");
        };
        assert_eq!(round, &cases[0].together);
        let [first, second] = &round[..] else {
            panic!("{round:?}");
        };
        assert_eq!(
            (first.line, first.a_writes, first.b_writes),
            (0x2000, true, false)
        );
        assert_eq!(
            first.a,
            Access {
                data: 0x2008,
                at: 0x108,
                from: 0x108
            }
        );
        assert_eq!(
            first.b,
            Access {
                data: 0x2030,
                at: 0x900,
                from: 0x200
            }
        );
        // A load that crosses into the next line.
        assert_eq!(
            (second.line, second.a_writes, second.b_writes),
            (0x5040, false, true)
        );
    }

    #[test]
    fn rounds_are_kept_apart_and_joined() {
        let op = |begin: &str, line: &str| format!(" S {begin},8\n{line}\n S 00001080,8\n");
        let text = [
            op("00001000", " S 00002000,8"),
            op("00001040", " S 00004000,8"),
            op("00001000", " S 00004000,8"),
            op("00001040", " S 00006000,8"),
            " S 000010c0,8\n".into(),
        ]
        .concat();
        let cases = read(&text);
        assert!(cases[0].rounds.iter().all(Vec::is_empty));
        assert_eq!(cases[0].rounds.len(), 2);
        assert_eq!(cases[0].together[0].line, 0x4000);
        assert!(read(&text.replace("4000", "8000")).len() == 1);
    }
}
