//! The work of each operation of a case, and the files that it needs.

use super::cases::{Case, FILES, Op, Relation};
use super::{ROUNDS, WARM};
use anyhow::Result;
use extant::unstable::Node;
use extant::{Dir, Fallocate, File, OpenOptions, SetAttributes, SetXattr, Timestamp, Volume};
use std::rc::Rc;

/// Number of names in the shared directory from the start.
pub const SHARED_NAMES: usize = 4096;
const PAGE: u64 = 4096;
/// Distance of distant pages: in different chunks of the page cache.
const FAR: u64 = 64;
const BOTH: OpenOptions = OpenOptions::new().read(true).write(true);

/// Makes the files that all cases need.
pub fn furnish(volume: &Volume) -> Result<()> {
    volume.create_dir("/top")?;
    for side in ["a", "b"] {
        let own = volume.create_dir(format!("/top/own-{side}"))?;
        own.create_new_file("clean")?.write(&[1; 64])?;
    }
    let shared = volume.create_dir("/top/shared")?;
    for n in 0..SHARED_NAMES {
        shared.create_new_file(format!("name-{n}"))?;
    }
    let common = shared.create_new_file("common")?;
    for page in 0..2 * FAR {
        common.write_all_at(&[7; PAGE as usize], page * PAGE)?;
    }
    common.set_xattr("user.common", b"value", SetXattr::Any)?;
    Ok(())
}

/// A side of all cases.
pub struct Side {
    letter: &'static str,
    volume: Volume,
    own: Dir,
    shared: Dir,
}

/// An operation that is ready to run round after round.
pub struct Work {
    /// Preparation before each round, which is not part of the operation.
    pub before: Option<Step>,
    /// The operation.
    pub run: Step,
}

/// The work of a round.
pub type Step = Box<dyn FnMut(usize) -> Result<()>>;

impl From<Step> for Work {
    fn from(run: Step) -> Self {
        Self { before: None, run }
    }
}

/// The directory and names of a side.
struct CasePlace {
    volume: Volume,
    dir: Dir,
    prefix: String,
    relation: Relation,
    /// 0 for side A, 1 for side B.
    side: u64,
}

impl Side {
    /// Makes side A or B, with separate handles. Call this on the side's thread.
    pub fn new(volume: &Volume, second: bool) -> Result<Self> {
        let letter = if second { "b" } else { "a" };
        let volume = volume.clone();
        Ok(Self {
            letter,
            own: volume.open_dir(format!("/top/own-{letter}"))?,
            shared: volume.open_dir("/top/shared")?,
            volume,
        })
    }

    fn place(&self, relation: Relation) -> CasePlace {
        let (dir, prefix) = match relation {
            Relation::OwnDirectories => (&self.own, String::new()),
            Relation::OneDirectory
            | Relation::FarPages
            | Relation::NeighbouringPages
            | Relation::SameThing => (&self.shared, String::new()),
            Relation::OwnDirectoriesByPath => (
                self.volume.deref_dir(),
                format!("/top/own-{}/", self.letter),
            ),
            Relation::OneDirectoryByPath => (self.volume.deref_dir(), "/top/shared/".into()),
        };
        CasePlace {
            volume: self.volume.clone(),
            dir: dir.clone(),
            prefix,
            relation,
            side: u64::from(self.letter == "b"),
        }
    }

    /// Prepares an operation; `tag` separates the names of cases.
    pub fn ready(&self, op: Op, relation: Relation, tag: usize) -> Result<Work> {
        let place = self.place(relation);
        let path = |what: &str| format!("{}{what}-{tag}-{}", place.prefix, self.letter);
        let names: Vec<String> = (0..=WARM + ROUNDS)
            .map(|n| path(&format!("new{n}")))
            .collect();
        if relation == Relation::SameThing {
            return Ok(place.same_thing(op)?.into());
        }
        match op {
            Op::Create
            | Op::Mkdir
            | Op::Symlink
            | Op::Open
            | Op::Unlink
            | Op::Rmdir
            | Op::Link
            | Op::Rename
            | Op::Stat
            | Op::Miss
            | Op::Readdir => {
                let old = path("old");
                Ok(place.on_names(op, names, old)?.into())
            }
            Op::Datasync | Op::Fsync => {
                let (file, _) = place.file(op, &path("old"))?;
                Ok(sync_of(op, file))
            }
            _ => {
                let (file, page) = place.file(op, &path("old"))?;
                Ok(on_file(op, file, page).into())
            }
        }
    }

