//! Storms of renames, links and removals of a few names.

use super::random::Random;
use super::support::{EXTANT, Mounted, image, over_each, place, script};
use super::tree::unmount_and_compare;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one task of a storm, in `dir`.
fn storm(dir: &Path, seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    for step in 0..steps {
        let mut name = || -> PathBuf {
            let top = dir.join(format!("d{}", random.below(3)));
            match random.below(3) {
                0 => top,
                _ => top.join(format!("n{}", random.below(6))),
            }
        };
        let (a, b) = (name(), name());
        let done = match random.below(10) {
            0 => std::fs::create_dir(&a),
            1 | 2 => std::fs::write(&a, format!("{seed} {step}")),
            3 => std::fs::hard_link(&a, &b),
            4 => std::fs::remove_file(&a),
            5 => std::fs::remove_dir(&a),
            6 => renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).map_err(Into::into),
            7 => renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE).map_err(Into::into),
            8 => std::fs::read_dir(&a)
                .and_then(|names| names.into_iter().try_for_each(|n| n.map(drop))),
            _ => std::fs::rename(&a, &b),
        };
        let Err(error) = done else { continue };
        let errno = Errno::from_io_error(&error).unwrap();
        let of_a_storm = [
            Errno::NOENT,
            Errno::EXIST,
            Errno::NOTDIR,
            Errno::ISDIR,
            Errno::NOTEMPTY,
            Errno::INVAL,
            // A link to a directory.
            Errno::PERM,
        ];
        assert!(of_a_storm.contains(&errno), "{}: {error}", a.display());
    }
}

/// Set in a process that is one task of a storm.
const TASK: &str = "EXTANT_TEST_STORM";

#[test]
fn from_many_processes() {
    if let Some(task) = std::env::var_os(TASK) {
        let task = task.into_string().unwrap();
        let (seed, dir) = task.split_once(' ').unwrap();
        return storm(dir.as_ref(), seed.parse().unwrap(), 1500);
    }
    over_each(|transport| {
        assert!(Path::new(EXTANT).exists());
        let place = place();
        let image = image(place.path(), "64M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let task = |seed: u32| {
            let mut task = Command::new(std::env::current_exe().unwrap());
            task.args([
                "--exact",
                "mount::storm::from_many_processes",
                "--nocapture",
            ]);
            task.env(TASK, format!("{seed} {}", mounted.dir().display()));
            task.spawn().unwrap()
        };
        let tasks: Vec<_> = (1..=6).map(task).collect();
        for mut task in tasks {
            assert!(task.wait().unwrap().success());
        }
        // The kernel drops its caches first. If the last cached name of a file is evicted while another of its names
        // is looked up, Linux makes a new inode from the reply of that lookup, which may be older than a concurrent
        // write.
        let forget = format!("mount -i -o remount '{}'", mounted.dir().display());
        script(Path::new("/"), &forget);
        unmount_and_compare(mounted);
    });
}
