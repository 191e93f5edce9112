//! `std::fs` as the judge of the library. Random operations run through `std::fs` on the kernel's ext4 and through this
//! library on a second image. Results, errors and the trees must agree.

use crate::common::*;
use extant::{Error, FileType, OpenOptions, Volume};
use extant_testing::mounted::{Mounted, able};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Operations that both peers have.
trait Peer {
    type File: Read + Write + Seek;
    fn open(&self, path: &str, create: bool, new: bool, truncate: bool) -> io::Result<Self::File>;
    fn write_at(file: &Self::File, offset: u64, data: &[u8]) -> io::Result<usize>;
    fn read_at(file: &Self::File, offset: u64, data: &mut [u8]) -> io::Result<usize>;
    fn set_len(file: &Self::File, len: u64) -> io::Result<()>;
    fn create_dir(&self, path: &str) -> io::Result<()>;
    fn create_dir_all(&self, path: &str) -> io::Result<()>;
    fn remove_file(&self, path: &str) -> io::Result<()>;
    fn remove_dir(&self, path: &str) -> io::Result<()>;
    fn remove_dir_all(&self, path: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn hard_link(&self, from: &str, to: &str) -> io::Result<()>;
    fn symlink(&self, target: &str, path: &str) -> io::Result<()>;
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>>;
    /// The path without links, below the root.
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf>;
    /// Mode, links and size, following links or not.
    fn metadata(&self, path: &str, follow: bool) -> io::Result<(u32, u64, u64)>;
    fn read_dir(&self, path: &str) -> io::Result<Vec<Vec<u8>>>;
    /// The errno of an error.
    fn errno(error: io::Error) -> i32;
}

struct Std(PathBuf);

impl Std {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Peer for Std {
    type File = fs::File;

    fn open(&self, path: &str, create: bool, new: bool, truncate: bool) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(create)
            .create_new(new);
        options.truncate(truncate).mode(0o644).open(self.at(path))
    }
    fn write_at(file: &fs::File, offset: u64, data: &[u8]) -> io::Result<usize> {
        FileExt::write_at(file, data, offset)
    }
    fn read_at(file: &fs::File, offset: u64, data: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(file, data, offset)
    }
    fn set_len(file: &fs::File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o755).create(self.at(path))
    }
    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        fs::DirBuilder::new()
            .mode(0o755)
            .recursive(true)
            .create(self.at(path))
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }
    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        fs::remove_dir_all(self.at(path))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.at(from), self.at(to))
    }
    fn hard_link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.at(from), self.at(to))
    }
    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(target, self.at(path))
    }
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(fs::read_link(self.at(path))?
            .as_os_str()
            .as_bytes()
            .to_vec())
    }
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf> {
        let found = fs::canonicalize(self.at(path))?;
        let root = fs::canonicalize(self.at(""))?;
        Ok(found.strip_prefix(root).unwrap_or(&found).to_owned())
    }
    fn metadata(&self, path: &str, follow: bool) -> io::Result<(u32, u64, u64)> {
        let found = if follow {
            fs::metadata(self.at(path))?
        } else {
            fs::symlink_metadata(self.at(path))?
        };
        Ok((found.mode(), found.nlink(), found.size()))
    }
    fn read_dir(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        fs::read_dir(self.at(path))?
            .map(|entry| Ok(entry?.file_name().as_bytes().to_vec()))
            .collect()
    }
    fn errno(error: io::Error) -> i32 {
        error
            .raw_os_error()
            .unwrap_or_else(|| panic!("no errno: {error:?}"))
    }
}

impl Peer for Volume {
    type File = extant::File;

