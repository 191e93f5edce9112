//! Command lines in the manner of getopt(3): letters alone or combined, values attached or in the next word, operands
//! anywhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedOptions {
    /// Letters in their order, with the values of those that take a value.
    pub options: Vec<(char, OsString)>,
    /// Words that are neither letters nor values.
    pub operands: Vec<OsString>,
}

impl ParsedOptions {
    /// Returns whether a letter was given.
    pub fn has(&self, wanted: char) -> bool {
        self.options.iter().any(|(letter, _)| *letter == wanted)
    }

    /// Returns the first value of a letter.
    pub fn value(&self, wanted: char) -> Option<&OsStr> {
        let mut options = self.options.iter();
        let found = options.find(|(letter, _)| *letter == wanted);
        found.map(|(_, value)| value.as_os_str())
    }

    /// Fails if a letter was given that has no equivalent here.
    pub fn refuse(&self, without: &[(char, &str)]) -> Result<(), String> {
        let mut letters = self.options.iter();
        letters.try_for_each(|(letter, _)| refuse_letter(*letter, without))
    }
}

/// Fails for a letter that has no equivalent here.
pub(super) fn refuse_letter(letter: char, without: &[(char, &str)]) -> Result<(), String> {
    match without.iter().find(|(refused, _)| *refused == letter) {
        Some((_, why)) => Err(format!("-{letter} is not supported: {why}")),
        None => Ok(()),
    }
}

/// Parses words; `with_value` are the letters that take a value. An unknown letter or a missing value is an error,
/// which is returned as text.
pub(super) fn take(
    words: Vec<OsString>,
    alone: &str,
    with_value: &str,
) -> Result<ParsedOptions, String> {
    let mut taken = ParsedOptions::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"--" => taken.operands.extend(words.by_ref()),
            [b'-', letters @ ..] if !letters.is_empty() => {
                take_letters(&mut taken, letters, &mut words, (alone, with_value))?;
            }
            _ => taken.operands.push(word),
        }
    }
    Ok(taken)
}

fn take_letters(
    taken: &mut ParsedOptions,
    mut letters: &[u8],
    words: &mut impl Iterator<Item = OsString>,
    (alone, with_value): (&str, &str),
) -> Result<(), String> {
    while let [letter, rest @ ..] = letters {
        let letter = char::from(*letter);
        if with_value.contains(letter) {
            let value = match rest {
                [] => words.next(),
                joined => Some(OsString::from_vec(joined.to_vec())),
            };
            let value = value.ok_or_else(|| format!("-{letter} takes a value"))?;
            taken.options.push((letter, value));
            return Ok(());
        }
        if !alone.contains(letter) {
            return Err(format!("-{}: no such option", letter.escape_default()));
        }
        taken.options.push((letter, OsString::new()));
        letters = rest;
    }
    Ok(())
}

/// Returns a value as UTF-8 text, which all numbers and words are.
pub(super) fn text(letter: char, value: &OsStr) -> Result<&str, String> {
    let bad = || format!("-{letter} {}: not text", value.display());
    value.to_str().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> Result<ParsedOptions, String> {
        take(line.split(' ').map(OsString::from).collect(), "Fqn", "bt")
    }

    #[test]
    fn letters_values_and_operands() {
        let want = |options: &[(char, &str)], operands: &[&str]| ParsedOptions {
            options: options.iter().map(|(c, v)| (*c, v.into())).collect(),
            operands: operands.iter().map(OsString::from).collect(),
        };
        assert_eq!(
            taken("-Fq -b 4096 disk.img -text4 64M").unwrap(),
            want(
                &[('F', ""), ('q', ""), ('b', "4096"), ('t', "ext4")],
                &["disk.img", "64M"]
            )
        );
        assert_eq!(
            taken("-qb1024 -- -F -").unwrap(),
            want(&[('q', ""), ('b', "1024")], &["-F", "-"])
        );
        assert_eq!(taken("-Fz").unwrap_err(), "-z: no such option");
        assert_eq!(taken("x -b").unwrap_err(), "-b takes a value");
    }
}
