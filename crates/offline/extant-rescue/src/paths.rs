//! The way to every inode: from the root, or from the number of the first directory that has no name.

use crate::names::{NOWHERE, Names};
use crate::state::{Found, Rescue};
use ext4_format::{FileType, InodeNr};
use std::collections::BTreeSet;

/// Maximum bytes of a path; deeper paths restart with a number.
const LONGEST: usize = 4000;

impl Rescue<'_> {
    /// Returns all files, by path.
    pub(crate) fn paths(&mut self, names: &Names) -> Vec<Found> {
        let mut found = Vec::new();
        let mut done = BTreeSet::from([InodeNr::ROOT.0]);
        self.below(names, (InodeNr::ROOT.0, Vec::new()), &mut done, &mut found);
        self.below(names, (NOWHERE, b"#names".to_vec()), &mut done, &mut found);
        let directories = self.inodes.iter();
        let directories = directories
            .filter(|(_, inode)| inode.file_type == FileType::Directory)
            .map(|(&ino, _)| ino)
            .chain(names.lost_directories.iter().copied());
        // Directories without a name are visited first, so that their subdirectories are found below them, and then
        // directories in loops.
        let (named, nameless): (Vec<u32>, Vec<u32>) =
            directories.partition(|ino| names.named.contains(ino));
        for ino in nameless.into_iter().chain(named) {
            if done.insert(ino) {
                let path = format!("#{ino}").into_bytes();
                found.push(self.one(ino, path.clone(), false));
                self.below(names, (ino, path), &mut done, &mut found);
            }
        }
        for (&ino, inode) in &self.inodes {
            if inode.file_type != FileType::Directory && !names.named.contains(&ino) {
                found.push(self.one(ino, format!("#{ino}").into_bytes(), false));
            }
        }
        let gone = names
            .named
            .iter()
            .filter(|ino| !self.inodes.contains_key(ino) && !names.lost_directories.contains(ino));
        let gone = gone.count();
        if gone > 0 {
            self.notes
                .add(format!("{gone} names lead to inodes that are lost"));
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// Walks a directory and those below it, each once.
    fn below(
        &self,
        names: &Names,
        start: (u32, Vec<u8>),
        done: &mut BTreeSet<u32>,
        found: &mut Vec<Found>,
    ) {
        let mut work = vec![start];
        while let Some((dir, path)) = work.pop() {
            let from = (dir, Vec::new());
            let children = names.all.range(from..).take_while(|((d, _), _)| *d == dir);
            for ((_, name), &ino) in children {
                let inode = self.inodes.get(&ino);
                let lost = names.lost_directories.contains(&ino);
                let directory = lost || inode.is_some_and(|i| i.file_type == FileType::Directory);
                if (inode.is_none() && !lost) || (directory && !done.insert(ino)) {
                    continue;
                }
                let mut way = path.clone();
                if !way.is_empty() {
                    way.push(b'/');
                }
                way.extend_from_slice(name);
                let named = way.len() <= LONGEST;
                if !named {
                    way = format!("#{ino}").into_bytes();
                }
                found.push(self.one(ino, way.clone(), named));
                if directory {
                    work.push((ino, way));
                }
            }
        }
    }

    fn one(&self, ino: u32, path: Vec<u8>, named: bool) -> Found {
        let inode = self.inodes.get(&ino);
        let problem = match inode {
            None => Some("its inode is lost"),
            Some(inode) if !inode.sealed => Some("the checksum of its inode is wrong"),
            Some(_) => None,
        };
        Found {
            ino: InodeNr(ino),
            generation: inode.map_or(0, |inode| inode.generation),
            path,
            named,
            deleted: false,
            file_type: inode.map_or(FileType::Directory, |inode| inode.file_type),
            size: inode.map_or(0, |inode| inode.size),
            problem,
        }
    }
}
