//! `inspect` shows the same as debugfs on images of every shape, and no bytes make it panic.

use crate::it::bases;
use crate::it::common;
use crate::it::image;
use crate::it::mutant;
use bases::KINDS;
use blockdev::MemDevice;
use common::Rng;
use extant_check::inspect::{InspectError, Inspector, Record, Request, Value};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn ask(inspector: &Inspector<'_>, line: &str) -> Vec<Record> {
    let (request, mut records) = (Request::from_line(line.as_bytes()).unwrap(), Vec::new());
    let done = inspector.answer(&request, &mut |record| {
        records.push(record);
        Ok(())
    });
    done.unwrap_or_else(|e| panic!("{line}: {e}"));
    let problem = records.iter().find(|r| r.kind == "problem");
    assert_eq!(problem, None, "{line}");
    records
}

fn get<'r>(record: &'r Record, name: &str) -> &'r Value {
    let found = record.fields.iter().find(|(n, _)| *n == name);
    &found.unwrap_or_else(|| panic!("{name} of {record:?}")).1
}

fn number(record: &Record, name: &str) -> u64 {
    match get(record, name) {
        Value::Number(n) | Value::Hex(n) | Value::Octal(n) => *n,
        other => panic!("{name} is {other:?}"),
    }
}

fn name(record: &Record, field: &str) -> String {
    match get(record, field) {
        Value::Name(name) => String::from_utf8_lossy(name).into_owned(),
        Value::Text(text) => text.clone(),
        other => panic!("{field} is {other:?}"),
    }
}

fn debugfs(image: &Path, request: &str) -> String {
    let out = Command::new("debugfs")
        .args(["-R", request])
        .arg(image)
        .output()
        .expect("debugfs runs");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Returns all whole numbers of a text.
fn numbers(text: &str) -> Vec<u64> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Returns the number behind a word.
fn after(text: &str, word: &str) -> u64 {
    let at = text.find(word).unwrap_or_else(|| panic!("{word}: {text}"));
    numbers(&text[at + word.len()..])[0]
}

/// Calls a function with each shape: those of the mutants that need no replay, and some that mke2fs fills.
fn each_image(mut with: impl FnMut(&str, &Arc<MemDevice>, &Path)) {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    for kind in KINDS.iter().filter(|kind| !kind.dirty) {
        let device = image::populate_sized(kind.size(), kind.args(), false, 350);
        common::write_image(&device, &path);
        with(kind.name, &device, &path);
    }
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("deep/er")).unwrap();
    std::fs::write(tree.join("deep/er/large"), vec![7; 3_000_000]).unwrap();
    std::fs::write(tree.join("small"), b"in the inode").unwrap();
    std::os::unix::fs::symlink("deep/er/large", tree.join("link")).unwrap();
    for i in 0..900 {
        let name = format!("deep/a-name-that-is-not-very-short-{i:04}");
        std::fs::write(tree.join(name), b"").unwrap();
    }
    for args in [
        &["-t", "ext4", "-O", "bigalloc", "-C", "16384"][..],
        &["-t", "ext4", "-O", "inline_data", "-I", "256"],
        &["-t", "ext4", "-O", "^64bit", "-b", "1024"],
        &["-t", "ext3", "-b", "1024"],
    ] {
        let args = [args, &["-d", tree.to_str().unwrap()]].concat();
        let device = common::mem_image("64M", &args);
        common::write_image(&device, &path);
        with(&args.join(" "), &device, &path);
    }
}

/// Numbers of the inodes that names of the image lead to, and the paths.
fn paths(inspector: &Inspector<'_>) -> Vec<(u64, String)> {
    let (mut found, mut next) = (Vec::new(), vec![String::new()]);
    while let Some(directory) = next.pop() {
        for entry in ask(inspector, &format!("dirents \"{directory}/\"")) {
            let (ino, own) = (number(&entry, "inode"), name(&entry, "name"));
            let is_name = own != "." && own != ".." && own.is_ascii() && !own.contains('"');
            if *get(&entry, "deleted") == Value::Is(true) || !is_name {
                continue;
            }
            let path = format!("{directory}/{own}");
            let records = ask(inspector, &format!("stat <{ino}>"));
            let inode = records.iter().find(|r| r.kind == "inode").unwrap();
            if name(inode, "type") == "directory" {
                next.push(path.clone());
            }
            found.push((ino, path));
        }
    }
    found
}

