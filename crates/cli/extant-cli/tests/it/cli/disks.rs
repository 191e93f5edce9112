//! Whole disks made in one command; sfdisk, sgdisk, e2fsck and the kernel judge.

use crate::cli::support::run;
use std::path::Path;
use std::process::Command;

const ID: &str = "6e4f9d2c-0b1a-4c55-9a70-2f8f3c1d5e77";

fn made(dir: &Path, name: &str) -> String {
    let disk = dir.join(name).display().to_string();
    let root = format!("root={}", dir.join("tree").display());
    let out = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args([
            "disk", &disk, "--esp", "4M", "--ext4", &root, "--ext4", "data=:9M", "-U", ID,
        ])
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    disk
}

/// Returns the output of a program that succeeds.
fn told(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{program}: {text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("tree/etc")).unwrap();
    std::fs::write(dir.path().join("tree/etc/motd"), "welcome\n").unwrap();
    dir
}

#[test]
fn a_disk_is_made_in_one_command() {
    needs::tools!("sfdisk", "sgdisk", "e2fsck");
    let dir = tree();
    let disk = made(dir.path(), "disk.img");
    let table = told("sfdisk", &["-d", &disk]);
    assert!(
        table.contains("label-id: 6E4F9D2C-0B1A-4C55-9A70-2F8F3C1D5E77"),
        "{table}"
    );
    let types = [
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
        "0FC63DAF-8483-4772-8E79-3D69D8477DE4",
    ];
    assert_eq!(types.map(|t| table.matches(t).count()), [1, 2], "{table}");
    assert!(
        table.contains("start=        2048, size=        8192") && table.contains("name=\"root\""),
        "{table}"
    );
    let judged = told("sgdisk", &["-v", &disk]);
    assert!(judged.contains("No problems found"), "{judged}");
    assert_eq!(
        run(&["cat", &format!("{disk}@label=root:/etc/motd")]).text(),
        "welcome\n"
    );
    let bytes = std::fs::read(&disk).unwrap();
    for row in run(&["info", "--json", &disk]).json()["partitions"]
        .as_array()
        .unwrap()
    {
        assert!(row["problem"].is_null(), "{row}");
        let field = |name: &str| row[name].as_u64().unwrap() as usize;
        let part = &bytes[field("start")..field("start") + field("size")];
        if field("number") == 1 {
            assert!(part.iter().all(|b| *b == 0));
            continue;
        }
        let copy = dir.path().join("part.img");
        std::fs::write(&copy, part).unwrap();
        told("e2fsck", &["-fn", copy.to_str().unwrap()]);
    }
}

#[test]
fn the_same_input_gives_the_same_disk() {
    let dir = tree();
    let [one, two] = ["one.img", "two.img"].map(|name| made(dir.path(), name));
    assert!(std::fs::read(&one).unwrap() == std::fs::read(two).unwrap());
    // A disk image with data is not replaced by default, and stays unchanged.
    let refused = run(&["disk", &one, "--ext4", "x=:9M"]);
    assert!(
        refused.code != Some(0) && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        run(&["cat", &format!("{one}@p2:/etc/motd")]).text(),
        "welcome\n"
    );
    for wrong in ["x", "x=", "x=/no/such/tree", "x=:1X"] {
        let new = dir.path().join("new.img").display().to_string();
        let refused = run(&["disk", &new, "--ext4", wrong]);
        assert!(
            refused.code != Some(0) && !Path::new(&new).exists(),
            "{wrong}"
        );
    }
}

/// A loop device with a mount; dropping it unmounts and removes both.
struct Loop(String, std::path::PathBuf);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.1).output();
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn the_kernel_mounts_its_partitions() {
    needs::tools!("losetup", "mount");
    needs::that!(is_root(), "this is not root");
    let dir = tree();
    let disk = made(dir.path(), "disk.img");
    // If the kernel does not scan loop devices for partitions, and without udev, the bytes of a partition still form a
    // device.
    let root = &run(&["info", "--json", &disk]).json()["partitions"][1];
    let [start, size] = ["start", "size"].map(|field| root[field].to_string());
    let found = Command::new("losetup")
        .args(["-f", "--show", "-o", &start, "--sizelimit", &size, &disk])
        .output()
        .unwrap();
    needs::that!(found.status.success(), "there are no loop devices");
    let point = dir.path().join("mnt");
    std::fs::create_dir(&point).unwrap();
    let device = String::from_utf8_lossy(&found.stdout).trim().to_string();
    let device = Loop(device, point.clone());
    let to = point.to_str().unwrap();
    told("mount", &["-t", "ext4", "-o", "ro", &device.0, to]);
    let motd = std::fs::read_to_string(point.join("etc/motd"));
    assert_eq!(motd.unwrap(), "welcome\n");
    drop(device);
    assert!(!point.join("etc").exists());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_disk_with_an_mbr_has_layers_in_its_partitions() {
    needs::tools!("sfdisk", "e2fsck");
    let dir = tree();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::create_dir(path("more")).unwrap();
    std::fs::write(path("more/added"), "layer\n").unwrap();
    std::fs::create_dir(path("last")).unwrap();
    std::fs::write(path("last/added"), "last\n").unwrap();
    let disk = path("dos.img");
    let root = format!("root={}", path("tree"));
    let [more, last] = ["more", "last"].map(|name| format!("root={}", path(name)));
    let line = [
        "disk",
        &disk,
        "--label-type",
        "dos",
        "--esp",
        "4M",
        "--ext4",
        &root,
        "--from",
        &more,
        "--ext4",
        "data=:9M",
        "--from",
        &last,
        "-U",
        ID,
    ];
    let ran = run(&line);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.text().contains("3 partitions, MBR 6e4f9d2c"),
        "{}",
        ran.text()
    );
    let table = told("sfdisk", &["-d", &disk]);
    for part in [
        "label: dos",
        "label-id: 0x6e4f9d2c",
        "start=        2048, size=        8192, type=ef",
        "type=83",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let judged = told("sfdisk", &["-V", &disk]);
    assert!(judged.contains("No errors detected"), "{judged}");
    let cat = |file: &str| run(&["cat", &format!("{disk}@p2:/{file}")]).text();
    assert_eq!(
        (cat("etc/motd"), cat("added")),
        ("welcome\n".into(), "last\n".into())
    );
    assert_eq!(run(&["check", &format!("{disk}@p3")]).code, Some(0));
    let info = run(&["info", "--json", &disk]).json();
    assert_eq!(info["id"], "6e4f9d2c", "{info}");
    for (more, said) in [
        (
            &["--ext4", "a=:9M", "--ext4", "b=:9M"][..],
            "at most 4 partitions",
        ),
        (
            &["--from", "other=tree"],
            "one partition of --ext4 must have this label",
        ),
        (&["--ext4", "large=:3T"], "beyond 2 TiB"),
    ] {
        let new = path("refused.img");
        let mut line = vec!["disk", &new, "--label-type", "dos", "--esp", "4M"];
        line.extend(["--ext4", "x=:9M", "--ext4", "y=:9M"]);
        line.extend(more);
        let ran = run(&line);
        assert!(
            ran.code == Some(1) && ran.stderr.contains(said),
            "{more:?}: {}",
            ran.stderr
        );
        assert!(!Path::new(&new).exists(), "{more:?}");
    }
}
