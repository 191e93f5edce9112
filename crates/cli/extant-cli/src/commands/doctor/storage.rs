//! The directories in which images are made.

use super::Finding;
use crate::host::system::{Lack, System};
use extant_cli_core::format::show::{ShowPath, human};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, statvfs};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const IMAGES: &str = "images that take only the space of what is in them";

pub fn findings(system: &System) -> Vec<Finding> {
    let here = PathBuf::from(".");
    let temporary = std::env::temp_dir();
    let elsewhere = "cd /var/tmp";
    vec![
        Finding::needed("current directory", IMAGES, directory(&here, elsewhere)),
        Finding::needed(
            "TMPDIR",
            IMAGES,
            directory(&temporary, "export TMPDIR=/var/tmp"),
        ),
        Finding::optional(
            "O_DIRECT",
            "virtual machines with cache=none",
            direct(&here, elsewhere),
        ),
        Finding::optional(
            "loop devices",
            "the tests that compare with the kernel",
            loops(system),
        ),
    ]
}

/// Tests a directory: makes, writes and punches a sparse file.
fn directory(dir: &Path, elsewhere: &str) -> Result<String, Lack> {
    let shown = match dir.canonicalize() {
        Ok(full) => full.shown(),
        Err(_) => dir.shown(),
    };
    let lack = |what: String| Lack::mended_by(format!("{shown}: {what}"), elsewhere);
    let tried = tempfile::tempfile_in(dir).map_err(|e| lack(cause(&e)))?;
    sparse(tried).map_err(lack)?;
    let free = statvfs(dir).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let free = free.map_or_else(|e| e.to_string(), |bytes| format!("{} free", human(bytes)));
    Ok(format!("{shown}: sparse files and holes, {free}"))
}

/// Returns the system's message, without the path that the crate for temporary files adds.
fn cause(error: &io::Error) -> String {
    let text = match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number).to_string(),
        None => error.kind().to_string(),
    };
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_string(),
        None => text,
    }
}

/// Size of the test file, which is nearly all a hole.
const SIZE: u64 = 64 << 20;
/// Number of bytes written and then punched.
const WRITTEN: usize = 64 << 10;

fn sparse(mut file: File) -> Result<(), String> {
    let said = |e: io::Error| cause(&e);
    file.set_len(SIZE).map_err(said)?;
    file.write_all(&[1; WRITTEN]).map_err(said)?;
    let taken = file.metadata().map_err(said)?.blocks().saturating_mul(512);
    if taken > SIZE / 2 {
        return Err("its file system has no sparse files".into());
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 0, WRITTEN as u64)
        .map_err(|e| format!("its file system punches no holes ({})", cause(&e.into())))
}

fn direct(dir: &Path, elsewhere: &str) -> Result<String, Lack> {
    let lack = |e: io::Error| Lack::mended_by(format!("not here: {}", cause(&e)), elsewhere);
    let made = tempfile::NamedTempFile::new_in(dir).map_err(lack)?;
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(made.path(), flags, Mode::empty()) {
        Ok(_) => Ok("works in the current directory".into()),
        Err(error) => Err(lack(error.into())),
    }
}

fn loops(system: &System) -> Result<String, Lack> {
    if !system.is_root() {
        return Err(Lack::for_good(
            "they take root; nothing here needs them but tests",
        ));
    }
    let control = system.file("/dev/loop-control");
    match File::options().read(true).write(true).open(control) {
        Ok(_) => Ok("can be had".into()),
        Err(error) => Err(Lack::mended_by(
            cause(&error),
            system.as_root("modprobe loop"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_there_is_said_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let lack = directory(&gone, "cd /var/tmp").unwrap_err();
        assert_eq!(
            lack.what,
            format!("{}: No such file or directory", gone.shown())
        );
        assert_eq!(lack.remedy.as_deref(), Some("cd /var/tmp"));
        assert!(
            directory(dir.path(), "")
                .unwrap()
                .contains("sparse files and holes")
        );
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing is left"
        );
    }
}
