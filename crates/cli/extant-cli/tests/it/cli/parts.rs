//! Partitions of disks as images: every command reaches them, and nothing outside of them changes.

use crate::cli::support::run;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SIZE: u64 = 48 << 20;
/// The bytes of the second partition.
const SECOND: std::ops::Range<usize> = 10 << 20..34 << 20;

struct Disk {
    dir: tempfile::TempDir,
    file: PathBuf,
}

impl Disk {
    /// Returns a GPT disk with a partition left to others and two for us.
    fn new() -> Option<Self> {
        if !needs::have(&["sfdisk", "e2fsck"]) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk.img");
        // Bytes that are neither zeros nor anything a file system would write.
        std::fs::write(&file, vec![0xa5; SIZE as usize]).unwrap();
        let mut child = Command::new("sfdisk")
            .args(["-q", "--wipe", "always"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let script = "label: gpt\nstart=2048, size=4M, type=U, name=esp\nstart=20480, size=24M, type=L, name=root\n\
                      size=8M, type=L, name=\"my data\"\n";
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
        Some(Self { dir, file })
    }

    fn at(&self, rest: &str) -> String {
        format!("{}{rest}", self.file.display())
    }

    fn ok(&self, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.word(a)).collect();
        let ran = run(&args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        ran.text()
    }

    fn fails(&self, args: &[&str]) -> String {
        let args: Vec<String> = args.iter().map(|a| self.word(a)).collect();
        let ran = run(&args);
        assert!(ran.code.is_some_and(|c| c != 0), "{args:?}");
        ran.stderr
    }

    /// Expands a word: `@` begins a partition of the disk, and `%` a file next to the disk.
    fn word(&self, word: &str) -> String {
        match (word.starts_with('@'), word.strip_prefix('%')) {
            (true, _) => self.at(word),
            (_, Some(name)) => self.dir.path().join(name).display().to_string(),
            _ => word.to_string(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.file).unwrap()
    }

    /// Runs e2fsck on a copy of the partition.
    fn clean(&self, range: std::ops::Range<usize>) {
        let copy = self.dir.path().join("copy.img");
        std::fs::write(&copy, &self.bytes()[range]).unwrap();
        e2fsck(&copy);
    }
}

fn e2fsck(image: &Path) {
    let out = Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
}

#[test]
fn a_file_system_is_made_and_used_within_its_partition() {
    let Some(d) = Disk::new() else { return };
    let before = d.bytes();
    d.ok(&["mkfs", "-F", "@p2"]);
    std::fs::write(d.dir.path().join("motd"), "welcome\n").unwrap();
    d.ok(&["cp", "%motd", "@label=root:/motd"]);
    d.ok(&["mkdir", "@p2:/etc"]);
    d.ok(&["mv", "@p2:/motd", "@label=root:/etc/motd"]);
    assert_eq!(
        d.ok(&["cat", "@offset=10M,size=24M:/etc/motd"]),
        "welcome\n"
    );
    assert_eq!(d.ok(&["ls", "@p2:"]), "etc\nlost+found\n");
    for command in ["check", "info", "df", "map", "rescue"] {
        d.ok(&[command, "@p2"]);
    }
    d.ok(&["inspect", "-R", "superblock", "@p2"]);
    assert!(d.ok(&["repair", "-y", "@p2"]).contains("clean"));
    d.ok(&["rm", "@p2:/etc/motd"]);
    d.clean(SECOND);
    let after = d.bytes();
    assert_eq!(after.len(), before.len());
    assert_eq!(after[..SECOND.start], before[..SECOND.start]);
    assert_eq!(after[SECOND.end..], before[SECOND.end..]);
    // Larger than the partition.
    assert!(!d.fails(&["mkfs", "-F", "@p2", "--size", "25M"]).is_empty());
    assert_eq!(d.bytes()[SECOND.end..], before[SECOND.end..]);
}

#[test]
fn a_volume_is_resized_within_its_partition() {
    let Some(d) = Disk::new() else { return };
    let before = d.bytes();
    d.ok(&["mkfs", "-F", "@p2", "--size", "16M"]);
    d.ok(&["resize", "-M", "@label=root"]);
    d.clean(SECOND);
    // The size of the whole partition.
    assert!(
        d.ok(&["resize", "@p2"])
            .contains("to 24576 blocks of 1024 bytes")
    );
    d.clean(SECOND);
    let refused = d.fails(&["resize", "@p2", "25M"]);
    assert!(
        refused.contains("25165824 bytes for the volume"),
        "{refused}"
    );
    let after = d.bytes();
    assert_eq!(after.len(), before.len());
    assert_eq!(after[..SECOND.start], before[..SECOND.start]);
    assert_eq!(after[SECOND.end..], before[SECOND.end..]);
}

#[test]
fn two_partitions_of_a_disk_are_used_at_once() {
    let Some(d) = Disk::new() else { return };
    std::fs::create_dir(d.dir.path().join("tree")).unwrap();
    std::fs::write(d.dir.path().join("tree/file"), "text").unwrap();
    d.ok(&["mkfs", "-F", "@p2", "--from", "%tree"]);
    d.ok(&["mkfs", "-F", "@label=my data"]);
    d.ok(&["cp", "-a", "@p2:/file", "@p3:/copy"]);
    d.ok(&["cp", "@p3:/copy", "@label=my data:/again"]);
    assert_eq!(d.ok(&["cat", "@p3:/again"]), "text");
    assert!(
        d.fails(&["ln", "@p2:/file", "@p3:/link"])
            .contains("another image")
    );
    d.clean(SECOND);
    // A part that overlaps these bytes at another offset is another image, which must not be written to.
    let overlap = d.fails(&["cp", "@p2:/file", "@offset=11M:/x"]);
    assert!(
        overlap.contains("overlap") || overlap.contains("superblock"),
        "{overlap}"
    );
}

#[test]
fn a_disk_lists_its_partitions() {
    let Some(d) = Disk::new() else { return };
    d.ok(&["mkfs", "-F", "-L", "system", "@p2"]);
    let disk = d.at("");
    let text = d.ok(&["info", &disk]);
    assert!(
        text.contains("GPT") && text.contains("@p2") && text.contains("labelled \"system\""),
        "{text}"
    );
    let json = run(&["info", "--json", &disk]).json();
    let rows = json["partitions"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1]["start"], 10 << 20);
    assert_eq!(rows[0]["type"], "EFI system");
    for (args, says) in [
        (["ls", "@p9:"], "no partition 9: see extant info"),
        (["ls", "@label=none:"], "no partition with the label none"),
        (["ls", "@offset=1T:"], "the disk has"),
        (["check", "@offset=1X"], "unknown unit"),
        (["info", "@p1"], "superblock"),
    ] {
        let told = d.fails(&args);
        assert!(told.contains(says), "{args:?}: {told}");
    }
    let told = d.fails(&["ls", &format!("{disk}:")]);
    assert!(told.contains("@p1 is the first"), "{told}");
}

#[test]
fn a_damaged_partition_is_repaired_and_taken_back() {
    let Some(d) = Disk::new() else { return };
    d.ok(&["mkfs", "-F", "@p2"]);
    let mut bytes = d.bytes();
    // Damage the superblock's count of free blocks.
    let sound = bytes.clone();
    let bitmap = SECOND.start + 1024 + 12; // free blocks of the superblock
    bytes[bitmap] ^= 0x55;
    std::fs::write(&d.file, &bytes).unwrap();
    d.fails(&["check", "@p2"]);
    let args = ["repair", "-y", "--undo", "%undo", "@p2"].map(|a| d.word(a));
    assert_eq!(run(&args).code, Some(1));
    d.clean(SECOND);
    assert_eq!(d.bytes()[..SECOND.start], sound[..SECOND.start]);
    d.ok(&["undo", "%undo", "@label=root"]);
    assert_eq!(d.bytes(), bytes);
}

#[test]
fn a_file_whose_name_looks_like_a_part_wins() {
    let Some(d) = Disk::new() else { return };
    d.ok(&["mkfs", "-F", "@p2"]);
    std::fs::copy(&d.file, d.dir.path().join("x")).unwrap();
    d.ok(&["mkfs", "%x@2", "--size", "1M"]);
    std::fs::rename(d.dir.path().join("x@2"), d.at("@p2")).unwrap();
    assert!(d.ok(&["df", "--json", "@p2"]).contains("@p2"));
    let size = run(&["info", "--json", &d.at("@p2")]).json();
    assert!(size["partitions"].is_null());
    assert_eq!(std::fs::metadata(d.at("@p2")).unwrap().len(), 1 << 20);
}
