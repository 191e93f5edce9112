//! mkfs: empty and filled images, reproducible bytes, and refusals.

use crate::cli::support::{Scratch, printed, run};
use std::fs;
use std::process::Command;

const UUID: &str = "6a7f2c1e-9b3d-4e5f-8a1b-2c3d4e5f6a7b";

#[test]
fn makes_what_mke2fs_options_ask_for() {
    let cases: [&[&str]; 6] = [
        &["-t", "ext4", "-b", "4096", "-L", "root"],
        &["-t", "ext3", "-b", "1024", "-I", "128"],
        &["-t", "ext2", "-N", "5000", "-m", "0"],
        &[
            "-O",
            "^resize_inode,metadata_csum_seed,orphan_file",
            "-J",
            "size=8",
        ],
        &[
            "-E",
            "hash_seed=11111111-2222-3333-4444-555555555555,root_owner=7:8",
            "-i",
            "65536",
        ],
        &[
            "-O",
            "meta_bg,^resize_inode",
            "-O",
            "sparse_super2",
            "-T",
            "largefile",
        ],
    ];
    for args in cases {
        let s = Scratch::empty();
        s.ok(&[&["mkfs", "%", "--size", "96M", "-U", UUID], args].concat());
        needs::tools!("e2fsck");
        s.clean();
        let info = s.run(&["info", "--json", "%"]).json();
        assert_eq!(info["uuid"], UUID);
        let stats = s.debugfs("stats -h");
        assert!(stats.contains(UUID), "{args:?}");
        s.ok(&["mkdir", ":/d"]);
        s.clean();
    }
    let s = Scratch::empty();
    s.ok(&[
        "mkfs",
        "%",
        "--size",
        "8M",
        "-E",
        "root_owner=7:8,root_perms=1777",
    ]);
    let root = s.run(&["stat", "--json", ":/"]).json();
    assert_eq!(
        (&root[0]["uid"], &root[0]["mode"]),
        (&7.into(), &"1777".into())
    );
}

#[test]
fn fills_from_trees_and_archives_with_the_same_bytes() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("tree/d")).unwrap();
    for n in 0..300 {
        fs::write(s.host(&format!("tree/d/f{n}")), format!("{n}").repeat(n)).unwrap();
    }
    let make = |name: &str, from: &[&str], threads: &str| {
        printed(
            Command::new(env!("CARGO_BIN_EXE_extant"))
                .args(["mkfs", "-U", UUID, "--threads", threads])
                .arg(s.host(name))
                .args(from.iter().flat_map(|f| ["--from".into(), s.host(f)]))
                .env("SOURCE_DATE_EPOCH", "1700000000"),
        );
        fs::read(s.host(name)).unwrap()
    };
    let one = make("one.img", &["tree"], "1");
    assert!(make("two.img", &["tree"], "7") == one);
    let image = s.host("one.img").display().to_string();
    assert_eq!(
        run(&["cat", &format!("{image}:/d/f12")]).text(),
        "12".repeat(12)
    );
    // An archive of the image holds the same tree.
    let archive = s.host("tree.tar.zst").display().to_string();
    assert_eq!(run(&["export", &image, &archive]).code, Some(0));
    let layered = make("layers.img", &["tree.tar.zst", "tree.tar.zst"], "2");
    assert!(!layered.is_empty());
    let layers = s.host("layers.img").display().to_string();
    assert_eq!(
        run(&["ls", "-R", &layers]).text().lines().count(),
        run(&["ls", "-R", &image]).text().lines().count()
    );
}

#[test]
fn sources_of_all_kinds_are_layers() {
    let s = Scratch::empty();
    for (path, text) in [
        ("base/etc/motd", "base"),
        ("base/etc/old", "old"),
        ("top/etc/motd", "top"),
        ("top/etc/.wh.piped", ""),
    ] {
        fs::create_dir_all(s.host(path).parent().unwrap()).unwrap();
        fs::write(s.host(path), text).unwrap();
    }
    let mut archive = tar::Builder::new(Vec::new());
    for path in ["etc/piped", "etc/.wh.old", "opt/app"] {
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        archive.append_data(&mut header, path, &b""[..]).unwrap();
    }
    let archive = archive.into_inner().unwrap();
    let from = ["--from", "@base", "--from", "-", "--from", "@top"];
    let ran = s.run_with(&[&["mkfs", "%"][..], &from].concat(), &archive);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(s.ok(&["ls", ":/etc"]), "motd\n");
    assert_eq!(s.ok(&["cat", ":/etc/motd"]), "top");
    assert_eq!(s.ok(&["ls", ":/opt"]), "app\n");
    s.clean();
    let twice = ["mkfs", "@x.img", "--from", "-", "--from", "-"];
    assert!(s.fails(&twice).ends_with("one source, not several"));
}

