//! `extant map`: its counts against those of dumpe2fs and debugfs, and hostile images.

use crate::cli::support::Scratch;
use serde_json::Value;
use std::collections::HashSet;
use std::process::Command;

/// Makes directories, files with one and several extents, a file with a hole, and links.
fn fill(s: &Scratch) {
    let tree = s.host("tree");
    for dir in ["a/b", "c"] {
        std::fs::create_dir_all(tree.join(dir)).unwrap();
    }
    for n in 0..40 {
        std::fs::write(tree.join(format!("a/s{n}")), [8; 100]).unwrap();
    }
    std::fs::write(tree.join("c/big"), vec![7; 3 << 20]).unwrap();
    s.ok(&["cp", "-r", "@tree/a", "@tree/c", ":/"]);
    let gone: Vec<String> = (0..40).step_by(2).map(|n| format!(":/a/s{n}")).collect();
    let rm = std::iter::once("rm").chain(gone.iter().map(String::as_str));
    s.ok(&rm.collect::<Vec<_>>());
    s.ok(&["ln", "-s", "big", ":/c/short"]);
    s.ok(&["ln", "-s", &"long/".repeat(40), ":/c/long"]);
    s.ok(&[
        "setfattr",
        "-n",
        "user.x",
        "-v",
        &"v".repeat(600),
        ":/c/big",
    ]);
    s.clean();
}

/// Returns the free blocks of each group, from dumpe2fs.
fn free_by_group(s: &Scratch) -> Vec<u64> {
    let out = Command::new("dumpe2fs").arg(&s.image).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = |l: &str| l.trim().split_once(" free blocks,")?.0.parse().ok();
    text.lines().filter_map(line).collect()
}

/// Returns the numbers of the data blocks of an inode, from debugfs.
fn data_blocks(s: &Scratch, inode: &str) -> HashSet<u64> {
    let stat = s.debugfs(&format!("stat {inode}"));
    let listed = stat
        .split_once("EXTENTS:")
        .or(stat.split_once("BLOCKS:"))
        .map_or("", |(_, rest)| rest);
    let mut found = HashSet::new();
    for part in listed.split([',', '\n']) {
        // (logical):physical, (first-last):first-last; nodes of the mapping are (ETB0), (IND) and so on.
        let Some((logical, physical)) = part.trim().split_once("):") else {
            continue;
        };
        if logical.contains(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let mut ends = physical
            .trim()
            .split('-')
            .map(|n| n.parse::<u64>().unwrap());
        let first = ends.next().unwrap();
        found.extend(first..=ends.next().unwrap_or(first));
    }
    found
}

fn inodes(s: &Scratch, directories: bool) -> Vec<String> {
    let tree = s.run(&["ls", "-R", "-a", "--json", ":"]).json();
    let kind = |e: &Value| e["type"].as_str().unwrap_or_default().to_string();
    let mut found: Vec<String> = tree
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| (kind(e) == "directory") == directories)
        .map(|e| format!("<{}>", e["ino"]))
        .collect();
    if directories {
        found.push("<2>".into());
    }
    found.sort();
    found.dedup();
    found
}

fn total(map: &Value, what: &str) -> u64 {
    map["total"][what].as_u64().unwrap()
}

