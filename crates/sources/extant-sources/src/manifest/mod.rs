//! Lists of files as a source: mtree(5), as BSD's mtree and libarchive write it, with the data in files of the host;
//! and device tables, which change the files of other sources and add devices.

mod keywords;
mod lines;
mod table;

pub use table::DeviceTable;
pub use table::{Entry, Order};

use crate::archive::compression::decompressed;
use crate::archive_member::ArchiveMember;
use crate::attribute_change::AttributeChange;
use crate::error::{Result, SourceError};
use crate::read_tree::ReadTree;
use ext4_format::timestamp::Timestamp;
use keywords::{Keywords, LineEntry, Surroundings};
use lines::{Lines, unescape};
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest path that is put together of lines' names, in bytes.
const LONGEST_PATH: usize = 1 << 16;

/// A manifest in the format of mtree(5). Each line is a file with its type, permissions, owner, time, target and
/// device; its data are in the file that `contents=` names, otherwise in the file of the same path. Paths of the host
/// are relative to the current directory, or to `base`. A line about a regular file without data changes the attributes
/// of a file that an earlier source has ([`ReadTree::changes`]).
///
/// ```
/// use extant_sources::{Manifest, SourceError, read_tree};
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("list");
/// std::fs::write(&path, "#mtree\n./etc/motd type=file mode=644 contents=motd\n./dev/null type=char device=native,1,3\n").unwrap();
/// std::fs::write(dir.path().join("motd"), "hello\n").unwrap();
/// let manifest = Manifest::new(&path, dir.path());
/// let mut paths = Vec::new();
/// read_tree(&manifest, None, |member, _| {
///     paths.push(member.path);
///     Ok::<(), SourceError>(())
/// })?;
/// assert_eq!(paths, [&b"./etc/motd"[..], b"./dev/null"]);
/// # Ok::<(), SourceError>(())
/// ```
pub struct Manifest {
    path: PathBuf,
    /// Directory for relative paths of the host.
    base: PathBuf,
    /// Files of the host, by their numbers.
    files: Mutex<Vec<PathBuf>>,
    /// Lines about files whose data are not here.
    changes: Mutex<Vec<AttributeChange>>,
}

impl Manifest {
    /// Creates a manifest from a file; `base` is the directory for the paths of files with data.
    pub fn new(path: impl Into<PathBuf>, base: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            base: base.into(),
            files: Mutex::default(),
            changes: Mutex::default(),
        }
    }

    /// Returns whether `head` is the start of a manifest.
    pub fn is_manifest(head: &[u8]) -> bool {
        head.starts_with(b"#mtree")
    }

    /// Returns the member of a line and the number of its data; `None`: it is left out, or only changes a file.
    fn member(
        &self,
        path: Vec<u8>,
        (words, line): (&Keywords, u64),
        now: Timestamp,
    ) -> Result<Option<(ArchiveMember, u32)>, String> {
        let place = Surroundings {
            base: &self.base,
            path: &path,
            now,
        };
        let (member, file) = match words.entry(&place)? {
            None => return Ok(None),
            Some(LineEntry::Change(change)) => {
                let line = format!("{}: line {line}", self.path.display());
                self.changes.lock().push(AttributeChange { line, ..change });
                return Ok(None);
            }
            Some(LineEntry::Member(member, file)) => (*member, file),
        };
        let Some(file) = file else {
            return Ok(Some((member, 0)));
        };
        let mut files = self.files.lock();
        let number = u32::try_from(files.len()).map_err(|_| "more than 2^32 files")?;
        files.push(file);
        Ok(Some((member, number)))
    }
}

/// Returns the path of a line. One with a slash starts at the top, others in the directory that was entered last, and
/// a directory among these is entered.
fn full_path(dir: &mut Vec<Vec<u8>>, word: &[u8], own: &Keywords) -> Result<Vec<u8>, String> {
    let path = unescape(word)?;
    if path.contains(&b'/') {
        return Ok(path);
    }
    let outer = dir.iter().map(Vec::as_slice);
    let full: Vec<_> = outer.chain([path.as_slice()]).collect();
    let full = full.join(&b'/');
    if full.len() > LONGEST_PATH {
        return Err(format!("a path of more than {LONGEST_PATH} bytes"));
    }
    if own.is_directory() {
        dir.push(path);
    }
    Ok(full)
}

impl ReadTree for Manifest {
    fn members(&self, enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<()>) -> Result<()> {
        let name = self.path.display().to_string();
        let io = |e| SourceError::io(format!("reading {name}"), e);
        let file =
            File::open(&self.path).map_err(|e| SourceError::io(format!("opening {name}"), e))?;
        let mut lines = Lines::new(decompressed(Box::new(file)).map_err(io)?);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = Timestamp::new(now.map_or(0, |d| d.as_secs().cast_signed()), 0);
        let (mut defaults, mut dir) = (Keywords::default(), Vec::<Vec<u8>>::new());
        self.changes.lock().clear();
        while let Some((number, line)) = lines.next().map_err(io)? {
            let bad = |what: String| SourceError::source(&name, format!("line {number}: {what}"));
            let mut words = line
                .split(u8::is_ascii_whitespace)
                .filter(|w| !w.is_empty());
            let Some(first) = words.next() else {
                continue;
            };
            match first {
                b"/set" => defaults.set(words).map_err(bad)?,
                b"/unset" => defaults.unset(words),
                b".." => drop(dir.pop()),
                _ => {
                    let mut own = defaults.clone();
                    own.set(words).map_err(bad)?;
                    let path = full_path(&mut dir, first, &own).map_err(bad)?;
                    if let Some((member, file)) =
                        self.member(path, (&own, number), now).map_err(bad)?
                    {
                        enter(member, file)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn changes(&self) -> Vec<AttributeChange> {
        self.changes.lock().clone()
    }

    fn read_at(&self, file: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let path = self.files.lock().get(file as usize).cloned();
        let path = path.unwrap_or_else(|| Path::new("").into()); // numbers are those given out
        let read = File::open(&path).and_then(|f| f.read_exact_at(buf, offset));
        read.map_err(|e| SourceError::io(format!("reading {}", path.display()), e))
    }
}
