//! The program under the names of e2fsprogs: scripts that call them run with both implementations, and get the same
//! results.

use crate::cli::support::Scratch;
use extant_testing::common::copy_image;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const NAMES: [&str; 18] = [
    "mke2fs",
    "mkfs.ext2",
    "mkfs.ext3",
    "mkfs.ext4",
    "e2fsck",
    "fsck.ext4",
    "tune2fs",
    "dumpe2fs",
    "e2label",
    "resize2fs",
    "debugfs",
    "fuse2fs",
    "lsattr",
    "chattr",
    "e4defrag",
    "e2undo",
    "mount.extant",
    "extant",
];

/// The fields in which our image must equal that of mke2fs.
const FIELDS: [&str; 16] = [
    "Filesystem volume name",
    "Filesystem UUID",
    "Filesystem features",
    "Filesystem state",
    "Errors behavior",
    "Inode count",
    "Block count",
    "Reserved block count",
    "First block",
    "Block size",
    "Blocks per group",
    "Inodes per group",
    "Inode size",
    "Default directory hash",
    "Directory Hash Seed",
    "Flex block group size",
];

pub(crate) struct ScriptDir {
    dir: tempfile::TempDir,
}

impl ScriptDir {
    /// Makes a directory with the names, and a tree to make images from.
    pub(crate) fn new() -> Option<Self> {
        if !needs::have(&["mke2fs", "e2fsck", "debugfs", "dumpe2fs"]) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("names")).unwrap();
        for name in NAMES {
            let to = dir.path().join("names").join(name);
            symlink(env!("CARGO_BIN_EXE_extant"), to).unwrap();
        }
        std::fs::create_dir_all(dir.path().join("tree/etc")).unwrap();
        std::fs::write(dir.path().join("tree/etc/motd"), "welcome\n").unwrap();
        std::fs::write(dir.path().join("tree/large"), vec![7; 300_000]).unwrap();
        symlink("etc/motd", dir.path().join("tree/link")).unwrap();
        Some(Self { dir })
    }

    fn shell(&self, script: &str, path: String) -> Output {
        Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.dir.path())
            .env("PATH", path)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap()
    }

    /// Runs a script with our names first in PATH.
    pub(crate) fn ours(&self, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let names = self.dir.path().join("names");
        self.shell(
            script,
            format!("{}:{path}:/usr/sbin:/sbin", names.display()),
        )
    }

    /// Runs a script with the names of the system.
    pub(crate) fn theirs(&self, script: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        self.shell(script, format!("{path}:/usr/sbin:/sbin"))
    }

    pub(crate) fn image(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

pub(crate) fn told(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

#[track_caller]
pub(crate) fn clean(image: &Path) {
    let out = Command::new("e2fsck").arg("-fn").arg(image).output();
    let out = out.unwrap();
    assert!(out.status.success(), "{}", told(&out));
}

fn fields(image: &Path) -> BTreeMap<String, String> {
    let out = Command::new("dumpe2fs").arg("-h").arg(image).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let of_interest = fields.filter(|(name, _)| FIELDS.contains(name));
    of_interest
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

/// Scripts in the manner of image builders: of mkosi, genimage, Buildroot, OpenWrt, debos, systemd-repart and of the
/// examples in the manuals. Each makes `out.img`.
const SCRIPTS: [(&str, &str); 13] = [
    (
        "mkosi",
        "truncate -s 64M out.img; mkfs.ext4 -F -q -L root -U 11111111-2222-3333-4444-555555555555 \
         -E hash_seed=11111111-2222-3333-4444-555555555555 -d tree out.img",
    ),
    (
        "genimage",
        "mke2fs -q -t ext4 -L data -U 11111111-2222-3333-4444-555555555555 -E hash_seed=99999999-2222-3333-4444-555555555555 -d tree -I 256 -m 1 out.img 32768",
    ),
    (
        "Buildroot",
        "rm -f out.img; mkfs.ext4 -d tree -r 1 -N 0 -m 5 -L rootfs -O ^64bit -U 11111111-2222-3333-4444-555555555555 \
         -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 60M; e2fsck -fy out.img || [ $? = 1 ]",
    ),
    (
        "OpenWrt",
        "dd if=/dev/zero of=out.img bs=1k count=20000 2>/dev/null; mke2fs -F -q -t ext4 -b 4096 -m 0 -J size=4 -O ^dir_index -L rootfs \
         -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img; fsck.ext4 -p out.img",
    ),
    (
        "debos",
        "truncate -s 48M out.img; mkfs.ext4 -L system -U 11111111-2222-3333-4444-555555555555 -O ^metadata_csum \
         -E hash_seed=11111111-2222-3333-4444-555555555555 out.img",
    ),
    (
        "systemd-repart",
        "truncate -s 40M out.img; mkfs.ext4 -q -L x -I 256 -m 0 -E nodiscard,lazy_itable_init=1,hash_seed=11111111-2222-3333-4444-555555555555 \
         -b 4096 -U 11111111-2222-3333-4444-555555555555 -d tree out.img; fsck.ext4 -n out.img",
    ),
    (
        "ext2 of 1 KiB",
        "mke2fs -Fq -t ext2 -b 1024 -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 8192",
    ),
    (
        "ext3 by its name",
        "mkfs.ext3 -q -F -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 40m",
    ),
    (
        "a journal by -j",
        "mke2fs -Fqj -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 40m",
    ),
    (
        "features by name",
        "mkfs.ext4 -Fq -O ^has_journal,^resize_inode,sparse_super2 -U 11111111-2222-3333-4444-555555555555 \
         -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 300M",
    ),
    (
        "quota of projects",
        "mkfs.ext4 -Fq -O quota,project -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 64M",
    ),
    (
        "usage and ratio",
        "mkfs.ext4 -Fq -T small -i 8192 -G 4 -g 4096 -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 out.img 24M",
    ),
    (
        "root of somebody",
        "mkfs.ext4 -Fq -E root_owner=5:6,hash_seed=11111111-2222-3333-4444-555555555555 -U 11111111-2222-3333-4444-555555555555 out.img 64M; \
         e2fsck -p out.img",
    ),
];

#[test]
fn scripts_come_to_the_same() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let image = place.image("out.img");
    for (who, script) in SCRIPTS {
        let mut made = Vec::new();
        for ours in [false, true] {
            let _ = std::fs::remove_file(&image);
            let out = if ours {
                place.ours(script)
            } else {
                place.theirs(script)
            };
            assert!(out.status.success(), "{who}, ours: {ours}: {}", told(&out));
            clean(&image);
            let len = std::fs::metadata(&image).unwrap().len();
            let mut fields = fields(&image);
            fields.insert("length".into(), len.to_string());
            for request in ["stat /", "cat /etc/motd", "ls -p /"] {
                let out = Command::new("debugfs")
                    .args(["-R", request])
                    .arg(&image)
                    .output();
                let text = String::from_utf8(out.unwrap().stdout).unwrap();
                // For the root: its owner and permissions, not its block or times.
                let lines = text.lines().filter(|line| match request {
                    "stat /" => line.starts_with("User:") || line.contains("Mode:"),
                    "ls -p /" => !line.is_empty(),
                    _ => true,
                });
                let mut words: Vec<_> = lines
                    .map(|line| match request {
                        "stat /" => line
                            .replace("Flags: 0x80000", "")
                            .split_whitespace()
                            .collect::<Vec<_>>()
                            .join(" "),
                        // Strip the inode's number.
                        "ls -p /" => line.splitn(3, '/').nth(2).unwrap_or_default().to_owned(),
                        _ => line.to_owned(),
                    })
                    .collect();
                words.sort();
                fields.insert(request.into(), words.join("\n"));
            }
            made.push(fields);
        }
        assert_eq!(made[0], made[1], "{who}: mke2fs left, ours right");
    }
}

#[test]
fn e2fsck_ends_as_fsck_does() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let Some(s) = Scratch::filled() else { return };
    copy_image(&s.image, place.image("good.img"));
    s.debugfs_write("set_inode_field /etc/motd links_count 7");
    copy_image(&s.image, place.image("bad.img"));
    for (script, code) in [
        ("e2fsck good.img", 8),
        ("e2fsck -p good.img", 0),
        ("e2fsck -fn good.img", 0),
        ("e2fsck -fn bad.img", 4),
        ("e2fsck -y bad.img; cmp bad.img bad.img", 0),
        ("cp bad.img a.img; e2fsck -fy a.img", 1),
        ("e2fsck -f a.img -y -C 0", 0),
        ("cp bad.img b.img; e2fsck -fp b.img", 1),
        ("e2fsck -fn missing.img", 8),
        ("e2fsck", 16),
        ("e2fsck -n -y good.img", 8),
    ] {
        let ours = place.ours(script);
        assert_eq!(ours.status.code(), Some(code), "{script}: {}", told(&ours));
    }
    clean(&place.image("a.img"));
    clean(&place.image("b.img"));
    // The message about a clean image is that of e2fsck.
    let said = |out: Output| String::from_utf8(out.stdout).unwrap();
    assert_eq!(
        said(place.ours("e2fsck -p good.img")),
        said(place.theirs("e2fsck -p good.img"))
    );
    let refused = place.ours("e2fsck -b 32768 good.img");
    assert_eq!(refused.status.code(), Some(8));
    assert!(
        told(&refused).contains("there is no superblock"),
        "{}",
        told(&refused)
    );
}

/// Images with unusual superblocks.
const SHAPES: [&str; 10] = [
    "mke2fs -Fq -t ext4 -O quota,project,mmp,sparse_super2,orphan_file,metadata_csum_seed,casefold -E num_backup_sb=2 out.img 64M",
    "mke2fs -Fq -t ext4 -O meta_bg,^resize_inode -g 1024 -b 1024 -d tree out.img 200M",
    "mke2fs -Fq -t ext4 -O bigalloc -C 16384 -b 1024 out.img 300M",
    "mke2fs -Fq -t ext4 -L lab out.img 64M",
    "mke2fs -Fq -t ext4 -O orphan_file,metadata_csum_seed -J size=16 out.img 256M",
    "mke2fs -Fq -t ext3 -b 1024 -I 128 -O ^resize_inode -E stride=4,stripe_width=16 out.img 8192",
    "mke2fs -Fq -t ext2 -r 1 -O ^dir_index -M /last/mount out.img 4096",
    "mke2fs -Fq -t ext4 -O bigalloc -C 16384 out.img 200M",
    "mke2fs -Fq -t ext4 -O meta_bg,^resize_inode out.img 64M; tune2fs -c 20 -i 45d -e panic -o journal_data,discard -E mount_opts=noatime out.img >/dev/null",
    "mke2fs -Fq -t ext4 out.img 32M; debugfs -w -R 'set_super_value error_count 3' out.img; debugfs -w -R 'set_super_value first_error_time 1700000000' out.img; \
     debugfs -w -R 'set_super_value kbytes_written 123456789' out.img",
];

#[test]
fn lists_are_those_of_dumpe2fs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for shape in SHAPES {
        let made = place.theirs(&format!("({shape}) 2>/dev/null"));
        assert!(made.status.success(), "{shape}: {}", told(&made));
        for list in [
            "dumpe2fs -h out.img 2>/dev/null",
            "dumpe2fs out.img 2>/dev/null",
            "dumpe2fs -x out.img 2>/dev/null",
            "dumpe2fs -g out.img 2>/dev/null",
            "dumpe2fs -gx out.img 2>/dev/null",
            "tune2fs -l out.img 2>/dev/null | sed -E '1s/^tune2fs [0-9.]+ \\([0-9]+-[A-Z][a-z]+-[0-9]+\\)$/tune2fs VERSION (DATE)/'",
        ] {
            let (ours, theirs) = (place.ours(list), place.theirs(list));
            let text = |out: &Output| String::from_utf8(out.stdout.clone()).unwrap();
            assert_eq!(text(&ours), text(&theirs), "{list} of {shape}");
            let version = list.starts_with("tune2fs");
            assert_eq!(
                text(&ours).starts_with("tune2fs VERSION (DATE)\n"),
                version,
                "{list}: {}",
                text(&ours)
            );
        }
    }
    // An error comes behind the line, too.
    let lines = ["none.img", "tree/etc/motd"].map(|image| {
        let list = format!("tune2fs -l {image} 2>/dev/null | cut -d' ' -f1");
        [place.ours(&list), place.theirs(&list)].map(|out| told(&out))
    });
    assert!(
        lines.iter().flatten().all(|line| line == "tune2fs\n"),
        "{lines:?}"
    );
}

