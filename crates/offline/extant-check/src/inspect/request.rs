//! Requests: words of a line, with the names of debugfs as other names.

use super::inode::{Inode, number};
use super::{Answered, InspectError, Inspector, Sink};
use ext4_format::InodeNr;
use std::ops::RangeInclusive;

/// A request to an [`Inspector`].
///
/// ```
/// use extant_check::inspect::Request;
/// assert!(Request::from_line(b"bmap <12> 0").is_ok());
/// assert!(Request::from_line(b"mkdir x").unwrap_err().to_string().contains("mkdir"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    kind: &'static RequestKind,
    words: Vec<Vec<u8>>,
}

/// Answer of a request.
type Answer = fn(&Request, &Inspector<'_>, &mut Sink<'_>) -> Answered;

/// Names, arguments, description and answer of a request.
#[derive(Debug)]
struct RequestKind {
    name: &'static str,
    /// Names in debugfs.
    aliases: &'static [&'static str],
    /// Number of arguments.
    arguments: RangeInclusive<usize>,
    /// The arguments, as help and messages show them.
    usage: &'static str,
    /// Description, for the help.
    about: &'static str,
    answer: Answer,
}

impl PartialEq for RequestKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for RequestKind {}

/// Creates a row of [`REQUESTS`].
const fn kind(
    name: &'static str,
    aliases: &'static [&'static str],
    arguments: RangeInclusive<usize>,
    usage: &'static str,
    about: &'static str,
    answer: Answer,
) -> RequestKind {
    RequestKind {
        name,
        aliases,
        arguments,
        usage,
        about,
        answer,
    }
}

/// The list of requests. A request is a row here and a method of [`Inspector`]; the help of `extant inspect`, the completion at
/// its prompt and the messages are made from the rows.
#[rustfmt::skip]
const REQUESTS: &[RequestKind] = &[
    kind("superblock", &["show_super_stats", "stats"], 0..=0, "", "the superblock, each field with its offset", |_, i, sink| i.superblock(sink)),
    kind("groups", &[], 0..=0, "", "the descriptor of each group", |_, i, sink| i.groups(sink)),
    kind("stat", &["show_inode_info"], 1..=1, "INODE", "an inode", |r, i, sink| i.stat(&r.inode(i)?, sink)),
    kind("dump-inode", &["inode_dump", "idump", "id"], 1..=1, "INODE", "an inode, each field with its offset", |r, i, sink| i.dump_inode(&r.inode(i)?, sink)),
    kind("imap", &[], 1..=1, "INODE", "the place of an inode", |r, i, sink| i.imap(&r.inode(i)?, sink)),
    kind("blocks", &[], 1..=1, "INODE", "the blocks of an inode, one per line", |r, i, sink| i.blocks(&r.inode(i)?, sink)),
    kind("extents", &["dump_extents", "ex"], 1..=1, "INODE", "the runs of an inode, and the nodes of its tree or map", |r, i, sink| i.extents(&r.inode(i)?, sink)),
    kind("bmap", &[], 2..=2, "INODE LOGICAL", "the block of a logical block", |r, i, sink| i.bmap(&r.inode(i)?, r.number(1)?, sink)),
    kind(DIRENTS, &["ls", "list_directory"], 1..=1, "INODE", "the names in a directory, also removed ones", |r, i, sink| i.dirents(&r.inode(i)?, sink)),
    kind("htree", &["htree_dump"], 1..=1, "INODE", "the index of a directory", |r, i, sink| i.htree(&r.inode(i)?, sink)),
    kind("xattrs", &["ea_list"], 1..=1, "INODE", "extended attributes", |r, i, sink| i.xattrs(&r.inode(i)?, sink)),
    kind("icheck", &[], 1..=MANY, "BLOCK...", "the owners of blocks", |r, i, sink| i.icheck(&r.numbers()?, sink)),
    kind("ncheck", &[], 1..=MANY, "NUMBER...", "the paths of inodes", |r, i, sink| i.ncheck(&r.inode_numbers()?, sink)),
    kind("testb", &[], 1..=2, "BLOCK [COUNT]", "whether blocks are in use", |r, i, sink| i.testb(r.number(0)?, if r.words.len() == 1 { 1 } else { r.number(1)? }, sink)),
    kind("freefrag", &["e2freefrag"], 0..=0, "", "the free runs, by length", |_, i, sink| i.freefrag(sink)),
    kind("journal", &["logdump"], 0..=1, "[all]", "the transactions to replay, or all in the journal", |r, i, sink| i.journal(r.is_all()?, sink)),
    kind("dump-block", &["block_dump", "bdump", "bd"], 1..=1, "BLOCK", "a block, decoded by its type", |r, i, sink| i.dump_block(r.number(0)?, sink)),
];

