//! `push` and `pull`: only what differs travels.

use crate::cli::remote_objects::{fails, ok, web};
use crate::cli::support::Scratch;
use std::process::{Command, Stdio};
use std::time::Duration;

fn url(s: &Scratch, file: &str) -> String {
    s.host(file).to_str().unwrap().to_owned()
}

/// Runs a copy; returns the bytes of pieces that differed, and of free pieces.
fn copied(command: &str, src: &str, dst: &str) -> (u64, u64) {
    let json: serde_json::Value =
        serde_json::from_str(&ok(&[command, src, dst, "--json"])).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap();
    (number("copied_bytes"), number("free_bytes"))
}

/// Makes an image of 48 MiB of files that do not repeat.
fn image(s: &Scratch) -> String {
    std::fs::create_dir(s.host("tree")).unwrap();
    let mut seed = 1_u64;
    for n in 0..48 {
        let mut bytes = Vec::new();
        while bytes.len() < 1 << 20 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.extend(seed.to_be_bytes());
        }
        std::fs::write(s.host(&format!("tree/f{n}")), bytes).unwrap();
    }
    let image = url(s, "disk");
    ok(&[
        "mkfs",
        &image,
        "--from",
        &url(s, "tree"),
        "--size",
        "96M",
        "-q",
    ]);
    image
}

#[test]
fn one_changed_file_is_a_small_part_of_an_image() {
    let s = Scratch::empty();
    let image = image(&s);
    let store = format!("file+objects://{}", url(&s, "store"));
    let (all, free) = copied("push", &image, &store);
    assert!(all > 48 << 20 && free > 24 << 20, "{all} {free}");
    assert_eq!(copied("push", &image, &store).0, 0);
    ok(&["check", &store]);
    std::fs::write(s.host("new"), vec![7; 300_000]).unwrap();
    ok(&["cp", &url(&s, "new"), &format!("{image}:/new")]);
    let (few, _) = copied("push", &image, &store);
    assert!(few > 0 && few * 10 < all, "{few} of {all}");
    ok(&["check", &store]);
    assert_eq!(ok(&["cat", &format!("{store}:/new")]).len(), 300_000);
    // A volume that was changed by another command is read instead of trusted.
    ok(&["rm", &format!("{store}:/f1")]);
    let (back, _) = copied("push", &image, &store);
    assert!(back > 0 && back * 10 < all, "{back} of {all}");
    assert!(ok(&["ls", &format!("{store}:/")]).contains("f1\n"));
    // Back to a file, which has no tree that is trusted.
    let other = url(&s, "other");
    assert_eq!(copied("pull", &store, &other).0, all_used(&other));
    assert_eq!(copied("pull", &store, &other).0, 0);
    ok(&["check", &other]);
    for (another, size) in [(&other, 96 << 20), (&url(&s, "shorter"), 8 << 20)] {
        ok(&[
            "mkfs",
            another,
            "-q",
            "--size",
            &size.to_string(),
            "--force",
        ]);
        fails(&["pull", &store, another], "holds another volume");
        assert_eq!(std::fs::metadata(another).unwrap().len(), size);
    }
}

/// Returns the bytes of pieces that are not zeros.
fn all_used(file: &str) -> u64 {
    let bytes = std::fs::read(file).unwrap();
    let pieces = bytes.chunks(64 << 10);
    pieces
        .filter(|p| p.iter().any(|b| *b != 0))
        .map(|p| p.len() as u64)
        .sum()
}

#[test]
fn a_pull_over_the_web_is_compared_with_the_checksums() {
    let s = Scratch::empty();
    let image = image(&s);
    let (published, local) = (url(&s, "www.img"), url(&s, "local.img"));
    copied("push", &image, &published);
    let host = web(&s);
    let address = format!("{host}/www.img");
    copied("pull", &address, &local);
    ok(&["check", &local]);
    std::fs::write(s.host("new"), vec![7; 300_000]).unwrap();
    ok(&["cp", &url(&s, "new"), &format!("{image}:/new")]);
    copied("push", &image, &published);
    let (few, _) = copied("pull", &address, &local);
    assert!(few > 0 && few < 5 << 20, "{few}");
    assert_eq!(ok(&["cat", &format!("{local}:/new")]).len(), 300_000);
    // Damage that the checksums show.
    let mut bytes = std::fs::read(&published).unwrap();
    let at = bytes.windows(1000).position(|w| w == [7; 1000]).unwrap();
    bytes[at] = 8;
    std::fs::write(&published, bytes).unwrap();
    std::fs::remove_file(&local).unwrap();
    fails(&["pull", &address, &local], "do not match the checksums");
}