    fn open(
        &self,
        path: &str,
        create: bool,
        new: bool,
        truncate: bool,
    ) -> io::Result<extant::File> {
        let options = OpenOptions::new().read(true).write(true);
        let options = options.create(create).truncate(truncate).create_new(new);
        Ok(options.open(self, path)?)
    }
    fn write_at(file: &extant::File, offset: u64, data: &[u8]) -> io::Result<usize> {
        Ok(file.write_at(data, offset)?)
    }
    fn read_at(file: &extant::File, offset: u64, data: &mut [u8]) -> io::Result<usize> {
        Ok(file.read_at(data, offset)?)
    }
    fn set_len(file: &extant::File, len: u64) -> io::Result<()> {
        Ok(file.set_len(len)?)
    }
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.root().create_dir(path)?;
        Ok(())
    }
    fn create_dir_all(&self, path: &str) -> io::Result<()> {
        Ok(self.root().create_dir_all(path)?)
    }
    fn remove_file(&self, path: &str) -> io::Result<()> {
        Ok(self.root().remove_file(path)?)
    }
    fn remove_dir(&self, path: &str) -> io::Result<()> {
        Ok(self.root().remove_dir(path)?)
    }
    fn remove_dir_all(&self, path: &str) -> io::Result<()> {
        Ok(self.root().remove_dir_all(path)?)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(self.root().rename(from, to)?)
    }
    fn hard_link(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(self.root().hard_link(from, to)?)
    }
    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        Ok(self.root().symlink(target, path)?)
    }
    fn read_link(&self, path: &str) -> io::Result<Vec<u8>> {
        Ok(self
            .root()
            .read_link(path)?
            .into_os_string()
            .into_encoded_bytes())
    }
    fn canonicalize(&self, path: &str) -> io::Result<PathBuf> {
        let found = self.root().canonicalize(path)?;
        Ok(found.strip_prefix("/").unwrap_or(&found).to_owned())
    }
    fn metadata(&self, path: &str, follow: bool) -> io::Result<(u32, u64, u64)> {
        let found = if follow {
            self.root().metadata(path)?
        } else {
            self.root().symlink_metadata(path)?
        };
        Ok((found.mode(), u64::from(found.nlink()), found.len()))
    }
    fn read_dir(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        let names = self.root().read_dir(path)?;
        let name =
            |entry: extant::Result<extant::DirEntry>| Ok(entry?.file_name().as_bytes().to_vec());
        names.map(name).collect()
    }
    fn errno(error: io::Error) -> i32 {
        let kind = error.kind();
        let error: Error = error.downcast().expect("the library's error is the cause");
        let errno = error.errno();
        assert_eq!(io::Error::from_raw_os_error(errno).kind(), kind, "{error}");
        errno
    }
}

/// Runs one random operation. The text contains its full result.
fn step<P: Peer>(peer: &P, rng: &mut Rng) -> String {
    let path = path(rng);
    let other = self::path(rng);
    let (choice, number) = (rng.below(20), rng.below(9000));
    let done =
        |result: io::Result<String>| result.unwrap_or_else(|e| format!("errno {}", P::errno(e)));
    let plain = |result: io::Result<()>| done(result.map(|()| "done".into()));
    let bytes: Vec<u8> = (0..number).map(|n| (n ^ number) as u8).collect();
    let result = match choice {
        0 | 1 => plain(peer.create_dir(&path)),
        2 => plain(peer.create_dir_all(&path)),
        3 => plain(peer.remove_file(&path)),
        4 => plain(peer.remove_dir(&path)),
        5 if number < 3000 => plain(peer.remove_dir_all(&path)),
        6 | 7 => plain(peer.rename(&path, &other)),
        8 => plain(peer.hard_link(&path, &other)),
        9 => plain(peer.symlink(&other, &path)),
        10 if number < 4500 => done(peer.canonicalize(&path).map(|p| format!("{p:?}"))),
        10 => done(peer.read_link(&path).map(|t| format!("{t:?}"))),
        11 => done(
            peer.metadata(&path, number.is_multiple_of(2))
                .map(|m| shown(&m)),
        ),
        12 => done(peer.read_dir(&path).map(sorted)),
        _ => done(use_file(peer, &path, choice, number, &bytes)),
    };
    format!("{choice} {path} {other} {number}: {result}")
}

/// Does something with an open file.
fn use_file<P: Peer>(
    peer: &P,
    path: &str,
    choice: u64,
    number: u64,
    bytes: &[u8],
) -> io::Result<String> {
    let mut file = peer.open(
        path,
        choice.is_multiple_of(2),
        choice == 15,
        choice == 16 && number.is_multiple_of(2),
    )?;
    match choice {
        13 | 14 => file.write_all(bytes)?,
        15 | 16 => {
            file.seek(SeekFrom::End(-(number as i64).min(50)))?;
            file.write_all(&bytes[..bytes.len().min(300)])?;
        }
        17 => P::set_len(&file, number * 3)?,
        18 => return P::write_at(&file, number * 2, bytes).map(|n| n.to_string()),
        _ => {
            let mut found = vec![0; 500];
            let n = P::read_at(&file, number, &mut found)?;
            return Ok(format!("{:?}", &found[..n]));
        }
    }
    let at = file.stream_position()?;
    file.rewind()?;
    let mut all = Vec::new();
    file.read_to_end(&mut all)?;
    let sum = all
        .iter()
        .fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
    Ok(format!("{at} {} {sum:x}", all.len()))
}

