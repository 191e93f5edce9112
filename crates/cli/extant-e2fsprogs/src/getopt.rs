//! Command lines in the manner of getopt(3): letters alone or combined, values attached or in the next word, operands
//! anywhere.
//!
//! The crate lexopt cannot replace this module. It removes a `=` before an attached value, which getopt(3) passes on as
//! part of the value (`-L=x` is the label `=x`). It accepts long options, which these programs do not have. The letters
//! and the texts of errors would remain here.

use crate::refusal::Refusal;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The options of a program.
pub struct Options {
    /// Letters as for getopt(3), where a colon follows a letter that takes a value; `None` if the program parses its
    /// words itself.
    pub letters: Option<&'static str>,
    /// Letters without an equivalent here, and the reason.
    pub without: &'static [(char, &'static str)],
    /// Words of `-E` (`-o` of fuse2fs) without an effect here: defaults, and tuning of the program itself.
    pub ignored: &'static [&'static str],
    /// Words of `-E` without an equivalent here.
    pub words_without: &'static [&'static str],
    /// Exit code for a wrong command line.
    pub wrong_usage: u8,
    /// Fails for options that contradict each other. Such a contradiction is reported before an unknown option behind it.
    pub contradiction: fn(&ParsedOptions) -> Result<(), Refusal>,
}

impl Options {
    /// Options of a program that parses its words itself.
    pub const WORDS: Self = Self {
        letters: None,
        without: &[],
        ignored: &[],
        words_without: &[],
        wrong_usage: 1,
        contradiction: |_| Ok(()),
    };

    /// Returns options with these letters, all of which have an equivalent here.
    pub const fn of(letters: &'static str) -> Self {
        Self {
            letters: Some(letters),
            ..Self::WORDS
        }
    }

    /// Fails for a letter that has no equivalent here.
    pub fn refuse(&self, letter: char) -> Result<(), String> {
        match self.without.iter().find(|(refused, _)| *refused == letter) {
            Some((_, why)) => Err(format!("-{letter} is not supported: {why}")),
            None => Ok(()),
        }
    }

    /// Parses words, and looks for a contradiction. An unknown letter or a missing value ends the parsing.
    pub fn parse(
        &self,
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<ParsedOptions, Refusal> {
        let mut taken = ParsedOptions::default();
        let parsed = self.take_into(&mut taken, words);
        (self.contradiction)(&taken)?;
        match parsed {
            Ok(()) => Ok(taken),
            Err(line) => Err(Refusal(line, self.wrong_usage)),
        }
    }

    /// Adds the options and operands of words.
    fn take_into(
        &self,
        taken: &mut ParsedOptions,
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<(), String> {
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match (self.letters, word.as_bytes()) {
                (Some(_), b"--") => taken.operands.extend(words.by_ref()),
                (Some(known), [b'-', letters @ ..]) if !letters.is_empty() => {
                    take_letters(taken, letters, &mut words, known)?;
                }
                _ => taken.operands.push(word),
            }
        }
        Ok(())
    }
}

fn take_letters(
    taken: &mut ParsedOptions,
    mut letters: &[u8],
    words: &mut impl Iterator<Item = OsString>,
    known: &str,
) -> Result<(), String> {
    while let [letter, rest @ ..] = letters {
        let letter = char::from(*letter);
        let found = known.split_once(letter).filter(|_| letter != ':');
        let (_, behind) =
            found.ok_or_else(|| format!("-{}: no such option", letter.escape_default()))?;
        if behind.starts_with(':') {
            let value = match rest {
                [] => words.next(),
                joined => Some(OsString::from_vec(joined.to_vec())),
            };
            let value = value.ok_or_else(|| format!("-{letter} takes a value"))?;
            taken.options.push((letter, value));
            return Ok(());
        }
        taken.options.push((letter, OsString::new()));
        letters = rest;
    }
    Ok(())
}

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ParsedOptions {
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
    pub fn refuse(&self, options: &Options) -> Result<(), String> {
        let mut letters = self.options.iter();
        letters.try_for_each(|(letter, _)| options.refuse(*letter))
    }
}

/// Parses a number in the notation of strtoull(3) without a base: decimal, octal behind `0`, or hexadecimal behind `0x`,
/// with spaces and a sign before it. Where strtoull(3) wraps around, for negative and for too large numbers, and for an
/// empty text, there is no number.
pub fn number(text: &str) -> Option<u64> {
    signed(text)?.try_into().ok()
}

/// Like [`number`], for a number that may be negative.
pub fn signed(text: &str) -> Option<i128> {
    let (text, is_negative) = sign(text);
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // Rust's parser accepts another sign.
    if !digits.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = i128::from(u64::from_str_radix(digits, base).ok()?);
    Some(if is_negative { -magnitude } else { magnitude })
}

/// Parses the decimal number that a text starts with, as atoi(3) does: 0 if the text starts with no number.
pub fn leading_number(text: &str) -> i64 {
    let (text, is_negative) = sign(text);
    let end = text.find(|c: char| !c.is_ascii_digit());
    let digits = text.get(..end.unwrap_or(text.len())).unwrap_or_default();
    let magnitude = match digits {
        "" => 0,
        digits => digits.parse().unwrap_or(i64::MAX),
    };
    if is_negative { -magnitude } else { magnitude }
}

/// Removes the spaces and the sign before a number. Returns whether the number is negative.
fn sign(text: &str) -> (&str, bool) {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    }
}

