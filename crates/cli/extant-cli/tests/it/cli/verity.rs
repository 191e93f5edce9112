//! mkfs and check with hash trees of dm-verity, judged by veritysetup.

use crate::cli::support::{Scratch, run};
use std::os::unix::fs::FileExt;
use std::process::Command;

fn veritysetup_accepts(arguments: &[&str]) -> bool {
    let ran = Command::new("veritysetup")
        .arg("verify")
        .args(arguments)
        .output();
    ran.unwrap().status.success()
}

#[test]
fn an_image_has_its_hash_tree_behind_it_or_beside_it() {
    needs::tools!("veritysetup");
    let s = Scratch::empty();
    let from = s.host("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), vec![7; 300_000]).unwrap();
    let (image, tree) = (s.host("verity.img"), s.host("verity.tree"));
    let (image, tree) = (image.to_str().unwrap(), tree.to_str().unwrap());
    let from = from.to_str().unwrap();
    let mkfs = |verity: &str| {
        let size = ["mkfs", image, "--from", from, "--size", "8M"];
        let made = run(&[&size[..], &["-F", "--json", verity]].concat()).json();
        let root = made["root_hash"].as_str().unwrap().to_owned();
        (root, made["size"].as_u64().unwrap())
    };
    let (root, size) = mkfs("--verity");
    let blocks = format!("--data-blocks={}", size / 4096);
    let behind = format!("--hash-offset={size}");
    assert!(veritysetup_accepts(&[
        image, image, &root, &behind, &blocks
    ]));
    assert!(
        run(&["check", image, "--verity", &root])
            .text()
            .contains("clean")
    );
    // The file system is one without the tree, too.
    assert!(run(&["check", image]).text().contains("clean"));
    let beside = format!("--verity={tree}");
    let (root, size) = mkfs(&beside);
    assert_eq!(std::fs::metadata(image).unwrap().len(), size);
    assert!(veritysetup_accepts(&[image, tree, &root]));
    let check =
        |root: &str, more: &[&str]| run(&[&["check", image, "--verity", root], more].concat());
    let with_tree = ["--hash-tree", tree];
    assert!(check(&root, &with_tree).text().contains("clean"));
    let fails = |root: &str, more: &[&str], why: &str| {
        let ran = check(root, more);
        let said = ran.stderr;
        assert_eq!(ran.code, Some(8), "{said}");
        assert!(said.contains(why), "{said}");
    };
    fails(&root, &[], "no hash tree behind the file system");
    fails(
        &"0".repeat(64),
        &with_tree,
        "the root hash of the tree is not 0000",
    );
    // One bit of a file's contents, which no checksum of ext4 covers.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    let all = std::fs::read(image).unwrap();
    let at = all.windows(4096).position(|w| w == [7; 4096]).unwrap() as u64;
    file.write_all_at(&[6], at + 5).unwrap();
    assert!(run(&["check", image]).text().contains("clean"));
    fails(
        &root,
        &with_tree,
        &format!("block {} of 4096 bytes", (at + 5) / 4096),
    );
    let packed = s.host("verity.img.zst");
    let refused = run(&["mkfs", packed.to_str().unwrap(), "--size", "8M", "--verity"]);
    assert!(refused.code != Some(0) && !packed.exists());
}

#[test]
fn an_address_with_a_root_hash_verifies_what_is_read() {
    let s = Scratch::empty();
    let from = s.host("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), vec![7; 300_000]).unwrap();
    std::fs::write(from.join("small"), "text").unwrap();
    let (image, tree) = (s.host("golden.img"), s.host("golden.tree"));
    let (image, tree) = (image.to_str().unwrap(), tree.to_str().unwrap());
    let from = from.to_str().unwrap();
    let mkfs = |verity: &str| {
        let made = [
            "mkfs", image, "--from", from, "--size", "8M", "-F", "--json",
        ];
        let made = run(&[&made[..], &[verity]].concat()).json();
        made["root_hash"].as_str().unwrap().to_owned()
    };
    let reads = |address: &str| {
        let small = run(&["cat", &format!("{address}:/small")]).text();
        assert_eq!(small, "text", "{address}");
        let listed = run(&["ls", &format!("{address}:/")]).text();
        assert!(listed.contains("file"), "{address}");
        assert!(run(&["check", address]).text().contains("clean"));
    };
    let root = mkfs(&format!("--verity={tree}"));
    reads(&format!("{image}@verity={root},tree={tree}"));
    let root = mkfs("--verity");
    let behind = format!("{image}@verity={root}");
    reads(&behind);
    let refused = |args: &[&str], why: &str| {
        let ran = run(args);
        assert!(
            ran.code != Some(0) && ran.stderr.contains(why),
            "{args:?}: {}",
            ran.stderr
        );
    };
    let before = std::fs::read(image).unwrap();
    refused(
        &["mkdir", &format!("{behind}:/new")],
        "would make the root hash wrong",
    );
    refused(&["mkfs", &behind, "-F"], "would make the root hash wrong");
    refused(
        &["tune", &behind, "-L", "x"],
        "would make the root hash wrong",
    );
    refused(
        &["ls", &format!("{image}@verity=12:/")],
        "64 hexadecimal digits",
    );
    let other = format!("{image}@verity={}:/", "0".repeat(64));
    refused(&["ls", &other], "the root hash of the tree is not 0000");
    assert!(std::fs::read(image).unwrap() == before);
    // A block of the file is wrong: it cannot be read, and others can.
    let first = before.windows(4096).position(|w| w == [7; 4096]).unwrap();
    let at = first as u64 + 8_000;
    let file = std::fs::File::options().write(true).open(image).unwrap();
    file.write_all_at(&[6], at + 5).unwrap();
    refused(
        &["cat", &format!("{behind}:/file")],
        &format!("block {} of 4096 bytes", (at + 5) / 4096),
    );
    assert_eq!(run(&["cat", &format!("{behind}:/small")]).text(), "text");
}