/// The size of a directory depends on its blocks, which differ between file systems.
fn shown((mode, links, size): &(u32, u64, u64)) -> String {
    let is_dir = mode & 0o170_000 == 0o040_000;
    format!("{mode:o} {links} {}", if is_dir { 0 } else { *size })
}

fn sorted(mut names: Vec<Vec<u8>>) -> String {
    names.sort();
    let names: Vec<_> = names
        .iter()
        .map(|n| String::from_utf8_lossy(n).into_owned())
        .collect();
    names.join(" ")
}

/// A path of one to three names out of few, so that names meet.
fn path(rng: &mut Rng) -> String {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "a-long-name-that-is-not-so-short"];
    let names = (0..rng.below(3) + 1).map(|_| NAMES[rng.below(NAMES.len() as u64) as usize]);
    names.collect::<Vec<_>>().join("/")
}

/// Every name below the root with its metadata, contents and target.
fn tree<P: Peer>(peer: &P) -> Vec<String> {
    let mut lines = Vec::new();
    let mut dirs = vec![".".to_string()];
    while let Some(dir) = dirs.pop() {
        for name in peer.read_dir(&dir).unwrap() {
            let path = format!("{dir}/{}", String::from_utf8_lossy(&name));
            if path == "./lost+found" {
                continue;
            }
            let found = peer.metadata(&path, false).unwrap();
            let content = match found.0 & 0o170_000 {
                0o040_000 => {
                    dirs.push(path.clone());
                    String::new()
                }
                0o120_000 => format!("{:?}", peer.read_link(&path).unwrap()),
                _ => {
                    let mut all = Vec::new();
                    let mut file = peer.open(&path, false, false, false).unwrap();
                    file.read_to_end(&mut all).unwrap();
                    format!("{all:?}")
                }
            };
            lines.push(format!("{path} {} {content}", shown(&found)));
        }
    }
    lines.sort();
    lines
}

fn compare(seed: u64, steps: u64) {
    let dir = tempfile::tempdir().unwrap();
    let image = |name: &str| dir.path().join(name);
    for name in ["kernel", "library"] {
        mke2fs(&image(name), "64M", &["-t", "ext4", "-J", "size=4"]);
    }
    let mounted = Mounted::new(&image("kernel"), "");
    let (std, volume) = (
        Std(mounted.path().to_path_buf()),
        Volume::open(image("library")).unwrap(),
    );
    let (mut one, mut two) = (Rng::new(seed), Rng::new(seed));
    let mut succeeded = 0;
    for n in 0..steps {
        let (theirs, ours) = (step(&std, &mut one), step(&volume, &mut two));
        assert_eq!(ours, theirs, "seed {seed}, step {n}");
        succeeded += u64::from(!ours.contains("errno"));
    }
    let (theirs, ours) = (tree(&std), tree(&volume));
    assert_eq!(ours, theirs, "seed {seed}");
    assert!(succeeded > steps / 10, "{succeeded} of {steps} succeeded");
    volume.close().unwrap();
    mounted.unmount();
    assert_clean_file(&image("library"), "what the library made");
}

#[test]
fn ten_thousand_operations_agree_with_std_fs() {
    if !able() {
        return;
    }
    // The modes given lose nothing by any usual mask.
    for seed in seeds(1, 4, 40) {
        compare(seed, 2_500);
    }
}

/// A path is never followed out of the volume: the peers' roots are compared by their contents.
#[test]
fn the_peers_begin_alike() {
    if !able() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("image");
    mke2fs(path, "16M", &["-t", "ext4"]);
    let volume = Volume::open(path).unwrap();
    assert_eq!(
        volume
            .root()
            .symlink_metadata("lost+found")
            .unwrap()
            .file_type(),
        FileType::Directory
    );
    assert!(tree(&volume).is_empty());
}
