//! Every inode has a name, every directory one parent, and links are as many as names.

use crate::directories::Directories;
use crate::inode_table::{InodeKind, KnownInode};
use crate::report::{FindingPlace, Rule};
use crate::state::Check;
use crate::work;
use ext4_format::inode::LINK_MAX;
use ext4_format::{FileType, GroupNr, InodeNr};
use std::sync::atomic::Ordering;

pub(crate) fn check(check: &Check<'_>, directories: &Directories) {
    check_parents(check, directories);
    check_loops(check, directories);
    work::each(
        check.threads,
        check.groups.len(),
        || (),
        |(), group| {
            let group = GroupNr(group as u32);
            for (index, known) in check.inodes.of_group(group.0) {
                let ino = check.volume.geo.inode_nr(group, index);
                check_links(check, ino, known);
            }
        },
    );
}

/// Checks that ".." of each directory leads to the directory with its name.
fn check_parents(check: &Check<'_>, directories: &Directories) {
    for directory in directories.iter() {
        let parent = match directory.ino {
            // Its ".." leads to itself, and no name to it.
            InodeNr::ROOT => InodeNr::ROOT.0,
            _ => directory.parent.load(Ordering::Relaxed),
        };
        let dotdot = directory.dotdot.load(Ordering::Relaxed);
        let place = FindingPlace::inode(directory.ino);
        if parent == 0 {
            check
                .findings
                .add(Rule::Unattached, place, || "a directory".into());
        } else if dotdot != 0 && dotdot != parent {
            check.findings.add(Rule::Parent, place, || {
                format!("it is in directory {parent}, and \"..\" leads to {dotdot}")
            });
        }
    }
}

/// Reports directories that are only below themselves, and so not reached from the root.
fn check_loops(check: &Check<'_>, directories: &Directories) {
    const UNSEEN: u32 = 0;
    // The number of the visiting walk; walks are counted from 1.
    let mut seen = vec![UNSEEN; directories.len()];
    for (start, walk) in (0..directories.len()).zip(1..) {
        let mut at = start;
        loop {
            match seen.get_mut(at) {
                Some(mark) if *mark == UNSEEN => *mark = walk,
                Some(mark) if *mark == walk => {
                    let ino = directories.at(at).map(|d| d.ino).unwrap_or_default();
                    check
                        .findings
                        .add(Rule::Unattached, FindingPlace::inode(ino), || {
                            "a directory below itself".into()
                        });
                    break;
                }
                _ => break,
            }
            let Some(directory) = directories.at(at) else {
                break;
            };
            if directory.ino == InodeNr::ROOT {
                break;
            }
            let parent = InodeNr(directory.parent.load(Ordering::Relaxed));
            match directories.position(parent) {
                Some(position) => at = position,
                None => break,
            }
        }
    }
}

fn check_links(check: &Check<'_>, ino: InodeNr, known: KnownInode) {
    let directory = match known.kind {
        InodeKind::File(file_type) => file_type == FileType::Directory,
        InodeKind::Value | InodeKind::Broken => false,
        InodeKind::Reserved => return,
    };
    let place = FindingPlace::inode(ino);
    if known.names == 0 {
        // The missing name of a directory is a finding already. The directory has its own "." if it can be read.
        if !directory {
            check.findings.add(Rule::Unattached, place, String::new);
        }
        return;
    }
    let links = u64::from(known.links);
    let uncounted = directory
        && known.links == 1
        && known.names > LINK_MAX.into()
        && check.volume.geo.features.has_dir_nlink();
    if links != known.names && !uncounted && known.kind != InodeKind::Value {
        check.findings.add(Rule::LinkCount, place, || {
            format!("stored {links}, counted {}", known.names)
        });
    }
}