    /// Reads the data of both sides of a case, and the names of the warm-up rounds. When both sides have done this,
    /// two slots have read every lock on the way.
    pub fn contend(&self, case: Case, tag: usize) -> Result<()> {
        for (op, letter) in [(case.a, "a"), (case.b, "b")] {
            let dir = match case.relation {
                Relation::OwnDirectories | Relation::OwnDirectoriesByPath => {
                    format!("/top/own-{letter}")
                }
                _ => "/top/shared".into(),
            };
            let old = match (case.relation, op) {
                (Relation::FarPages | Relation::NeighbouringPages | Relation::SameThing, _) => {
                    format!("{dir}/common")
                }
                (_, Op::SyncClean) => format!("/top/own-{letter}/clean"),
                _ => format!("{dir}/old-{tag}-{letter}"),
            };
            for n in 0..WARM {
                found(self.volume.metadata(format!("{dir}/new{n}-{tag}-{letter}")))?;
            }
            let mut listed = self.volume.read_dir(&dir)?;
            listed.next().transpose()?;
            if found(self.volume.metadata(&old))?.is_some() && FILES.contains(&op) {
                let file = self.volume.open_file(&old)?;
                for page in [0, 1, FAR] {
                    file.read_at(&mut [0; 8], page * PAGE)?;
                }
                file.get_xattr("user.own").map(drop).or_else(|e| match e {
                    extant::Error::NoAttribute => Ok(()),
                    other => Err(other),
                })?;
            }
        }
        Ok(())
    }
}

