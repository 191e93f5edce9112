//! Random programs whose fast commits e2fsck and the kernel replay. Both must restore the synced state.

use super::{cut, without_times};
use crate::common::*;
use crate::kernel::tree::{Tree, kernel_tree, our_tree, same};
use blockdev::MemDevice;
use extant::{Error, OpenOptions, SetAttributes, SetXattr, Volume, VolumeOptions};
use extant_testing::mounted::{Mounted, able};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Steps of a program, and steps between two crash images.
const STEPS: u64 = 60;
const BETWEEN_CUTS: u64 = 6;

/// Random program over a volume.
struct Program {
    volume: Volume,
    rng: Rng,
    step: u64,
    /// Files that may have unsynced data.
    touched: BTreeSet<String>,
}

impl Program {
    /// Creates a volume with directories of each shape: almost empty, almost full, and with an index.
    fn new(device: &std::sync::Arc<MemDevice>, seed: u64) -> Self {
        let volume = open(device);
        for (dir, names) in [("/few", 2), ("/full", 28), ("/index", 90)] {
            volume.create_dir(dir).unwrap();
            for n in 0..names {
                let name = format!("{dir}/a name of some length {n:02}");
                volume.write(&name, vec![n; usize::from(n) * 40]).unwrap();
            }
        }
        volume.sync().unwrap();
        Self {
            volume,
            rng: Rng::new(seed),
            step: 0,
            touched: BTreeSet::new(),
        }
    }

    /// Returns a random name, which may exist.
    fn name(&mut self) -> String {
        let dir = ["", "/few", "/full", "/index"][self.rng.below(4) as usize];
        match self.rng.below(3) {
            0 => format!("{dir}/f{}", self.rng.below(6)),
            1 => format!("{dir}/a name of some length {:02}", self.rng.below(90)),
            _ => format!("{dir}/{}", "long".repeat(1 + self.rng.below(50) as usize)),
        }
    }

    /// Runs a random operation. The operation may fail because a name is missing or exists.
    fn operation(&mut self) -> extant::Result<()> {
        let (name, other) = (self.name(), self.name());
        // A file that could not be renamed keeps its name.
        let temporary = "/temporary".to_string();
        self.touched
            .extend([name.clone(), other.clone(), temporary]);
        let (volume, rng, step) = (&self.volume, &mut self.rng, self.step);
        let writing = OpenOptions::new().write(true);
        let bytes = |rng: &mut Rng, most| vec![step as u8 | 1; rng.below(most) as usize];
        match rng.below(17) {
            0..4 => volume.write(&name, bytes(rng, 9000)),
            4 => {
                let file = writing.open(volume, &name)?;
                file.write_all_at(&bytes(rng, 3000), rng.below(60_000))
            }
            5 => volume.set_len(&name, rng.below(30_000)),
            6 => volume.hard_link(&name, &other),
            7..9 => volume.rename(&name, &other),
            9 => {
                volume.write("/temporary", bytes(rng, 5000))?;
                volume.rename("/temporary", &other)
            }
            10..12 => volume.remove_file(&name),
            12 => {
                let set = SetAttributes {
                    mode: Some(0o600 | (step % 64) as u16),
                    uid: Some(step as u32 * 1000),
                    ..Default::default()
                };
                volume.set_attributes(&name, &set)
            }
            13 => {
                let len = rng.below(90);
                let value = bytes(rng, len);
                volume.set_xattr(&name, "user.attribute", &value, SetXattr::Any)
            }
            14 => volume.set_permissions(["/few", "/full", "/index"][rng.below(3) as usize], 0o750),
            15 => volume.create_dir(&name).map(drop),
            _ => volume.remove_dir(&name),
        }
    }

    /// Makes all files and directories durable by fsync.
    fn sync(&mut self) {
        for name in std::mem::take(&mut self.touched) {
            if let Ok(file) = OpenOptions::new().write(true).open(&self.volume, &name) {
                file.sync_all().unwrap();
            }
        }
        for dir in ["/", "/few", "/full", "/index"] {
            self.volume.open_dir(dir).unwrap().sync_all().unwrap();
        }
    }

    fn step(&mut self) {
        self.step += 1;
        match self.operation() {
            Ok(())
            | Err(
                Error::NotFound
                | Error::Exists
                | Error::IsDirectory
                | Error::NotDirectory
                | Error::NotEmpty
                // A directory has no second name.
                | Error::NotPermitted,
            ) => {}
            Err(e) => panic!("step {}: {e}", self.step),
        }
    }
}

/// Repairs an image with e2fsck. Returns the resulting tree and the output of e2fsck.
fn by_e2fsck(path: &Path, what: &str) -> (Tree, String) {
    let out = Command::new("e2fsck")
        .args(["-f", "-y"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    let done = out.status.code().is_some_and(|code| code <= 1);
    let whole = !errors.contains("Error") && !errors.contains("while recovering");
    assert!(done && whole, "{what}: {text}\n{errors}");
    assert_clean_file(path, what);
    let left = VolumeOptions::new().read_only(true).open(path).unwrap();
    (our_tree(&left), format!("{what}, e2fsck: {text}"))
}

/// Mounts an image with the kernel, and returns the tree.
fn by_kernel(path: &Path, what: &str) -> Tree {
    let mounted = Mounted::new(path, "");
    let tree = kernel_tree(mounted.path());
    mounted.unmount();
    assert_clean_file(path, what);
    tree
}

#[test]
fn e2fsck_and_the_kernel_replay_the_synced_state() {
    if !able() {
        return;
    }
    let mut fast = 0;
    let mut replayed = 0;
    for seed in seeds(1, 4, 100) {
        let block_size = if seed % 2 == 0 { "4096" } else { "1024" };
        let args = [
            "-t",
            "ext4",
            "-b",
            block_size,
            "-O",
            "fast_commit",
            "-J",
            "size=4",
        ];
        let device = mem_image("20M", &args);
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        let mut program = Program::new(&device, seed);
        for step in 1..=STEPS {
            program.step();
            if program.rng.below(3) > 0 {
                program.sync();
            }
            if step % BETWEEN_CUTS != 0 {
                continue;
            }
            program.sync();
            let what = format!("seed {seed}, step {step}");
            let wanted = without_times(our_tree(&program.volume));
            let cut = cut(&device);
            write_image(&cut, &path);
            if let Some(kept) = std::env::var_os("EXTANT_KEEP") {
                copy_image(&path, kept);
            }
            let (left, said) = by_e2fsck(&path, &what);
            same(&wanted, &without_times(left), &said);
            write_image(&cut, &path);
            same(
                &wanted,
                &without_times(by_kernel(&path, &what)),
                &format!("{what}, kernel"),
            );
            let ours = open(&cut);
            replayed += usize::from(ours.recovery().fast_changes > 0);
            same(&wanted, &without_times(our_tree(&ours)), &what);
            ours.close().unwrap();
            assert_clean(&cut, &what);
        }
        fast += program.volume.statistics().fast_commits;
        program.volume.close().unwrap();
    }
    eprintln!("{fast} fast commits, {replayed} images with some");
    assert!(replayed > 0);
}