/// A link whose name is not one of the program is refused, because `extant` would understand other options. A program that
/// was renamed for its release or its kind of build stays `extant`.
#[test]
fn a_link_of_an_unknown_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let called = |name: &str| {
        let link = dir.path().join(name);
        symlink(env!("CARGO_BIN_EXE_extant"), &link).unwrap();
        let out = Command::new(&link).arg("--version").output().unwrap();
        (out.status.code(), told(&out))
    };
    let version = called("extant");
    assert_eq!(version.0, Some(0), "{}", version.1);
    for name in ["extant-1.2", "extant-static", "extant.old", "extant2"] {
        assert_eq!(called(name), version, "{name}");
    }
    for (name, code) in [
        ("mkfs.xfs", 1),
        ("fsck.xfs", 16),
        ("xfsck", 16),
        ("my-extant", 1),
        ("ext", 1),
        ("mke2fs.real", 1),
        ("mount.xfs", 1),
    ] {
        let (found, text) = called(name);
        assert_eq!(found, Some(code), "{name}: {text}");
        let begin = format!("error: {name}: not a name of this program: call it extant, ");
        assert!(text.starts_with(&begin), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        for known in NAMES {
            assert!(text.contains(known), "{text}: {known}");
        }
    }
}

#[test]
fn tune2fs_and_e2label_change_the_same() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made =
        place.theirs("mke2fs -Fq -t ext4 -O ^metadata_csum,uninit_bg a.img 64M; cp a.img b.img");
    assert!(made.status.success(), "{}", told(&made));
    let script = "tune2fs -c -1 -i 0 -m 1 -L other -U 11111111-2222-3333-4444-555555555555 -o ^acl -e remount-ro -O dir_index,^huge_file IMAGE; \
                  tune2fs -m 5 -r 77 -l IMAGE | grep '^Reserved block count: *77$' && e2label IMAGE short; e2label IMAGE";
    let ours = place.ours(&script.replace("IMAGE", "a.img"));
    let theirs = place.theirs(&script.replace("IMAGE", "b.img"));
    assert!(ours.status.success(), "{}", told(&ours));
    assert!(told(&ours).ends_with("short\n"), "{}", told(&ours));
    assert!(told(&theirs).ends_with("short\n"), "{}", told(&theirs));
    let [a, b] = ["a.img", "b.img"].map(|image| {
        let mut fields = fields(&place.image(image));
        // tune2fs leaves this work to e2fsck, but ours does it.
        fields.remove("Filesystem state");
        fields
    });
    assert_eq!(a, b, "ours left, tune2fs right");
    clean(&place.image("a.img"));
    let refused = place.ours("tune2fs -s 0 a.img");
    assert!(
        told(&refused).starts_with("tune2fs: clearing the sparse superblock flag"),
        "{}",
        told(&refused)
    );
}