#[test]
fn a_copy_that_was_killed_is_continued() {
    let s = Scratch::empty();
    let image = image(&s);
    let store = format!("file+objects://{}", url(&s, "store"));
    let program = needs::program("extant-remote", "extant-remote");
    for millis in [50, 150, 300, 500] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(["push", &image, &store])
            .env("EXTANT_REMOTE", &program)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    copied("push", &image, &store);
    ok(&["check", &store]);
    assert_eq!(copied("push", &image, &store).0, 0);
    let other = url(&s, "other");
    copied("pull", &store, &other);
    ok(&["check", &other]);
    let out = url(&s, "out");
    ok(&["export", &format!("{other}:/"), &out]);
    for n in 0..48 {
        let name = format!("f{n}");
        let original = std::fs::read(s.host("tree").join(&name)).unwrap();
        assert!(
            std::fs::read(s.host("out").join(&name)).unwrap() == original,
            "{name}"
        );
    }
}

/// A hash tree covers free blocks, in which the old image of a slot has other bytes.
#[test]
fn an_image_with_a_hash_tree_is_copied_with_its_free_blocks() {
    let s = Scratch::empty();
    let tree = s.host("tree");
    std::fs::create_dir(&tree).unwrap();
    let (slot, update, pulled) = (url(&s, "slot"), url(&s, "update"), url(&s, "pulled"));
    let store = format!("file+objects://{}", url(&s, "store"));
    let make = |image: &str, len: usize| -> String {
        std::fs::write(tree.join("file"), vec![len as u8; len]).unwrap();
        let tree = tree.to_str().unwrap();
        let made = ok(&[
            "mkfs", image, "--from", tree, "--size", "16M", "--json", "--verity",
        ]);
        let json: serde_json::Value = serde_json::from_str(&made).unwrap();
        json["root_hash"].as_str().unwrap().to_owned()
    };
    make(&slot, 3_000_001);
    let root = make(&update, 50_002);
    ok(&["push", &slot, &store, "--json"]);
    ok(&["push", &slot, &pulled, "--json"]);
    for dst in [&slot, &store] {
        ok(&["push", &update, dst, "--force"]);
        ok(&["check", dst, "--verity", &root]);
        assert_eq!(copied("push", &update, dst), (0, 0));
    }
    ok(&["pull", &store, &pulled, "--force"]);
    ok(&["check", &pulled, "--verity", &root]);
    // Free blocks of an image without a tree are copied with --all.
    for (image, byte) in [(&slot, 5), (&update, 6)] {
        std::fs::write(tree.join("file"), vec![byte; 3_000_000 / usize::from(byte)]).unwrap();
        let tree = tree.to_str().unwrap();
        ok(&["mkfs", image, "-F", "-q", "--from", tree, "--size", "16M"]);
    }
    ok(&["push", &update, &slot, "--force"]);
    ok(&["push", &update, &slot, "--all"]);
    assert!(std::fs::read(&slot).unwrap() == std::fs::read(&update).unwrap());
}

/// A copy is raw; a name that says otherwise would mislead other programs.
#[test]
fn a_new_copy_is_not_named_after_another_format() {
    let s = Scratch::empty();
    let image = url(&s, "disk.img");
    ok(&["mkfs", &image, "--size", "8M", "-q"]);
    for (name, instead) in [
        ("copy.img.zst", "copy.img"),
        ("copy.qcow2", "copy.img"),
        ("copy.vmdk", "copy.img"),
        ("copy.img.gz", "copy.img"),
    ] {
        for command in ["push", "pull"] {
            let instead = format!("name it {}", url(&s, instead));
            fails(&[command, &image, &url(&s, name)], &instead);
        }
        assert!(!s.host(name).exists());
    }
    // An image of another format that exists is written as such.
    let qcow2 = url(&s, "old.qcow2");
    ok(&["mkfs", &qcow2, "--size", "8M", "-q"]);
    ok(&["push", &image, &qcow2, "--force"]);
    assert!(std::fs::read(&qcow2).unwrap().starts_with(b"QFI"));
}
