//! `extant trim` and `extant defrag`: their effects on free space and files, with e2fsck as the judge.

use crate::cli::support::Scratch;
use std::os::unix::fs::MetadataExt;

/// Returns an image in which every other file was removed, and a file fills the gaps.
fn fragmented() -> Option<Scratch> {
    let s = Scratch::mke2fs("32M", &["-t", "ext4", "-b", "1024"])?;
    let names: Vec<String> = (0..200).map(|i| format!("small{i}")).collect();
    for (i, name) in names.iter().enumerate() {
        std::fs::write(s.host(name), vec![i as u8 + 1; 60_000]).unwrap();
    }
    let froms: Vec<String> = names.iter().map(|name| format!("@{name}")).collect();
    let mut args = vec!["cp"];
    args.extend(froms.iter().map(String::as_str));
    args.push(":/");
    s.ok(&args);
    let gone: Vec<String> = names
        .iter()
        .step_by(2)
        .map(|name| format!(":/{name}"))
        .collect();
    let mut args = vec!["rm"];
    args.extend(gone.iter().map(String::as_str));
    s.ok(&args);
    Some(s)
}

/// Fills the free space at the front with a file of many extents, then frees space at the back.
fn with_a_file_in_pieces() -> Option<Scratch> {
    let s = fragmented()?;
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(s.host("data"), &data).unwrap();
    // debugfs allocates the first free blocks.
    let host = s.host("data");
    s.debugfs_write(&format!("write {} pieces", host.display()));
    Some(s)
}

fn taken(s: &Scratch) -> u64 {
    std::fs::metadata(&s.image).unwrap().blocks() * 512
}

#[test]
fn free_blocks_become_holes() {
    let Some(s) = fragmented() else { return };
    let listed = s.ok(&["trim", "-n", "%"]);
    assert!(listed.contains("would be trimmed"), "{listed}");
    let before = taken(&s);
    let told = s.run(&["trim", "--json", "%"]).json();
    assert!(told["bytes"].as_u64().unwrap() > 5_000_000, "{told}");
    assert!(taken(&s) + 4_000_000 < before, "{} of {before}", taken(&s));
    s.clean();
    assert!(s.run(&["cat", ":/small7"]).stdout == [8; 60_000]);
}

#[test]
fn free_blocks_become_zeros() {
    let Some(s) = fragmented() else { return };
    let told = s.run(&["trim", "--zero", "-n", "--json", "%"]).json();
    let stale = told["bytes"].as_u64().unwrap();
    assert!(stale >= 100 * 60_000, "{told}");
    let before = s.bytes();
    let told = s.run(&["trim", "--zero", "--json", "%"]).json();
    assert_eq!(told["bytes"].as_u64(), Some(stale));
    assert!(s.bytes() != before);
    let told = s.run(&["trim", "--zero", "--json", "%"]).json();
    assert_eq!(told["bytes"], 0, "nothing is left");
    s.clean();
    assert!(s.run(&["cat", ":/small199"]).stdout == [200; 60_000]);
}

#[test]
fn a_damaged_image_is_not_trimmed() {
    let Some(s) = fragmented() else { return };
    s.debugfs_write("freeb 5000 10");
    let before = s.bytes();
    let said = s.fails(&["trim", "%"]);
    assert!(said.contains("the image is not clean"), "{said}");
    assert!(s.bytes() == before);
}

#[test]
fn files_lie_in_one_piece_afterwards() {
    let Some(s) = with_a_file_in_pieces() else {
        return;
    };
    let data = s.run(&["cat", ":/pieces"]).stdout;
    let before = s.bytes();
    let counted = s.run(&["defrag", "-n", "--json", "%"]).json();
    assert!(
        counted["before"]["fragmented"].as_u64().unwrap() >= 1,
        "{counted}"
    );
    assert!(s.bytes() == before, "-n writes nothing");
    let said = s.ok(&["defrag", "%", "/pieces"]);
    assert!(
        said.contains("1 file moved") && said.contains("free runs of"),
        "{said}"
    );
    s.clean();
    assert!(s.run(&["cat", ":/pieces"]).stdout == data);
    s.ok(&["defrag", "%"]);
    s.clean();
    let counted = s.run(&["defrag", "--check", "--json", "%"]).json();
    assert_eq!(counted["before"]["fragmented"], 0, "{counted}");
    assert!(s.run(&["cat", ":/pieces"]).stdout == data);
    assert!(s.run(&["cat", ":/small7"]).stdout == [8; 60_000]);
}

#[test]
fn directories_lose_their_gaps() {
    let Some(s) = Scratch::mke2fs("32M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    s.ok(&["mkdir", ":/large"]);
    let names: Vec<String> = (0..1500)
        .map(|i| format!(":/large/a name of some length {i}"))
        .collect();
    let mut args = vec!["touch"];
    args.extend(names.iter().map(String::as_str));
    s.ok(&args);
    let mut args = vec!["rm"];
    args.extend(names.iter().skip(100).map(String::as_str));
    s.ok(&args);
    let said = s.ok(&["defrag", "--dirs", "%"]);
    assert!(said.contains("blocks become"), "{said}");
    s.clean();
    let listed = s.ok(&["ls", ":/large"]);
    assert_eq!(listed.lines().count(), 100);
}