/// The request that lists the current directory if it has no argument.
const DIRENTS: &str = "dirents";

/// No bound on the arguments.
const MANY: usize = usize::MAX;

/// Returns the request that a word names.
fn find(word: &[u8]) -> Option<&'static RequestKind> {
    let is_asked = |name: &&str| name.as_bytes() == word;
    let mut all = REQUESTS.iter();
    all.find(|kind| is_asked(&kind.name) || kind.aliases.iter().any(is_asked))
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
        let Some(kind) = find(&asked) else {
            let names = Self::names();
            let asked = asked.escape_ascii();
            return wrong(format!("no request \"{asked}\"; there are {names}"));
        };
        // debugfs lists removed names with -d and shows long lists with -l; both are always here.
        let is_option = |w: &Vec<u8>| matches!(w.as_slice(), b"-d" | b"-l");
        let mut words: Vec<_> = words
            .filter(|w| !(kind.name == DIRENTS && is_option(w)))
            .collect();
        if kind.name == DIRENTS && words.is_empty() {
            words.push(b"/".to_vec());
        }
        if !kind.arguments.contains(&words.len()) {
            return wrong(format!("usage: {} {}", kind.name, kind.usage));
        }
        Ok(Self { kind, words })
    }

    /// Returns whether a request has this name, regardless of its arguments.
    ///
    /// ```
    /// use extant_check::inspect::Request;
    /// assert!(Request::is_name(b"ex") && !Request::is_name(b"mkdir"));
    /// ```
    pub fn is_name(word: &[u8]) -> bool {
        find(word).is_some()
    }

    /// Returns the names of all requests.
    pub fn names() -> String {
        let names: Vec<_> = REQUESTS.iter().map(|kind| kind.name).collect();
        names.join(", ")
    }

    /// Returns the name, the arguments and the description of each request.
    pub fn table() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
        let kinds = REQUESTS.iter();
        kinds.map(|kind| (kind.name, kind.usage, kind.about))
    }

    /// Returns the name of the request.
    pub const fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Returns whether the first argument is an inode, as a path or a number.
    pub fn takes_inode(&self) -> bool {
        self.kind.usage.starts_with("INODE")
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

    /// Returns all arguments as numbers of inodes.
    fn inode_numbers(&self) -> Result<Vec<InodeNr>, InspectError> {
        let numbers = self.numbers()?.into_iter();
        Ok(numbers
            .map(|n| InodeNr(u32::try_from(n).unwrap_or(u32::MAX)))
            .collect())
    }

    /// Finds the inode that the first argument names.
    fn inode(&self, inspector: &Inspector<'_>) -> Result<Inode, InspectError> {
        inspector.find(self.words.first().map_or(b"", |w| w))
    }

    /// Returns whether the argument is `all`.
    fn is_all(&self) -> Result<bool, InspectError> {
        match self.words.first().map(Vec::as_slice) {
            None => Ok(false),
            Some(b"all" | b"-a") => Ok(true),
            Some(_) => Err(InspectError::Request("usage: journal [all]".into())),
        }
    }

    pub(super) fn answer(&self, inspector: &Inspector<'_>, sink: &mut Sink<'_>) -> Answered {
        (self.kind.answer)(self, inspector, sink)
    }
}
