//! The table of cases: operations, relations between what two of them work on, and which pairs commute.

use serde::{Deserialize, Serialize};

/// An operation, as one side of a case runs it.
///
/// ```
/// use extant_bench::conflicts::cases::Op;
/// assert_eq!(Op::Create.name(), "create");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // named by what they do
pub enum Op {
    Create,
    Mkdir,
    Symlink,
    Open,
    Unlink,
    Rmdir,
    Link,
    Rename,
    Stat,
    Miss,
    Readdir,
    Fstat,
    Read,
    Write,
    Append,
    Truncate,
    Fallocate,
    Chmod,
    Utimes,
    Setxattr,
    Getxattr,
    Seek,
    SyncClean,
    Datasync,
    Fsync,
    Commit,
}

/// Operations on names.
pub const NAMES: [Op; 11] = [
    Op::Create,
    Op::Mkdir,
    Op::Symlink,
    Op::Open,
    Op::Unlink,
    Op::Rmdir,
    Op::Link,
    Op::Rename,
    Op::Stat,
    Op::Miss,
    Op::Readdir,
];

/// Operations on an open file.
pub const FILES: [Op; 15] = [
    Op::Fstat,
    Op::Read,
    Op::Write,
    Op::Append,
    Op::Truncate,
    Op::Fallocate,
    Op::Chmod,
    Op::Utimes,
    Op::Setxattr,
    Op::Getxattr,
    Op::Seek,
    Op::SyncClean,
    Op::Datasync,
    Op::Fsync,
    Op::Commit,
];

impl Op {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::Mkdir => "mkdir",
            Op::Symlink => "symlink",
            Op::Open => "open",
            Op::Unlink => "unlink",
            Op::Rmdir => "rmdir",
            Op::Link => "link",
            Op::Rename => "rename",
            Op::Stat => "stat",
            Op::Miss => "stat of no name",
            Op::Readdir => "readdir",
            Op::Fstat => "fstat",
            Op::Read => "read",
            Op::Write => "write",
            Op::Append => "append",
            Op::Truncate => "truncate",
            Op::Fallocate => "fallocate",
            Op::Chmod => "chmod",
            Op::Utimes => "utimes",
            Op::Setxattr => "setxattr",
            Op::Getxattr => "getxattr",
            Op::Seek => "seek data",
            Op::SyncClean => "sync point",
            Op::Datasync => "fdatasync",
            Op::Fsync => "fsync",
            Op::Commit => "commit",
        }
    }

    /// Returns whether the operation adds or removes a name.
    fn changes_names(self) -> bool {
        use Op::*;
        matches!(
            self,
            Create | Mkdir | Symlink | Unlink | Rmdir | Link | Rename
        )
    }

    /// Returns whether the operation changes at most the page that it overwrites.
    pub(super) fn reads_or_overwrites(self) -> bool {
        self.reads() || self == Op::Write
    }

    /// Returns whether the operation changes nothing.
    fn reads(self) -> bool {
        use Op::*;
        matches!(
            self,
            Open | Stat | Miss | Readdir | Fstat | Read | Getxattr | Seek | SyncClean
        )
    }
}

/// The relation between the two sides of a case.
///
/// ```
/// use extant_bench::conflicts::cases::Relation;
/// assert_eq!(Relation::OwnDirectories.name(), "other directories");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Each in its own directory, through separate handles.
    OwnDirectories,
    /// Both in one directory of many names, with different names and files, through handles of the directory.
    OneDirectory,
    /// Like `OwnDirectories`, by paths from the root that differ in the last two parts.
    OwnDirectoriesByPath,
    /// Like `OneDirectory`, by paths from the root that differ in the last part.
    OneDirectoryByPath,
    /// Distant pages of one file, with separate handles.
    FarPages,
    /// Two adjacent pages of one file.
    NeighbouringPages,
    /// A name, file or page that both read.
    SameThing,
}

/// All relations, in the order of the report.
pub const RELATIONS: [Relation; 7] = [
    Relation::OwnDirectories,
    Relation::OneDirectory,
    Relation::OwnDirectoriesByPath,
    Relation::OneDirectoryByPath,
    Relation::FarPages,
    Relation::NeighbouringPages,
    Relation::SameThing,
];

