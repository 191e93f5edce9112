//! Modes as chmod takes them: octal, or `[ugoa]*([+-=]([rwxXst]*|[ugo]))+`, with commas between. Without a class, all
//! classes are meant; the umask is ignored.

use anyhow::{Result, bail};

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange(Vec<ModeStep>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModeStep {
    Set(u16),
    Change { who: u16, op: u8, what: Operation },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Bits {
        bits: u16,
        execute_if_any: bool,
    },
    /// The permissions of a class, given by the shift of its bits.
    CopyOf(u32),
}

impl ModeChange {
    /// Returns the permission bits after the change.
    pub fn apply(&self, mode: u16, is_dir: bool) -> u16 {
        self.0.iter().fold(mode & 0o7777, |mode, step| match *step {
            ModeStep::Set(bits) => bits,
            ModeStep::Change { who, op, what } => {
                let bits = match what {
                    Operation::CopyOf(shift) => (mode >> shift & 7) * 0o111,
                    Operation::Bits {
                        bits,
                        execute_if_any: true,
                    } if is_dir || mode & 0o111 != 0 => bits | 0o111,
                    Operation::Bits { bits, .. } => bits,
                };
                let bits = bits & who;
                // As in chmod, `=` leaves the set-id bits of directories alone.
                let cleared = if is_dir { who & !0o6000 } else { who };
                match op {
                    b'+' => mode | bits,
                    b'-' => mode & !bits,
                    _ => mode & !cleared | bits,
                }
            }
        })
    }
}

impl std::str::FromStr for ModeChange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return match u16::from_str_radix(text, 8) {
                Ok(bits) if bits <= 0o7777 => Ok(Self(vec![ModeStep::Set(bits)])),
                _ => bail!("{text} is not a mode: write octal as 755, or changes as u+x,go-w"),
            };
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            let Some(parsed) = clause_steps(clause.as_bytes()) else {
                bail!("{clause} is not a mode: write octal as 755, or changes as u+x,go-w")
            };
            steps.extend(parsed);
        }
        Ok(Self(steps))
    }
}

fn clause_steps(clause: &[u8]) -> Option<Vec<ModeStep>> {
    let at = clause.iter().position(|b| b"+-=".contains(b))?;
    let (classes, mut rest) = clause.split_at(at);
    let mut who = if classes.is_empty() { 0o7777 } else { 0 };
    for class in classes {
        who |= match class {
            b'u' => 0o4700,
            b'g' => 0o2070,
            b'o' => 0o1007,
            b'a' => 0o7777,
            _ => return None,
        };
    }
    // The sticky bit belongs to no class: +t and u+t both set it.
    let mut steps = Vec::new();
    while let Some((&op, tail)) = rest.split_first() {
        let end = tail
            .iter()
            .position(|b| b"+-=".contains(b))
            .unwrap_or(tail.len());
        let (letters, next) = tail.split_at(end);
        let (mut bits, mut execute_if_any) = (0, false);
        let what = match letters {
            b"u" => Operation::CopyOf(6),
            b"g" => Operation::CopyOf(3),
            b"o" => Operation::CopyOf(0),
            _ => {
                for letter in letters {
                    match letter {
                        b'r' => bits |= 0o444,
                        b'w' => bits |= 0o222,
                        b'x' => bits |= 0o111,
                        b's' => bits |= 0o6000,
                        b't' => bits |= 0o1000,
                        b'X' => execute_if_any = true,
                        _ => return None,
                    }
                }
                Operation::Bits {
                    bits,
                    execute_if_any,
                }
            }
        };
        steps.push(ModeStep::Change { who, op, what });
        rest = next;
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        let apply = |text: &str, mode, dir| text.parse::<ModeChange>().unwrap().apply(mode, dir);
        assert_eq!(apply("755", 0o4600, false), 0o755);
        assert_eq!(apply("u+x,go-r", 0o644, false), 0o700);
        assert_eq!(apply("g=u", 0o640, false), 0o660);
        assert_eq!(apply("a+X", 0o644, false), 0o644);
        assert_eq!(apply("+X", 0o644, true), 0o755);
        assert_eq!(apply("u=rwx,g=rx,o=", 0o007, false), 0o750);
        assert_eq!(apply("+t", 0o755, true), 0o1755);
        assert_eq!(apply("g+s", 0o755, true), 0o2755);
        assert_eq!(apply("g=rx", 0o2775, true), 0o2755);
        assert_eq!(apply("u+r-w", 0o200, false), 0o400);
        for bad in ["", "8", "77777", "u", "q+r", "u+q"] {
            assert!(bad.parse::<ModeChange>().is_err(), "{bad}");
        }
    }
}
