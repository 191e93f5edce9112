//! POSIX by table: several hundred cases of good and bad uses of each call, run on the mount and on the kernel's ext4,
//! whose results must be equal, line by line.
//!
//! A case is a text of calls (`table/`, parsed by `script`). The result of each call is a line, without inode numbers
//! and times. `accepted.txt` lists the lines that may differ, each with its reason; an entry that is no longer needed
//! fails the test.

mod acl;
mod attributes;
mod data;
mod names;
mod script;
pub mod sys;
mod volume_calls;
mod world;

use super::other_kernel::run_job;
use super::support::{Kernel, Mounted, image, over_each, place, run};
use script::Case;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const TABLE: &[&str] = &[
    include_str!("table/open.txt"),
    include_str!("table/names.txt"),
    include_str!("table/rename.txt"),
    include_str!("table/data.txt"),
    include_str!("table/attributes.txt"),
    include_str!("table/xattrs.txt"),
    include_str!("table/flags.txt"),
    include_str!("table/special.txt"),
];

/// The last call on a volume.
const SHUTDOWN: &[&str] = &[include_str!("table/shutdown.txt")];

/// Volumes without free space.
const FULL: &[&str] = &[include_str!("table/full.txt")];

/// Volumes with the feature project.
const PROJECTS: &[&str] = &[include_str!("table/projects.txt")];

/// Volumes with the maximum number of links.
const LINKS: &[&str] = &[include_str!("table/links.txt")];

const ACCEPTED: &str = include_str!("accepted.txt");
/// The differences of a mount without the write-back cache.
const ACCEPTED_WRITETHROUGH: &str = include_str!("accepted-writethrough.txt");

/// Returns the lines in which the mount differs from the kernel, as `accepted.txt` spells them.
fn differences(ours: &[String], kernels: &[String]) -> BTreeSet<String> {
    let pairs = ours.iter().zip(kernels);
    let different = pairs.filter(|(a, b)| a != b);
    different
        .map(|(ours, kernels)| {
            let outcome = ours.rsplit(" => ").next().unwrap();
            format!("{kernels} | {outcome}")
        })
        .collect()
}

/// Returns the entries of a list for these cases: the required differences, and the allowed ones.
fn accepted(list: &str, cases: &[Case]) -> [BTreeSet<String>; 2] {
    let lines = list.lines().map(str::trim);
    let entries = lines.filter(|l| !l.is_empty() && !l.starts_with('#'));
    let ours = |l: &&str| {
        let name = l.split(": ").next().unwrap();
        cases.iter().any(|c| c.name == name)
    };
    let of = |may: bool| {
        let entries = entries.clone().filter(move |l| l.starts_with("? ") == may);
        let plain = entries.map(|l| l.trim_start_matches("? "));
        plain.filter(ours).map(Into::into).collect()
    };
    [of(false), of(true)]
}

fn play_all(dir: &Path, cases: &[Case]) -> Vec<String> {
    let lines = cases.iter().flat_map(|case| world::play(dir, case));
    let lines = lines.collect();
    std::env::set_current_dir("/").unwrap();
    lines
}

