//! Files that Linux has synced survive a power cut and a repair.

use crate::it::debugfs::Image;
use crate::it::mounted::{Mounted, able};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Cuts a mounted image: copies its present state.
fn cut(mounted: Mounted, image: &Image) {
    let copy = image.path().with_extension("cut");
    std::fs::copy(image.path(), &copy).unwrap();
    mounted.unmount();
    std::fs::rename(copy, image.path()).unwrap();
}

/// Returns the files that Linux shows, after its replay of a copy.
fn by_linux(image: &Image) -> BTreeMap<PathBuf, Vec<u8>> {
    let copy = image.path().with_extension("linux");
    std::fs::copy(image.path(), &copy).unwrap();
    let mounted = Mounted::new(&copy, "");
    let mut files = BTreeMap::new();
    walk(mounted.path(), mounted.path(), &mut files);
    mounted.unmount();
    files
}

fn walk(root: &Path, dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        let name = entry.path().strip_prefix(root).unwrap().to_owned();
        if kind.is_dir() {
            files.insert(name, Vec::new());
            walk(root, &entry.path(), files);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            files.insert(name, target.into_os_string().into_encoded_bytes());
        } else {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
}

fn synced(path: &Path, content: &[u8]) -> File {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    file
}

#[test]
fn fast_commits_are_replayed() {
    if !able() {
        return;
    }
    for features in [
        "fast_commit",
        "fast_commit,^extent,^64bit",
        "fast_commit,inline_data",
    ] {
        let image = Image::new("128M", 4096, &["-O", features]);
        let mounted = Mounted::new(&image.path(), "");
        let at = |name: &str| mounted.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::create_dir(at("gone")).unwrap();
        for n in 0..600 {
            std::fs::write(at(&format!("d/there-{n:0>100}")), b"old").unwrap();
        }
        synced(&at("longer"), &[1; 30_000]);
        rustix::fs::syncfs(File::open(mounted.path()).unwrap()).unwrap();
        for n in 0..50u8 {
            synced(&at(&format!("d/f{n:02}")), &vec![n; usize::from(n) * 300]);
        }
        std::fs::remove_file(at("d/f07")).unwrap();
        std::fs::rename(at("d/f08"), at("moved")).unwrap();
        std::fs::hard_link(at("d/f09"), at("d/second")).unwrap();
        std::fs::remove_dir(at("gone")).unwrap();
        std::fs::create_dir(at("new")).unwrap();
        synced(&at("new/inside"), b"inside");
        let longer = File::options().write(true).open(at("longer")).unwrap();
        longer.set_len(5000).unwrap();
        longer.sync_all().unwrap();
        drop(longer);
        synced(&at("d/last"), &[9; 70_000]);
        // Linux itself fails to replay a reused inode number, so its tree in memory is the reference.
        let mut wanted = BTreeMap::new();
        walk(mounted.path(), mounted.path(), &mut wanted);
        cut(mounted, &image);
        let plan = image.repair(features);
        let replayed = plan
            .mends
            .iter()
            .any(|mend| mend.text.contains("fast commits"));
        assert!(replayed, "{features}: {:#?}", plan.mends);
        let found = by_linux(&image);
        for (path, content) in &wanted {
            assert!(found.get(path) == Some(content), "{features}: {path:?}");
        }
        let more: Vec<_> = found
            .keys()
            .filter(|path| !wanted.contains_key(*path))
            .collect();
        assert!(more.is_empty(), "{features}: {more:?}");
    }
}

/// Returns the blocks of the journal, each in its place in the image.
fn journal(image: &Image) -> (Vec<u64>, Vec<u8>) {
    (image.blocks("<8>"), std::fs::read(image.path()).unwrap())
}

/// Returns the type of a journal block; `None` for an image.
fn kind(bytes: &[u8], at: u64) -> Option<u32> {
    let at = at as usize;
    let word = |n: usize| u32::from_be_bytes(bytes[at + n..at + n + 4].try_into().unwrap());
    (word(0) == 0xc03b_3998).then(|| word(4))
}

/// Damages one of three transactions, each with a synced file.
#[test]
fn a_damaged_transaction_leaves_those_before_it() {
    if !able() {
        return;
    }
    let csum = "metadata_csum,64bit";
    let without = "^metadata_csum,^metadata_csum_seed,64bit";
    for (features, damaged) in [(csum, 1u32), (csum, 2), (csum, 0), (without, 1)] {
        let image = Image::new("64M", 4096, &["-O", features]);
        let mounted = Mounted::new(&image.path(), "commit=300");
        for name in ["a", "b", "c"] {
            synced(&mounted.path().join(name), &name.as_bytes().repeat(3000));
            File::open(mounted.path()).unwrap().sync_all().unwrap();
        }
        cut(mounted, &image);
        let (blocks, bytes) = journal(&image);
        let places: Vec<u64> = blocks.iter().map(|block| block * 4096).skip(1).collect();
        let commits: Vec<usize> = (0..places.len())
            .filter(|&n| kind(&bytes, places[n]) == Some(2))
            .collect();
        let (last, before) = (commits[commits.len() - 1], commits[commits.len() - 2]);
        let (at, byte) = match damaged {
            // The data in front of the last commit block.
            0 => (places[last - 1], 100),
            // The last descriptor.
            1 => (places[before + 1], 30),
            // A commit block that others follow.
            _ => (places[before], 20),
        };
        image.edit(at + byte, 1, |byte| byte[0] ^= 0x40);
        let plan = image.repair(features);
        assert!(
            plan.mends.iter().any(|mend| mend.text.contains("replayed")),
            "{:#?}",
            plan.mends
        );
        let found = by_linux(&image);
        let sound = if damaged == 2 {
            &["a"][..]
        } else {
            &["a", "b"]
        };
        for name in sound {
            let content = name.as_bytes().repeat(3000);
            assert!(
                found.get(Path::new(name)) == Some(&content),
                "{features}, {damaged}: {name}"
            );
        }
    }
}

#[test]
fn a_journal_whose_inode_is_lost_is_replayed() {
    if !able() {
        return;
    }
    let image = Image::new("64M", 4096, &[]);
    let mounted = Mounted::new(&image.path(), "commit=300");
    synced(&mounted.path().join("a"), &[7; 20_000]);
    File::open(mounted.path()).unwrap().sync_all().unwrap();
    cut(mounted, &image);
    let wanted = by_linux(&image);
    let record = image.record("<8>");
    image.edit(record, 256, |bytes| bytes.fill(0));
    image.repair("the inode of the journal");
    assert_eq!(by_linux(&image), wanted);
}

#[test]
fn values_in_inodes_that_linux_wrote_are_sound() {
    if !able() || !needs::have(&["setfattr"]) {
        return;
    }
    let image = Image::new("32M", 4096, &["-O", "ea_inode"]);
    let mounted = Mounted::new(&image.path(), "");
    for (name, len) in [("one", 3000), ("two", 30_000), ("three", 3000)] {
        let path = mounted.path().join(name);
        std::fs::write(&path, name).unwrap();
        for attribute in ["user.note", "user.other"] {
            let out = std::process::Command::new("setfattr")
                .args(["-n", attribute, "-v", &"b".repeat(len)])
                .arg(&path)
                .output();
            assert!(out.unwrap().status.success());
        }
    }
    mounted.unmount();
    image.assert_clean("values in inodes");
}

#[test]
fn an_index_that_is_given_up_leaves_leaves() {
    if !able() {
        return;
    }
    let image = Image::new("16M", 1024, &[]);
    let mounted = Mounted::new(&image.path(), "");
    std::fs::create_dir(mounted.path().join("big")).unwrap();
    for n in 0..400 {
        let name = format!("big/a_rather_long_name_for_an_entry_{n}");
        std::fs::write(mounted.path().join(name), b"").unwrap();
    }
    mounted.unmount();
    let before = image.files();
    let block = image.blocks("big")[3];
    // The first byte of a name.
    image.edit(block * 1024 + 10, 1, |byte| byte[0] = 0xff);
    image.mend("a name in an index");
    let after = image.files();
    let kept = before.keys().filter(|path| after.contains_key(*path));
    assert!(
        kept.count() >= before.len() - 1,
        "{} of {}",
        after.len(),
        before.len()
    );
}
