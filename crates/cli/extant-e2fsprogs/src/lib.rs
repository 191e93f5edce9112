//! The programs named as those of e2fsprogs. They accept the options of e2fsprogs, translate them into those of
//! `extant`, and return their exit codes. An unsupported option is refused by name, so that a script that relies on
//! the option stops.
#![forbid(unsafe_code)]

mod attributes;
mod call;
mod changes;
mod config;
mod debugfs;
mod e2fsck;
mod e2undo;
mod e4defrag;
mod external_journal;
mod fuse2fs;
mod getopt;
mod in_use;
mod listing;
mod listing_groups;
mod mke2fs;
mod mke2fs_options;
mod mmp_block;
mod refusal;
mod resize2fs;
mod tune2fs;

pub use call::{Answer, Extant};
pub use e2fsck::WRONG_USAGE;
pub use refusal::Refusal;

use call::{Answered, Called};
use getopt::Options;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A program of e2fsprogs by one of its names, with its options and what answers a call.
pub struct Program(&'static str, &'static Options, fn(&Called) -> Answered);

const PROGRAMS: &[Program] = &[
    Program("mke2fs", &mke2fs_options::OPTIONS, mke2fs::answer),
    Program("mkfs.ext2", &mke2fs_options::OPTIONS, mke2fs::answer),
    Program("mkfs.ext3", &mke2fs_options::OPTIONS, mke2fs::answer),
    Program("mkfs.ext4", &mke2fs_options::OPTIONS, mke2fs::answer),
    Program("e2fsck", &e2fsck::OPTIONS, e2fsck::answer),
    Program("fsck.ext2", &e2fsck::OPTIONS, e2fsck::answer),
    Program("fsck.ext3", &e2fsck::OPTIONS, e2fsck::answer),
    Program("fsck.ext4", &e2fsck::OPTIONS, e2fsck::answer),
    Program("tune2fs", &tune2fs::TUNE2FS, tune2fs::tune2fs),
    Program("dumpe2fs", &tune2fs::DUMPE2FS, tune2fs::dumpe2fs),
    Program("e2label", &Options::WORDS, tune2fs::e2label),
    Program("lsattr", &attributes::LSATTR, attributes::lsattr),
    Program("chattr", &Options::WORDS, attributes::chattr),
    Program("resize2fs", &resize2fs::OPTIONS, resize2fs::answer),
    Program("e4defrag", &e4defrag::OPTIONS, e4defrag::answer),
    Program("debugfs", &debugfs::OPTIONS, debugfs::answer),
    Program("e2undo", &e2undo::OPTIONS, e2undo::answer),
    Program("fuse2fs", &fuse2fs::OPTIONS, fuse2fs::answer),
];

impl Program {
    /// Returns the program that a path calls, which is the first word of a command line.
    pub fn called_by(path: &OsStr) -> Option<&'static Self> {
        let base = Path::new(path).file_name()?;
        PROGRAMS.iter().find(|Self(name, ..)| base == *name)
    }

    /// Returns the names of all programs.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROGRAMS.iter().map(Self::name)
    }

    /// Returns the name that the program is called by.
    pub const fn name(&self) -> &'static str {
        self.0
    }

    /// Answers a call with these words.
    pub fn answer(
        &self,
        words: impl Iterator<Item = OsString>,
        extant: Extant,
    ) -> Result<Answer, Refusal> {
        let Self(name, options, answer) = *self;
        let taken = options.parse(words)?;
        answer(&Called {
            name,
            taken,
            extant,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Refusals that depend on values or combinations, and not only on letters, and programs that are not there.
    const OTHERS: [&str; 14] = [
        "e2image",
        "filefrag",
        "debugfs block_dump -x",
        "debugfs bmap -a",
        "debugfs dx_hash -e",
        "debugfs ea_get -C",
        "debugfs freefrag -c",
        "debugfs inode_dump -x",
        "debugfs logdump",
        "mke2fs -O bigalloc",
        "mke2fs -O journal_dev",
        "mke2fs -J device=",
        "tune2fs -J device=",
        "tune2fs -s 0",
    ];

    /// Returns everything that the programs refuse.
    fn refused() -> BTreeSet<String> {
        let mut all: BTreeSet<String> = OTHERS.map(str::to_owned).into();
        // The other names of a program contain a dot.
        for Program(tool, options, _) in PROGRAMS.iter().filter(|one| !one.0.contains('.')) {
            let letters = options.without.iter();
            all.extend(letters.map(|(letter, _)| format!("{tool} -{letter}")));
            let words = options.words_without.iter();
            all.extend(words.map(|word| format!("{tool} -E {word}")));
        }
        let requests = debugfs::write::WITHOUT.iter().flat_map(|(names, _)| *names);
        let whole = requests.filter(|name| name.len() > 3 && name.contains('_'));
        all.extend(whole.map(|name| format!("debugfs {name}")));
        all
    }

    #[test]
    fn what_is_refused_stands_in_the_document() {
        let document = include_str!("../../../../docs/how-to/e2fsprogs.md");
        let table = document.split("| refused | because |").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let first = rows.map(|row| row.split('|').nth(1).unwrap());
        let spans = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let documented: BTreeSet<String> = spans.map(str::to_owned).collect();
        assert_eq!(documented, refused());
    }
}
