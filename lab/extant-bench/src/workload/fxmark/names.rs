//! The rows on names: MW and MR.

use crate::names::Names;
use crate::runner::{Shape, Task, Tasks};
use crate::target::{Lister, TaskDir};
use crate::workload::tasks;
use anyhow::Result;

/// A row on names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamesRow {
    Create { shared: bool },
    Unlink { shared: bool },
    Rename { shared: bool },
    Stat(Path),
    List { shared: bool },
}

/// Path to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Own,
    Random,
    Same,
}

/// Number of files per directory of the tree for random lookups, and of a directory that is read.
const FILES: usize = 64;
/// Number of directories above a looked-up file.
const DEPTH: usize = 5;

fn own(task: usize) -> String {
    format!("task.{task}")
}

/// Opens the directory of a task: its own, or the shared one.
fn dir_of(base: &dyn TaskDir, task: usize, shared: bool) -> Result<Box<dyn TaskDir>> {
    if shared {
        base.again()
    } else {
        base.make_dir(&own(task))
    }
}

/// Makes the directories of a path, one within the other, and returns the path.
fn make_path(base: &dyn TaskDir, first: &str) -> Result<String> {
    let mut path = first.to_string();
    base.make_dir(&path)?;
    for level in 1..DEPTH {
        path += &format!("/level{level}");
        base.make_dir(&path)?;
    }
    Ok(path)
}

impl NamesRow {
    pub fn prepare(self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        match self {
            Self::Create { shared } => tasks(shape, |task| {
                Ok(Create {
                    dir: dir_of(base, task, shared)?,
                    names: Names::new("file", task),
                    left: shape.files,
                })
            }),
            Self::Unlink { shared } => tasks(shape, |task| {
                let dir = dir_of(base, task, shared)?;
                let mut names = Names::new("file", task);
                (0..shape.files).try_for_each(|_| dir.create(names.next()))?;
                Ok(Unlink {
                    dir,
                    names: Names::new("file", task),
                    left: shape.files,
                })
            }),
            Self::Rename { shared: false } => tasks(shape, |task| {
                let dir = dir_of(base, task, false)?;
                let mut names = Names::new("file", task);
                let name = names.next().to_string();
                dir.create(&name)?;
                Ok(Rename { dir, names, name })
            }),
            Self::Rename { shared: true } => {
                base.make_dir("shared")?;
                tasks(shape, |task| {
                    let (dir, path) = (dir_of(base, task, false)?, format!("{}/file", own(task)));
                    let mut names = Names::new("file", task);
                    (0..shape.files).try_for_each(|_| dir.create(names.next()))?;
                    Ok(Move {
                        base: base.again()?,
                        from: Names::new(&path, task),
                        to: Names::new("shared/file", task),
                        left: shape.files,
                    })
                })
            }
            Self::Stat(path) => prepare_stat(path, base, shape),
            Self::List { shared } => {
                let fill = |dir: &dyn TaskDir, task| {
                    let mut names = Names::new("file", task);
                    (0..FILES).try_for_each(|_| dir.create(names.next()))
                };
                if shared {
                    (0..shape.tasks).try_for_each(|task| fill(base, task))?;
                }
                tasks(shape, |task| {
                    let dir = dir_of(base, task, shared)?;
                    if !shared {
                        fill(&*dir, task)?;
                    }
                    Ok(List(dir.lister()?))
                })
            }
        }
    }
}

fn prepare_stat(path: Path, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
    let all = match path {
        Path::Own => Vec::new(),
        Path::Same => {
            let file = format!("{}/file", make_path(base, "same")?);
            base.create(&file)?;
            vec![file]
        }
        Path::Random => {
            let mut all = Vec::new();
            for dir in 0..FILES {
                let dir = make_path(base, &format!("dir{dir}"))?;
                for file in 0..FILES {
                    let file = format!("{dir}/file{file}");
                    base.create(&file)?;
                    all.push(file);
                }
            }
            all
        }
    };
    tasks(shape, |task| {
        let mut paths = all.clone();
        if path == Path::Own {
            let file = format!("{}/file", make_path(base, &own(task))?);
            base.create(&file)?;
            paths.push(file);
        }
        Ok(Stat {
            base: base.again()?,
            paths,
            random: Random(task as u64 + 1),
        })
    })
}

struct Create {
    dir: Box<dyn TaskDir>,
    names: Names,
    left: u64,
}

impl Task for Create {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.dir.create(self.names.next())?;
        Ok(true)
    }
}

struct Unlink {
    dir: Box<dyn TaskDir>,
    names: Names,
    left: u64,
}

impl Task for Unlink {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.dir.unlink(self.names.next())?;
        Ok(true)
    }
}

struct Rename {
    dir: Box<dyn TaskDir>,
    names: Names,
    name: String,
}

impl Task for Rename {
    fn op(&mut self) -> Result<bool> {
        let next = self.names.next();
        self.dir.rename(&self.name, next)?;
        self.name.clear();
        self.name.push_str(next);
        Ok(true)
    }
}

struct Move {
    base: Box<dyn TaskDir>,
    from: Names,
    to: Names,
    left: u64,
}

impl Task for Move {
    fn op(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.base.rename(self.from.next(), self.to.next())?;
        Ok(true)
    }
}

/// Cheap random numbers: Marsaglia's xorshift, never seeded with 0.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

struct Stat {
    base: Box<dyn TaskDir>,
    paths: Vec<String>,
    random: Random,
}

impl Task for Stat {
    fn op(&mut self) -> Result<bool> {
        let at = match self.paths.len() {
            1 => 0,
            n => self.random.below(n),
        };
        self.base.stat(&self.paths[at])?;
        Ok(true)
    }
}

struct List(Box<dyn Lister>);

impl Task for List {
    fn op(&mut self) -> Result<bool> {
        if !self.0.advance()? {
            self.0.rewind()?;
        }
        Ok(true)
    }
}
