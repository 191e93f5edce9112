//! Changes to owners and permissions on the way into an image, for image builders without root, or with files that
//! belong to a range of a user name space.

use super::error::{MkfsError, Result};
use ext4_format::FileType;

/// Translates numeric ids by ranges. An id outside every range stays unchanged.
///
/// ```
/// use extant_mkfs::IdMap;
/// // 1000 becomes 0; 100000..165535 becomes 1..65536, as in a user namespace.
/// let map: IdMap = "1000:0:1,100000:1:65536".parse().unwrap();
/// assert_eq!((map.map(1000), map.map(100_000), map.map(5)), (0, 1, 5));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    ranges: Vec<(u32, u32, u32)>,
}

impl IdMap {
    /// Maps `id` by the first range that contains it.
    pub fn map(&self, id: u32) -> u32 {
        self.ranges
            .iter()
            .find_map(|&(from, to, count)| {
                let within = id.checked_sub(from)?;
                (within < count).then(|| to.wrapping_add(within)) // checked when parsed
            })
            .unwrap_or(id)
    }
}

impl std::str::FromStr for IdMap {
    type Err = MkfsError;

    /// Parses `FROM:TO[:COUNT]`, several separated by commas; COUNT is 1 if left out.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |range: &str| {
            MkfsError::Options(format!(
                "{range:?} is not a range of ids: use FROM:TO[:COUNT]"
            ))
        };
        let mut ranges = Vec::new();
        for range in text.split(',').filter(|r| !r.is_empty()) {
            let mut numbers = range.split(':').map(str::parse::<u32>);
            let mut next = || numbers.next().transpose().map_err(|_| bad(range));
            let (Some(from), Some(to), count) = (next()?, next()?, next()?) else {
                return Err(bad(range));
            };
            let count = count.unwrap_or(1);
            let fits = |start: u32| u64::from(start) + u64::from(count) <= 1 << 32;
            if count == 0 || !fits(from) || !fits(to) || next()?.is_some() {
                return Err(bad(range));
            }
            ranges.push((from, to, count));
        }
        Ok(Self { ranges })
    }
}

/// Changes permissions, in the language of `chmod` with rsync's prefixes: clauses with commas
/// between, each an octal number or `[ugoa]*[+-=][rwxXst]*`, after `D` for directories only or `F`
/// for everything else only. Symbolic links are left alone.
///
/// ```
/// use extant_mkfs::ModeMap;
/// let map: ModeMap = "D0755,Fgo-w,Fu+rwX".parse().unwrap();
/// assert_eq!(map.map(0o040_700), 0o040_755);
/// assert_eq!(map.map(0o100_477), 0o100_755);
/// assert_eq!(map.map(0o100_466), 0o100_644);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeMap {
    clauses: Vec<Clause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clause {
    directories: bool,
    others: bool,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set(u16),
    Symbolic {
        /// Permission bits of the classes named.
        who: u16,
        op: u8,
        bits: u16,
        /// `X`: execute if any class has it, and on directories.
        x_if_any: bool,
    },
}

impl ModeMap {
    /// Maps `mode` (type bits included).
    pub fn map(&self, mode: u16) -> u16 {
        let Some(ftype) = FileType::from_mode(mode).filter(|t| *t != FileType::Symlink) else {
            return mode;
        };
        let is_dir = ftype == FileType::Directory;
        let applies = |c: &&Clause| if is_dir { c.directories } else { c.others };
        let perm = self
            .clauses
            .iter()
            .filter(applies)
            .fold(mode & 0o7777, |perm, c| c.change.apply(perm, is_dir));
        ftype.mode_bits() | perm
    }
}

impl Change {
    fn apply(self, perm: u16, is_dir: bool) -> u16 {
        match self {
            Self::Set(bits) => bits,
            Self::Symbolic {
                who,
                op,
                mut bits,
                x_if_any,
            } => {
                if x_if_any && (is_dir || perm & 0o111 != 0) {
                    bits |= who & 0o111;
                }
                match op {
                    b'+' => perm | bits,
                    b'-' => perm & !bits,
                    _ => perm & !who | bits,
                }
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok()?;
            return (bits <= 0o7777).then_some(Self::Set(bits));
        }
        let at = text.find(['+', '-', '='])?;
        let (classes, rest) = text.split_at(at);
        let mut who = if classes.is_empty() { 0o7777 } else { 0 };
        for class in classes.bytes() {
            who |= match class {
                b'u' => 0o4700,
                b'g' => 0o2070,
                b'o' => 0o1007,
                b'a' => 0o7777,
                _ => return None,
            };
        }
        let (op, letters) = rest.as_bytes().split_first()?;
        let (mut bits, mut x_if_any) = (0, false);
        for letter in letters {
            bits |= match letter {
                b'r' => 0o444,
                b'w' => 0o222,
                b'x' => 0o111,
                b's' => 0o6000,
                b't' => 0o1000,
                b'X' => {
                    x_if_any = true;
                    0
                }
                _ => return None,
            };
        }
        Some(Self::Symbolic {
            who,
            op: *op,
            bits: bits & who,
            x_if_any,
        })
    }
}

impl std::str::FromStr for ModeMap {
    type Err = MkfsError;

    fn from_str(text: &str) -> Result<Self> {
        let mut clauses = Vec::new();
        for word in text.split(',').filter(|w| !w.is_empty()) {
            let (directories, others, rest) = match word.as_bytes().first() {
                Some(b'D') => (true, false, &word[1..]),
                Some(b'F') => (false, true, &word[1..]),
                _ => (true, true, word),
            };
            let change = Change::parse(rest).ok_or_else(|| {
                MkfsError::Options(format!(
                    "{word:?} is not a change of permissions: use [D|F]OCTAL or \
                     [D|F][ugoa]*[+-=][rwxXst]*"
                ))
            })?;
            clauses.push(Clause {
                directories,
                others,
                change,
            });
        }
        Ok(Self { clauses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_outside_all_ranges_stay() {
        let map: IdMap = "0:100:10,5:7".parse().unwrap();
        assert_eq!((map.map(9), map.map(10), map.map(5)), (109, 10, 105));
        for bad in [
            "1",
            "1:2:0",
            "a:b",
            "1:2:3:4",
            "4294967295:0:2",
            "0:4294967295:2",
        ] {
            assert!(bad.parse::<IdMap>().is_err(), "{bad}");
        }
    }

    #[test]
    fn modes() {
        let apply = |map: &str, mode| map.parse::<ModeMap>().unwrap().map(mode);
        assert_eq!(apply("a-s,o=", 0o106_777), 0o100_770);
        assert_eq!(apply("u=rwx,+t", 0o040_000), 0o041_700);
        assert_eq!(apply("a+X", 0o100_644), 0o100_644);
        assert_eq!(apply("a+X", 0o100_744), 0o100_755);
        assert_eq!(apply("000", 0o120_777), 0o120_777);
        for bad in ["99", "u", "q+r", "u+q", "17777"] {
            assert!(bad.parse::<ModeMap>().is_err(), "{bad}");
        }
    }
}