/// Parses the cases of these texts; EXTANT_POSIX may select them by a prefix.
fn cases(texts: &[&'static str]) -> Vec<Case> {
    let mut cases: Vec<_> = texts.iter().flat_map(|t| script::parse(t)).collect();
    let names: BTreeSet<_> = cases.iter().map(|c| c.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have one name");
    if let Ok(wanted) = std::env::var("EXTANT_POSIX") {
        cases.retain(|c| c.name.starts_with(&wanted));
    }
    cases
}

fn compare(cases: &[Case], ours: &[String], kernels: &[String]) {
    compare_by(ACCEPTED, cases, ours, kernels);
}

/// Compares by a list of accepted differences.
fn compare_by(list: &str, cases: &[Case], ours: &[String], kernels: &[String]) {
    assert_eq!(ours.len(), kernels.len());
    let found = differences(ours, kernels);
    let [accepted, may] = accepted(list, cases);
    let new = found.difference(&accepted).filter(|l| !may.contains(*l));
    let new: Vec<_> = new.cloned().collect();
    let stale: Vec<_> = accepted.difference(&found).cloned().collect();
    assert!(
        new.is_empty() && stale.is_empty(),
        "the kernel's | ours, {} of {} lines:\n{}\n\naccepted, but not so: {}\n{}",
        new.len(),
        ours.len(),
        new.join("\n"),
        stale.len(),
        stale.join("\n")
    );
}

const SIZE: &str = "512M";
const MAKE: &[&str] = &["-b", "4096", "-L", "table", "-E", "lazy_itable_init=0"];
const PROJECT: &[&str] = &["-O", "project"];

#[test]
fn calls_answer_as_on_the_kernels_ext4() {
    on_one_volume(ACCEPTED, &["allow_other"]);
}

/// Without the write-back cache the server keeps the times of files, and learns of every write.
#[test]
fn calls_answer_as_on_the_kernels_ext4_without_write_back() {
    on_one_volume(ACCEPTED_WRITETHROUGH, &["allow_other", "writethrough"]);
}

/// Runs the table on one volume, mounted with these options, and on the kernel's.
fn on_one_volume(accepted: &str, options: &[&str]) {
    let cases = cases(TABLE);
    let kernels = OnceCell::new();
    over_each(|transport| {
        let kernels = kernels.get_or_init(|| {
            let place = place();
            let image = image(place.path(), SIZE, MAKE);
            let kernel = Kernel::new(&image, "rw");
            play_all(kernel.dir(), &cases)
        });
        if let Ok(path) = std::env::var("EXTANT_POSIX_SHOW") {
            std::fs::write(path, kernels.join("\n")).unwrap();
        }
        let place = place();
        let image = image(place.path(), SIZE, MAKE);
        let mounted = Mounted::new(&image, transport, options);
        let ours = play_all(mounted.dir(), &cases);
        mounted.unmount();
        compare_by(accepted, &cases, &ours, kernels);
    });
}

/// Runs each case on separate volumes, which `make` makes in a directory: first the kernel's, then ours.
fn on_own_volumes(
    texts: &[&'static str],
    make: impl Fn(&Path, &Case) -> PathBuf,
    end: impl Fn(Mounted),
) {
    let cases = cases(texts);
    let kernels = OnceCell::new();
    over_each(|transport| {
        let play = |case: &Case| {
            let place = place();
            let kernel = Kernel::new(&make(place.path(), case), "rw");
            play_all(kernel.dir(), std::slice::from_ref(case))
        };
        let kernels: &Vec<String> = kernels.get_or_init(|| cases.iter().flat_map(play).collect());
        let play = |case: &Case| {
            let place = place();
            let mounted = Mounted::new(&make(place.path(), case), transport, &["allow_other"]);
            let ours = play_all(mounted.dir(), std::slice::from_ref(case));
            end(mounted);
            ours
        };
        let ours: Vec<_> = cases.iter().flat_map(play).collect();
        compare(&cases, &ours, kernels);
    });
}

#[test]
fn a_volume_that_is_shut_down_answers_as_the_kernels() {
    let make = |dir: &Path, _: &Case| image(dir, "64M", MAKE);
    on_own_volumes(SHUTDOWN, make, drop);
}

#[test]
fn a_full_volume_answers_as_the_kernels() {
    let make = |dir: &Path, case: &Case| {
        let (theme, _) = case.name.split_once('/').unwrap();
        let more: &[&str] = match theme {
            "inodes" => &["-N", "32"],
            _ if case.name == "full/reserve" => &["-m", "10"],
            _ => &["-m", "0"],
        };
        image(dir, "24M", &[MAKE, &["-J", "size=4"], more].concat())
    };
    on_own_volumes(FULL, make, Mounted::unmount);
}

/// Directory in which [`answers_here`] runs the cases of projects, in another kernel.
const PLAY_IN: &str = "EXTANT_POSIX_DIR";

/// Prints the answers of the kernel that this runs on, between two lines of equals signs.
#[test]
fn answers_here() {
    if let Some(dir) = std::env::var_os(PLAY_IN) {
        let lines = play_all(Path::new(&dir), &cases(PROJECTS));
        println!("\n====\n{}\n====", lines.join("\n"));
    }
}

/// Returns the answers of Debian's kernel, which runs this program from the image itself; `None` if it cannot run here.
fn answers_of_another_kernel(cases: &[Case]) -> Option<Vec<String>> {
    let place = place();
    let image = image(place.path(), "256M", &[MAKE, PROJECT].concat());
    let me = std::env::current_exe().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let words = maps.split_whitespace();
    let libraries: BTreeSet<&str> = words
        .filter(|w| w.starts_with('/') && w.contains(".so"))
        .collect();
    let mut requests = format!("write {} test\nsif test mode 0100755\n", me.display());
    let mut loader = "";
    for file in libraries {
        let (_, name) = file.rsplit_once('/').unwrap();
        requests += &format!("write {file} {name}\nsif {name} mode 0100755\n");
        if name.starts_with("ld-") {
            loader = name;
        }
    }
    let list = place.path().join("requests");
    std::fs::write(&list, requests).unwrap();
    run(Command::new("debugfs").arg("-wf").arg(&list).arg(&image));
    let job = format!(
        "mkdir play; export {PLAY_IN}=/mnt/play TMPDIR=/tmp
         ./{loader} --library-path /mnt ./test --exact mount::posix::answers_here --nocapture --test-threads 1\n"
    );
    let said = run_job(&image, &job)?;
    let (_, answers) = said.split_once("====\n").expect(&said);
    let (answers, _) = answers.split_once("\n====").expect(&said);
    let answers: Vec<String> = answers.lines().map(Into::into).collect();
    let steps: usize = cases.iter().map(|c| c.steps.len()).sum();
    assert_eq!(answers.len(), steps);
    Some(answers)
}

/// Linux writes such volumes only if it is built with quotas, as Debian's is.
#[test]
fn a_volume_with_projects_answers_as_another_kernels() {
    let cases = cases(PROJECTS);
    let kernels = OnceCell::new();
    over_each(|transport| {
        needs::tools!("qemu-system-x86_64", "busybox", "debugfs");
        let kernels = kernels.get_or_init(|| answers_of_another_kernel(&cases));
        let Some(kernels) = kernels else { return };
        let place = place();
        let image = image(place.path(), "64M", &[MAKE, PROJECT].concat());
        let mounted = Mounted::new(&image, transport, &["allow_other"]);
        let ours = play_all(mounted.dir(), &cases);
        mounted.unmount();
        compare(&cases, &ours, kernels);
    });
}

/// Makes the directory `many` with 64,997 subdirectories and the file `file` with 64,999 names in this process,
/// because calls on a mount would take a minute.
fn make_links(image: &Path) -> extant::Result<()> {
    let volume = extant::VolumeOptions::new().open(image)?;
    let many = volume.create_dir("/many")?;
    (0..64_997).try_for_each(|n| many.create_dir(n.to_string()).map(drop))?;
    volume.create_new_file("/file")?;
    volume.create_dir("/names")?;
    (1..64_999).try_for_each(|n| volume.hard_link("/file", format!("/names/{n}")))?;
    volume.close()
}

#[test]
fn as_many_links_as_there_can_be_answer_as_the_kernels() {
    let prepared = place();
    let made = OnceCell::new();
    let make = |dir: &Path, case: &Case| {
        let made = made.get_or_init(|| {
            let args = ["-b", "1024", "-N", "70000", "-O", "^dir_nlink"];
            let made = image(prepared.path(), "192M", &args);
            make_links(&made).unwrap();
            made
        });
        let copy = dir.join("disk.img");
        run(Command::new("cp")
            .arg("--sparse=always")
            .args([made, &copy]));
        if case.name != "links/counted" {
            // The directory does not have the number of links yet at which the feature begins to matter.
            run(Command::new("tune2fs").args(["-O", "dir_nlink"]).arg(&copy));
        }
        copy
    };
    on_own_volumes(LINKS, make, Mounted::unmount);
}

#[test]
fn the_table_is_large() {
    let cases = cases(TABLE);
    let calls: usize = cases.iter().map(|c| c.steps.len()).sum();
    assert!(cases.len() > 100 && calls > 2000);
}