fn check(size: &str, args: &[&str]) {
    let Some(s) = Scratch::mke2fs(size, args) else {
        return;
    };
    fill(&s);
    let before = s.bytes();
    let map = s.run(&["map", "--json", "%"]).json();
    assert!(s.bytes() == before, "the image is only read");
    let groups = map["groups"].as_array().unwrap();
    let free: Vec<u64> = groups.iter().map(|g| g["free"].as_u64().unwrap()).collect();
    assert_eq!(free, free_by_group(&s), "{args:?}");
    // Every block is in exactly one column.
    let columns = map["total"].as_object().unwrap();
    let all: u64 = columns.values().map(|v| v.as_u64().unwrap()).sum();
    let first = u64::from(map["block_size"] == 1024);
    assert_eq!(all + first, map["blocks"].as_u64().unwrap(), "{args:?}");
    let info = s.run(&["info", "--json", "%"]).json();
    let number = |v: &Value| v.as_u64().unwrap();
    assert_eq!(total(&map, "bitmaps"), 2 * groups.len() as u64);
    let tables: u64 = info["group_descriptors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|g| number(&g["inode_table_blocks"]))
        .sum();
    assert_eq!(total(&map, "inode_tables"), tables);
    let blocks = |names: &[String]| -> HashSet<u64> {
        names.iter().flat_map(|ino| data_blocks(&s, ino)).collect()
    };
    for (what, names) in [
        ("directories", inodes(&s, true)),
        ("files", inodes(&s, false)),
    ] {
        let found = blocks(&names);
        assert_eq!(total(&map, what), found.len() as u64, "{args:?}: {what}");
        // The counts agree for each group, too.
        let per_group = number(&map["blocks_per_group"]);
        for (nr, group) in (0..).zip(groups) {
            let start = first + nr * per_group;
            let here = found
                .iter()
                .filter(|b| (start..start + per_group).contains(b));
            assert_eq!(
                number(&group[what]),
                here.count() as u64,
                "{args:?}: {what} of {nr}"
            );
        }
    }
    let journal = if info["journal"].is_null() {
        0
    } else {
        data_blocks(&s, "<8>").len() as u64
    };
    assert_eq!(total(&map, "journal"), journal, "{args:?}");
    // Superblocks and descriptors, by dumpe2fs' lines.
    let out = Command::new("dumpe2fs").arg(&s.image).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(total(&map, "superblocks"), own_blocks(&text), "{args:?}");
    // The free runs contain all free blocks.
    let runs = map["free_runs"].as_array().unwrap();
    let in_runs: u64 = runs.iter().map(|r| number(&r["blocks"])).sum();
    assert_eq!(in_runs, free.iter().sum::<u64>());
    assert_eq!(map["damaged"], 0);
}

/// Returns the blocks of superblocks, descriptors and reserved descriptors, from dumpe2fs.
fn own_blocks(text: &str) -> u64 {
    let length = |word: &str| -> u64 {
        let range = word.trim_matches(|c: char| !c.is_ascii_digit());
        let mut ends = range.split('-').map(|n| n.parse::<u64>().unwrap());
        let first = ends.next().unwrap();
        ends.next().map_or(1, |last| last - first + 1)
    };
    let mut sum = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(3) {
            match pair {
                ["superblock", "at", at] => sum += length(at),
                ["Group", "descriptors", "at"] | ["Group", "descriptor", "at"] => {}
                ["descriptors", "at", at] | ["descriptor", "at", at] => sum += length(at),
                ["GDT", "blocks", "at"] => {}
                ["blocks", "at", at] if line.contains("Reserved GDT") => sum += length(at),
                _ => {}
            }
        }
    }
    sum
}

#[test]
fn counts_are_those_of_dumpe2fs_and_debugfs() {
    needs::tools!("mke2fs", "dumpe2fs", "debugfs");
    check("64M", &["-t", "ext4", "-b", "1024"]);
    check("300M", &["-t", "ext4", "-b", "4096"]);
    check(
        "64M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^flex_bg,^metadata_csum,^64bit",
        ],
    );
    check(
        "64M",
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    );
    check("40M", &["-t", "ext2", "-b", "1024"]);
    check("40M", &["-t", "ext4", "-O", "^has_journal"]);
}

/// The map shows the state with the kernel's journal replayed.
#[test]
fn what_is_in_the_journal_is_seen() {
    needs::tools!("debugfs");
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/dir"]);
    let before = s.run(&["map", "--json", "%"]).json();
    // A transaction that takes a block: a group's bitmap with one more bit, written by debugfs' own journal writer.
    let info = s.run(&["info", "--json", "%"]).json();
    let bitmap = info["group_descriptors"][0]["block_bitmap"]
        .as_u64()
        .unwrap();
    let dump = s.host("bitmap");
    let size = info["block_size"].as_u64().unwrap();
    let at = usize::try_from(bitmap * size).unwrap();
    let mut bytes = s.bytes()[at..at + size as usize].to_vec();
    // Reported as damage: both its checksum and the descriptor's count are wrong.
    bytes[size as usize / 2] ^= 1;
    std::fs::write(&dump, bytes).unwrap();
    let script = format!("jo -c\njw -b {bitmap} {}\njc\n", dump.display());
    debugfs(&s, &script);
    let image = s.bytes();
    let ran = s.run(&["map", "--json", "%"]);
    let map = ran.json();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(map["damaged"], 1, "{}", ran.stderr);
    assert!(map["groups"][0]["unknown"].as_u64().unwrap() > 0);
    assert_eq!(map["groups"][1], before["groups"][1]);
    assert!(s.bytes() == image, "nothing was replayed into the image");
    // Without the journal, the old bitmap counts.
    let map = s.run(&["map", "--json", "--noload", "%"]).json();
    assert_eq!(map["damaged"], 0);
}

