//! Conflicts in lackey's stream of accesses.
//!
//! Lackey prints a line for each instruction (`I  04001000,3`) and after it one for each of its loads (` L`), stores
//! (` S`) and both at once (` M`). Only lines between the marks of an operation are examined; the others cost one
//! glance each.

use super::traced::Mark;
use std::collections::HashMap;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// An access of one operation to a line: the first of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Address of the data.
    pub data: u64,
    /// Address of the instruction.
    pub at: u64,
    /// The last instruction before it that belongs to code of the engine, or itself.
    pub from: u64,
}

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

/// The result of one case's rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The conflicts of the two operations, for each round.
    pub rounds: Vec<Vec<Conflict>>,
    /// Conflicts of all operations of one side with all of the other.
    pub together: Vec<Conflict>,
}

/// Reads a trace.
pub struct Reader<F> {
    marks: u64,
    /// Tells whether an instruction belongs to the engine's code.
    ours: F,
    known: HashMap<u64, bool>,
    inside: Option<bool>,
    at: u64,
    from: u64,
    sides: [Vec<Touched>; 2],
}

impl<F: FnMut(u64) -> bool> Reader<F> {
    /// A reader for marks at this address.
    pub fn new(marks: u64, ours: F) -> Self {
        Self {
            marks,
            ours,
            known: HashMap::new(),
            inside: None,
            at: 0,
            from: 0,
            sides: Default::default(),
        }
    }

    /// Reads one line; at the end of a case its conflicts.
    pub fn line(&mut self, line: &[u8]) -> Option<Rounds> {
        let (kind, rest) = match line {
            [b'I', b' ', b' ', rest @ ..] => (b'I', rest),
            [b' ', kind @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => (*kind, rest),
            _ => return None,
        };
        if self.inside.is_none() && matches!(kind, b'I' | b'L') {
            return None;
        }
        let comma = rest.iter().position(|&b| b == b',')?;
        let address = hex(&rest[..comma])?;
        match kind {
            b'I' => self.instruction(address),
            b'L' => self.access(address, size(&rest[comma + 1..])?, false),
            _ => {
                if let Some(mark) = address.checked_sub(self.marks).and_then(Mark::at) {
                    return self.mark(mark);
                }
                self.access(address, size(&rest[comma + 1..])?, true);
            }
        }
        None
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

    fn instruction(&mut self, address: u64) {
        self.at = address;
        let ours = &mut self.ours;
        if *self.known.entry(address).or_insert_with(|| ours(address)) {
            self.from = address;
        }
    }

    fn access(&mut self, address: u64, size: u64, writes: bool) {
        let Some(second) = self.inside else {
            return;
        };
        let Some(touched) = self.sides[usize::from(second)].last_mut() else {
            return;
        };
        let access = Access {
            data: address,
            at: self.at,
            from: self.from,
        };
        let last = address.saturating_add(size.max(1) - 1) / LINE;
        for line in address / LINE..=last {
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

fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, &d| {
        let digit = (d as char).to_digit(16)?;
        Some(n << 4 | u64::from(digit))
    })
}

fn size(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Vec<Rounds> {
        let mut reader = Reader::new(0x1000, |at| at < 0x500);
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