#[test]
fn a_size_is_found_for_the_content() {
    let s = Scratch::empty();
    let tree = s.dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![7; 40_000_000]).unwrap();
    let size = |args: &[&str]| {
        let all = [&["mkfs", "-F", "%", "--from", "@tree", "--json"][..], args].concat();
        s.run(&all).json()["size"].as_u64().unwrap()
    };
    let (min, auto, more) = (
        size(&["--size", "min"]),
        size(&[]),
        size(&["--size", "+20%"]),
    );
    s.clean();
    assert!(min < auto && min < 46_500_000, "{min} {auto}");
    assert!(
        (auto * 119 / 100..auto * 123 / 100).contains(&more),
        "{auto} {more}"
    );
    assert!(
        s.fails(&["mkfs", "-F", "%", "--size", "min"])
            .contains("of the content of --from")
    );
    for bad in ["+x%", "+20", "-20%", "+999%"] {
        let ran = s.run(&["mkfs", "-F", "%", "--from", "@tree", "--size", bad]);
        assert_eq!(ran.code, Some(2), "{bad}");
    }
}

#[test]
fn refuses_what_it_should() {
    let s = Scratch::empty();
    assert!(s.fails(&["mkfs", "%"]).contains("missing size"));
    assert!(!s.image.exists());
    assert!(
        s.fails(&["mkfs", "%", "--size", "8M", "-O", "no_such"])
            .contains("no_such")
    );
    assert!(
        s.fails(&["mkfs", "%", "--size", "8M", "-O", "bigalloc"])
            .contains("bigalloc")
    );
    assert!(
        s.fails(&["mkfs", "%", "--from", "@none"])
            .contains("no such file or directory")
    );
    assert!(
        s.fails(&["mkfs", "%", "--size", "8M", "-E", "stridee=3"])
            .contains("no such option")
    );
    assert!(!s.image.exists(), "a refusal made the image");
    fs::write(s.host("large"), vec![1; 4 << 20]).unwrap();
    fs::create_dir(s.host("tree")).unwrap();
    fs::rename(s.host("large"), s.host("tree/large")).unwrap();
    assert!(
        s.fails(&["mkfs", "%", "--from", "@tree", "--size", "2M"])
            .contains("too small")
    );
    assert!(!s.image.exists());
    fs::write(&s.image, "precious").unwrap();
    assert!(
        s.fails(&["mkfs", "%", "--size", "8M"])
            .ends_with("use --force to replace it")
    );
    assert_eq!(fs::read(&s.image).unwrap(), b"precious");
    s.ok(&["mkfs", "%", "--size", "8M", "--force"]);
    assert_eq!(s.ok(&["ls", ":"]), "lost+found\n");
    fs::write(s.host("bad.tar"), vec![9; 2000]).unwrap();
    assert!(
        s.fails(&["mkfs", "@x.img", "--from", "@bad.tar"])
            .contains("not an archive")
    );
    assert!(!s.host("x.img").exists());
}

#[test]
fn what_is_overwritten_is_named() {
    let s = Scratch::empty();
    s.ok(&["mkfs", "%", "--size", "8M", "-L", "mine"]);
    let ran = s.run(&["mkfs", "%", "--size", "8M"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr
            .contains("holds an ext2, ext3 or ext4 file system labelled \"mine\""),
        "{}",
        ran.stderr
    );
    s.ok(&["mkfs", "%", "--size", "8M", "-F"]);
}

/// Volumes made by root belong to root; those of another user are writable by that user.
#[test]
fn an_empty_volume_belongs_to_who_makes_it() {
    use std::os::unix::process::CommandExt;
    let s = Scratch::empty();
    let owner = |s: &Scratch| {
        let root = s.run(&["stat", "--json", ":/"]).json();
        (root[0]["uid"].as_u64(), root[0]["gid"].as_u64())
    };
    s.ok(&["mkfs", "%", "--size", "8M", "--owner", "7:8"]);
    assert_eq!(owner(&s), (Some(7), Some(8)));
    if !rustix::process::geteuid().is_root() {
        needs::ignored("being somebody else takes root");
        return;
    }
    s.ok(&["mkfs", "%", "--size", "8M", "-F"]);
    assert_eq!(owner(&s), (Some(0), Some(0)));
    fs::remove_file(&s.image).unwrap();
    std::os::unix::fs::chown(s.dir.path(), Some(1234), Some(1234)).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["mkfs", "--size", "8M"])
        .arg(&s.image)
        .uid(1234)
        .gid(1234)
        .status();
    assert!(made.unwrap().success());
    assert_eq!(owner(&s), (Some(1234), Some(1234)));
}