/// Parses a size: a number of units of `unit` bytes, or a number with `s` for sectors, K, M, G or T.
pub fn bytes(text: &str, unit: u64) -> Option<u64> {
    let digits = text.strip_suffix(['s', 'k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    let letter = text.chars().last().filter(|_| digits.is_some());
    let unit = match letter.map(|letter| letter.to_ascii_lowercase()) {
        None => unit,
        Some('s') => 512,
        Some('k') => 1 << 10,
        Some('m') => 1 << 20,
        Some('g') => 1 << 30,
        Some(_) => 1 << 40,
    };
    number(digits.unwrap_or(text))?.checked_mul(unit)
}

/// Appends a letter and its value as one word. A word with the same letter is replaced, because the last one counts.
pub fn set_word(words: &mut Vec<OsString>, letter: char, value: &OsStr) {
    remove_word(words, letter);
    // Behind the `=`, clap passes on every value, also an empty one, or one that begins with `=`.
    let mut word = OsString::from(format!("-{letter}="));
    word.push(value);
    words.push(word);
}

/// Appends a list to the word of a letter, or adds the word. The lists of all words with the letter count.
pub fn join_word(words: &mut Vec<OsString>, letter: char, list: &OsStr) {
    match words.iter_mut().find(|word| has_letter(word, letter)) {
        Some(word) => {
            word.push(",");
            word.push(list);
        }
        None => set_word(words, letter, list),
    }
}

/// Removes the word of a letter.
pub fn remove_word(words: &mut Vec<OsString>, letter: char) {
    words.retain(|word| !has_letter(word, letter));
}

fn has_letter(word: &OsStr, letter: char) -> bool {
    word.as_bytes()
        .starts_with(format!("-{letter}=").as_bytes())
}

/// Returns a name of a list of features with the sign of `extant`: `+` or no sign sets the feature, `-` or `^` clears it.
pub fn feature(word: &str) -> String {
    match word.split_at_checked(1) {
        Some(("+", name)) => name.to_owned(),
        Some(("-", name)) => format!("^{name}"),
        _ => word.to_owned(),
    }
}

/// Returns a value as UTF-8 text, which all numbers and words are.
pub fn text(letter: char, value: &OsStr) -> Result<&str, String> {
    let bad = || format!("-{letter} {}: not text", value.display());
    value.to_str().ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(line: &str) -> Result<ParsedOptions, String> {
        let parsed = Options::of("Fqnb:t:").parse(line.split(' ').map(OsString::from));
        parsed.map_err(|Refusal(line, _)| line)
    }

    #[test]
    fn numbers_are_those_of_c() {
        for (text, value) in [
            ("8", Some(8)),
            ("0", Some(0)),
            ("010", Some(8)),
            ("0x1F", Some(31)),
            ("", None),
            ("0x", None),
            ("-1", None),
            ("-0", Some(0)),
            ("+1", Some(1)),
            (" +0x1F", Some(31)),
            ("+-1", None),
            ("+", None),
            ("0x+1", None),
            ("09", None),
            ("1k", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(number(text), value, "{text}");
        }
        for (text, value) in [
            ("8", Some(8192)),
            ("0x8k", Some(8192)),
            ("16s", Some(8192)),
            ("16S", None),
            ("+8M", Some(8 << 20)),
            ("1T", Some(1 << 40)),
            ("M", None),
            ("8MM", None),
            ("8q", None),
            ("99999999999t", None),
        ] {
            assert_eq!(bytes(text, 1024), value, "{text}");
        }
        for (text, value) in [
            ("1x", 1),
            (" -2", -2),
            ("+3", 3),
            ("x", 0),
            ("0x1", 0),
            ("", 0),
        ] {
            assert_eq!(leading_number(text), value, "{text}");
        }
        assert_eq!(leading_number("99999999999999999999"), i64::MAX);
        assert_eq!(signed(" -0x10"), Some(-16));
        let mut words = vec![OsString::from("tune")];
        set_word(&mut words, 'L', "a".as_ref());
        set_word(&mut words, 'm', "1".as_ref());
        set_word(&mut words, 'L', "b".as_ref());
        assert_eq!(words, ["tune", "-m=1", "-L=b"]);
        join_word(&mut words, 'Q', "a".as_ref());
        join_word(&mut words, 'Q', "b".as_ref());
        remove_word(&mut words, 'm');
        assert_eq!(words, ["tune", "-L=b", "-Q=a,b"]);
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
        assert_eq!(taken("-:").unwrap_err(), "-:: no such option");
        assert_eq!(taken("x -b").unwrap_err(), "-b takes a value");
        assert_eq!(taken("-t=x").unwrap(), want(&[('t', "=x")], &[]));
    }
}
