//! Images with a directory that folds case, made by e2fsprogs.

use crate::common::load_image;
use blockdev::MemDevice;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Option of mke2fs for the default encoding of names.
pub const LENIENT: &str = "encoding=utf8";
/// Option of mke2fs for an encoding that refuses names that are not UTF-8.
pub const STRICT: &str = "encoding=utf8,encoding_flags=strict";

/// Returns a name for each number, in many scripts.
pub fn name(n: usize) -> Vec<u8> {
    const PARTS: [&str; 12] = [
        "Makefile",
        "README",
        "Straße",
        "ÅNGSTRÖM",
        "ΜΆΪΟΣ",
        "Ёлка",
        "İstanbul",
        "한국어",
        "ﬁnal",
        "Ǆungla",
        "Ꭰꭰ",
        "\u{1e900}\u{1fbf0}",
    ];
    let part = PARTS[n % PARTS.len()];
    format!("{part} {n} {}", &"Long"[..n % 5]).into_bytes()
}

/// Runs debugfs with these requests.
pub fn debugfs(path: &Path, requests: &[u8]) -> String {
    let mut child = Command::new("debugfs")
        .args(["-w", "-f", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, requests) = (child.stdin.take().unwrap(), requests.to_vec());
    let writer = std::thread::spawn(move || stdin.write_all(&requests));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let complaints = String::from_utf8_lossy(&out.stderr);
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns an image whose directory `d` folds case and has these names; with an index by e2fsck if `indexed`.
pub fn image(args: &[&str], encoding: &str, names: &[Vec<u8>], indexed: bool) -> MemDevice {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-E", encoding])
        .args(args)
        .arg(&path)
        .arg("16M")
        .output();
    assert!(made.unwrap().status.success());
    let data = dir.path().join("data");
    std::fs::write(&data, "data").unwrap();
    let mut requests = b"mkdir d\nsif d flags 0x40080000\n".to_vec();
    for name in names {
        requests.extend(format!("write {} \"d/", data.display()).into_bytes());
        requests.extend([&name[..], b"\"\n"].concat());
    }
    debugfs(&path, &requests);
    if indexed {
        // e2fsck renames one of two equal names: it must not rename any of these.
        let out = Command::new("e2fsck").args(["-fyD"]).arg(&path).output();
        let out = out.unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(!text.contains("Rename"), "{text}");
    }
    load_image(&path)
}

/// Returns all offsets of these bytes in the image.
pub fn find(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let places = bytes.windows(what.len()).enumerate();
    places
        .filter(|(_, w)| *w == what)
        .map(|(at, _)| at)
        .collect()
}