#[test]
fn the_picture_has_a_cell_for_every_stretch() {
    let Some(s) = Scratch::ext4() else { return };
    fill(&s);
    let text = s.ok(&["map", "--width", "40", "%"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("disk.img: 32768 blocks of 1024 bytes in 4 groups; a cell is"));
    let rows: Vec<&str> = lines[1..]
        .iter()
        .copied()
        .take_while(|l| !l.is_empty())
        .collect();
    assert_eq!(rows.len(), 24, "{text}");
    let cells: Vec<&str> = rows.iter().map(|r| r.get(16..).unwrap()).collect();
    assert!(cells.iter().all(|c| c.chars().count() <= 40), "{text}");
    assert!(
        cells[0].starts_with('S'),
        "the superblock comes first: {text}"
    );
    for letter in ["I", "J", "F", "."] {
        assert!(
            cells.iter().any(|c| c.contains(letter)),
            "no {letter}: {text}"
        );
    }
    let labels: Vec<&str> = rows
        .iter()
        .map(|r| r[..16].trim())
        .filter(|l| !l.is_empty())
        .collect();
    assert_eq!(labels, ["0", "1", "2", "3"]);
    assert!(
        !text.contains('\x1b'),
        "no colours where there is no terminal"
    );
    assert!(text.contains("free runs by length"), "{text}");
    // The SVG has matching tags, and fewer rectangles than cells.
    assert_eq!(s.ok(&["map", "--svg", "@map.svg", "%"]), "");
    let svg = std::fs::read_to_string(s.host("map.svg")).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    let count = |what: &str| svg.matches(what).count();
    assert_eq!(count("<text"), count("</text>"));
    // A path for each colour and shade; every cell is in one of them, six wide.
    assert!(count("<path") >= 6 && count("<path") < 40, "{svg}");
    assert_eq!(count("<rect") + count("<path"), count("/>"));
    let widths = svg.split('h').filter_map(|piece| {
        let digits = piece
            .find(|c: char| !c.is_ascii_digit())
            .map(|end| &piece[..end])?;
        let starts = piece[digits.len()..].starts_with(['M', '"']);
        starts.then(|| digits.parse::<u64>().ok()).flatten()
    });
    // Cells of six blocks: 1366 of them for each of the four groups of 8192.
    assert_eq!(widths.sum::<u64>(), 6 * 1366 * 4, "{svg}");
}

/// Runs a script of debugfs on the image.
fn debugfs(s: &Scratch, script: &str) {
    std::fs::write(s.host("script"), script).unwrap();
    let out = Command::new("debugfs")
        .args(["-w", "-f"])
        .arg(s.host("script"))
        .arg(&s.image)
        .output()
        .unwrap();
    assert!(out.status.success());
}

#[test]
fn fragments_are_counted() {
    needs::tools!("debugfs");
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext2", "-b", "1024"]) else {
        return;
    };
    // Of 20 adjacent files every other one is removed, and a larger file fills the gaps.
    std::fs::write(s.host("one"), vec![1; 1024]).unwrap();
    let put = |files: &str| debugfs(&s, files);
    let one = s.host("one").display().to_string();
    put(&(0..20)
        .map(|n| format!("write {one} f{n}\n"))
        .collect::<String>());
    put(&(0..20)
        .step_by(2)
        .map(|n| format!("rm f{n}\n"))
        .collect::<String>());
    std::fs::write(s.host("big"), vec![2; 10 * 1024]).unwrap();
    put(&format!("write {} big\n", s.host("big").display()));
    let blocks: Vec<u64> = {
        let mut found: Vec<u64> = data_blocks(&s, "/big").into_iter().collect();
        found.sort_unstable();
        found
    };
    let pieces = 1 + blocks.windows(2).filter(|w| w[1] != w[0] + 1).count() as u64;
    assert!(pieces > 5, "{blocks:?}");
    let map = s.run(&["map", "--json", "%"]).json();
    let f = &map["fragmentation"];
    assert_eq!(
        (&f["files"], &f["fragmented"]),
        (&11.into(), &1.into()),
        "{f}"
    );
    assert_eq!(f["worst_extents"], pieces);
    assert_eq!(f["extents"], pieces + 10);
    let stat = s.run(&["stat", "--json", ":/big"]).json();
    assert_eq!(f["worst_inode"], stat[0]["ino"]);
}

