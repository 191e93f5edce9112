//! Changes in place that are interrupted at any write, and the next opening of the image, under each of its names: the
//! change is rolled back or the image is refused, and no file is lost.

use crate::cli::support::{Scratch, root, run};
use blockdev::{Access, BlockDevice, FaultDevice, FileDevice, Op};
use ext4_image::ImageFile;
use extant::{Dir, FileType, Volume, VolumeOptions};
use extant_resize::{NewSize, ResizeOptions};
use extant_tune::TuneOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOW: u32 = 1_700_000_000;

/// A change to be interrupted.
#[derive(Clone, Copy, Debug)]
enum Change {
    LargerInodes,
    Larger,
    Smaller,
    Features,
    Repair,
}

const CHANGES: [Change; 5] = [
    Change::LargerInodes,
    Change::Larger,
    Change::Smaller,
    Change::Features,
    Change::Repair,
];

impl Change {
    /// Makes the change on a device that may fail; returns the failure.
    fn make(self, device: &dyn BlockDevice, beside: Option<&Path>) -> Result<(), String> {
        let resize = |size, inode_size| {
            let options = ResizeOptions {
                inode_size,
                now: NOW.into(),
                ..ResizeOptions::new(size)
            };
            let plan = extant_resize::plan(device, &options).unwrap();
            plan.write(device, None, beside).map_err(|e| e.to_string())
        };
        match self {
            Self::LargerInodes => resize(NewSize::Same, Some(256)),
            Self::Larger => resize(NewSize::Bytes(40 << 20), None),
            Self::Smaller => resize(NewSize::Least, None),
            Self::Features => {
                let options = TuneOptions {
                    features: "^dir_index,metadata_csum".into(),
                    now: NOW.into(),
                    ..TuneOptions::default()
                };
                let plan = extant_tune::plan(device, &options).unwrap();
                let written = plan.writes.write(device, None, beside);
                written.map_err(|e| e.to_string())
            }
            Self::Repair => {
                let plan = extant_repair::plan(device, NOW, &mut |_| true).unwrap();
                plan.write(device, None, beside).map_err(|e| e.to_string())
            }
        }
    }
}

/// The method of the next opening of the image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Opening {
    OwnName,
    SymbolicLink,
    HardLink,
    Renamed,
    LoopDevice,
    Mount,
    MountByFstab,
    Preen,
    E2fsck,
    SecondChange,
    Listing,
    Copying,
}

const OPENINGS: [Opening; 12] = [
    Opening::OwnName,
    Opening::SymbolicLink,
    Opening::HardLink,
    Opening::Renamed,
    Opening::LoopDevice,
    Opening::Mount,
    Opening::MountByFstab,
    Opening::Preen,
    Opening::E2fsck,
    Opening::SecondChange,
    Opening::Listing,
    Opening::Copying,
];

/// Returns an image with files, of inodes of 128 bytes and without checksums.
pub fn filled() -> Option<Scratch> {
    if !needs::have(&["mke2fs", "e2fsck", "debugfs", "losetup", "mount"]) {
        return None;
    }
    let s = Scratch::in_memory();
    let tree = s.host("tree");
    for i in 0..90u32 {
        let dir = tree.join(format!("directory {}", i % 9));
        std::fs::create_dir_all(&dir).unwrap();
        let data: Vec<u8> = (0..i * 400).map(|n| (n / 7 + i) as u8).collect();
        std::fs::write(dir.join(format!("a file {i}")), data).unwrap();
    }
    let tree = tree.display().to_string();
    let features = "^metadata_csum,^metadata_csum_seed,^flex_bg,^orphan_file";
    let args = ["-t", "ext4", "-I", "128", "-b", "1024", "-g", "4096", "-O"];
    let args = [&args[..], &[features, "-d", &tree]].concat();
    Some(s.made("16M", &args))
}

