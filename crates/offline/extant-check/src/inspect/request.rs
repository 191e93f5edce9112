//! Requests: words of a line, with the names of debugfs as other names.

use super::record::{Record, Value};
use super::{Done, InspectError, Inspector, Sink};
use ext4_format::InodeNr;

/// A request to an [`Inspector`].
///
/// ```
/// use extant_check::inspect::Request;
/// assert!(Request::from_line(b"bmap <12> 0").is_ok());
/// assert!(Request::from_line(b"mkdir x").unwrap_err().to_string().contains("mkdir"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    name: &'static str,
    words: Vec<Vec<u8>>,
}

/// A request with its other names, the words that it needs, the most that it takes, and how it is used.
type Known = (
    &'static str,
    &'static [&'static str],
    usize,
    usize,
    &'static str,
);

#[rustfmt::skip]
const REQUESTS: &[Known] = &[
    ("superblock", &["show_super_stats", "stats"], 0, 0, ""),
    ("groups", &[], 0, 0, ""),
    ("stat", &["show_inode_info"], 1, 1, "INODE"),
    ("dump-inode", &["inode_dump", "idump", "id"], 1, 1, "INODE"),
    ("imap", &[], 1, 1, "INODE"),
    ("blocks", &[], 1, 1, "INODE"),
    ("extents", &["dump_extents", "ex"], 1, 1, "INODE"),
    ("bmap", &[], 2, 2, "INODE LOGICAL"),
    ("dirents", &["ls", "list_directory"], 1, 1, "INODE"),
    ("htree", &["htree_dump"], 1, 1, "INODE"),
    ("xattrs", &["ea_list"], 1, 1, "INODE"),
    ("icheck", &[], 1, MANY, "BLOCK..."),
    ("ncheck", &[], 1, MANY, "NUMBER..."),
    ("testb", &[], 1, 2, "BLOCK [COUNT]"),
    ("freefrag", &["e2freefrag"], 0, 0, ""),
    ("journal", &["logdump"], 0, 1, "[all]"),
    ("dump-block", &["block_dump", "bdump", "bd"], 1, 1, "BLOCK"),
];

/// No bound on the words.
const MANY: usize = usize::MAX;

/// Returns the request that a word names.
fn known(word: &[u8]) -> Option<&'static Known> {
    let is_asked = |name: &str| name.as_bytes() == word;
    REQUESTS
        .iter()
        .find(|(name, others, ..)| is_asked(name) || others.iter().any(|n| is_asked(n)))
}

impl Request {
    /// Parses a request from a line by its [words](Self::words_of).
    ///
    /// # Errors
    /// [`InspectError::Request`].
    pub fn from_line(line: &[u8]) -> Result<Self, InspectError> {
        Self::new(Self::words_of(line))
    }

    /// Splits a line into words. Blanks separate words, except inside of double quotes.
    ///
    /// ```
    /// use extant_check::inspect::Request;
    /// assert_eq!(Request::words_of(b"stat \"/a b\""), [&b"stat"[..], b"/a b"]);
    /// ```
    pub fn words_of(line: &[u8]) -> Vec<Vec<u8>> {
        let (mut words, mut word, mut quoted) = (Vec::new(), None, false);
        for &byte in line {
            match byte {
                b'"' => {
                    quoted = !quoted;
                    word.get_or_insert_with(Vec::new);
                }
                b' ' | b'\t' | b'\r' | b'\n' if !quoted => words.extend(word.take()),
                _ => word.get_or_insert_with(Vec::new).push(byte),
            }
        }
        words.extend(word);
        words
    }