#[test]
fn inodes_and_their_blocks_are_those_of_debugfs() {
    needs::tools!("mke2fs", "debugfs");
    each_image(|shape, device, path| {
        let inspector = Inspector::open(&**device, true).unwrap();
        assert!(inspector.findings().is_empty(), "{shape}");
        let paths = paths(&inspector);
        assert!(paths.len() > 3, "{shape}: {paths:?}");
        // The largest mappings and a few others.
        let mut files: Vec<_> = paths
            .iter()
            .map(|(ino, path)| {
                (
                    ask(&inspector, &format!("blocks <{ino}>")).len(),
                    *ino,
                    path,
                )
            })
            .collect();
        files.sort();
        let few: Vec<_> = files
            .iter()
            .rev()
            .take(4)
            .chain(files.iter().take(3))
            .collect();
        for (_, ino, name_of) in few {
            let at = format!("<{ino}>");
            compare_inode(&inspector, path, &at, &format!("{shape} {name_of}"));
            let ours = ask(&inspector, &format!("ncheck {ino}"));
            // debugfs writes the root's slash twice before a directory.
            let theirs = debugfs(path, &format!("ncheck {ino}")).replace("//", "/");
            for row in &ours {
                let line = format!("{ino}\t{}", name(row, "path"));
                assert!(theirs.contains(&line), "{shape}: {line}: {theirs}");
            }
        }
    });
}

fn compare_inode(inspector: &Inspector<'_>, path: &Path, at: &str, what: &str) {
    let ours = ask(inspector, &format!("stat {at}"));
    let sums = ours.iter().filter(|r| r.kind == "checksum");
    assert!(
        sums.into_iter().all(|r| name(r, "checksum") == "right"),
        "{what}"
    );
    let ours = ours.iter().find(|r| r.kind == "inode").unwrap();
    let theirs = debugfs(path, &format!("stat {at}"));
    for (field, word) in [
        ("inode", "Inode: "),
        ("generation", "Generation: "),
        ("user", "User: "),
        ("group", "Group: "),
        ("size", "Size: "),
        ("links", "Links: "),
        ("sectors", "Blockcount: "),
    ] {
        assert_eq!(
            number(ours, field),
            after(&theirs, word),
            "{what} {field}: {theirs}"
        );
    }
    let mode = theirs.split("Mode:").nth(1).unwrap().trim_start();
    let mode = u64::from_str_radix(&mode[..4], 8).unwrap();
    assert_eq!(number(ours, "mode"), mode, "{what}: {theirs}");

    let place = &ask(inspector, &format!("imap {at}"))[0];
    let theirs = debugfs(path, &format!("imap {at}"));
    assert_eq!(
        number(place, "group"),
        after(&theirs, "block group "),
        "{theirs}"
    );
    assert_eq!(
        number(place, "block"),
        after(&theirs, "located at block "),
        "{theirs}"
    );

    let ours = ask(inspector, &format!("blocks {at}"));
    let blocks: Vec<u64> = ours
        .iter()
        .filter(|r| r.kind == "block")
        .map(|r| number(r, "block"))
        .collect();
    let mut sorted = blocks.clone();
    let mut theirs = numbers(&debugfs(path, &format!("blocks {at}")));
    sorted.sort_unstable();
    theirs.sort_unstable();
    theirs.retain(|&b| b != 0);
    assert_eq!(sorted, theirs, "{what}");

    for row in ours.iter().filter(|r| r.kind == "block").take(3) {
        if name(row, "state") != "written" {
            continue;
        }
        let (logical, block) = (number(row, "logical"), number(row, "block"));
        let mapped = &ask(inspector, &format!("bmap {at} {logical}"))[0];
        assert_eq!(number(mapped, "block"), block);
        let theirs = debugfs(path, &format!("bmap {at} {logical}"));
        assert_eq!(numbers(&theirs), [block], "{what}");
        let owner = &ask(inspector, &format!("icheck {block}"))[0];
        let theirs = numbers(&debugfs(path, &format!("icheck {block}")));
        assert_eq!(vec![block, number(owner, "inode")], theirs, "{what}");
        let bit = &ask(inspector, &format!("testb {block}"))[0];
        let theirs = debugfs(path, &format!("testb {block}"));
        let marked = theirs.contains("marked in use");
        assert_eq!(*get(bit, "in_use"), Value::Is(marked), "{what}: {theirs}");
    }
    compare_extents(inspector, path, at, what);
}