/// Reads every path and its contents with the engine.
fn files(image: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn walk(dir: &Dir, at: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in dir.read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let path = at.join(entry.file_name());
            match dir.symlink_metadata(&path).unwrap().file_type() {
                FileType::Directory => {
                    found.insert(path.clone(), Vec::new());
                    walk(dir, &path, found);
                }
                _ => {
                    found.insert(path.clone(), dir.read(&path).unwrap());
                }
            }
        }
    }
    let volume: Volume = VolumeOptions::new().read_only(true).open(image).unwrap();
    let mut found = BTreeMap::new();
    walk(&volume, Path::new("/"), &mut found);
    found
}

/// Interrupts a change at this write, as if the process were killed there; returns whether the change is incomplete.
fn interrupt(image: &Path, change: Change, at: u64) -> bool {
    let file = ImageFile::of(image, None).unwrap();
    let device = FaultDevice::new(FileDevice::open(image, Access::ReadWrite).unwrap());
    device.fail_after(Op::Write, at);
    let beside = file.place_of_undo().unwrap();
    change.make(&device, beside.as_deref()).is_err()
}

pub fn is_marked(image: &Path) -> bool {
    let device = FileDevice::open(image, Access::ReadOnly).unwrap();
    ext4_image::mark(&device).unwrap().is_some()
}

/// Runs a program; returns its exit code.
pub fn code(program: &str, args: &[&str]) -> Option<i32> {
    Command::new(program)
        .args(args)
        .output()
        .unwrap()
        .status
        .code()
}

/// A loop device over a file, until it is dropped.
pub struct Loop(pub String);