    /// Creates a request from words.
    ///
    /// # Errors
    /// [`InspectError::Request`].
    pub fn new(words: Vec<Vec<u8>>) -> Result<Self, InspectError> {
        let wrong = |text: String| Err(InspectError::Request(text));
        let mut words = words.into_iter();
        let Some(asked) = words.next() else {
            return wrong(format!("no request; there are {}", Self::names()));
        };
        let Some((name, _, least, most, usage)) = known(&asked) else {
            let names = Self::names();
            let asked = asked.escape_ascii();
            return wrong(format!("no request \"{asked}\"; there are {names}"));
        };
        // debugfs lists removed names with -d and shows long lists with -l; both are always here.
        let is_option = |w: &Vec<u8>| matches!(w.as_slice(), b"-d" | b"-l");
        let words: Vec<_> = words
            .filter(|w| !(*name == "dirents" && is_option(w)))
            .collect();
        let words = match (*name, words.is_empty()) {
            ("dirents", true) => vec![b"/".to_vec()],
            _ => words,
        };
        if words.len() < *least || words.len() > *most {
            return wrong(format!("usage: {name} {usage}"));
        }
        Ok(Self { name, words })
    }

    /// Returns whether a request has this name, regardless of its arguments.
    ///
    /// ```
    /// use extant_check::inspect::Request;
    /// assert!(Request::is_name(b"ex") && !Request::is_name(b"mkdir"));
    /// ```
    pub fn is_name(word: &[u8]) -> bool {
        known(word).is_some()
    }

    /// Returns the names of all requests.
    pub fn names() -> String {
        let names: Vec<_> = REQUESTS.iter().map(|r| r.0).collect();
        names.join(", ")
    }

    /// Returns the name of the request.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the arguments.
    pub fn words(&self) -> &[Vec<u8>] {
        &self.words
    }

    fn number(&self, i: usize) -> Result<u64, InspectError> {
        let word = self.words.get(i).map_or(&b""[..], |w| w);
        number(word).ok_or_else(|| {
            InspectError::Request(format!("\"{}\" is not a number", word.escape_ascii()))
        })
    }

    /// Returns all arguments as numbers.
    fn numbers(&self) -> Result<Vec<u64>, InspectError> {
        (0..self.words.len()).map(|i| self.number(i)).collect()
    }

    pub(super) fn answer(&self, inspector: &Inspector<'_>, sink: &mut Sink<'_>) -> Done {
        let inode = || inspector.find(self.words.first().map_or(b"", |w| w));
        match self.name {
            "superblock" => inspector.superblock(sink),
            "groups" => inspector.groups(sink),
            "stat" => inspector.stat(&inode()?, sink),
            "dump-inode" => inspector.dump_inode(&inode()?, sink),
            "imap" => inspector.imap(&inode()?, sink),
            "blocks" => inspector.blocks(&inode()?, sink),
            "extents" => inspector.extents(&inode()?, sink),
            "bmap" => inspector.bmap(&inode()?, self.number(1)?, sink),
            "dirents" => inspector.dirents(&inode()?, sink),
            "htree" => inspector.htree(&inode()?, sink),
            "xattrs" => inspector.xattrs(&inode()?, sink),
            "icheck" => inspector.icheck(&self.numbers()?, sink),
            "ncheck" => {
                let numbers = self.numbers()?.into_iter();
                let inodes = numbers.map(|n| InodeNr(u32::try_from(n).unwrap_or(u32::MAX)));
                inspector.ncheck(&inodes.collect::<Vec<_>>(), sink)
            }
            "testb" => {
                let count = match self.words.len() {
                    1 => 1,
                    _ => self.number(1)?,
                };
                inspector.testb(self.number(0)?, count, sink)
            }
            "freefrag" => inspector.freefrag(sink),
            "journal" => match self.words.first().map(Vec::as_slice) {
                None => inspector.journal(false, sink),
                Some(b"all" | b"-a") => inspector.journal(true, sink),
                Some(_) => Err(InspectError::Request("usage: journal [all]".into())),
            },
            _ => inspector.dump_block(self.number(0)?, sink),
        }
    }
}

/// Parses a number, decimal or with `0x`.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Creates a record for a note, for requests without anything to show.
pub(super) fn note(text: &str) -> Record {
    Record::lines("note", vec![("note", Value::text(text))])
}