fn compare_extents(inspector: &Inspector<'_>, path: &Path, at: &str, what: &str) {
    let theirs = debugfs(path, &format!("extents {at}"));
    if !theirs.contains("Level Entries") {
        return;
    }
    let mut wanted = BTreeSet::new();
    for line in theirs.lines().skip(1) {
        // Level/depth, entry/entries, logical - logical, block [- block], length.
        let all = numbers(line);
        if all.len() >= 7 {
            let height = if all[0] == all[1] { 0 } else { all[1] - all[0] };
            wanted.insert((height, all[4], all[6]));
        }
    }
    let ours = ask(inspector, &format!("extents {at}"));
    let rows = ours.iter().filter(|r| r.kind == "extent");
    let found: BTreeSet<_> = rows
        .map(|r| {
            (
                number(r, "height"),
                number(r, "logical"),
                number(r, "block"),
            )
        })
        .collect();
    assert_eq!(found, wanted, "{what}: {theirs}");
}

#[test]
fn names_indexes_and_free_space_are_those_of_e2fsprogs() {
    needs::tools!("mke2fs", "debugfs", "e2freefrag", "dumpe2fs");
    let mut indexed = 0;
    each_image(|shape, device, path| {
        let inspector = Inspector::open(&**device, true).unwrap();
        let free = &ask(&inspector, "freefrag")[0];
        let out = Command::new("e2freefrag").arg(path).output().unwrap();
        let theirs = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(
            number(free, "free_blocks"),
            after(&theirs, "Free blocks: "),
            "{shape}"
        );
        // e2freefrag counts clusters with bigalloc and looks at runs by its chunks; without it the runs are the same.
        if !shape.contains("bigalloc") {
            let count = after(&theirs, "Num. free extent: ");
            assert_eq!(number(free, "free_runs"), count, "{shape}: {theirs}");
        }
        let rows = ask(&inspector, "groups");
        let out = Command::new("dumpe2fs").arg(path).output().unwrap();
        let theirs = String::from_utf8_lossy(&out.stdout).into_owned();
        for row in &rows {
            let group = number(row, "group");
            let start = theirs.find(&format!("Group {group}: ")).unwrap();
            let theirs = &theirs[start..];
            for (field, word) in [
                ("block_bitmap", "Block bitmap at "),
                ("inode_table", "Inode table at "),
            ] {
                assert_eq!(number(row, field), after(theirs, word), "{shape} {group}");
            }
        }
        for (nth, (ino, own)) in paths(&inspector).into_iter().enumerate() {
            let ours = ask(&inspector, &format!("htree <{ino}>"));
            let entries: Vec<_> = ours.iter().filter(|r| r.kind == "index-entry").collect();
            // Files without an index are sampled.
            if entries.is_empty() && nth % 16 != 0 {
                continue;
            }
            let theirs = debugfs(path, &format!("htree <{ino}>"));
            if entries.is_empty() {
                assert!(!theirs.contains("Root node dump"), "{shape} {own}");
                continue;
            }
            indexed += 1;
            for entry in entries {
                let (hash, block) = (number(entry, "hash"), number(entry, "logical"));
                let line = format!("Hash 0x{hash:08x}, block {block}");
                let plain = format!("Hash {hash:#x}, block {block}");
                assert!(
                    theirs.contains(&line) || theirs.contains(&plain),
                    "{shape} {own}: {line}: {theirs}"
                );
            }
            break;
        }
    });
    assert!(indexed > 0, "no image has an index");
}