#[test]
fn a_stride_and_sparse_superblocks_are_set_as_there() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let (a, b) = (place.image("a.img"), place.image("b.img"));
    for (made, script, tells) in [
        ("", "resize2fs -S 16 IMAGE 96M", "RAID stride"),
        ("", "resize2fs -S 32 IMAGE 64M", "RAID stride"),
        ("", "tune2fs -s 1 IMAGE", "sparse_super"),
        ("", "tune2fs -s 2 IMAGE", "sparse_super"),
        (
            "-O ^sparse_super,^resize_inode",
            "tune2fs -s 1 IMAGE",
            "sparse_super",
        ),
    ] {
        let made = format!("mke2fs -Fq -t ext4 -b 1024 {made} -d tree a.img 64M; cp a.img b.img");
        assert!(place.theirs(&made).status.success());
        let ours = place.ours(&script.replace("IMAGE", "a.img"));
        let theirs = place.theirs(&script.replace("IMAGE", "b.img"));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{script}: {}",
            told(&ours)
        );
        clean(&a);
        let listed = |image: &Path| {
            let out = Command::new("dumpe2fs").arg("-h").arg(image).output();
            let text = String::from_utf8(out.unwrap().stdout).unwrap();
            let of = |name: &str| {
                text.lines()
                    .find(|l| l.starts_with(name))
                    .map(str::to_owned)
            };
            (
                of("RAID stride"),
                of("Filesystem features"),
                of("Block count"),
            )
        };
        assert_eq!(listed(&a), listed(&b), "{script}");
        assert!(format!("{:?}", listed(&a)).contains(tells), "{script}");
    }
}

