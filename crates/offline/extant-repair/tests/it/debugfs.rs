//! Images that mke2fs and debugfs make, edited byte by byte.

use crate::it::image;
use crate::it::verdict;
use blockdev::MemDevice;
use extant_repair::Plan;
use extant_testing::common::load_image;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NOW: u32 = 1_700_000_000;
/// Features of an image without checksums.
pub const WITHOUT_CHECKSUMS: &str = "^metadata_csum,^metadata_csum_seed,^uninit_bg";

/// Image file in a temporary directory.
pub struct Image {
    dir: tempfile::TempDir,
    pub block: u64,
}

impl Image {
    /// Creates a new image; `args` set the size of its blocks.
    pub fn new(size: &str, block: u64, args: &[&str]) -> Self {
        let dir = needs::memory_dir();
        let image = Self { dir, block };
        let block = block.to_string();
        let args = [&["-t", "ext4", "-b", &block], args].concat();
        crate::it::common::mke2fs(&image.path(), size, &args);
        image
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Writes a file next to the image.
    pub fn beside(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Returns the output of debugfs for a request.
    pub fn ask(&self, request: &str) -> String {
        let out = Command::new("debugfs")
            .args(["-R", request])
            .arg(self.path())
            .output();
        String::from_utf8_lossy(&out.unwrap().stdout).into_owned()
    }

    /// Changes the image by debugfs.
    pub fn change(&self, requests: &[&str]) {
        for request in requests {
            let out = Command::new("debugfs")
                .args(["-w", "-R", request])
                .arg(self.path())
                .output();
            assert!(out.unwrap().status.success(), "{request}");
        }
    }

    /// Adds a file.
    pub fn write(&self, path: &str, content: &[u8]) {
        let from = self.beside("content", content);
        self.change(&[&format!("write {} {path}", from.display())]);
    }

    /// Returns the blocks of a file, in their order.
    pub fn blocks(&self, path: &str) -> Vec<u64> {
        let said = self.ask(&format!("blocks {path}"));
        said.split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect()
    }

    /// Returns the offset of an inode's record.
    pub fn record(&self, path: &str) -> u64 {
        let said = self.ask(&format!("imap {path}"));
        let (_, place) = said.split_once("at block ").unwrap();
        let (block, offset) = place.split_once(", offset 0x").unwrap();
        let offset = u64::from_str_radix(offset.split_whitespace().next().unwrap(), 16).unwrap();
        block.parse::<u64>().unwrap() * self.block + offset
    }

    /// Changes bytes from an offset on.
    pub fn edit(&self, at: u64, len: usize, change: impl FnOnce(&mut [u8])) {
        let mut bytes = std::fs::read(self.path()).unwrap();
        let at = usize::try_from(at).unwrap();
        change(&mut bytes[at..at + len]);
        std::fs::write(self.path(), bytes).unwrap();
    }

    pub fn device(&self) -> MemDevice {
        load_image(self.path())
    }

    /// Asserts that e2fsck and the check find the image clean.
    pub fn assert_clean(&self, what: &str) {
        let device = self.device();
        let (clean, text) = verdict::judge(&device);
        assert!(clean, "{what}: {text}");
        let found = extant_check::check(&device, &extant_check::CheckOptions::default()).unwrap();
        assert_eq!(found.faults, 0, "{what}: {:#?}", found.findings);
    }

    /// Repairs the image, which the judge and the check find clean then; both find it broken before.
    pub fn mend(&self, what: &str) -> Plan {
        let device = self.device();
        assert!(!verdict::judge(&device).0, "{what} is broken");
        let found = extant_check::check(&device, &extant_check::CheckOptions::default()).unwrap();
        assert_ne!(found.faults + found.notes, 0, "{what}");
        self.repair(what)
    }

    /// Repairs the image, which the judge and the check find clean then.
    pub fn repair(&self, what: &str) -> Plan {
        let device = self.device();
        let plan = extant_repair::plan(&device, NOW, &mut |_| true).unwrap();
        plan.apply(&device).unwrap();
        std::fs::write(self.path(), device.to_bytes().unwrap()).unwrap();
        let (clean, text) = verdict::judge(&device);
        assert!(clean, "{what}: {:#?}\n{text}", plan.mends);
        assert_eq!(plan.after.faults, 0, "{what}: {:#?}", plan.after.findings);
        plan
    }

    /// Returns the regular files, by path.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files_in(&self.path()).expect("files that are not too long")
    }

    /// Returns another image with the same bytes.
    pub fn copy(from: &Self) -> Self {
        let dir = needs::memory_dir();
        let image = Self {
            dir,
            block: from.block,
        };
        std::fs::copy(from.path(), image.path()).unwrap();
        image
    }

    /// Runs a program over the image.
    pub fn run(&self, program: &str, args: &[&str]) {
        let out = Command::new(program).args(args).arg(self.path()).output();
        out.unwrap();
    }
}

/// Returns the regular files of an image, by path; `None` if a broken size makes one of them too long to read.
pub fn files_in(image: &Path) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
    let to = tempfile::tempdir_in(image.parent().unwrap()).unwrap();
    let request = format!("rdump / {}", to.path().display());
    // debugfs fills holes. In units of 512 bytes; the program ends where a file has more.
    let limited = "ulimit -f 65536; exec timeout -s KILL 20 debugfs -R \"$1\" \"$2\"";
    let out = Command::new("sh")
        .args(["-c", limited, "sh", &request])
        .arg(image)
        .output();
    out.unwrap().status.code().filter(|&code| code < 128)?;
    let files = image::contents(to.path(), |kind| kind.is_file());
    Some(files.into_iter().collect())
}