#[test]
fn removed_names_and_journals_are_shown() {
    needs::tools!("mke2fs", "debugfs");
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let kind = KINDS.iter().find(|k| k.dirty && k.sealed).unwrap();
    let device = image::populate_sized(kind.size(), kind.args(), true, 50);
    common::write_image(&device, &path);
    let inspector = Inspector::open(&*device, false).unwrap();
    let ours = ask(&inspector, "journal");
    let theirs = debugfs(&path, "logdump -a");
    let commits = ours
        .iter()
        .filter(|r| r.kind == "journal-block" && name(r, "kind") == "commit");
    let commits: Vec<u64> = commits.map(|r| number(r, "sequence")).collect();
    assert!(!commits.is_empty());
    for sequence in commits {
        let line = format!("Found expected sequence {sequence}, type 2 (commit block)");
        assert!(theirs.contains(&line), "{theirs}");
    }
    let tags: Vec<_> = ours.iter().filter(|r| r.kind == "tag").collect();
    assert!(tags.iter().all(|r| name(r, "checksum") == "right"));
    for tag in tags {
        let line = format!("FS block {} logged at", number(tag, "home"));
        assert!(theirs.contains(&line), "{line}: {theirs}");
    }

    let device = common::mem_image("8M", &["-t", "ext4"]);
    common::write_image(&device, &path);
    let small = dir.path().join("small");
    std::fs::write(&small, b"x").unwrap();
    let script = format!(
        "write {0} kept\nwrite {0} removed\nrm removed\n",
        small.display()
    );
    let file = dir.path().join("script");
    std::fs::write(&file, script).unwrap();
    let out = Command::new("debugfs")
        .arg("-wf")
        .args([&file, &path])
        .output()
        .unwrap();
    assert!(out.status.success());
    let device = blockdev::FileDevice::open(&path, blockdev::Access::ReadOnly).unwrap();
    let inspector = Inspector::open(&device, true).unwrap();
    let ours = ask(&inspector, "ls -d /");
    let gone = ours
        .iter()
        .find(|r| *get(r, "deleted") == Value::Is(true))
        .expect("one is removed");
    assert_eq!(name(gone, "name"), "removed");
    assert!(debugfs(&path, "ls -d /").contains("removed"));
}