#[test]
fn e2fsck_makes_directories_anew() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    // A directory with gaps: most of its names are gone.
    let made = "mkdir tree/many; for i in $(seq 3000); do : >tree/many/a-name-of-some-length-$i; done; mke2fs -Fq -t ext4 -b 1024 -N 4000 -d tree a.img 32M; \
                for i in $(seq 2900); do echo rm /many/a-name-of-some-length-$i; done >gone; debugfs -w -f gone a.img >/dev/null 2>&1; cp a.img b.img";
    let made = place.theirs(made);
    assert!(made.status.success(), "{}", told(&made));
    let size = "debugfs -R 'stat /many' IMAGE 2>/dev/null | grep -o 'Size: [0-9]*' | head -n 1";
    let of = |image: &str| {
        let out = place.theirs(&size.replace("IMAGE", image));
        let text = told(&out);
        text.trim()
            .strip_prefix("Size: ")
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let before = of("a.img");
    let script = "e2fsck -fyD IMAGE";
    let ours = place.ours(&script.replace("IMAGE", "a.img"));
    let theirs = place.theirs(&script.replace("IMAGE", "b.img"));
    assert_eq!(ours.status.code(), theirs.status.code(), "{}", told(&ours));
    clean(&place.image("a.img"));
    assert!(
        of("a.img") < before / 4 && of("a.img") <= of("b.img"),
        "{before}"
    );
    for script in ["e2fsck -fnD a.img", "e2fsck -Dp a.img"] {
        let (ours, theirs) = (place.ours(script), place.theirs(script));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{script}: {}",
            told(&ours)
        );
    }
}