/// The block map of an inode leads to the same address block a thousand times, and each entry of that block leads there again. Three
/// blocks of the image look like a file of the maximum size.
#[test]
fn a_map_that_goes_in_a_circle_ends() {
    needs::tools!("debugfs");
    let Some(s) = Scratch::mke2fs("64M", &["-t", "ext2", "-b", "4096"]) else {
        return;
    };
    std::fs::write(s.host("f"), vec![1; 4096 * 20]).unwrap();
    s.ok(&["cp", "@f", ":/f"]);
    let stat = s.debugfs("stat /f");
    let direct: Vec<u64> = {
        let mut b: Vec<u64> = data_blocks(&s, "/f").into_iter().collect();
        b.sort_unstable();
        b
    };
    assert!(direct.len() == 20, "{stat}");
    // Three blocks of the file become address blocks, each with 1024 times the next.
    let mut image = s.bytes();
    for (at, to) in [(0, 1), (1, 2), (2, 3)] {
        let start = usize::try_from(direct[at] * 4096).unwrap();
        let entry = u32::try_from(direct[to]).unwrap().to_le_bytes();
        image[start..start + 4096].copy_from_slice(&entry.repeat(1024));
    }
    std::fs::write(&s.image, image).unwrap();
    s.debugfs_write(&format!("sif /f block[TIND] {}", direct[0]));
    let start = std::time::Instant::now();
    let ran = s.run(&["map", "--json", "%"]);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("address block that has two parents"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.json()["damaged"], 1);
}

/// Memory does not grow with the number of blocks: a volume of 8 TiB in a file of a few MiB.
#[test]
fn a_large_sparse_volume_takes_little_memory() {
    let s = Scratch::empty();
    let features = "^has_journal,^resize_inode";
    s.ok(&["mkfs", "%", "--size", "8T", "-b", "4096", "-O", features]);
    let (image, extant) = (s.image.display(), env!("CARGO_BIN_EXE_extant"));
    // In less address space than a bit for each of the 2^31 blocks would take.
    let limited = format!("ulimit -v 150000; exec {extant} map --json {image}");
    let out = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    let map: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(map["groups"].as_array().unwrap().len(), 1 << 16);
    assert_eq!(map["damaged"], 0);
}

/// The largest files by their blocks, as debugfs counts them, and in pictures of both kinds.
#[test]
fn the_largest_files_have_colours_of_their_own() {
    needs::tools!("debugfs");
    let Some(s) = Scratch::ext4() else { return };
    fill(&s);
    std::fs::write(s.host("second"), vec![3; 1 << 20]).unwrap();
    s.ok(&["cp", "@second", ":/a/second <&>"]);
    let map = s.run(&["map", "--by", "file", "--json", "%"]).json();
    let files = map["largest_files"].as_array().unwrap();
    assert_eq!(files.len(), 8, "{files:?}");
    assert_eq!(files[0]["path"], "/c/big");
    assert_eq!(files[1]["path"], "/a/second <&>");
    for file in files {
        let blocks = data_blocks(&s, &format!("<{}>", file["inode"])).len();
        assert_eq!(file["blocks"], blocks as u64, "{file}");
    }
    let plain = s.run(&["map", "--json", "%"]).json();
    assert!(plain["largest_files"].is_null());
    assert_eq!(plain["total"], map["total"]);
    // Three MiB and one MiB of 32 MiB, in cells of one row each.
    let text = s.ok(&["map", "--by", "file", "--width", "40", "%"]);
    let (picture, legend) = text.split_once("\n\n").unwrap();
    let count = |letter: char| picture.matches(letter).count();
    let all = count('A') + count('B') + count('M') + count('m') + count('.');
    assert!(count('A') >= all / 14 && count('B') >= 10, "{text}");
    assert!(legend.contains("A /c/big"), "{text}");
    assert!(legend.contains("B /a/second <&>"), "{text}");
    assert!(
        legend.contains("M metadata") && legend.contains(". free"),
        "{text}"
    );
    s.ok(&[
        "map", "--by", "file", "--svg", "@map.svg", "--png", "@map.png", "%",
    ]);
    let svg = std::fs::read_to_string(s.host("map.svg")).unwrap();
    assert!(svg.contains("/a/second &lt;&amp;&gt;: 1.0M"), "{svg}");
    let png = std::io::BufReader::new(std::fs::File::open(s.host("map.png")).unwrap());
    let mut reader = png::Decoder::new(png).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width >= 800 && info.height > 400, "{info:?}");
    let of = |colour: [u8; 3]| {
        pixels
            .chunks_exact(3)
            .filter(|pixel| **pixel == colour)
            .count()
    };
    // Cells of six by nine pixels; the legend has 144 of each colour.
    let (big, second) = (of([0x1f, 0x77, 0xb4]) - 144, of([0xff, 0x7f, 0x0e]) - 144);
    assert!(big > 2 * second && second > 10 * 54, "{big} {second}");
}