/// Sends every request to an image with these bytes.
fn ask_all(device: &MemDevice, blocks: u64, rng: &mut Rng) {
    let Ok(inspector) = Inspector::open(device, rng.below(2) == 0) else {
        return;
    };
    let inodes = [
        1,
        2,
        7,
        8,
        11,
        12,
        12 + rng.below(60),
        12 + rng.below(400),
        0,
        1 << 32,
    ];
    let mut lines = Vec::new();
    for (name, usage, _) in Request::table() {
        match usage {
            "" => lines.push(name.to_string()),
            "INODE" => lines.extend(inodes.map(|ino| format!("{name} <{ino}>"))),
            "INODE LOGICAL" => {
                lines.extend(inodes.map(|ino| format!("{name} <{ino}> {}", rng.below(1 << 33))));
            }
            "NUMBER..." => lines.extend(inodes.map(|ino| format!("{name} {ino}"))),
            "BLOCK" => lines.extend([(); 12].map(|()| format!("{name} {}", rng.below(blocks)))),
            "BLOCK..." => lines.push(format!("{name} 0 1 {} {}", rng.below(blocks), u64::MAX)),
            "BLOCK [COUNT]" => lines.push(format!("{name} 0 99999999")),
            "[all]" => lines.extend([name.to_string(), format!("{name} all")]),
            _ => panic!("{name} {usage}: this test has no arguments of this kind"),
        }
    }
    for line in lines {
        let request = Request::from_line(line.as_bytes()).unwrap();
        let mut count = 0u32;
        let done = inspector.answer(&request, &mut |_| {
            count += 1;
            // Answers on hostile trees are long: as when the reader of a pipe ends.
            if count < 100_000 {
                Ok(())
            } else {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
        });
        assert!(!matches!(done, Err(InspectError::Request(_))), "{line}");
    }
}

/// Every request on images broken on purpose ends, without a panic.
#[test]
fn mutants_are_shown_without_a_panic() {
    needs::tools!("mke2fs");
    let bases = bases::all();
    for seed in common::seeds(0, 20, 20_000) {
        let mut rng = Rng::new(seed);
        let (base, device, touched) = mutant::mutant(&bases, &mut rng);
        let blocks = device.to_bytes().unwrap().len() / base.block;
        ask_all(&device, blocks as u64, &mut rng);
        let inspector = Inspector::open(&device, false);
        if let Ok(inspector) = inspector {
            for block in touched {
                let request = Request::from_line(format!("dump-block {block}").as_bytes()).unwrap();
                let _ = inspector.answer(&request, &mut |_| Ok(()));
            }
        }
    }
}

/// Changes of fast commits that were not replayed are those that debugfs lists.
#[test]
fn fast_commits_are_shown() {
    needs::tools!("mke2fs", "debugfs");
    let device = common::mem_image("16M", &["-t", "ext4", "-O", "fast_commit", "-J", "size=4"]);
    let volume = common::open(&device);
    let file = volume.create_new_file("/synced").unwrap();
    file.write_all_at(&[7; 5000], 0).unwrap();
    file.sync_all().unwrap();
    volume.rename("/synced", "/renamed").unwrap();
    file.set_len(100).unwrap();
    file.sync_all().unwrap();
    assert_eq!(volume.statistics().fast_commits, 2);
    let cut = device.snapshot();
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(&cut, &path);
    let inspector = Inspector::open(&cut, false).unwrap();
    let ours: Vec<Record> = ask(&inspector, "journal")
        .into_iter()
        .filter(|r| r.kind == "fast-commit")
        .collect();
    let kinds: Vec<String> = ours.iter().map(|r| name(r, "kind")).collect();
    for kind in [
        "create",
        "link",
        "unlink",
        "inode",
        "add-range",
        "remove-range",
    ] {
        assert!(kinds.iter().any(|k| k == kind), "{kind}: {kinds:?}");
    }
    // debugfs shows another length of a removed range, so only the rest of its line is compared, and stray bytes behind names.
    let theirs = debugfs(&path, "logdump -a");
    let theirs = theirs.replace(|c: char| c.is_control() && c != '\n', "");
    let theirs: Vec<&str> = theirs
        .lines()
        .filter_map(|line| line.strip_prefix("tag "))
        .filter(|line| !line.starts_with("HEAD") && !line.starts_with("TAIL"))
        .map(|line| {
            if line.starts_with("DEL_RANGE") {
                line.rsplit_once(',').unwrap().0
            } else {
                line
            }
        })
        .collect();
    let ours: Vec<String> = ours.iter().map(as_debugfs_does).collect();
    assert_eq!(ours, theirs);
}

/// A record of a fast commit as debugfs writes it, without the length of a removed range.
fn as_debugfs_does(record: &Record) -> String {
    let ino = number(record, "inode");
    let named = |tag: &str| {
        let (parent, name) = (number(record, "parent"), name(record, "name"));
        format!("{tag}, parent {parent}, ino {ino}, name \"{name}\"")
    };
    match &*name(record, "kind") {
        "inode" => format!("INODE, inode {ino}"),
        "create" => named("CREAT_DENTRY"),
        "link" => named("ADD_ENTRY"),
        "unlink" => named("DEL_ENTRY"),
        "add-range" => {
            let [logical, physical, len] =
                ["logical", "physical", "length"].map(|field| number(record, field));
            format!("ADD_RANGE, inode {ino}, lblk {logical}, pblk {physical}, len {len}")
        }
        "remove-range" => format!("DEL_RANGE, inode {ino}, lblk {}", number(record, "logical")),
        kind => panic!("{kind}"),
    }
}