/// Returns the result of an operation; a missing file is not an error.
fn found<T>(outcome: extant::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(some) => Ok(Some(some)),
        Err(extant::Error::NotFound) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Dereferences a volume to its root directory.
trait DerefDir {
    fn deref_dir(&self) -> &Dir;
}

impl DerefDir for Volume {
    fn deref_dir(&self) -> &Dir {
        self
    }
}

impl CasePlace {
    fn on_names(self, op: Op, names: Vec<String>, old: String) -> Result<Step> {
        let CasePlace {
            volume,
            dir,
            prefix,
            ..
        } = self;
        let listed = match prefix.as_str() {
            "" => dir.ino(),
            prefix => dir.open_dir(prefix)?.ino(),
        };
        let listed = Node::of_number(&volume, listed)?;
        match op {
            Op::Unlink => names
                .iter()
                .try_for_each(|n| dir.create_new_file(n).map(drop))?,
            Op::Rmdir => names.iter().try_for_each(|n| dir.create_dir(n).map(drop))?,
            Op::Open | Op::Link | Op::Stat => drop(dir.create_new_file(&old)?),
            Op::Rename => drop(dir.create_new_file(&names[0])?),
            _ => {}
        }
        Ok(match op {
            Op::Create => Box::new(move |r| done(dir.create_new_file(&names[r]))),
            Op::Mkdir => Box::new(move |r| done(dir.create_dir(&names[r]))),
            Op::Symlink => Box::new(move |r| Ok(dir.symlink("target", &names[r])?)),
            Op::Open => Box::new(move |_| done(dir.open_file_with(&old, &BOTH))),
            Op::Unlink => Box::new(move |r| Ok(dir.remove_file(&names[r])?)),
            Op::Rmdir => Box::new(move |r| Ok(dir.remove_dir(&names[r])?)),
            Op::Link => Box::new(move |r| Ok(dir.hard_link(&old, &names[r])?)),
            Op::Rename => Box::new(move |r| Ok(dir.rename(&names[r], &names[r + 1])?)),
            Op::Stat => Box::new(move |_| done(dir.metadata(&old))),
            Op::Miss => Box::new(move |_| match dir.metadata(&old) {
                Err(extant::Error::NotFound) => Ok(()),
                other => anyhow::bail!("a name nobody made: {other:?}"),
            }),
            _ => Box::new(move |_| done(listed.list(0, 16))),
        })
    }

    /// Returns the file of an operation on open files, and the page it works on.
    fn file(&self, op: Op, old: &str) -> Result<(File, u64)> {
        let page = match self.relation {
            Relation::FarPages => Some(self.side * FAR),
            Relation::NeighbouringPages => Some(self.side),
            _ => None,
        };
        if let Some(page) = page {
            return Ok((self.dir.open_file_with("common", &BOTH)?, page));
        }
        if op == Op::SyncClean {
            // A file without dirty data.
            let clean = ["/top/own-a/clean", "/top/own-b/clean"][self.side as usize];
            return Ok((self.dir.open_file_with(clean, &BOTH)?, 0));
        }
        let file = self.dir.create_new_file(old)?;
        let pages = if op == Op::Truncate {
            WARM + ROUNDS + 1
        } else {
            2
        };
        for page in 0..pages as u64 {
            file.write_all_at(&[3; PAGE as usize], page * PAGE)?;
        }
        if matches!(op, Op::Datasync | Op::Fsync) {
            file.sync_all()?;
        }
        if matches!(op, Op::Setxattr | Op::Getxattr) {
            file.set_xattr("user.own", b"first", SetXattr::Any)?;
        }
        Ok((file, 0))
    }

    fn same_thing(self, op: Op) -> Result<Step> {
        let dir = self.dir;
        let node = Node::of_number(&self.volume, dir.ino())?;
        let file = dir.open_file_with("common", &BOTH)?;
        Ok(match op {
            Op::Open => Box::new(move |_| done(dir.open_file_with("common", &BOTH))),
            Op::Stat => Box::new(move |_| done(dir.metadata("common"))),
            Op::Miss => Box::new(move |_| match dir.metadata("nobody") {
                Err(extant::Error::NotFound) => Ok(()),
                other => anyhow::bail!("a name nobody made: {other:?}"),
            }),
            Op::Readdir => Box::new(move |_| done(node.list(0, 16))),
            Op::Getxattr => Box::new(move |_| done(file.get_xattr("user.common"))),
            _ => on_file(op, file, 0),
        })
    }
}

/// Returns the outcome of an operation, without its result.
fn done<T>(found: extant::Result<T>) -> Result<()> {
    found.map(drop).map_err(Into::into)
}

/// Syncs data written before the round: a page with or without an allocated block.
fn sync_of(op: Op, file: File) -> Work {
    let file = Rc::new(file);
    let written = Rc::clone(&file);
    if op == Op::Datasync {
        return Work {
            before: Some(Box::new(move |r| {
                Ok(written.write_all_at(&[r as u8; PAGE as usize], 0)?)
            })),
            run: Box::new(move |_| Ok(file.sync_data()?)),
        };
    }
    Work {
        before: Some(Box::new(move |r| {
            Ok(written.write_all_at(&[r as u8; PAGE as usize], (2 + r as u64) * PAGE)?)
        })),
        run: Box::new(move |_| Ok(file.sync_all()?)),
    }
}

fn on_file(op: Op, file: File, page: u64) -> Step {
    let at = page * PAGE;
    let mut buffer = vec![5; PAGE as usize];
    let set = |file: File, set: SetAttributes| -> Step {
        Box::new(move |_| Ok(file.set_attributes(&set)?))
    };
    match op {
        Op::Chmod => set(
            file,
            SetAttributes {
                mode: Some(0o600),
                ..Default::default()
            },
        ),
        Op::Utimes => set(
            file,
            SetAttributes {
                atime: Some(Timestamp::default().into()),
                mtime: Some(Timestamp::default().into()),
                ..Default::default()
            },
        ),
        // The smallest transaction, with one item.
        Op::Commit => set(
            file,
            SetAttributes {
                uid: Some(0),
                ..Default::default()
            },
        ),
        Op::Fstat => Box::new(move |_| done(file.metadata())),
        Op::Read => Box::new(move |_| done(file.read_at(&mut buffer, at))),
        Op::Write => Box::new(move |_| Ok(file.write_all_at(&buffer, at)?)),
        Op::Append => Box::new(move |_| done(file.append(&buffer))),
        Op::Truncate => Box::new(move |r| Ok(file.set_len((WARM + ROUNDS - r) as u64 * PAGE)?)),
        Op::Fallocate => {
            // Beyond the data of the file; the sides are as distant as their pages.
            let first = 256 + page * 16;
            let keep = Fallocate::Allocate { keep_size: true };
            Box::new(move |r| Ok(file.fallocate(keep, (first + 2 * r as u64) * PAGE, 2 * PAGE)?))
        }
        Op::Setxattr => Box::new(move |r| {
            let value = [b'a' + r as u8; 8];
            Ok(file.set_xattr("user.own", &value, SetXattr::Any)?)
        }),
        Op::Getxattr => Box::new(move |_| done(file.get_xattr("user.own"))),
        Op::Seek => Box::new(move |_| done(file.seek_data(0))),
        _ => Box::new(move |_| Ok(file.sync_all()?)),
    }
}