impl Loop {
    pub fn over(image: &str) -> Self {
        let out = Command::new("losetup")
            .args(["-f", "--show", image])
            .output()
            .unwrap();
        assert!(out.status.success(), "losetup");
        Self(String::from_utf8(out.stdout).unwrap().trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

impl Opening {
    fn needs_root(self) -> bool {
        matches!(self, Self::LoopDevice | Self::Mount | Self::MountByFstab)
    }

    /// Opens an image that carries the mark.
    fn open(self, s: &Scratch) {
        let text = |path: &Path| path.display().to_string();
        let (image, before) = (text(&s.image), s.bytes());
        let other = s.host("other.img");
        let name = text(&other);
        match self {
            Self::OwnName => took(&["repair", "-y", &image]),
            Self::SymbolicLink => {
                std::os::unix::fs::symlink(&s.image, &other).unwrap();
                took(&["repair", "-p", &name]);
            }
            Self::HardLink => {
                std::fs::hard_link(&s.image, &other).unwrap();
                took(&["repair", "-y", &name]);
            }
            Self::Renamed => {
                std::fs::rename(&s.image, &other).unwrap();
                took(&["repair", "-y", &name]);
                std::fs::rename(&other, &s.image).unwrap();
            }
            Self::LoopDevice => {
                let device = Loop::over(&image);
                took(&[
                    "repair",
                    "-y",
                    "--undo",
                    &text(&s.host("second")),
                    &device.0,
                ]);
            }
            Self::Mount | Self::MountByFstab => {
                let dir = text(&s.host("mounted"));
                std::fs::create_dir_all(&dir).unwrap();
                let fstab = text(&s.host("fstab"));
                std::fs::write(&fstab, format!("{image} {dir} ext4 loop 0 2\n")).unwrap();
                let args = match self {
                    Self::Mount => ["-o", "loop,ro", &image, &dir],
                    _ => ["-o", "defaults", "-T", &fstab],
                };
                let more: &[&str] = if self == Self::Mount { &[] } else { &[&dir] };
                assert_ne!(code("mount", &[&args[..], more].concat()), Some(0));
                assert!(s.bytes() == before, "the kernel writes nothing");
            }
            Self::Preen | Self::E2fsck => {
                let how = if self == Self::Preen { "-p" } else { "-fy" };
                assert_eq!(code("e2fsck", &[how, &image]), Some(8));
                assert!(s.bytes() == before, "e2fsck writes nothing");
            }
            Self::SecondChange => {
                let second = text(&s.host("second"));
                took(&["tune", &image, "-L", "second", "--undo", &second]);
                assert_eq!(run(&["undo", &image, &second]).code, Some(0));
            }
            Self::Listing => {
                for args in [["ls", &format!("{image}:/")], ["check", &image]] {
                    let ran = run(&args);
                    assert_ne!(ran.code, Some(0));
                    let says = ran.stderr.contains("`extant undo IMAGE` reverts it");
                    assert!(
                        says && ran.stderr.contains(".extant-undo"),
                        "{}",
                        ran.stderr
                    );
                }
                assert!(s.bytes() == before);
            }
            Self::Copying => took(&["mkdir", &format!("{image}:/new")]),
        }
        let _ = std::fs::remove_file(other);
        let _ = std::fs::remove_file(s.host("second"));
    }
}

/// Runs the command, which must first roll back the change.
fn took(args: &[&str]) {
    let ran = run(args);
    assert!(matches!(ran.code, Some(0 | 1)), "{args:?}: {}", ran.stderr);
    let says = "an interrupted change was reverted";
    assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
}

/// Interrupts a change at a write, opens the image, and rolls back the change; returns whether the change was
/// incomplete.
fn case(s: &Scratch, base: &[u8], change: Change, at: u64, opening: Opening) -> bool {
    let what = format!("{change:?} ended at write {at}, then {opening:?}");
    std::fs::write(&s.image, base).unwrap();
    if !interrupt(&s.image, change, at) {
        return false;
    }
    // Free blocks may hold copies, and a file may be longer than its volume.
    let copies = matches!(change, Change::LargerInodes | Change::Smaller);
    if !is_marked(&s.image) {
        assert!(copies || s.bytes().starts_with(base), "{what}");
        return true;
    }
    opening.open(s);
    let image = s.image.display().to_string();
    if is_marked(&s.image) {
        let ran = run(&["undo", &image]);
        assert_eq!(ran.code, Some(0), "{what}: {}", ran.stderr);
        assert!(copies || s.bytes() == base, "{what}");
    }
    true
}

/// Returns the files of the image after a case, which must be clean for e2fsck.
fn judged(s: &Scratch, what: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let image = s.image.display().to_string();
    assert!(
        matches!(run(&["repair", "-y", &image]).code, Some(0 | 1)),
        "{what}"
    );
    assert_eq!(code("e2fsck", &["-fn", &image]), Some(0), "{what}");
    let mut found = files(&s.image);
    found.remove(Path::new("/new"));
    found
}

#[test]
fn no_file_is_lost_whoever_opens_an_interrupted_change() {
    let Some(s) = filled() else { return };
    let wanted = match std::env::var_os("EXTANT_TORTURE") {
        Some(_) => 2000,
        None => 60,
    };
    let sound = s.bytes();
    let before = files(&s.image);
    assert!(before.len() > 90);
    s.debugfs_write("set_super_value free_inodes_count 3");
    s.debugfs_write("set_inode_field <13> links_count 7");
    s.debugfs_write("freeb 100 40");
    let damaged = s.bytes();
    let is_root = root();
    let (mut cases, mut turn) = (0, 0);
    let mut at = [0; CHANGES.len()];
    while cases < wanted {
        for (change, at) in CHANGES.into_iter().zip(&mut at) {
            let base = match change {
                Change::Repair => &damaged,
                _ => &sound,
            };
            let opening = OPENINGS[turn % OPENINGS.len()];
            turn += 1;
            if opening.needs_root() && !is_root {
                continue;
            }
            if !case(&s, base, change, *at, opening) {
                // The change completed: start again from the first write, with the other openings.
                *at = 0;
                continue;
            }
            *at += 1;
            let what = format!("{change:?} ended at write {at}, then {opening:?}");
            assert!(judged(&s, &what) == before, "{what}: files are lost");
            cases += 1;
        }
    }
    println!("{cases} changes ended at a write and opened, 0 files lost");
}

/// Returns a marked image, its undo file, and the bytes before the change.
pub fn interrupted() -> Option<(Scratch, PathBuf, Vec<u8>)> {
    let s = filled()?;
    let before = s.bytes();
    assert!(interrupt(&s.image, Change::Features, 4) && is_marked(&s.image));
    let undo = s.host("disk.img.extant-undo");
    assert!(undo.exists());
    Some((s, undo, before))
}
