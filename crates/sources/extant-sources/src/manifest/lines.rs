//! The lines of a manifest, and the escapes in its words.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line, with those that go on with it, in bytes.
const LONGEST: usize = 1 << 20;

/// Lines without comments, those that end in a backslash joined with the next.
pub(super) struct Lines<R> {
    from: BufReader<R>,
    number: u64,
}

impl<R: Read> Lines<R> {
    pub fn new(from: R) -> Self {
        Self {
            from: BufReader::new(from),
            number: 0,
        }
    }

    /// Returns the next line other than a comment, and its number; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        loop {
            let (first, mut line) = (self.number + 1, Vec::new());
            loop {
                let room = (LONGEST + 1).saturating_sub(line.len()) as u64;
                if (&mut self.from).take(room).read_until(b'\n', &mut line)? == 0 {
                    break;
                }
                if line.len() > LONGEST {
                    let what = format!("line {first} is longer than {LONGEST} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                self.number += 1;
                while line.pop_if(|b| matches!(b, b'\n' | b'\r')).is_some() {}
                let ends = line.iter().rev().take_while(|b| **b == b'\\').count();
                if ends % 2 == 0 {
                    break;
                }
                line.pop();
            }
            if self.number < first {
                return Ok(None);
            }
            let text = line.trim_ascii();
            if !text.is_empty() && !text.starts_with(b"#") {
                return Ok(Some((first, text.to_vec())));
            }
        }
    }
}

/// Removes the escapes of vis(3) from a word: octal digits, and the letters of C.
pub(super) fn unescape(word: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'\\' {
            out.push(b);
            continue;
        }
        let bad = || {
            format!(
                "{} has an escape that is not known",
                crate::error::show(word)
            )
        };
        let (&kind, after) = rest.split_first().ok_or_else(bad)?;
        let octal = |b: &u8| (b'0'..=b'7').contains(b);
        if let Some(digits) = rest.get(..3).filter(|d| d.iter().all(octal)) {
            let value = digits.iter().fold(0u32, |n, d| n * 8 + u32::from(d - b'0'));
            out.push(u8::try_from(value).map_err(|_| bad())?);
            rest = &rest[3..];
            continue;
        }
        out.push(match kind {
            b'\\' | b'#' | b' ' | b'"' => kind,
            b's' => b' ',
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'a' => 7,
            b'b' => 8,
            b'v' => 11,
            b'f' => 12,
            _ => return Err(bad()),
        });
        rest = after;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_and_comments_do_not_count() {
        let text = "#mtree\n\na \\\n  b\r\n  # c\\\nd\nlast";
        let mut lines = Lines::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            all.push((number, String::from_utf8(line).unwrap()));
        }
        // A backslash at the end of a comment joins the next line to it.
        assert_eq!(all, [(3, "a   b".to_string()), (7, "last".to_string())]);
        let long = vec![b'x'; LONGEST + 2];
        assert!(Lines::new(&long[..]).next().is_err());
    }

    #[test]
    fn escapes() {
        for (word, want) in [
            ("a\\040b", &b"a b"[..]),
            ("\\s\\#\\\\", b" #\\"),
            ("\\377\\n", b"\xff\n"),
        ] {
            assert_eq!(unescape(word.as_bytes()).unwrap(), want);
        }
        for bad in ["\\", "\\q", "\\777", "\\^C"] {
            assert!(unescape(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