/// Quota as features and as a list of kinds, on volumes with some and without.
const QUOTA: [&str; 10] = [
    "-O quota",
    "-O project",
    "-O quota,project",
    "-Q usrquota",
    "-Q prjquota",
    "-Q grpquota,^usrquota",
    "-O ^quota",
    "-O ^project",
    "-Q ^usrquota",
    "-Q ^usrquota,^grpquota,^prjquota",
];

#[test]
fn tune2fs_sets_the_same_quota() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let kinds = "dumpe2fs -h out.img 2>/dev/null | grep -E 'uota inode|^Filesystem features'";
    let counted = "for i in 3 4; do debugfs -R \"dump <$i> quota$i\" out.img 2>/dev/null; cksum <quota$i; done";
    for made in [
        "mke2fs -Fq -t ext4 -b 1024 -d tree out.img 16M",
        "mke2fs -Fq -t ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota -d tree out.img 16M; e2fsck -fy out.img >/dev/null 2>&1 || :",
    ] {
        for change in QUOTA {
            let script = |tool: &str| {
                format!(
                    "({made}) >/dev/null 2>&1; rm -f quota*; {tool} {change} out.img >/dev/null 2>&1; {kinds}; {counted}"
                )
            };
            let image = place.image("out.img");
            let theirs = place.theirs(&script("tune2fs"));
            clean(&image);
            let ours = place.theirs(&script("names/tune2fs"));
            clean(&image);
            assert!(ours.status.success(), "{change}: {}", told(&ours));
            assert_eq!(told(&ours), told(&theirs), "{made}: {change}: ours left");
        }
    }
}

#[test]
fn resize2fs_comes_to_the_same_sizes() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.theirs("mke2fs -Fq -t ext4 -d tree small.img 64M");
    assert!(made.status.success(), "{}", told(&made));
    let script = "cp --sparse=always small.img IMAGE; e2fsck -fy IMAGE >/dev/null 2>&1; resize2fs IMAGE 256M; resize2fs IMAGE 256M; resize2fs IMAGE 40000; \
                  resize2fs -fp IMAGE 81920s; stat -c %s IMAGE; truncate -s 96M IMAGE; resize2fs IMAGE";
    let both = [place.ours(script), place.theirs(script)].map(|out| {
        assert!(out.status.success(), "{}", told(&out));
        String::from_utf8(out.stdout).unwrap()
    });
    let plain = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| !l.is_empty());
        // Passes and progress bars are only in resize2fs.
        let lines = lines.filter(|l| !l.starts_with("Begin pass") && !l.contains("XXX"));
        lines.map(|l| l.replace("\u{8}", "")).collect()
    };
    assert!(
        both[0].contains("is now 40000 (1k) blocks long") || both[0].contains("is now 40000 (4k)")
    );
    assert_eq!(
        plain(&both[0]),
        plain(&both[1]),
        "ours left, resize2fs right"
    );
    clean(&place.image("IMAGE"));
    let least = place.ours("resize2fs -P IMAGE; resize2fs -M IMAGE; resize2fs -P IMAGE");
    assert!(told(&least).starts_with("Estimated minimum size of the filesystem: "));
    let numbers: Vec<u64> = told(&least)
        .lines()
        .filter_map(|l| l.strip_prefix("Estimated minimum size of the filesystem: "))
        .map(|n| n.parse().unwrap())
        .collect();
    assert_eq!(numbers[0], numbers[1]);
    clean(&place.image("IMAGE"));
    for (script, line) in [
        ("resize2fs IMAGE 1k", "resize2fs: IMAGE: "),
        ("resize2fs -M IMAGE 64M", "resize2fs: -M and -P"),
        ("resize2fs -S x IMAGE", "resize2fs: -S: no stride"),
        ("resize2fs IMAGE 10x", "resize2fs: 10x: not a size"),
    ] {
        let out = place.ours(script);
        assert_eq!(out.status.code(), Some(1), "{script}: {}", told(&out));
        assert!(told(&out).starts_with(line), "{script}: {}", told(&out));
    }
}