impl Relation {
    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Relation::OwnDirectories => "other directories",
            Relation::OneDirectory => "one directory, other names",
            Relation::OwnDirectoriesByPath => "other directories, by path",
            Relation::OneDirectoryByPath => "one directory, other names, by path",
            Relation::FarPages => "one file, pages far apart",
            Relation::NeighbouringPages => "one file, neighbouring pages",
            Relation::SameThing => "the same thing, both read",
        }
    }

    fn ops(self) -> Vec<Op> {
        match self {
            Relation::OwnDirectories | Relation::OneDirectory => [&NAMES[..], &FILES].concat(),
            Relation::OwnDirectoriesByPath | Relation::OneDirectoryByPath => NAMES.to_vec(),
            Relation::FarPages | Relation::NeighbouringPages => {
                vec![Op::Read, Op::Write, Op::Fallocate]
            }
            Relation::SameThing => [&NAMES[..], &FILES]
                .concat()
                .into_iter()
                .filter(|op| op.reads())
                .collect(),
        }
    }

    /// Returns why two operations do not commute in this relation, if they do not.
    pub fn order_matters(self, a: Op, b: Op) -> Option<&'static str> {
        let lists_and_changes = |x: Op, y: Op| x == Op::Readdir && y.changes_names();
        let one_directory = matches!(self, Relation::OneDirectory | Relation::OneDirectoryByPath);
        if one_directory && (lists_and_changes(a, b) || lists_and_changes(b, a)) {
            return Some("the listing shows whether the name was added or removed before it");
        }
        // An fsync that commits makes all earlier changes durable; an fdatasync of an overwritten page only its own.
        let commits =
            |x: Op, y: Op| x == Op::Fsync && !(y.reads() || matches!(y, Op::Fsync | Op::Datasync));
        if commits(a, b) || commits(b, a) {
            return Some("a crash afterwards shows whether the change came before it");
        }
        None
    }
}

/// Pairs that are missing from the table because their order is always visible.
pub const NOT_COMMUTING: [(&str, &str); 9] = [
    (
        "create, mkdir, symlink, link or rename to one and the same name",
        "the first has it, the second finds it taken",
    ),
    (
        "unlink, rmdir or rename of a name, with anything that looks that name up",
        "the second finds it or not",
    ),
    (
        "readdir, with what adds or removes a name of that directory",
        "the listing shows which came first",
    ),
    (
        "stat or fstat of a file, with what changes its size, times, links, mode or owner",
        "what is shown differs",
    ),
    (
        "stat of a directory, with what adds or removes a name in it",
        "it shows the time of the last change, and the number of subdirectories",
    ),
    (
        "write, append, truncate or fallocate of overlapping ranges, and reads of what they change",
        "the last one is what remains; a read shows the old or the new bytes",
    ),
    (
        "append with append to one file",
        "each says where its bytes stand",
    ),
    (
        "changes of one attribute of one file (mode, owner, times, one extended attribute), and reads of it",
        "the last one remains",
    ),
    (
        "sync, syncfs, and fsync of a file with changes, with any change",
        "a crash afterwards shows which came first; statfs likewise shows what was taken before it",
    ),
];

/// Two operations in a relation in which they commute.
///
/// ```
/// use extant_bench::conflicts::cases;
/// assert!(cases::all().len() > 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Case {
    /// Side A.
    pub a: Op,
    /// Side B.
    pub b: Op,
    /// The relation.
    pub relation: Relation,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { a, b, relation } = self;
        write!(f, "{} × {}, {}", a.name(), b.name(), relation.name())
    }
}

/// Returns all cases.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for relation in RELATIONS {
        let ops = relation.ops();
        for (i, &a) in ops.iter().enumerate() {
            for &b in &ops[i..] {
                if relation.order_matters(a, b).is_none() {
                    cases.push(Case { a, b, relation });
                }
            }
        }
    }
    cases
}

/// Returns a few dozen cases that cover all operations and relations: those of an operation with itself, and some
/// more.
pub fn short() -> Vec<Case> {
    let all = all();
    let twin = |c: &Case| c.a == c.b && c.relation == Relation::OwnDirectories;
    let every = |c: &&Case, n: usize| all.iter().position(|x| x == *c).is_some_and(|i| i % n == 7);
    all.iter()
        .filter(|c| twin(c) || every(c, 60))
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_pair_once_and_none_whose_order_shows() {
        let cases = all();
        assert_eq!(cases.iter().collect::<HashSet<_>>().len(), cases.len());
        let own = |c: &&Case| c.relation == Relation::OwnDirectories;
        // An fsync is paired with itself, an fdatasync and the reading operations.
        assert_eq!(cases.iter().filter(own).count(), 25 * 26 / 2 + 11);
        let wrong = Case {
            a: Op::Create,
            b: Op::Readdir,
            relation: Relation::OneDirectory,
        };
        assert!(!cases.contains(&wrong));
    }

    #[test]
    fn the_short_form_has_every_operation() {
        let short = short();
        assert!((30..=45).contains(&short.len()), "{}", short.len());
        for op in NAMES.iter().chain(&FILES) {
            assert!(short.iter().any(|c| c.a == *op), "{}", op.name());
        }
    }
}
