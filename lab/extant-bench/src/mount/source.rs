//! Rows on trees: an archive to unpack, and a repository for git, with the system's own programs.

use super::{Row, Spent};
use crate::child;
use crate::runner::Task;
use crate::tree::Noise;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A source tree, packed: without a repository, and with one.
#[derive(Clone, Debug)]
pub struct Source {
    archive: PathBuf,
    repository: Option<PathBuf>,
    names: usize,
}

impl Source {
    /// Packs a tree into a scratch directory: the given one, or a generated one with this many files. Adds a
    /// repository if git is installed.
    pub fn make(scratch: &Path, from: Option<&Path>, files: usize) -> Result<Self> {
        let tree = scratch.join("tree");
        std::fs::create_dir(&tree).with_context(|| tree.display().to_string())?;
        let archive = scratch.join("tree.tar");
        match from {
            Some(from) => {
                let mut command = tar("-cf", &archive, from);
                command.args(["--exclude=./.git", "."]);
                child::run(&mut command)?;
                child::run(&mut unpack(&archive, &tree))?;
            }
            None => {
                write_tree(&tree, files).with_context(|| tree.display().to_string())?;
                child::run(tar("-cf", &archive, &tree).arg("."))?;
            }
        }
        let names = count(&tree)?;
        let repository = match Command::new("git").arg("--version").output() {
            Ok(out) if out.status.success() => {
                for args in [
                    &["init", "-q"][..],
                    &["add", "-A", "-f"],
                    &["commit", "-q", "-m", "tree"],
                    &["gc", "-q"],
                ] {
                    child::run(git(&tree).args(args))?;
                }
                let packed = scratch.join("repository.tar");
                child::run(tar("-cf", &packed, &tree).arg("."))?;
                Some(packed)
            }
            _ => None,
        };
        std::fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())?;
        Ok(Self {
            archive,
            repository,
            names,
        })
    }

    /// Returns whether git is installed and made a repository.
    pub fn has_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// Returns the number of names in the tree.
    pub fn names(&self) -> usize {
        self.names
    }

    /// Unpacks the repository, and lets git record the files' times.
    pub(super) fn fill(&self, dir: &Path) -> Result<()> {
        let packed = self.repository.as_ref().context("git is not installed")?;
        child::run(&mut unpack(packed, dir))?;
        child::run(git(dir).args(STATUS))?;
        Ok(())
    }

    pub(super) fn task(&self, row: Row, dir: &Path, spent: &Spent) -> Result<Box<dyn Task>> {
        let (archive, dir) = (self.archive.clone(), dir.to_path_buf());
        Ok(Box::new(Program {
            command: match row {
                Row::Untar => Box::new(move || unpack(&archive, &dir)),
                _ => Box::new(move || {
                    let mut command = git(&dir);
                    command.args(STATUS);
                    command
                }),
            },
            once: row != Row::GitStatus,
            done: false,
            spent: Arc::clone(spent),
        }))
    }
}

const STATUS: [&str; 2] = ["status", "--porcelain"];

/// A program that is run once or repeatedly.
struct Program {
    command: Box<dyn FnMut() -> Command + Send>,
    once: bool,
    done: bool,
    spent: Spent,
}

impl Task for Program {
    fn op(&mut self) -> Result<bool> {
        if self.once && std::mem::replace(&mut self.done, true) {
            return Ok(false);
        }
        let ran = child::run(&mut (self.command)())?;
        let ns = (ran.elapsed.cpu * 1e9) as u64;
        self.spent.fetch_add(ns, Relaxed);
        Ok(true)
    }
}

fn tar(how: &str, archive: &Path, dir: &Path) -> Command {
    let mut command = Command::new("tar");
    command.arg(how).arg(archive).arg("-C").arg(dir);
    command
}

fn unpack(archive: &Path, dir: &Path) -> Command {
    let mut command = tar("-xf", archive, dir);
    command.arg("--no-same-owner");
    command
}

/// Returns git without any user's settings.
fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir);
    for (name, value) in [
        ("user.name", "bench"),
        ("user.email", "bench@localhost"),
        ("gc.auto", "0"),
        ("safe.directory", "*"),
    ] {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE");
    command
}

/// Makes a tree like a program's source: nested directories, files of some hundred to some ten thousand bytes.
fn write_tree(top: &Path, files: usize) -> Result<()> {
    const IN_ONE: usize = 20;
    let mut noise = Noise::new(7);
    let mut content = vec![0; 32 << 10];
    for number in 0..files {
        let part = number / IN_ONE;
        let dir = top.join(format!("part{}/module{}", part / 8, part % 8));
        if number % IN_ONE == 0 {
            std::fs::create_dir_all(&dir)?;
        }
        // Sizes from 256 bytes to 32 KiB, every power of two equally often.
        let least = 256 << noise.below(7);
        let size = least + noise.below(least);
        noise.fill(&mut content[..size]);
        // Letters and line ends.
        for byte in &mut content[..size] {
            *byte = match *byte & 31 {
                0 => b'\n',
                letter @ 1..=26 => b'a' + letter - 1,
                _ => b' ',
            };
        }
        std::fs::write(dir.join(format!("source{number}.txt")), &content[..size])?;
    }
    Ok(())
}

fn count(dir: &Path) -> Result<usize> {
    let mut names = 0;
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let entry = entry?;
        names += 1;
        if entry.file_type()?.is_dir() {
            names += count(&entry.path())?;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_ones_own_is_packed_without_its_repository() {
        let (own, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(own.path().join("a/b")).unwrap();
        std::fs::create_dir(own.path().join(".git")).unwrap();
        std::fs::write(own.path().join("a/b/c"), "text").unwrap();
        let source = Source::make(scratch.path(), Some(own.path()), 0).unwrap();
        assert_eq!(source.names(), 3);
        let out = tempfile::tempdir().unwrap();
        child::run(&mut unpack(&source.archive, out.path())).unwrap();
        assert_eq!(count(out.path()).unwrap(), 3);
    }

    #[test]
    fn a_tree_that_is_made_is_the_same_each_time() {
        let made = || {
            let dir = tempfile::tempdir().unwrap();
            write_tree(dir.path(), 45).unwrap();
            let last = dir.path().join("part0/module2/source44.txt");
            (count(dir.path()).unwrap(), std::fs::read(last).unwrap())
        };
        let (names, last) = made();
        assert_eq!(names, 45 + 4);
        assert!((256..32 << 10).contains(&last.len()));
        assert_eq!(made(), (names, last));
    }
}
